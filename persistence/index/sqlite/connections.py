"""Connections to the files of the engine, the check that one is an index of this version, and the errors of SQLite.

Only SQLite may open such a file: closing it would release the locks that this process has on it, which others
would no longer respect (SQLite, How To Corrupt An SQLite Database File, 2.2).
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

import msgspec

from persistence.errors import BusyError, DiskError, DiskFullError, as_disk_error
from persistence.index.sqlite.state import SCHEMA, SCHEMA_FACT, is_whole, read_fact
from persistence.storage import files
from persistence.storage.layout import SPOOL

_LONGEST_WAIT = 10.0
_RETRY_AFTER = 2

_LONGEST_LOG = 8_000
"""Pages of changes after which they are written where they belong: a page that changes often is written there once."""

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

_LEAST = 1 << 20
"""Bytes that must be free: much more than SQLite maps at a time."""
_LEAST_INODES = 16
"""Files that can still be made: an index has four, and another one may be made beside it."""
_USED_UP = (errno.ENOSPC, errno.EDQUOT)


UNSAFE = ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE")
"""Pragmas for a file that nobody uses before it is finished, and that is removed if that fails."""


class UnusableError(Exception):
    """An index that must be rebuilt: it is damaged, or gone. ``cause`` is the text of SQLite, if it has found that."""

    def __init__(self, path: str, cause: str = "") -> None:
        super().__init__(cause or path)
        self.path = path
        self.cause = cause


class OutdatedError(UnusableError):
    """An index that was made by another version of the service."""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Change a file for a block, alone."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def connected(path: str, *, cached_statements: int = 128) -> sqlite3.Connection:
    """Open a file, which must be there."""
    return sqlite3.connect(
        f"file:{quote(path)}?mode=rw",
        uri=True,
        isolation_level=None,
        timeout=_LONGEST_WAIT,
        check_same_thread=False,
        cached_statements=cached_statements,
    )


def opened_to_write(path: str) -> sqlite3.Connection:
    """Open a file to change it while it is in use."""
    connection = connected(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LONGEST_LOG}")
    except BaseException:
        connection.close()
        raise
    return connection


def sync(path: str) -> None:
    """Make a finished file durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        files.sync(descriptor)
    finally:
        os.close(descriptor)


def identity_of(path: str) -> tuple[int, int] | None:
    """Return what distinguishes a file from another one at the same path; ``None`` where there is none."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_dev


def companions(path: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return the identities of the log and the shared memory beside an index; ``None`` for each that is missing."""
    return identity_of(f"{path}-wal"), identity_of(f"{path}-shm")


def require_own(path: str) -> None:
    """Make sure that an index and its companions are files with no other name: SQLite would write through a link."""
    for each in (path, f"{path}-wal", f"{path}-shm"):
        try:
            status = os.lstat(each)
        except FileNotFoundError:
            if each == path:
                raise UnusableError(path) from None
            continue
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise UnusableError(path)


def require_schema(connection: sqlite3.Connection, path: str) -> None:
    """Make sure that a connection is to an index of this version, and one as long as it says: SQLite compares that."""
    schema = read_fact(connection, SCHEMA_FACT)
    if schema is None:
        raise UnusableError(path)
    if schema != SCHEMA:
        raise OutdatedError(path)


@contextmanager
def domain_errors(what: str) -> Iterator[None]:
    """Raise the domain error for one of SQLite in a block, in which ``what`` is used."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_domain_error(error, what) from error


FAILURES = (
    sqlite3.Error,
    FileNotFoundError,
    *(LookupError, TypeError, ValueError, StopIteration, msgspec.DecodeError),  # bytes changed, unnoticed by SQLite
)
"""Errors of using an index, for ``meaning_of``."""


def meaning_of(error: Exception, path: str, what: str) -> UnusableError | DiskError | BusyError:
    """Return what an error says of the index at a path: that it must be rebuilt, or that something is in the way."""
    match error:
        case sqlite3.Error():
            return UnusableError(path, str(error)) if _is_damage(error, path) else as_domain_error(error, what)
        case FileNotFoundError():
            return as_disk_error(error, "using", what) if os.path.exists(path) else UnusableError(path)
        case _:
            return UnusableError(path, f"{type(error).__name__}: {error}")


def code_of(error: sqlite3.Error) -> int:
    """Return the primary code of an error; 0 where SQLite gave none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: sqlite3.Error, path: str) -> bool:
    """Return whether an error shows that a file is damaged; otherwise it is the disk, or others are busy with it.

    If SQLite refuses a statement, the tables tell: where these are as they should be, the statement is at fault, and a
    rebuilt index would not understand it either.
    """
    code = getattr(error, "sqlite_errorcode", None)
    try:
        with closing(connected(path)) as connection:
            if code is None or code in _GONE:
                return True
            if code & 0xFF != sqlite3.SQLITE_ERROR:
                return (code & 0xFF) in _DAMAGE
            return any(text in str(error) for text in _OF_DAMAGE) or not is_whole(connection)
    except sqlite3.Error:
        return True


def is_lost(error: sqlite3.Error) -> bool:
    """Return whether a file is damaged as a whole. A file that cannot be opened may be in order."""
    return code_of(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_transient(error: sqlite3.Error) -> bool:
    """Return whether an error says nothing about the content of a file."""
    return code_of(error) in _TRANSIENT


def as_domain_error(error: sqlite3.Error, what: str) -> DiskError | BusyError:
    """Return the domain error for one that says nothing about the content of a file; ``what`` was being used."""
    text = f"{what}: {error}"
    match code_of(error):
        case sqlite3.SQLITE_FULL:
            return DiskFullError(text)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BusyError(text, _RETRY_AFTER)
        case _:
            return DiskError(text)


def require_space(root: str) -> None:
    """Make sure that SQLite has room to write below a root.

    It keeps an index's shared memory in a file that it maps. Where the disk is too full for the next page of that, the
    system kills the process (SIGBUS). Where there is no inode for that file, SQLite reports a damaged index.

    A file system that copies a page when it changes (btrfs) needs room for each change of the shared memory, and does
    not tell of its quotas. It counts no inodes; there the room is tried out.
    """
    status = os.statvfs(root)
    is_short_of_inodes = status.f_files and status.f_favail < _LEAST_INODES  # some file systems do not count them
    is_short_of_bytes = status.f_bavail * status.f_frsize < _LEAST
    if is_short_of_inodes or is_short_of_bytes or (not status.f_files and is_full(root)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_full(root: str) -> bool:
    """Test whether the disk is full by taking room: some file systems report free bytes in another way, or have quotas.

    SQLite reports this as any other error of the disk.
    """
    try:
        descriptor = files.open_unnamed(f"{root}/{SPOOL}")
        if descriptor is None:
            return False
        try:
            files.reserve(descriptor, _LEAST)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno in _USED_UP
    return False
