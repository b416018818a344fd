"""The closed set of domain errors, and the one table that gives each its status.

The text of an error is the single line a client reads; ``one_line`` keeps foreign text from breaking it.
"""

from __future__ import annotations

import errno
import os
import re

from persistence.limits import LONGEST_CAUSE

_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\U0010ffff]+")


class PersistenceError(Exception):
    """A request that cannot be served; its text names the cause in one line."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class BadRequestError(PersistenceError):
    """A parameter, header or name that is invalid by the interface."""


class BadAddressError(BadRequestError):
    """A path whose names cannot be kept as files."""


class VersionError(BadRequestError):
    """A form version that is malformed, not allowed here, or not the stored one."""


class MalformedXmlError(BadRequestError):
    """A body that is not the well-formed XML this service stores."""


class TruncatedBodyError(BadRequestError):
    """A body that ended before its announced end."""


class StalledBodyError(TruncatedBodyError):
    """A body of which nothing more arrives."""


class UnauthorizedError(PersistenceError):
    """A caller whose key is missing or wrong."""


class ForbiddenError(PersistenceError):
    """Something that this caller may not do, or that is switched off."""


class MisdirectedError(PersistenceError):
    """A request to a host name that is not the service's."""


class NotFoundError(PersistenceError):
    """A resource that was never stored."""


class GoneError(PersistenceError):
    """A part of a list that is not kept any more: its readers must begin anew."""


class DeletedError(PersistenceError):
    """A resource whose newest revision is a tombstone."""


class LengthRequiredError(PersistenceError):
    """A PUT that announces no body: neither a length nor chunks."""


class ConflictError(PersistenceError):
    """A second document of a form that has only one."""


class PreconditionError(PersistenceError):
    """An ``If-Match`` that no longer holds; ``etag`` and ``saved`` are the current ones, where the client may know."""

    def __init__(self, text: str, *, etag: str | None = None, saved: str | None = None) -> None:
        super().__init__(text)
        self.etag = etag
        self.saved = saved


class BodyTooLargeError(PersistenceError):
    """A body over the limit of the settings."""


class EncodedBodyError(PersistenceError):
    """A body sent with a content coding, which is not undone here."""


class RangeError(PersistenceError):
    """A range that starts at or past the end; ``size`` is the length of the content in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the range starts past the end: the content has {size} bytes")
        self.size = size


class LockedError(PersistenceError):
    """A document that another user has leased; ``seconds`` are left, ``None`` where another service is silent."""

    def __init__(
        self, text: str, *, user: str | None = None, group: str | None = None, seconds: int | None = None
    ) -> None:
        super().__init__(text)
        self.user = user
        self.group = group
        self.seconds = seconds


class NotSupportedError(PersistenceError):
    """Something of the interface that this service does not do."""


class BusyError(PersistenceError):
    """A lock that was not to be had in time; ``retry_after`` is in seconds."""

    def __init__(self, text: str, retry_after: int = 1) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class ReplacedError(BusyError):
    """A revision that is not the stored one any more, although a lock was held: nothing was stored over it."""

    # It is answered 503 with `Retry-After`: the request was in order, but decided by a state that has changed since.


class OutcomeUnknownError(BusyError):
    """A change that was stored or not: the connection to the database was lost while it committed."""


class DamagedError(PersistenceError):
    """A file on disk that differs from what the service wrote."""


class DiskError(PersistenceError):
    """The disk refused; the old content stays."""


class DiskFullError(DiskError):
    """No space, no quota or no inode left."""


class ConfigurationError(PersistenceError):
    """Properties that do not decide what a request needs."""


class RemoteError(PersistenceError):
    """Another service that cannot be reached, or does not answer as it should."""


class RemoteFailureError(RemoteError):
    """Another service that failed at a request (500): what it has may be damaged."""


class RemoteTimeoutError(RemoteError):
    """Another service that does not answer in time."""


class StartupError(PersistenceError):
    """Settings or a data directory with which the service cannot start."""


STATUS: tuple[tuple[type[PersistenceError], int], ...] = (
    (StalledBodyError, 408),
    (BadRequestError, 400),
    (UnauthorizedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (DeletedError, 410),
    (GoneError, 410),
    (LengthRequiredError, 411),
    (PreconditionError, 412),
    (BodyTooLargeError, 413),
    (EncodedBodyError, 415),
    (RangeError, 416),
    (MisdirectedError, 421),
    (LockedError, 423),
    (NotSupportedError, 501),
    (RemoteTimeoutError, 504),
    (RemoteError, 502),
    (BusyError, 503),
    (DiskFullError, 507),
    (DiskError, 500),
    (DamagedError, 500),
    (ConfigurationError, 500),
)  # Error to status (spec crud 4.1 and 4.2). A read of a deleted resource is the dialect's to decide


def status_of(error: PersistenceError) -> int:
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def one_line(text: str) -> str:
    """Printable text on one line of bounded length: fit for a log, an answer or a header."""
    # A long one loses its middle, most likely the caller's own words: its subject and its remedy stay.
    clean = _NOT_PRINTABLE.sub(" ", text).strip()
    if len(clean) <= LONGEST_CAUSE:
        return clean
    end = LONGEST_CAUSE // 2
    return f"{clean[: LONGEST_CAUSE - end - 1]}…{clean[-end:]}"


_FULL = {errno.ENOSPC, errno.EDQUOT}


class disk_errors:  # noqa: N801 - a context manager, named like those of contextlib
    """Translate an ``OSError`` of a block into ``DiskFullError`` or ``DiskError`` with the action and its object."""

    # Every request would enter several: where it costs, an `except OSError` raises `as_disk_error` instead.
    __slots__ = ("_doing", "_what")

    def __init__(self, doing: str, what: object = "") -> None:
        self._doing = doing
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise as_disk_error(error, self._doing, self._what) from error


def as_disk_error(error: OSError, doing: str, what: object = "") -> DiskError:
    """Return the domain error for an error of the operating system; a full disk is a ``DiskFullError``."""
    kind, path, where = DiskFullError if error.errno in _FULL else DiskError, error.filename, ""
    if isinstance(path, str) and "/" in path:  # its last names: the first must not be shown
        where = f" ({'/'.join(path.rsplit('/', 2)[1:])})"
    return kind(f"{f'{doing} {what}'.rstrip()}: {os.strerror(error.errno or errno.EIO)}{where}")
