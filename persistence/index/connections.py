"""Connections to the file of an index, and whether it is one that can be used."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

from persistence.closable import Closable
from persistence.errors import BusyError, DiskError, DiskFullError
from persistence.index import damage, facts, parts
from persistence.index.budget import Budget
from persistence.index.damage import OutdatedError, UnusableError
from persistence.index.sampling import Sample
from persistence.index.schema import INDEXES, SCHEMA, TABLES, tune_for_changes
from persistence.limits import READER_CACHE, READERS_KEPT, SQLITE_KEPT
from persistence.storage import files

_LONGEST_WAIT = 10.0
_RETRY_AFTER = 2
_STEPS = 500
"""Steps of SQLite's machine between two looks at the clock: a look takes less than one step in ten."""

_LONGEST_LOG = 8_000
"""Pages of changes after which they are written where they belong: a page that changes often is written there once."""


def is_damage(error: sqlite3.Error, path: str) -> bool:
    """Whether an error says that a file is not what it was (``damage``)."""
    try:
        with closing(connected(path)) as connection:
            return damage.is_damage(error, connection)
    except sqlite3.Error:
        return True


def as_told(error: sqlite3.Error, what: str) -> DiskError | BusyError:
    """An error of SQLite that says nothing of what is in a file, as one of the service about what was being used."""
    text = f"{what}: {error}"
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return DiskFullError(text)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BusyError(text, _RETRY_AFTER)
        case _:
            return DiskError(text)


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


class Reader:
    """A connection that reads, and a sample of the texts in the index.

    ``budget`` is that of the request that it is used for, if it has one.
    """

    def __init__(self, path: str, options: str = "mode=rw") -> None:
        # The statement of a search may be megabytes long, and hardly any is asked twice: none is kept.
        self.connection = connected(path, options, cached_statements=0)
        try:
            self.connection.execute("PRAGMA query_only = ON")
            self.connection.execute(f"PRAGMA cache_size = -{READER_CACHE}")
            self.connection.execute(f"PRAGMA soft_heap_limit = {SQLITE_KEPT}")
            parts.install(self.connection, self._check)
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


class Connections(Closable):
    """The connections of this process to one file, which must be there and be an index of this version.

    It owns them. Opening raises ``UnusableError`` and ``sqlite3.Error``.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        check(path)
        self._identity = identity_of(path)
        self._size = os.lstat(path).st_size
        reader = Reader(path)
        try:
            facts.read(reader.connection, facts.SCHEMA_FACT)  # now its companions are there, as long as it is open
            self._companions = companions(path)
        except BaseException:
            reader.connection.close()
            raise
        self._readers = [reader]
        self._writer: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._is_closed = False

    def is_gone(self) -> bool:
        """Whether the file was removed or cut short, or another put in its place, since it was opened.

        Raises:
            UnusableError: its log was removed: what was in it, only those see who have it open.
        """
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return True
        if (status.st_ino, status.st_dev) != self._identity or status.st_size < self._size:
            return True
        if companions(self.path) != self._companions:
            raise UnusableError(self.path)
        return False

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A connection of one's own, that sees one state of the index for the block."""
        with self._lock:
            reader = self._readers.pop() if self._readers else None
        if reader is None:
            reader = Reader(self.path)
        try:
            reader.connection.execute("BEGIN")
            yield reader
        finally:
            if reader.connection.in_transaction:
                reader.connection.execute("ROLLBACK")
            with self._lock:
                if len(self._readers) < READERS_KEPT and not self._is_closed:
                    self._readers.append(reader)
                    reader = None
            if reader is not None:
                reader.connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, which threads have in turn."""
        try:
            with self._turn:
                if self._writer is None:
                    self._writer = opened_to_write(self.path)
                yield self._writer
        finally:
            if self._is_closed:
                self._close_writer()

    def close(self) -> None:
        """Close what nobody uses at the moment; whoever uses one of the others closes it afterwards."""
        with self._lock:
            self._is_closed = True
            while self._readers:
                self._readers.pop().connection.close()
        self._close_writer()

    def _close_writer(self) -> None:
        """Close the connection that writes, unless a thread has it: that one comes here afterwards."""
        if self._turn.acquire(blocking=False):
            try:
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            finally:
                self._turn.release()


def opened_to_write(path: str) -> sqlite3.Connection:
    """A connection that changes an index in use."""
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
    """Make a file with the tables of an index and no rows, that stands for one that is being built."""
    files.ensure_file(path)
    with closing(opened_to_write(path)) as connection:
        connection.executescript(TABLES + INDEXES)
        tune_for_changes(connection)
        facts.write(connection, facts.SCHEMA_FACT, SCHEMA)
        facts.write(connection, facts.COMPLETE, 0)
        facts.write(connection, facts.REBUILDING, 1)


def sync(path: str) -> None:
    """Make a finished file durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        files.sync(descriptor)
    finally:
        os.close(descriptor)


def connected(path: str, options: str = "mode=rw", *, cached_statements: int = 128) -> sqlite3.Connection:
    """A connection to a file, which must be there; ``options`` are those of SQLite's file names."""
    return sqlite3.connect(
        f"file:{quote(path)}?{options}",
        uri=True,
        isolation_level=None,
        timeout=_LONGEST_WAIT,
        check_same_thread=False,
        cached_statements=cached_statements,
    )


def identity_of(path: str) -> tuple[int, int] | None:
    """What tells a file from another one at the same path; ``None`` where there is none."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_dev


def companions(path: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The identities of the log and of the shared memory beside an index; ``None`` for each that is not there."""
    return identity_of(f"{path}-wal"), identity_of(f"{path}-shm")


def check(path: str) -> None:
    """Make sure that it is an index of this version, and as long as it says: SQLite compares that with its first read.

    Nobody but SQLite may open the file: closing it would take away the locks that this process has on it, of which
    another one would take no heed then (SQLite, How To Corrupt An SQLite Database File, 2.2).

    Raises:
        UnusableError: it is not.
        OutdatedError: it is one of another version.
        sqlite3.Error: it is none of SQLite's, or cannot be read.
    """
    require_own(path)
    with closing(connected(path)) as connection:
        require_schema(connection, path)


def require_own(path: str) -> None:
    """Make sure that an index and what is beside it are files with no other name: SQLite would write through a link.

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
    schema = facts.read(connection, facts.SCHEMA_FACT)
    if schema is None:
        raise UnusableError(path)
    if schema != SCHEMA:
        raise OutdatedError(path)
