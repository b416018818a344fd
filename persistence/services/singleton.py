"""Singleton forms: a form of which a user has one document (spec crud 4.12)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from persistence.errors import BusyError, ConflictError, DiskError
from persistence.index.protocol import SearchIndex
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.form_versions import PublishedVersion
from persistence.model.search import DraftFilter, Drafts, Query, Scope, VisibleOwners
from persistence.model.users import EVERYBODY, NOBODY, OwnerSet, User
from persistence.properties.properties import FormProperties, Properties
from persistence.services.catalog import Catalog
from persistence.services.rules import owner_of
from persistence.services.visibility import Visibility
from persistence.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class Singletons:
    """Keeps second documents of singleton forms out."""

    store: Storage
    catalog: Catalog
    properties: Properties
    visibility: Visibility
    index: SearchIndex

    @contextmanager
    def only_one(self, address: DocumentAddress, version: int, user: User, *, creates: bool) -> Iterator[None]:
        """Let a PUT go on in the block, and nobody else create a document meanwhile if the form has only one.

        Replacing a document, attachments and drafts (spec crud 16, D17) are never refused. What counts are the
        documents that the user would find: where everyone sees their own only, everyone has one.

        Raises:
            ConflictError: the user's one document is there already.
        """
        is_counted = creates and address.is_main and not address.is_draft
        if not (is_counted and self._is_singleton(address.form, version)):
            yield
            return
        with self.the_one(address.form, version, user):
            yield

    @contextmanager
    def the_one(self, form: Form, version: int, user: User) -> Iterator[None]:
        """Let the creation of the only document of a form go on in the block, and of no other meanwhile.

        Raises:
            ConflictError: the user's one document is there already.
        """
        with self.store.creating(form):
            if self._has_document(form, version, user):
                raise ConflictError(f"{form} version {version} has only one document, and it exists already")
            yield

    def _is_singleton(self, form: Form, version: int) -> bool:
        return is_singleton(self.catalog.version(form, version), self.properties.of(form))

    def _has_document(self, form: Form, version: int, user: User) -> bool:
        sight = self.visibility.of_singleton(form, version, user)
        if sight == NOBODY:
            return False
        sights = frozenset({sight} - {EVERYBODY})
        scope = Scope((version,), DraftFilter(Drafts.EXCLUDE), VisibleOwners(lambda _: sights))
        try:
            return self.index.search(form, scope, Query(size=1)).total > 0
        except (BusyError, DiskError):  # it is being made, or cannot be: no PUT depends on it
            return self._is_stored(form, version, sight)

    def _is_stored(self, form: Form, version: int, sight: OwnerSet) -> bool:
        """The same, by a look at every document."""
        addresses = (DocumentAddress(form, Collection.DATA, name, DATA_XML) for name in self.store.documents(form))
        saved = (self.store.sidecar(address) for address in addresses)
        return any(
            sidecar is not None
            and not sidecar.deleted
            and sidecar.version == version
            and sight.includes(owner_of(sidecar))
            for sidecar in saved
        )


def is_singleton(published: PublishedVersion | None, configured: FormProperties) -> bool:
    """Whether a version of a form is a singleton: as its definition says, else as the property does."""
    said = published.metadata.singleton if published is not None else None
    return configured.is_singleton if said is None else said
