"""Errors of the database as domain errors: the only place that knows their codes.

No text has a password: libpq names hosts, database and user, and ``address`` refuses what it cannot read.
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
    ((codes.UndefinedTable, codes.UndefinedColumn), ConfigurationError, "the tables are not those of this version: "),
    ((codes.InsufficientPrivilege,), ConfigurationError, ""),
    ((psycopg.OperationalError, psycopg.InterfaceError), BusyError, _UNAVAILABLE),
)
"""First match first, with the domain error and its text; the message of the database follows one that ends in ``: ``.
"""


class database_errors:  # noqa: N801 - a context manager, named like those of contextlib
    """Translate the errors of the database in a block into domain errors that name the action and its subject."""

    __slots__ = ("_action", "_subject")

    def __init__(self, action: str, subject: object = "") -> None:
        self._action = action
        self._subject = subject

    def __enter__(self) -> None: ...

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, psycopg.Error):
            raise as_domain_error(error, self._action, self._subject) from error


def as_domain_error(error: psycopg.Error, action: str, subject: object = "") -> PersistenceError:
    action = f"{action} {subject}".rstrip()
    found = ((domain, text) for kinds, domain, text in _KINDS if isinstance(error, kinds))
    domain, text = next(found, (DiskError, ""))
    message = f"{action}: {text if text and not text.endswith(': ') else text + cause(error)}"
    if domain is BusyError:
        return BusyError(message, RETRY_AFTER if text.startswith("the database") else 1)
    return domain(message)


def is_elsewhere(error: BaseException) -> bool:
    """Return whether another server is the one to write to now: connections to this one must end."""
    return isinstance(error, codes.ReadOnlySqlTransaction)


class UnconfirmedError(psycopg.OperationalError):
    """A commit waits for synchronous replicas; it is not undone, but they may never confirm it."""


def outcome_unknown(error: psycopg.Error, action: str, subject: object) -> OutcomeUnknownError:
    """Return the error for a connection that was lost, or given up, while it committed."""
    message = "the commit was not confirmed" if isinstance(error, UnconfirmedError) else _LOST
    return OutcomeUnknownError(
        f"{action} {subject}: {message} ({cause(error)}): whether it is stored, the entity tag says", RETRY_AFTER
    )


def cause(error: psycopg.Error) -> str:
    """Return the first line of the message."""
    text = error.diag.message_primary or str(error)
    return text.strip().partition("\n")[0]
