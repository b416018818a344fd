"""Connections to the file of an index, and the check that it is an index of this version.

Nobody but SQLite may open such a file: closing it would take away the locks that this process has on it, which others
would no longer respect (SQLite, How To Corrupt An SQLite Database File, 2.2).
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar
from urllib.parse import quote

from persistence.index.budget import Budget
from persistence.index.sqlite import card_search, faults
from persistence.index.sqlite.faults import OutdatedError, UnusableError
from persistence.index.sqlite.schema import (
    COMPLETE,
    INDEXES,
    REBUILDING,
    SCHEMA,
    SCHEMA_FACT,
    TABLES,
    read_fact,
    tune_for_changes,
    write_fact,
)
from persistence.index.sqlite.trigrams import Sample
from persistence.limits import READER_CACHE, SQLITE_KEPT
from persistence.storage import files

_LONGEST_WAIT = 10.0
_STEPS = 500
"""Steps of SQLite's machine between two looks at the clock: a look takes less than one step in ten."""

_LONGEST_LOG = 8_000
"""Pages of changes after which they are written where they belong: a page that changes often is written there once."""

_SHARED = "mode=ro&readonly_shm=1"
_UNCHANGING = "mode=ro&immutable=1"

DatabaseError = sqlite3.DatabaseError
"""An error that shows that a file cannot be used as an index, or that SQLite refuses to."""

T = TypeVar("T")


class Reader:
    """A connection that reads, and a sample of the texts in the index."""

    def __init__(self, path: str, options: str = "mode=rw") -> None:
        # The statement of a search may be megabytes long, and hardly any is asked twice: none is kept.
        self.connection = connected(path, options, cached_statements=0)
        try:
            self.connection.execute("PRAGMA query_only = ON")
            self.connection.execute(f"PRAGMA cache_size = -{READER_CACHE}")
            self.connection.execute(f"PRAGMA soft_heap_limit = {SQLITE_KEPT}")
            card_search.install(self.connection, self._check)
            self._budget: Budget | None = None
            self.sample = Sample(self.connection)
        except BaseException:
            self.connection.close()
            raise

    @contextmanager
    def within(self, budget: Budget | None) -> Iterator[None]:
        """Use the connection for a block within a budget; raises as ``limited`` does."""
        if budget is None:
            yield
            return
        self._budget = budget
        try:
            with limited(self.connection, budget):
                yield
        finally:
            self._budget = None

    def _check(self) -> None:
        if self._budget is not None:
            self._budget.check()


@contextmanager
def limited(connection: sqlite3.Connection, budget: Budget) -> Iterator[None]:
    """Count the time of a block, and interrupt the statements of a connection when the budget is used up.

    Raises:
        BadRequestError: it is used up.
    """
    budget.start()
    connection.set_progress_handler(budget.is_over, _STEPS)
    try:
        yield
    except sqlite3.Error as error:
        if budget.is_over():  # it was interrupted, by the handler or by a function of a statement
            raise budget.too_long() from error
        raise
    finally:
        connection.set_progress_handler(None, 0)
        budget.stop()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Change a file for a block, in which nobody else does."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def connected(path: str, options: str = "mode=rw", *, cached_statements: int = 128) -> sqlite3.Connection:
    """Open a file, which must be there; ``options`` are those of SQLite's file names."""
    return sqlite3.connect(
        f"file:{quote(path)}?{options}",
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


def make_empty(path: str) -> None:
    """Make an index without rows, which stands for one that is being built."""
    files.ensure_file(path)
    with closing(opened_to_write(path)) as connection:
        connection.executescript(TABLES + INDEXES)
        tune_for_changes(connection)
        write_fact(connection, SCHEMA_FACT, SCHEMA)
        write_fact(connection, COMPLETE, 0)
        write_fact(connection, REBUILDING, 1)


def sync(path: str) -> None:
    """Make a finished file durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        files.sync(descriptor)
    finally:
        os.close(descriptor)


def is_damage(error: sqlite3.Error, path: str) -> bool:
    """Return whether an error shows that a file is damaged (``faults.shows_damage``)."""
    try:
        with closing(connected(path)) as connection:
            return faults.shows_damage(error, connection)
    except sqlite3.Error:
        return True


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


def check(path: str) -> None:
    """Make sure that a file is an index of this version, and as long as it says: SQLite compares that when it reads.

    Raises:
        UnusableError: it is not.
        OutdatedError: it is an index of another version.
        sqlite3.Error: it is no file of SQLite's, or cannot be read.
    """
    require_own(path)
    with closing(connected(path)) as connection:
        require_schema(connection, path)


def require_own(path: str) -> None:
    """Make sure that an index and its companions are files with no other name: SQLite would write through a link.

    Raises:
        UnusableError: one of them is not, or there is no index.
    """
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
    """Make sure that a connection is to an index of this version. Raises as ``check`` does."""
    schema = read_fact(connection, SCHEMA_FACT)
    if schema is None:
        raise UnusableError(path)
    if schema != SCHEMA:
        raise OutdatedError(path)


def read_only(path: str, work: Callable[[Reader], T]) -> T:
    """Do some work on one state of an index without writing anything, as a full disk requires.

    Opening an index to use it writes: SQLite makes a log and a file of shared memory beside it, and maps the latter.
    Two ways of opening write nothing (SQLite, Write-Ahead Logging, Read-Only Databases):

    - Where the shared memory is there, because others have the index open or have died, it is only read. SQLite finds
      for itself whether it can be relied on, and else reads the log.
    - Where neither is there, the index was closed in order, and all is in the one file. It is opened as one that does
      not change; afterwards it is checked that it has not.

    Raises:
        UnusableError: the index cannot be read without writing.
        sqlite3.Error: it cannot be opened or read.
        FileNotFoundError: it is gone.
    """
    log, shared = companions(path)
    if shared is not None:
        return _work(path, _SHARED, work)
    before = _stamp(path)
    if log is not None:
        raise UnusableError(path)
    found = _work(path, _UNCHANGING, work)
    if companions(path) != (None, None) or _stamp(path) != before:
        raise UnusableError(path)
    return found


def _work(path: str, options: str, work: Callable[[Reader], T]) -> T:
    reader = Reader(path, options)
    with closing(reader.connection):
        require_schema(reader.connection, path)
        reader.connection.execute("BEGIN")
        return work(reader)


def _stamp(path: str) -> tuple[int, int, int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
