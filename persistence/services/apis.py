"""The services of the public API and of the provider API, which in some dialects is behind a proxy (spec crud 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from persistence.errors import BadAddressError, BadRequestError
from persistence.limits import LONGEST_SHOWN
from persistence.model import versions
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.permissions import Admin
from persistence.model.sidecar import Sidecar
from persistence.model.texts import in_latin_1
from persistence.model.versions import ABSENT, VersionRequest
from persistence.providers.router import Provider, Route, Router, only
from persistence.services import rules
from persistence.services.codec import AS_STORED, Codec
from persistence.services.definitions import Definitions
from persistence.services.documents import Decision, Documents, Leasing, counts, protecting, selected
from persistence.services.forced_deletes import ForcedDeletes, PurgeOf
from persistence.services.histories import Histories, Reverting, RevisionDiffs
from persistence.services.searching import PublishedForms, Searching
from persistence.services.transforms import Attachments
from persistence.storage.stored_revision import StoredRevision

# Documents of a provider behind a proxy, which has decided already (spec crud 2 and 11).
#
# The proxy of a runtime sends a HEAD before each PUT and DELETE, and reports what it has found. The versions,
# preconditions and singleton forms that only the provider knows are still decided under the lock.


class DocumentsBehindProxy(Documents):
    """Form data and drafts without permissions, which the proxy has checked."""

    __slots__ = ()

    def read(self, address: DocumentAddress, get: rules.Get) -> rules.Read:
        """Return a revision of any version; an attachment also without its ``data.xml``, which the proxy looks for."""
        route = self.router.of(address.form)
        _require_format(get.data_format if get.content else None)
        super().admitted(route, address, ABSENT, None)
        return rules.Read(address, selected(route, address, get, content=get.content), None)

    def admitted(self, route: Route, address: DocumentAddress, asked: VersionRequest, data_format: str | None) -> int:
        _require_format(data_format)
        return versions.must_be_sent(super().admitted(route, address, asked, None), address)

    def decided(
        self, route: Route, address: DocumentAddress, put: rules.Put, number: int | None, over: StoredRevision | None
    ) -> Decision:
        """Decide as the proxy has: it is a creation unless the proxy has found a document to replace."""
        # A stored document is updated in any case: proxies before 2023.1.4 do not report what they have found (spec
        # runtime 2), and others may have looked too early.
        version = versions.must_be_sent(number, address)
        own, _ = self.checked(route, address, over, put, version)
        if route.properties.needs_publication:  # looked at only then: another service may have the definition
            self.require_published(route, route.catalog.of(route.form, version))
        creates = put.origin is None and own is None
        put = replace(put, origin=_as_stored(put.origin, own))
        is_only = put.is_singleton and creates and counts(address)
        definition = route.index_catalog.of(route.form, version)
        return Decision(put, version, over, definition, None, creates, is_only)

    def decided_to_delete(
        self,
        route: Route,
        address: DocumentAddress,
        delete: rules.Delete,
        number: int | None,
        current: StoredRevision | None,
    ) -> tuple[rules.Removed, Sidecar]:
        """Leave a tombstone, even if nothing is stored."""
        version = versions.must_be_sent(number, address)
        self.checked(route, address, current, delete, version)
        return rules.Removed(version, None, None), rules.tombstone_over(current, version, delete)

    def may_read(self, asked: rules.Put | rules.Delete, own: DocumentAddress, address: DocumentAddress) -> bool:  # noqa: ARG002 - inherited
        """Return true: the proxy has let the caller in."""
        return True

    def discard_draft(self, form: Form, document: str, delete: rules.Delete) -> rules.Removed:
        """Remove a draft: perhaps only attachments, whose records another service has (spec crud 11)."""
        address = DocumentAddress(form, Collection.DRAFT, document)
        route, version = self.router.of(form), versions.must_be_sent(delete.version.number, address)
        with route.storage.writing(address) as writer, protecting(route, address, delete.user):
            writer.discard_draft(form, document)
        return rules.Removed(version, None, None)

    def delete_all(self, form: Form, delete: rules.Delete) -> rules.Cleared:  # noqa: ARG002 - inherited
        """Refuse: the proxy searches, and deletes one document after the other."""
        raise BadAddressError(f"all data of {form} is deleted by the proxy, one document after the other")


def _require_format(asked: str | None) -> None:
    if asked and asked != rules.RAW and not versions.is_data_format(asked):
        raise BadRequestError(f"data-format-version is not a version such as 2021.1.0: {asked[:LONGEST_SHOWN]!r}")


def _as_stored(origin: rules.Origin | None, stored: StoredRevision | None) -> rules.Origin | None:
    """Return the owner that a proxy has found as it is stored."""
    # The proxy does not know the owner's organization, nor characters that Latin-1 lacks (spec runtime 3).
    if origin is None or stored is None:
        return origin
    owner, known = origin.owner, stored.sidecar.facts.owner
    if known.group is not None and in_latin_1(known.group) == owner.group:
        owner = replace(owner, group=known.group)
    if known.name is not None and in_latin_1(known.name) == owner.name:
        owner = replace(owner, name=known.name, organization=known.organization)
    return replace(origin, owner=owner)


@dataclass(frozen=True, slots=True)
class Services:
    """The services behind the requests of one API."""

    definitions: Definitions
    documents: Documents
    leasing: Leasing
    attachments: Attachments
    histories: Histories
    reverting: Reverting
    forms: PublishedForms
    searching: Searching
    router: Router
    forced_deletes: ForcedDeletes

    @classmethod
    def public(
        cls,
        router: Router,
        access: rules.Access,
        admins: Sequence[Admin] = (),
        codec: Codec = AS_STORED,
        purge_of: PurgeOf = lambda _: None,
    ) -> Services:
        """Wire the services of the public API; ``codec`` translates between clients and storage."""
        dialect = access.dialect
        documents = Documents(router, dialect, access)
        served = replace(documents, codec=codec)
        forms = PublishedForms(router, admins, is_strict=dialect.is_strict)
        return cls(
            definitions=Definitions(router, refuses_marks=True),
            documents=served,
            leasing=Leasing(router, dialect, access),
            attachments=Attachments(documents),
            histories=Histories(router, access, RevisionDiffs(served)),
            reverting=Reverting(documents),
            forms=forms,
            searching=Searching(router, dialect, forms),
            router=router,
            forced_deletes=ForcedDeletes(documents, access, purge_of),
        )

    @classmethod
    def of_provider(
        cls, provider: Provider, router: Router, access: rules.Access, admins: Sequence[Admin], purge_of: PurgeOf
    ) -> Services:
        """Wire the services of the provider API for a provider; in some dialects behind a proxy (spec crud 11)."""
        # Definitions are read and published there, while rules go by the definitions that ``router`` finds.
        dialect, definitions = access.dialect, only(provider, router.properties)
        wired = cls.public(router, access, admins, purge_of=purge_of)
        if not dialect.has_proxy:
            return replace(wired, definitions=Definitions(definitions, refuses_marks=True))
        served = DocumentsBehindProxy(router, dialect, access)
        return replace(
            wired,
            definitions=Definitions(definitions, is_behind_proxy=True),
            documents=served,
            leasing=Leasing(router, dialect, None),
            forms=PublishedForms(router, admins, is_strict=dialect.is_strict, filters=False),
            histories=Histories(router, None, RevisionDiffs(served)),
            reverting=Reverting(served),
            forced_deletes=ForcedDeletes(served, None, purge_of),
        )
