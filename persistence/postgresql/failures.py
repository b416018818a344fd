"""Errors of the database as domain errors: the only place that knows their codes.

No text of an error has a password: libpq names hosts, database and user, and ``address`` refuses what it cannot read.
"""

from __future__ import annotations

from types import TracebackType

import psycopg
from psycopg import errors as codes

from persistence.errors import (
    BusyError,
    ConfigurationError,
    DamagedError,
    DiskError,
    DiskFullError,
    OutcomeUnknownError,
    PersistenceError,
)

RETRY_AFTER = 5
"""Seconds after which a client may try again where the database cannot be had."""

_UNAVAILABLE = "the database cannot be had: "
_LOST = "the connection to the database was lost within the commit"
_KINDS: tuple[tuple[tuple[type[psycopg.Error], ...], type[PersistenceError], str], ...] = (
    ((codes.LockNotAvailable,), BusyError, "another request has the lock"),
    ((codes.QueryCanceled,), BusyError, "the database took too long"),
    ((codes.SerializationFailure, codes.DeadlockDetected), BusyError, ""),
    ((codes.ReadOnlySqlTransaction,), BusyError, "the database can only be read: it is a replica, or made read-only"),
    ((codes.DiskFull,), DiskFullError, ""),
    ((codes.DataCorrupted, codes.IndexCorrupted), DamagedError, ""),
    ((codes.IoError, codes.SystemError), DiskError, ""),
    ((codes.UndefinedTable, codes.UndefinedColumn), ConfigurationError, "it has not the tables of this version: "),
    ((codes.InsufficientPrivilege,), ConfigurationError, ""),
    ((psycopg.OperationalError, psycopg.InterfaceError), BusyError, _UNAVAILABLE),
)
"""Errors of the database, first match first, with the domain error and its text; one that ends in ``: `` goes on."""


class database_errors:  # noqa: N801 - a context manager, named like those of contextlib
    """Translate the errors of the database in a block into domain errors that name the action and its object.

    Raises:
        BusyError: the database cannot be had at the moment, or a lock or a statement took too long.
        DiskFullError: it has no room left.
        DiskError: it refused.
        DamagedError: what it has is damaged.
        ConfigurationError: it has not the tables, or does not allow something.
    """

    __slots__ = ("_doing", "_what")

    def __init__(self, doing: str, what: object = "") -> None:
        self._doing = doing
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, psycopg.Error):
            raise as_domain_error(error, self._doing, self._what) from error


def as_domain_error(error: psycopg.Error, doing: str, what: object = "") -> PersistenceError:
    action = f"{doing} {what}".rstrip()
    found = ((domain, text) for kinds, domain, text in _KINDS if isinstance(error, kinds))
    domain, text = next(found, (DiskError, ""))
    said = text if text and not text.endswith(": ") else text + cause(error)
    if domain is BusyError:
        return BusyError(f"{action}: {said}", RETRY_AFTER if text.startswith("the database") else 1)
    return domain(f"{action}: {said}")


def is_elsewhere(error: BaseException) -> bool:
    """Return whether an error says that another server has become the one to write to: connections to it must end."""
    return isinstance(error, codes.ReadOnlySqlTransaction)


class UnconfirmedError(psycopg.OperationalError):
    """A commit waits for synchronous replicas; it is not undone, but they may never confirm it."""


def outcome_unknown(error: psycopg.Error, doing: str, what: object) -> OutcomeUnknownError:
    """Return the error for a connection that was lost, or given up, while it committed."""
    said = "the commit was not confirmed" if isinstance(error, UnconfirmedError) else _LOST
    return OutcomeUnknownError(
        f"{doing} {what}: {said} ({cause(error)}): whether it is stored, the entity tag says", RETRY_AFTER
    )


def cause(error: psycopg.Error) -> str:
    """Return the first line of what the database or the library says."""
    text = error.diag.message_primary or str(error)
    return text.strip().partition("\n")[0]
