"""Singleton forms: a form of which a user has one document (spec crud 4.12)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from persistence.definitions.catalog import Definition
from persistence.errors import BusyError, ConflictError, DiskError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress
from persistence.model.form_versions import PublishedVersion
from persistence.model.search import DraftFilter, Drafts, Query, Scope, VisibleOwners
from persistence.model.users import EVERYBODY, NOBODY, OwnerSet, User
from persistence.properties.properties import FormProperties
from persistence.providers.provider import Route
from persistence.services.search_scope import singleton_sight


@contextmanager
def only_document(route: Route, definition: Definition, user: User) -> Iterator[None]:
    """Let the creation of a user's only document of a form go on in the block, and of no other meanwhile.

    Counted are the documents that the user would find: where everyone sees their own only, everyone has one.

    Raises:
        ConflictError: the user's one document is there already.
    """
    form, version = definition.form, definition.version
    with route.storage.creating(form):
        if _has_document(route, definition, user):
            raise ConflictError(f"{form} version {version} has only one document, and it exists already")
        yield


def is_singleton(published: PublishedVersion | None, configured: FormProperties) -> bool:
    """Return whether a version of a form is a singleton: as its definition says, else as the property does."""
    said = published.metadata.singleton if published is not None else None
    return configured.is_singleton if said is None else said


def _has_document(route: Route, definition: Definition, user: User) -> bool:
    sight = singleton_sight(route, definition, user)
    if sight == NOBODY:
        return False
    sights = frozenset({sight} - {EVERYBODY})
    scope = Scope((definition.version,), DraftFilter(Drafts.EXCLUDE), VisibleOwners(lambda _: sights))
    try:
        return route.data.index.search(definition.form, scope, Query(size=1)).total > 0
    except (BusyError, DiskError):  # it is being built, or cannot be: no PUT depends on it
        return _is_stored(route, definition, sight)


def _is_stored(route: Route, definition: Definition, sight: OwnerSet) -> bool:
    """Look at every document."""
    form = definition.form
    addresses = (DocumentAddress(form, Collection.DATA, name, DATA_XML) for name in route.storage.documents(form))
    saved = (route.storage.sidecar(address) for address in addresses)
    return any(
        sidecar is not None
        and not sidecar.deleted
        and sidecar.version == definition.version
        and sight.includes(sidecar.facts.owner)
        for sidecar in saved
    )
