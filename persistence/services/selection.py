"""The revision that a GET means: the current one, that of an instant, or the one that was current at an instant."""

from __future__ import annotations

from persistence.errors import NotFoundError
from persistence.model.addresses import DocumentAddress
from persistence.model.instants import Instant
from persistence.providers.provider import Route
from persistence.services.rules import Get, must_live
from persistence.storage.storage import Revisions, position_at
from persistence.storage.stored_revision import StoredRevision


def selected(route: Route, address: DocumentAddress, get: Get, *, content: bool) -> StoredRevision:
    """Return the living revision that a GET selects, its content open if that is wanted.

    Raises:
        NotFoundError: there is none.
        DeletedError: it is a tombstone.
    """
    if get.as_of is not None:
        return must_live(_as_of(route.storage, address, get.as_of, content=content), address)
    if get.instant is None:
        return must_live(route.storage.read(address, content=content), address)
    found = route.storage.read_revision(address, get.instant, content=content)
    if found is None:
        raise NotFoundError(f"{address} has no revision of {get.instant}")
    return must_live(found, address)


def _as_of(storage: Revisions, address: DocumentAddress, moment: Instant, *, content: bool) -> StoredRevision:
    """Return the revision that was current at a moment, perhaps a tombstone.

    Raises:
        NotFoundError: there was none yet, or none is stored any more.
    """
    found = storage.read(address, content=content)
    # Another service does not say since when something is deleted, or that it was ever there: its history does.
    if found is not None and not found.sidecar.deleted and found.sidecar.modified <= moment:
        return found
    if found is not None:
        found.close()
    revisions = storage.history(address) if address.keeps_history else None
    position = 0 if revisions is None else position_at(revisions, moment)
    if revisions is not None and position < revisions.total:
        older = storage.read_revision(address, revisions.instant(position), content=content)
        if older is not None:
            return older
    raise NotFoundError(f"{address} did not exist at {moment}")
