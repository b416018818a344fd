"""The contract of a provider behind the proxy of a runtime, which has decided already (spec crud 2 and 11).

The proxy sends a HEAD before each PUT and DELETE, and says what it has found: that decides whether a resource is
created or replaced, and who may do so. What nobody but the provider can tell is still told under the lock: a version
that is not the stored one, an ``If-Match`` that held for the proxy and does not any more, a second document of a form
that has only one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from persistence.dialect import Dialect
from persistence.errors import BadAddressError
from persistence.model import versions
from persistence.model.addresses import DocumentAddress, Form
from persistence.model.preconditions import Precondition
from persistence.model.users import ANONYMOUS
from persistence.model.versions import ABSENT
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.definitions import Definitions
from persistence.services.documents import admitted, admitted_to_write, require_published, selected
from persistence.services.receiving import receiving
from persistence.services.requests import Delete, Get, Origin, Put
from persistence.services.results import Cleared, Read, Removed, Written
from persistence.services.rules import check_precondition, living, next_revision, tombstone_of, tombstone_over
from persistence.services.singleton import only_document
from persistence.storage.stored_revision import StoredRevision


@dataclass(frozen=True, slots=True)
class DefinitionsBehindProxy:
    """Form definitions of versions that are always named. Methods raise the domain errors of ``persistence.errors``."""

    definitions: Definitions

    def read(self, form: Form, name: str, get: Get) -> Read:
        """One file of the version named."""
        versions.must_be_sent(get.version.number, form)
        return self.definitions.read(form, name, get)

    def write(self, form: Form, name: str, put: Put, chunks: Iterable[bytes]) -> Written:
        """Publish one file: 201 unless the proxy has found what it replaces."""
        versions.must_be_sent(put.version.number, form)
        put = replace(put, origin=_nobodys(put.origin))
        return replace(self.definitions.write(form, name, put, chunks), created=_creates(put))

    def delete(self, form: Form, name: str, delete: Delete) -> Removed:
        """Leave a tombstone, whatever is stored."""
        versions.must_be_sent(delete.version.number, form)
        return self.definitions.delete(form, name, replace(delete, origin=_nobodys(delete.origin)))


@dataclass(frozen=True, slots=True)
class DocumentsBehindProxy:
    """Form data and drafts without permissions, which the proxy has checked.

    Methods raise the domain errors of ``persistence.errors``.
    """

    router: Router
    dialect: Dialect

    def read(self, address: DocumentAddress, get: Get) -> Read:
        """Return a revision of any version; an attachment also without its ``data.xml``, which the proxy looks for."""
        route = self.router.of(address.form)
        admitted(self.dialect, route, address, ABSENT, get.data_format if get.content else None)
        return Read(address, selected(route, address, get, content=get.content), None)

    def write(self, address: DocumentAddress, put: Put, chunks: Iterable[bytes]) -> Written:
        """Store a revision, as a creation unless the proxy has found what it replaces.

        A document that is there all the same goes into the history, as always: the proxy may have looked too early.
        """
        route = self.router.of(address.form)
        version = versions.must_be_sent(admitted_to_write(self.dialect, route, address, put), address)
        _check(route, address, put.precondition, version, route.storage.read(address, content=False))
        self._require_published(route, version)
        checking = route.data.index.checking(route.index_catalog.of(address.form, version)) if address.is_main else None
        receipt = receiving(route.storage, address, put.content_type, chunks, checking)
        with receipt as (upload, received), route.storage.writing(address) as writer:
            over = writer.current(address)
            _check(route, address, put.precondition, version, over)
            self._require_published(route, version)
            put = replace(put, origin=_with_organization(put.origin, living(over)))
            sidecar = next_revision(put, received, version, over=over, owner=put.user)
            with _only_one(route, address, put, version):
                sidecar = writer.commit(address, sidecar, upload, over=over)
            if address.is_main and not address.is_draft:
                writer.discard_draft(address.form, address.document)
        return Written(address, sidecar, _creates(put), None)

    def _require_published(self, route: Route, version: int) -> None:
        """Look at the definition only where the property says so: another service may have it."""
        if route.properties.needs_publication:
            require_published(self.dialect, route, route.catalog.of(route.form, version))

    def delete(self, address: DocumentAddress, delete: Delete) -> Removed:
        """Leave a tombstone, whatever is stored; of a draft, nothing."""
        route = self.router.of(address.form)
        version = versions.must_be_sent(admitted(self.dialect, route, address, delete.version, None), address)
        with route.storage.writing(address) as writer:
            own = writer.current(address)
            _check(route, address, delete.precondition, version, own)
            tombstone = None
            if not address.is_draft:
                tombstone = writer.delete(address, tombstone_over(own, version, delete), over=own)
            elif not address.is_main and own is not None:
                writer.purge(address, tombstone_of(own, delete.user), over=own)
            if address.is_main:
                writer.discard_draft(address.form, address.document)
        return Removed(address, version, tombstone, None)

    def delete_all(self, form: Form, delete: Delete) -> Cleared:  # noqa: ARG002 - as the proxy's own face has it
        """There is no such path: the proxy searches, and deletes one document after the other.

        Raises:
            BadAddressError: always.
        """
        raise BadAddressError(f"all data of {form} is deleted by the proxy, one document after the other")


def _check(
    route: Route, address: DocumentAddress, precondition: Precondition, version: int, stored: StoredRevision | None
) -> None:
    """Refuse what the proxy would have refused, had it seen what is stored now."""
    own, main = living(stored), None
    if not address.is_main:
        main = living(route.storage.read(address.main, content=False))
    check_precondition(precondition, address, own, main)
    for found, where in ((own, address), (main, address.main)):
        if found is not None:
            versions.must_equal(version, found.sidecar.version, where)


def _only_one(route: Route, address: DocumentAddress, put: Put, version: int) -> AbstractContextManager[None]:
    if not (put.is_singleton and _creates(put) and address.is_main and not address.is_draft):
        return nullcontext()
    return only_document(route, route.catalog.of(address.form, version), put.user)


def _creates(put: Put) -> bool:
    return put.origin is None or put.origin.created is None


def _nobodys(origin: Origin | None) -> Origin | None:
    """Definitions have no owner (spec crud 4.4)."""
    return None if origin is None else replace(origin, owner=ANONYMOUS)


def _with_organization(origin: Origin | None, stored: StoredRevision | None) -> Origin | None:
    """The proxy does not say the organization of an owner that it has found; the stored owner's is known."""
    if origin is None or origin.created is None or stored is None or stored.sidecar.creator != origin.owner.name:
        return origin
    return replace(origin, owner=replace(origin.owner, organization=stored.sidecar.organization))
