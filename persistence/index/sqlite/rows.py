"""The rows of an index: removed and inserted again, written for a new index, and compared with the documents."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice

from persistence.index.protocol import BOTH, PreparedDocument, decode, entries
from persistence.index.sources import DocumentName
from persistence.index.sqlite import tables
from persistence.index.sqlite.sqlite_dialect import TRIGRAM, quoted
from persistence.index.sqlite.tables import FIELDS, TEXTS, IndexedRow, IndexState, columns, tune, write_fact
from persistence.storage import files

_REMOVE_ENTRY = "DELETE FROM entries WHERE number = ? AND partition = ? AND fold = ? AND value = ? AND row = ?"
_SET_MULTI_VALUED = "UPDATE controls SET multi_valued = 1 WHERE number = ? AND NOT multi_valued"

_TEXTS = f"SELECT {', '.join(f'c{number}' for number in range(len(FIELDS)))} FROM fields_content WHERE id = ?"

_MERGED = 200  # Pages of the index of texts that are written at once while pieces are merged
_ROWS_AT_ONCE = 100  # Rows inserted by one statement: its parameters and its size are bounded


class IndexWriter(IndexState):
    """Changes an index while it is in use; ``hidden`` are documents not to be seen. Methods raise ``sqlite3.Error``."""

    def __init__(
        self, path: str, connection: sqlite3.Connection | None = None, hidden: frozenset[DocumentName] = frozenset()
    ) -> None:
        super().__init__(path, tables.opened_to_write(path) if connection is None else connection)
        self._hidden = hidden
        self._partitions: dict[tuple[int, bool, bool], int] = {}

    @contextmanager
    def changing(self) -> Iterator[None]:
        with tables.transaction(self.connection):
            self._partitions.clear()  # others may have changed them
            yield

    @contextmanager
    def keeping_others_out(self) -> Iterator[None]:
        """Keep the index from changes for a block, which does not change it either."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK")

    def numbers(self, paths: Iterable[str]) -> dict[str, int]:
        found = {}
        for path in paths:
            # Another thread of a rebuild may insert rows at the same time: the connection's last row is not asked for.
            self.connection.execute("INSERT OR IGNORE INTO controls (path) VALUES (?)", (path,))
            found[path] = int(
                self.connection.execute("SELECT number FROM controls WHERE path = ?", (path,)).fetchone()[0]
            )
        return found

    def remove(self, kept: Iterable[IndexedRow]) -> None:
        execute = self.connection.execute
        gone: Counter[int] = Counter()
        for each in sorted(kept):  # in order: texts are written out where their numbers go back
            card = execute("SELECT card FROM documents WHERE row = ?", (each.row,)).fetchone()[0]
            for table in ("fields", "free_text", "texts"):
                execute(f"DELETE FROM {table} WHERE rowid = ?", (each.text,))
            execute("DELETE FROM documents WHERE row = ?", (each.row,))
            gone[each.partition] -= 1
            self.connection.executemany(
                _REMOVE_ENTRY,
                [(number, each.partition, fold, value, each.row) for number, fold, value, _ in entries(decode(card))],
            )
        self._count(gone)

    def add(self, documents: Iterable[PreparedDocument]) -> None:
        """Insert documents that have no row."""
        placed = list(self._placed(documents))
        rows = [
            (row, text, partition, *each.name, each.fingerprint, each.generation, each.content.created, each.card)
            for each, row, text, partition in placed
        ]
        self._insert("documents (row, text, partition, document, draft, fingerprint, generation, created, card)", rows)
        self._insert("texts (text, row)", [(text, row) for _, row, text, _ in placed])
        fields = [(text, *columns(each.content)) for each, _, text, _ in placed]
        self._insert(f"fields (rowid, {', '.join(FIELDS)})", fields)
        self._insert("free_text (rowid, text)", [(text, each.free_text) for each, _, text, _ in placed])
        added = [
            (number, partition, fold, value, row, edge)
            for each, row, _, partition in placed
            for number, fold, value, edge in entries(each.content)
        ]
        self._insert("entries (number, partition, fold, value, row, edge)", added)
        multi_valued = {number for number, *_, edge in added if edge != BOTH}
        self.connection.executemany(_SET_MULTI_VALUED, [(number,) for number in multi_valued])
        self._count(Counter(partition for *_, partition in placed))

    def _insert(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert many rows by each statement: other threads run meanwhile, and are not stopped for each row."""
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[at : at + _ROWS_AT_ONCE]
            values = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            self.connection.execute(f"INSERT INTO {table} VALUES {values}", tuple(chain.from_iterable(some)))

    def merge(self) -> bool:
        """Merge pieces of the index of texts, a few at a time; return whether there may be more."""
        before = self.connection.total_changes
        for table in TEXTS:
            self.connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (_MERGED,))
        return self.connection.total_changes - before > len(TEXTS)

    def _placed(self, documents: Iterable[PreparedDocument]) -> Iterator[tuple[PreparedDocument, int, int, int]]:
        execute = self.connection.execute
        text = execute("SELECT coalesce(max(text), 0) FROM texts").fetchone()[0]
        taken: dict[int, int] = {}
        for each in documents:
            text += 1
            first = tables.first_row(each.content.modified)
            if first not in taken:
                asked = "SELECT max(row) FROM documents WHERE row >= ? AND row < ?"
                values = first, first + tables.ROWS_PER_MILLISECOND
                last = execute(asked, values).fetchone()[0]
                taken[first] = first - 1 if last is None else int(last)
            taken[first] += 1
            key = each.content.version, each.name.is_draft, each.name in self._hidden
            if key not in self._partitions:
                asked = "SELECT number FROM partitions WHERE version = ? AND draft = ? AND hidden = ?"
                found = execute(asked, key).fetchone()
                if found is None:
                    execute("INSERT INTO partitions (version, draft, hidden) VALUES (?, ?, ?)", key)
                    found = execute(asked, key).fetchone()
                self._partitions[key] = int(found[0])
            yield each, taken[first], text, self._partitions[key]

    def _count(self, changes: Mapping[int, int]) -> None:
        self.connection.executemany(
            "UPDATE partitions SET documents = documents + ? WHERE number = ?",
            [(change, partition) for partition, change in changes.items()],
        )


class NewIndex(IndexWriter):
    """A new index, in a file that no other process has open, filled in one transaction. Raises ``OSError``, too."""

    def __init__(self, path: str, hidden: frozenset[DocumentName] = frozenset()) -> None:
        files.ensure_file(path)
        super().__init__(path, tables.connected(path), hidden)
        try:
            for pragma in (*tables.UNSAFE, "cache_size = -65536"):
                self.connection.execute(f"PRAGMA {pragma}")
            self.connection.executescript(tables.TABLES)
            # Pieces of texts are merged at the end only. One of 1 MiB is made in the processor's cache.
            tune(self.connection, crisismerge=1_000)
            self.connection.execute("BEGIN")
            write_fact(self.connection, tables.SCHEMA_FACT, tables.SCHEMA)
        except BaseException:
            self.close()
            raise

    def finish(self, tree: str) -> None:
        """Complete the index, as of when its documents were read, and close it durably."""
        # ``tree`` is the identity of the tree.
        for table in TEXTS:
            self.connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
        self.connection.execute("COMMIT")
        tune(self.connection)
        self.connection.executescript(tables.INDEXES)
        self.tree = tree
        write_fact(self.connection, tables.COMPLETE, 1)
        self.close()
        tables.sync(self.path)


class IndexAuditor(IndexState):
    """Compares the rows of an index with the documents, and with each other. Methods raise ``sqlite3.Error``."""

    def difference(self, expected: PreparedDocument) -> str | None:
        """Return how the rows of a document differ from the document; ``None`` where they do not."""
        # The rows are of the state of ``expected``; a document with no such row is right.
        row = self.connection.execute(
            "SELECT d.row, d.text, d.partition, d.created, d.card, p.version, p.draft FROM documents d"
            " JOIN partitions p ON p.number = d.partition WHERE d.document = ? AND d.draft = ? AND d.fingerprint = ?",
            (*expected.name, expected.fingerprint),
        ).fetchone()
        if row is None:
            return None
        number, text, partition, created, card, version, draft = row
        if (version, draft, created) != (expected.content.version, expected.name.is_draft, expected.content.created):
            return "the index has it at another place"
        if decode(card) != expected.content:
            return "the index has other values of it"
        asked = "SELECT edge FROM entries WHERE number = ? AND partition = ? AND fold = ? AND value = ? AND row = ?"
        for control, fold, value, edge in entries(expected.content):
            found = self.connection.execute(asked, (control, partition, fold, value, number)).fetchone()
            if found != (edge,):
                return "the index has not entered all its values"
        of = self.connection.execute("SELECT row FROM texts WHERE text = ?", (text,)).fetchone()
        fields = self.connection.execute(_TEXTS, (text,)).fetchone()
        free_text = self.connection.execute("SELECT c0 FROM free_text_content WHERE id = ?", (text,)).fetchone()
        if of != (number,) or fields != columns(expected.content) or free_text != (expected.free_text,):
            return "the index has other text of it"
        filled = (("fields", f"{{{name}}} : ", value) for name, value in zip(FIELDS, fields, strict=True) if value)
        # One of each: it takes long.
        for table, column, value in (*islice(filled, 1), ("free_text", "", expected.free_text)):
            middle = max(len(value) // 2 - 1, 0)
            match = column + quoted(value[middle : middle + TRIGRAM])
            asked = f"SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = ?"
            if len(value) >= TRIGRAM and self.connection.execute(asked, (match, text)).fetchone() is None:
                return "the index does not find its text"
        return None

    def counts(self) -> str | None:
        wrong = self.connection.execute(
            "SELECT 1 FROM partitions p"
            " WHERE p.documents <> (SELECT count(*) FROM documents d WHERE d.partition = p.number)"
            " UNION ALL SELECT 1 FROM documents WHERE partition NOT IN (SELECT number FROM partitions) LIMIT 1"
        ).fetchone()
        return None if wrong is None else "it counts its documents wrong"

    def integrity(self) -> str | None:
        """Check that the whole file can be read, and that cards and entries belong together."""
        result = self.connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if result != "ok":
            return str(result)
        cards = self.connection.execute("SELECT card FROM documents")
        expected = sum(sum(1 for _ in entries(decode(card))) for (card,) in cards)
        found = self.connection.execute("SELECT count(*) FROM entries").fetchone()[0]
        return None if found == expected else f"it has {found} entries instead of {expected}"


def make_empty(path: str) -> None:
    """Make an index without rows, which stands for one that is being built. Raises ``sqlite3.Error``."""
    files.ensure_file(path)
    with IndexWriter(path) as index:
        index.connection.executescript(tables.TABLES + tables.INDEXES)
        tune(index.connection)
        write_fact(index.connection, tables.SCHEMA_FACT, tables.SCHEMA)
        write_fact(index.connection, tables.COMPLETE, 0)
        index.begin_rebuild()


def remove_index(path: str) -> None:
    """Remove the file of an index that no process has open, finished or not. Raises ``OSError``."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        files.remove(path + suffix)
