"""What another service means by a status that is no success, as an error of this one (spec crud 13)."""

from __future__ import annotations

from collections.abc import Mapping

from persistence.errors import (
    BadRequestError,
    BodyTooLargeError,
    BusyError,
    ConflictError,
    DeletedError,
    DiskFullError,
    ForbiddenError,
    LockedError,
    NotFoundError,
    NotSupportedError,
    PersistenceError,
    PreconditionError,
    RemoteError,
)

_PASSED_ON: Mapping[int, type[PersistenceError]] = {
    400: BadRequestError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: DeletedError,
    412: PreconditionError,
    413: BodyTooLargeError,
    423: LockedError,
    501: NotSupportedError,
    507: DiskFullError,
}
_BUSY = (429, 503)
_LONGEST_WAIT = 60


def refusal(who: str, what: str, status: int, line: str, retry_after: str | None = None) -> PersistenceError:
    """The error for a refusal: its own where it concerns the client, else that this service got no good answer.

    ``who`` is the provider, ``what`` was asked for, and ``line`` is what the answer says, if anything.
    """
    said = f"provider {who!r} says: {line}" if line else f"provider {who!r} answers {what} with {status}"
    if status in _BUSY:
        seconds = int(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else 1
        return BusyError(said, min(max(seconds, 1), _LONGEST_WAIT))
    kind = _PASSED_ON.get(status)
    if kind is not None:
        return kind(said)
    return RemoteError(f"{said} ({status})" if line else said)
