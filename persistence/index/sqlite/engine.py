"""The engine of the index of a file tree: all that the synchronisation with the tree knows of it is in ``__all__``.

An index is one file, which connections read and change. Where they are lent, errors of SQLite are distinguished:
``UnusableError`` says that the index must be rebuilt, ``DiskError`` and ``BusyError`` that it is in order.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from typing import Any, TypeVar

from persistence.closable import Closable, closed, closed_after_error
from persistence.errors import BusyError
from persistence.index.protocol import Budget, PreparedDocument, VersionState, decode, entries
from persistence.index.search_compiler import Search, searched_partitions
from persistence.index.sources import DefinitionState, DocumentName
from persistence.index.sqlite import sqlite_dialect, tables
from persistence.index.sqlite.flat_file import (
    FLAT_FAILURES,
    CataloguedVersion,
    FileIdentity,
    FlatCatalogue,
    FlatFile,
    InconsistentError,
    flat_failure,
)
from persistence.index.sqlite.sqlite_dialect import TRIGRAM, quoted
from persistence.index.sqlite.tables import (
    FIELDS,
    Generations,
    IndexedRow,
    IndexState,
    OutdatedError,
    UnusableError,
    domain_errors,
    is_full,
    remove_index,
    require_space,
)
from persistence.limits import INDEXES_KEPT, READER_CACHE, READERS_KEPT, SQLITE_KEPT
from persistence.model.addresses import Form
from persistence.model.queries import Scope
from persistence.storage import files
from persistence.storage.locks import LockFile

__all__ = [
    "FLAT_FAILURES",
    "CataloguedVersion",
    "FileIdentity",
    "FlatCatalogue",
    "FlatFile",
    "Generations",
    "InconsistentError",
    "IndexFile",
    "IndexPool",
    "IndexReader",
    "IndexState",
    "IndexWriter",
    "IndexedRow",
    "NewIndex",
    "OutdatedError",
    "UnusableError",
    "domain_errors",
    "flat_failure",
    "is_full",
    "make_empty",
    "remove_index",
    "require_space",
]

T = TypeVar("T")

_REMOVE_ENTRY = "DELETE FROM entry WHERE control = ? AND partition = ? AND fold = ? AND value = ? AND seq = ?"

_TEXTS = f"SELECT {', '.join(f'c{number}' for number in range(len(FIELDS)))} FROM fields_content WHERE id = ?"

_MERGED = 200  # Pages of the index of texts that are written at once while pieces are merged
_ROWS_AT_ONCE = 100  # Rows inserted by one statement: its parameters and its size are bounded


class IndexWriter(IndexState):
    """Changes an index while it is in use. Methods raise ``sqlite3.Error``."""

    # ``hidden`` are documents to be placed before the first generation of their version.

    def __init__(
        self, path: str, connection: sqlite3.Connection | None = None, hidden: Container[DocumentName] = ()
    ) -> None:
        super().__init__(path, tables.opened_to_write(path) if connection is None else connection)
        self._hidden = hidden
        self._partitions: dict[tuple[int, bool, int], int] = {}

    @contextmanager
    def changing(self) -> Iterator[None]:
        with tables.transaction(self.connection):
            self._partitions.clear()  # others may have changed them
            yield

    @contextmanager
    def keeping_others_out(self) -> Iterator[None]:
        """Keep the index from changes for a block, which does not change it either."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self._execute("ROLLBACK")

    def numbers(self, paths: Iterable[str]) -> dict[str, int]:
        found = {}
        for path in paths:
            # Another thread of a rebuild may insert rows at the same time: the connection's last row is not asked for.
            self._execute("INSERT OR IGNORE INTO control (path) VALUES (?)", (path,))
            found[path] = int(self._execute("SELECT number FROM control WHERE path = ?", (path,)).fetchone()[0])
        return found

    def remove(self, kept: Iterable[IndexedRow]) -> None:
        gone: Counter[int] = Counter()
        for each in sorted(kept):  # in order: texts are written out where their numbers go back
            card = self._execute("SELECT card FROM document WHERE seq = ?", (each.seq,)).fetchone()[0]
            for table in ("fields", "free_text", "texts"):
                self._execute(f"DELETE FROM {table} WHERE rowid = ?", (each.text,))
            self._execute("DELETE FROM document WHERE seq = ?", (each.seq,))
            gone[each.partition] -= 1
            self.connection.executemany(
                _REMOVE_ENTRY,
                [(number, each.partition, fold, value, each.seq) for number, fold, value, _ in entries(decode(card))],
            )
        self._count(gone)

    def add(self, documents: Iterable[PreparedDocument]) -> None:
        """Insert documents that have no row."""
        placed = list(self._placed(documents))
        rows = [
            (seq, text, partition, *each.name, each.fingerprint, each.content.created, each.card)
            for each, seq, text, partition in placed
        ]
        self._insert("document (seq, text, partition, document, draft, fingerprint, created, card)", rows)
        self._insert("texts (text, seq)", [(text, seq) for _, seq, text, _ in placed])
        fields = [(text, *tables.columns(each.content)) for each, _, text, _ in placed]
        self._insert(f"fields (rowid, {', '.join(FIELDS)})", fields)
        self._insert("free_text (rowid, text)", [(text, each.free_text) for each, _, text, _ in placed])
        added = [
            (number, partition, fold, value, seq, edge)
            for each, seq, _, partition in placed
            for number, fold, value, edge in entries(each.content)
        ]
        self._insert("entry (control, partition, fold, value, seq, edge)", added)
        self._count(Counter(partition for *_, partition in placed))

    def _insert(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert many rows by each statement: other threads run meanwhile, and are not stopped for each row."""
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[at : at + _ROWS_AT_ONCE]
            values = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            self._execute(f"INSERT INTO {table} VALUES {values}", tuple(chain.from_iterable(some)))

    def merge(self) -> bool:
        """Merge pieces of the index of texts, a few at a time; return whether there may be more."""
        before = self.connection.total_changes
        for table in tables.TEXTS:
            self._execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (_MERGED,))
        return self.connection.total_changes - before > len(tables.TEXTS)

    def _placed(self, documents: Iterable[PreparedDocument]) -> Iterator[tuple[PreparedDocument, int, int, int]]:
        text = self._execute("SELECT coalesce(max(text), 0) FROM texts").fetchone()[0]
        taken: dict[int, int] = {}
        for each in documents:
            text += 1
            first = tables.first_seq(each.content.modified)
            if first not in taken:
                asked = "SELECT max(seq) FROM document WHERE seq >= ? AND seq < ?"
                last = self._execute(asked, (first, first + tables.SEQS_PER_MILLISECOND)).fetchone()[0]
                taken[first] = first - 1 if last is None else int(last)
            taken[first] += 1
            key = each.content.version, each.name.is_draft, 0 if each.name in self._hidden else each.generation
            if key not in self._partitions:
                asked = "SELECT number FROM partition WHERE version = ? AND draft = ? AND round = ?"
                found = self._execute(asked, key).fetchone()
                if found is None:
                    self._execute("INSERT INTO partition (version, draft, round) VALUES (?, ?, ?)", key)
                    found = self._execute(asked, key).fetchone()
                self._partitions[key] = int(found[0])
            yield each, taken[first], text, self._partitions[key]

    def _count(self, changes: Mapping[int, int]) -> None:
        self.connection.executemany(
            "UPDATE partition SET documents = documents + ? WHERE number = ?",
            [(change, partition) for partition, change in changes.items()],
        )


class NewIndex(IndexWriter):
    """A new index, in a file that no other process has open, filled in one transaction. Raises ``OSError``, too."""

    # ``hidden`` are documents that are not to be seen, with their versions.

    def __init__(self, path: str, hidden: Mapping[DocumentName, int]) -> None:
        files.ensure_file(path)
        super().__init__(path, tables.connected(path), hidden)
        with closed_after_error(self):
            for pragma in (*tables.UNSAFE, "cache_size = -65536"):
                self._execute(f"PRAGMA {pragma}")
            self.connection.executescript(tables.TABLES)
            # Pieces of texts are merged at the end only. One of 1 MiB is made in the processor's cache.
            tables.tune(self.connection, crisismerge=1_000)
            self._execute("BEGIN")
            tables.write_fact(self.connection, tables.SCHEMA_FACT, tables.SCHEMA)
            for version in set(hidden.values()):
                self.store_version(version, VersionState(1, DefinitionState.DELETED, "", "", "[]"))

    def finish(self, tree: str) -> None:
        """Complete the index, as of when its documents were read, and close it durably."""
        # ``tree`` is the identity of the tree.
        for table in tables.TEXTS:
            self._execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
        self._execute("COMMIT")
        tables.tune(self.connection)
        self.connection.executescript(tables.INDEXES)
        self.tree = tree
        tables.write_fact(self.connection, tables.COMPLETE, 1)
        self.close()
        tables.sync(self.path)


def make_empty(path: str) -> None:
    """Make an index without rows, which stands for one that is being built. Raises ``sqlite3.Error``."""
    files.ensure_file(path)
    with IndexWriter(path) as index:
        index.connection.executescript(tables.TABLES + tables.INDEXES)
        tables.tune(index.connection)
        tables.write_fact(index.connection, tables.SCHEMA_FACT, tables.SCHEMA)
        tables.write_fact(index.connection, tables.COMPLETE, 0)
        index.begin_rebuild()


_STEPS = 500  # Steps of SQLite's machine between two looks at the clock: a look takes less than one step in ten


class IndexReader(IndexState):
    """Reads an index by a connection of its own, and compares its rows. Methods raise ``sqlite3.Error``."""

    def __init__(self, path: str) -> None:
        # The statement of a search may be megabytes long, and hardly any is asked twice: none is kept.
        super().__init__(path, tables.connected(path, cached_statements=0))
        with closed_after_error(self):
            for pragma in ("query_only = ON", f"cache_size = -{READER_CACHE}", f"soft_heap_limit = {SQLITE_KEPT}"):
                self._execute(f"PRAGMA {pragma}")
            sqlite_dialect.install(self.connection, self._check)
        self._budget: Budget | None = None
        self._sample = sqlite_dialect.Sample(self.connection)

    def difference(self, expected: PreparedDocument) -> str | None:
        """Return how the rows of a document differ from the document; ``None`` where they do not."""
        # The rows are of the state of ``expected``; a document with no such row is right.
        row = self._execute(
            "SELECT d.seq, d.text, d.partition, d.created, d.card, p.version, p.draft FROM document d"
            " JOIN partition p ON p.number = d.partition WHERE d.document = ? AND d.draft = ? AND d.fingerprint = ?",
            (*expected.name, expected.fingerprint),
        ).fetchone()
        if row is None:
            return None
        seq, text, partition, created, card, version, draft = row
        if (version, draft, created) != (expected.content.version, expected.name.is_draft, expected.content.created):
            return "the index has it at another place"
        if decode(card) != expected.content:
            return "the index has other values of it"
        asked = "SELECT edge FROM entry WHERE control = ? AND partition = ? AND fold = ? AND value = ? AND seq = ?"
        for control, fold, value, edge in entries(expected.content):
            found = self._execute(asked, (control, partition, fold, value, seq)).fetchone()
            if found != (edge,):
                return "the index has not entered all its values"
        of = self._execute("SELECT seq FROM texts WHERE text = ?", (text,)).fetchone()
        fields = self._execute(_TEXTS, (text,)).fetchone()
        free_text = self._execute("SELECT c0 FROM free_text_content WHERE id = ?", (text,)).fetchone()
        if of != (seq,) or fields != tables.columns(expected.content) or free_text != (expected.free_text,):
            return "the index has other text of it"
        filled = (("fields", f"{{{name}}} : ", value) for name, value in zip(FIELDS, fields, strict=True) if value)
        # One of each: it takes long.
        for table, column, value in (*islice(filled, 1), ("free_text", "", expected.free_text)):
            middle = max(len(value) // 2 - 1, 0)
            match = column + quoted(value[middle : middle + TRIGRAM])
            asked = f"SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = ?"
            if len(value) >= TRIGRAM and self._execute(asked, (match, text)).fetchone() is None:
                return "the index does not find its text"
        return None

    def counts(self) -> str | None:
        wrong = self._execute(
            "SELECT 1 FROM partition p"
            " WHERE p.documents <> (SELECT count(*) FROM document d WHERE d.partition = p.number)"
            " UNION ALL SELECT 1 FROM document WHERE partition NOT IN (SELECT number FROM partition) LIMIT 1"
        ).fetchone()
        return None if wrong is None else "it counts its documents wrong"

    def integrity(self) -> str | None:
        """Check that the whole file can be read, and that cards and entries belong together."""
        result = self._execute("PRAGMA integrity_check(1)").fetchone()[0]
        if result != "ok":
            return str(result)
        cards = self._execute("SELECT card FROM document")
        expected = sum(sum(1 for _ in entries(decode(card))) for (card,) in cards)
        found = self._execute("SELECT count(*) FROM entry").fetchone()[0]
        return None if found == expected else f"it has {found} entries instead of {expected}"

    def search(self, partitions: list[Any], scope: Scope, budget: Budget | None, work: Callable[[Search], T]) -> T:
        """Return what some work finds in ``partitions``, as they are in the transaction of the connection."""
        self._budget = budget
        with limited(self.connection, budget):
            searched, _, _ = searched_partitions(partitions, scope)
            dialect = sqlite_dialect.SqliteDialect(self.connection, self._sample.rarity, searched, budget)
            if budget is not None:
                budget.allow_for(dialect.documents)
            return work(Search(dialect, scope, budget))

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


_LONGEST_CLOSE = 1.0  # Seconds for which a process waits until another has closed an index


class IndexFile(Closable):
    """The connections of this process, which it owns, to one file. That is there, and an index of this version."""

    # ``subject`` names the index in errors. Methods, and the blocks for which a connection is lent, raise
    # ``UnusableError``, ``DiskError`` and ``BusyError``.
    def __init__(self, path: str, subject: str) -> None:
        self.path = path
        self.is_ready = False
        self._subject = subject
        self._has_failed = False
        self._companions = f"{path}-wal", f"{path}-shm"  # SQLite's log and shared memory
        try:
            tables.require_own(path)
            self._status = os.lstat(path)
            reader = IndexReader(path)
            with closed_after_error(reader):
                schema = tables.read_fact(reader.connection, tables.SCHEMA_FACT)
                if schema != tables.SCHEMA:
                    raise UnusableError(path) if schema is None else OutdatedError(path)
                # It was read, and now its companions are there, as long as it is open.
                self._identities = tables.identities(*self._companions)
        except tables.FAILURES as error:
            raise tables.meaning_of(error, path, subject) from error
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
        if not os.path.samestat(status, self._status) or status.st_size < self._status.st_size or self._has_failed:
            return True
        if tables.identities(*self._companions) != self._identities:
            raise UnusableError(self.path)
        return False

    @contextmanager
    def reading(self) -> Iterator[IndexReader]:
        with self._lock:
            reader = self._readers.pop() if self._readers else None
        try:
            if reader is None:
                reader = IndexReader(self.path)
            reader.connection.execute("BEGIN")
            yield reader
        except tables.FAILURES as error:
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
        except tables.FAILURES as error:
            raise self._failure(error) from error
        finally:
            if self._is_closed:
                self._close_writer()

    def close(self) -> None:
        with ExitStack() as stack:
            # Of two processes that close a file at the same time, SQLite would let neither remove its log.
            with suppress(OSError, BusyError):
                turns = LockFile(f"{os.path.dirname(self.path)}/current")
                stack.enter_context(turns.exclusive(self._subject, timeout=_LONGEST_CLOSE))
            with self._lock:
                self._is_closed = True
                while self._readers:
                    self._readers.pop().close()
            self._close_writer()

    def _failure(self, error: Exception) -> Exception:
        self._has_failed = self._has_failed or isinstance(error, sqlite3.Error)
        return tables.meaning_of(error, self.path, self._subject)

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
