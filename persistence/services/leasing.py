"""Leasing documents, and keeping others from writing to a leased one, where a property asks for that (spec crud 7).

The real system does not look at leases when something is written. Whoever may reach a document's path may lease it:
neither permissions nor versions are checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from persistence.dialect import Dialect
from persistence.errors import ForbiddenError, LockedError
from persistence.forms.lease_xml import read_lock, write_lock
from persistence.model.addresses import DocumentAddress
from persistence.model.leases import LeaseHolder
from persistence.model.users import User
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.storage.storage import Leases


@dataclass(frozen=True, slots=True)
class Leasing:
    """LOCK and UNLOCK. Methods raise the domain errors of ``persistence.errors``."""

    router: Router
    dialect: Dialect

    def lock(self, address: DocumentAddress, seconds: int, body: Iterable[bytes]) -> LeaseHolder:
        """Lease a document for a user, or renew the lease; return the user, whom the body names.

        Raises:
            LockedError: somebody else holds it.
            ForbiddenError: the provider of the form has no leases.
        """
        leases, holder = self._leases(address), read_lock(body)
        leases.lock(address, holder, seconds)
        return holder

    def unlock(self, address: DocumentAddress, body: Iterable[bytes]) -> LeaseHolder:
        """Give a lease back; do nothing without one. Returns and raises as ``lock``."""
        leases, holder = self._leases(address), read_lock(body)
        leases.unlock(address, holder)
        return holder

    def _leases(self, address: DocumentAddress) -> Leases:
        route = self.router.of(address.form)
        if not route.properties.has_leases:
            name = f"{self.dialect.property_prefix}persistence.{route.properties.route.data.name}.lease"
            raise ForbiddenError(f"leases of {address.form} are switched off: the property {name} is false")
        return route.data.leases


def holder_document(error: LockedError) -> bytes:
    """Return the document that names the holder of a lease, for the others; empty where the holder is not known."""
    return b"" if error.user is None else write_lock(LeaseHolder(error.user, error.group))


def require_unleased(route: Route, address: DocumentAddress, user: User) -> None:
    """Refuse to write early, before a body is received; ``protecting`` decides.

    Raises:
        LockedError: somebody else has leased the document.
    """
    if route.properties.enforces_leases:
        route.data.leases.require(address, user)


def protecting(route: Route, address: DocumentAddress, user: User) -> AbstractContextManager[None]:
    """Keep everybody else from leasing a document for a block, in which it is changed; its lock is held.

    Raises:
        LockedError: somebody else has leased it.
    """
    if not route.properties.enforces_leases:
        return nullcontext()
    return route.data.leases.protecting(address, user)
