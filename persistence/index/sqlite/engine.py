"""The engine of the index of a file tree: all that the synchronisation with the tree knows of it is in ``__all__``.

An index is one file, which connections read and change. Where they are lent, errors of SQLite are distinguished:
``UnusableError`` says that the index must be rebuilt, ``DiskError`` and ``BusyError`` that it is in order.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from persistence.closable import Closable, closed
from persistence.index.protocol import Budget, PreparedDocument, VersionKeys, prepared
from persistence.index.search_compiler import Search
from persistence.index.sources import IndexedPage
from persistence.index.sqlite import sqlite_dialect
from persistence.index.sqlite.flat_file import (
    FLAT_FAILURES,
    CataloguedVersion,
    FileIdentity,
    FlatCatalogue,
    FlatFile,
    InconsistentError,
    flat_failure,
)
from persistence.index.sqlite.rows import IndexAuditor, IndexWriter, NewIndex, make_empty, remove_index
from persistence.index.sqlite.tables import (
    FAILURES,
    IndexedRow,
    IndexedVersion,
    IndexState,
    OutdatedError,
    UnusableError,
    companions,
    connected,
    domain_errors,
    identity_of,
    is_full,
    meaning_of,
    require_own,
    require_schema,
    require_space,
)
from persistence.limits import INDEXES_KEPT, READER_CACHE, READERS_KEPT, SQLITE_KEPT
from persistence.model.addresses import Form
from persistence.model.queries import Field, Query, Scope

__all__ = [
    "FLAT_FAILURES",
    "CataloguedVersion",
    "FileIdentity",
    "FlatCatalogue",
    "FlatFile",
    "InconsistentError",
    "IndexFile",
    "IndexPool",
    "IndexReader",
    "IndexState",
    "IndexWriter",
    "IndexedRow",
    "IndexedVersion",
    "NewIndex",
    "OutdatedError",
    "PreparedDocument",
    "UnusableError",
    "VersionKeys",
    "domain_errors",
    "flat_failure",
    "is_full",
    "make_empty",
    "prepared",
    "remove_index",
    "require_space",
]

_STEPS = 500  # Steps of SQLite's machine between two looks at the clock: a look takes less than one step in ten


class IndexReader(IndexAuditor):
    """Reads an index by a connection of its own. Methods raise ``sqlite3.Error``."""

    def __init__(self, path: str) -> None:
        # The statement of a search may be megabytes long, and hardly any is asked twice: none is kept.
        super().__init__(path, connected(path, cached_statements=0))
        try:
            self.connection.execute("PRAGMA query_only = ON")
            self.connection.execute(f"PRAGMA cache_size = -{READER_CACHE}")
            self.connection.execute(f"PRAGMA soft_heap_limit = {SQLITE_KEPT}")
            sqlite_dialect.install(self.connection, self._check)
        except BaseException:
            self.connection.close()
            raise
        self._budget: Budget | None = None
        self._sample = sqlite_dialect.Sample(self.connection)

    def search(self, scope: Scope, query: Query, budget: Budget | None) -> IndexedPage:
        if budget is not None:
            budget.restart()
        with self._searching(scope, budget) as search:
            return search.find(query)

    def distinct(self, scope: Scope, by: Field | str, budget: Budget | None) -> list[str]:
        with self._searching(scope, budget) as search:
            return list(search.distinct(by))

    @contextmanager
    def _searching(self, scope: Scope, budget: Budget | None) -> Iterator[Search]:
        self._budget = budget
        with limited(self.connection, budget):
            searched = sqlite_dialect.partitions_of(self.connection, scope)
            dialect = sqlite_dialect.SqliteDialect(self.connection, self._sample.rarity, searched, budget)
            if budget is not None:
                budget.allow_for(dialect.documents)
            yield Search(dialect, scope, budget)

    def _check(self) -> None:
        if self._budget is not None:
            self._budget.check()


@contextmanager
def limited(connection: sqlite3.Connection, budget: Budget | None) -> Iterator[None]:
    """Count the time of a block, and interrupt the statements of a connection when the budget is used up, if any."""
    if budget is None:
        yield
        return
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


class IndexFile(Closable):
    """The connections of this process, which it owns, to one file. That is there, and an index of this version."""

    # ``subject`` names the index in errors. Methods, and the blocks for which a connection is lent, raise
    # ``UnusableError``, ``DiskError`` and ``BusyError``.
    def __init__(self, path: str, subject: str) -> None:
        self.path = path
        self.is_ready = False
        self._subject = subject
        self._has_failed = False
        try:
            require_own(path)
            self._identity, self._size = identity_of(path), os.lstat(path).st_size
            reader = IndexReader(path)
            try:
                require_schema(reader.connection, path)  # now its companions are there, as long as it is open
                self._companions = companions(path)
            except BaseException:
                reader.close()
                raise
        except FAILURES as error:
            raise meaning_of(error, path, subject) from error
        self._readers = [reader]
        self._writer: IndexWriter | None = None
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._is_closed = False

    def is_gone(self) -> bool:
        """Return whether the file was removed, cut short or replaced since it was opened, or a connection failed."""
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return True
        if (status.st_ino, status.st_dev) != self._identity or status.st_size < self._size or self._has_failed:
            return True
        if companions(self.path) != self._companions:
            raise UnusableError(self.path)
        return False

    @contextmanager
    def reading(self) -> Iterator[IndexReader]:
        """Lend a connection that sees one state of the index for the block."""
        with self._lock:
            reader = self._readers.pop() if self._readers else None
        try:
            if reader is None:
                reader = IndexReader(self.path)
            reader.connection.execute("BEGIN")
            yield reader
        except FAILURES as error:
            raise self._failure(error) from error
        finally:
            if reader is not None:
                if reader.connection.in_transaction:
                    reader.connection.execute("ROLLBACK")
                with self._lock:
                    is_kept = len(self._readers) < READERS_KEPT and not self._is_closed
                    if is_kept:
                        self._readers.append(reader)
                if not is_kept:
                    reader.close()

    @contextmanager
    def writing(self) -> Iterator[IndexWriter]:
        try:
            with self._turn:
                if self._writer is None:
                    self._writer = IndexWriter(self.path)
                yield self._writer
        except FAILURES as error:
            raise self._failure(error) from error
        finally:
            if self._is_closed:
                self._close_writer()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            while self._readers:
                self._readers.pop().close()
        self._close_writer()

    def _failure(self, error: Exception) -> Exception:
        self._has_failed = self._has_failed or isinstance(error, sqlite3.Error)
        return meaning_of(error, self.path, self._subject)

    def _close_writer(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            finally:
                self._turn.release()


class IndexPool(Closable):
    """The open index files of forms, those used last. For all threads. It owns them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Form, IndexFile] = OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    def opened(self, form: Form, path: str) -> IndexFile:
        """Return a file, opened if it is not yet open; the least recently used ones are closed."""
        with self._lock:
            if self._is_closed:
                raise closed("the index")
            used = self._open.get(form)
            if used is not None and used.path == path and not used.is_gone():
                self._open.move_to_end(form)
                return used
        self.discard(form)
        fresh = IndexFile(path, f"the index of {form}")
        with self._lock:
            unused = [self._open.pop(form, None)]  # another thread was as fast
            self._open[form] = fresh
            if self._is_closed:
                unused = list(self._open.values())
                self._open.clear()
            elif len(self._open) > INDEXES_KEPT:
                unused.append(self._open.popitem(last=False)[1])
        for each in unused:
            if each is not None:
                each.close()
        return fresh

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            unused = list(self._open.values())
            self._open.clear()
        for each in unused:
            each.close()

    def discard(self, form: Form) -> None:
        """Close the file of a form: it is damaged, or another one has taken its place."""
        with self._lock:
            used = self._open.pop(form, None)
        if used is not None:
            used.close()
