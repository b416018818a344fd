"""Leasing documents, and keeping others from writing to a leased one, where a property asks for that (spec crud 7).

In the real system a lease does not restrict writers, and needs no permission. Where it does restrict them, the caller
must be allowed to save the document.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from persistence.dialect import Dialect
from persistence.errors import ForbiddenError, LockedError
from persistence.forms.lease_xml import read_lock, write_lock
from persistence.model.addresses import Collection, DocumentAddress
from persistence.model.leases import LeaseHolder
from persistence.model.sidecar import Sidecar
from persistence.model.users import Bearer, User
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.access import Access, subject_of


@dataclass(frozen=True, slots=True)
class Leasing:
    """LOCK and UNLOCK."""

    router: Router
    dialect: Dialect
    access: Access | None
    """``None`` behind a proxy, which has the permissions."""

    def lock(self, address: DocumentAddress, caller: Bearer, seconds: int, body: Iterable[bytes]) -> LeaseHolder:
        """Lease a document for a user, or renew the lease; return the user, whom the body names."""
        route = self._route(address)
        stored = self._admitted(route, address, caller, creates=True)
        holder = read_lock(body)
        is_by_form, is_stored = self._enforces(route), stored is not None
        route.data.leases.lock(address, holder, seconds, is_stored=is_stored, is_by_form=is_by_form)
        return holder

    def unlock(self, address: DocumentAddress, caller: Bearer, body: Iterable[bytes]) -> LeaseHolder:
        """Give a lease back; do nothing without one."""
        route = self._route(address)
        self._admitted(route, address, caller, creates=False)
        holder = read_lock(body)
        route.data.leases.unlock(address, holder, is_by_form=self._enforces(route))
        return holder

    def _admitted(self, route: Route, address: DocumentAddress, caller: Bearer, *, creates: bool) -> Sidecar | None:
        enforces = self._enforces(route)
        if route.data.managed is None and not enforces:
            return None  # another service has both, and looks
        main = address.main.moved(Collection.DATA)
        found = (route.storage.sidecar(each) for each in (main, main.moved(Collection.DRAFT)))
        stored = next((each for each in found if each is not None and not each.deleted), None)
        if self.access is not None and enforces and (stored is not None or creates):
            newest = route.catalog.latest_version(address.form) or 1
            self.access.to_write(subject_of(route, main, stored, newest), caller.user, caller.token)
        return stored

    def _enforces(self, route: Route) -> bool:
        return self.access is not None and route.properties.enforces_leases

    def _route(self, address: DocumentAddress) -> Route:
        route = self.router.of(address.form)
        if not route.properties.has_leases:
            name = f"{self.dialect.property_prefix}persistence.{route.properties.route.data.name}.lease"
            raise ForbiddenError(f"leases of {address.form} are switched off: the property {name} is false")
        return route


def holder_document(error: LockedError) -> bytes:
    """Return the document that names the holder of a lease, for the others; empty where the holder is not known."""
    return b"" if error.user is None else write_lock(LeaseHolder(error.user, error.group))


def protecting(route: Route, address: DocumentAddress, user: User) -> AbstractContextManager[None]:
    """Keep everybody else from leasing a document for a block, in which it is changed; its lock is held."""
    if not route.properties.enforces_leases:
        return nullcontext()
    return route.data.leases.protecting(address, user)
