"""Faults that keep SQLite from its work: a damaged file, others who use it, a full disk."""

from __future__ import annotations

import errno
import os
import sqlite3

import msgspec

from persistence.errors import BusyError, DiskError, DiskFullError
from persistence.index.sqlite import schema
from persistence.storage import files
from persistence.storage.layout import SPOOL

EngineError = sqlite3.Error
"""Any error of the engine, for those who may not know which engine it is."""

_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_RANGE,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_CONSTRAINT,
    }
)
_TRANSIENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
    }
)
_GONE = frozenset({sqlite3.SQLITE_READONLY_DBMOVED})
_OF_DAMAGE = "user-defined function raised exception", "invalid fts5 file format", "vtable constructor failed"
"""Errors of statements that damage makes: functions of one's own fail only where a card cannot be read."""

SENSELESS = (LookupError, TypeError, ValueError, StopIteration, msgspec.DecodeError)
"""Errors of reading an index whose bytes have changed where SQLite does not notice."""

_RETRY_AFTER = 2

_LEAST = 1 << 20
"""Bytes that must be free: much more than SQLite maps at a time."""
_LEAST_INODES = 16
"""Files that can still be made: an index has four, and another one may be made beside it."""
_TRIAL = 1 << 16
"""Bytes that are written where the numbers of the file system may not tell the truth."""
_USED_UP = (errno.ENOSPC, errno.EDQUOT)


class UnusableError(Exception):
    """An index that must be rebuilt: it is damaged, or was made by another version of the service."""


class OutdatedError(UnusableError):
    """An index that was made by another version of the service."""


def code_of(error: sqlite3.Error) -> int:
    """Return the primary code of an error; 0 where SQLite gave none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def shows_damage(error: sqlite3.Error, connection: sqlite3.Connection) -> bool:
    """Return whether an error shows that a file is damaged; otherwise it is the disk, or others are busy with it.

    If SQLite refuses a statement, the tables tell, seen through ``connection``: where these are as they should be, the
    statement is at fault, and a rebuilt index would not understand it either.
    """
    code = getattr(error, "sqlite_errorcode", None)
    if code is None or code in _GONE:
        return True
    if code & 0xFF != sqlite3.SQLITE_ERROR:
        return (code & 0xFF) in _DAMAGE
    if any(text in str(error) for text in _OF_DAMAGE):
        return True
    try:
        return not schema.is_whole(connection)
    except sqlite3.Error:
        return True


def is_lost(error: sqlite3.Error) -> bool:
    """Return whether a file is damaged as a whole. A file that cannot be opened may be in order."""
    return code_of(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_transient(error: sqlite3.Error) -> bool:
    """Return whether an error says nothing about the content of a file."""
    return code_of(error) in _TRANSIENT


def as_told(error: sqlite3.Error, what: str) -> DiskError | BusyError:
    """Return the domain error for one that says nothing about the content of a file; ``what`` was being used."""
    text = f"{what}: {error}"
    match code_of(error):
        case sqlite3.SQLITE_FULL:
            return DiskFullError(text)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BusyError(text, _RETRY_AFTER)
        case _:
            return DiskError(text)


def require_room(root: str) -> None:
    """Make sure that SQLite has room to write below a root.

    It keeps an index's shared memory in a file that it maps. Where the disk is too full for the next page of that, the
    system kills the process (SIGBUS). Where there is no inode for that file, SQLite reports a damaged index.

    Raises:
        OSError: ``ENOSPC``, there is no room.
    """
    status = os.statvfs(root)
    is_short_of_inodes = status.f_files and status.f_favail < _LEAST_INODES  # some file systems do not count them
    if is_short_of_inodes or status.f_bavail * status.f_frsize < _LEAST:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_full(root: str) -> bool:
    """Try whether the disk is full, whatever the file system says: some count otherwise, or keep to a quota.

    SQLite reports this as any other error of the disk.
    """
    try:
        descriptor = files.open_unnamed(f"{root}/{SPOOL}")
        if descriptor is None:
            return False
        try:
            files.write_all(descriptor, bytes(_TRIAL))
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno in _USED_UP
    return False
