"""The rows of an index: documents are removed with everything that was kept of them, and inserted again."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from persistence.index.sqlite.records import (
    BOTH,
    ROWS_PER_MILLISECOND,
    EntryRow,
    PreparedDocument,
    decode,
    entries,
    first_row,
)
from persistence.index.sqlite.schema import (
    COMPLETE,
    FIELDS,
    INDEXES,
    SCHEMA,
    SCHEMA_FACT,
    TABLES,
    TEXTS,
    TREE,
    tune_for_changes,
    tune_for_filling,
    write_fact,
)
from persistence.storage import files

_KEPT = (
    "SELECT d.text, d.row, d.shelf, s.version, d.round, d.mark FROM documents d JOIN shelves s ON s.number = d.shelf"
    " WHERE d.document = ? AND d.draft = ?"
)
_ADD_FIELDS = f"INSERT INTO fields (rowid, {', '.join(FIELDS)}) VALUES (?{', ?' * len(FIELDS)})"
_ADD_REST = "INSERT INTO rests (rowid, rest) VALUES (?, ?)"
_ADD_TEXT = "INSERT INTO texts (text, row) VALUES (?, ?)"
_ADD_ENTRY = "INSERT INTO entries (number, shelf, fold, value, row, edge) VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE_ENTRY = "DELETE FROM entries WHERE number = ? AND shelf = ? AND fold = ? AND value = ? AND row = ?"
_ADD_DOCUMENT = (
    "INSERT INTO documents (row, text, shelf, draft, document, mark, round, created, card)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

DocumentName = tuple[str, bool]
"""A document, and whether its draft is meant."""

STAGED = "-staged"
"""The end of the name of the file in which entries of a new index are kept until they are sorted."""

_MERGED = 200
"""Pages of the index of texts that are written at once while pieces are merged."""


class KeptRow(NamedTuple):
    """The place of a document in the index, the round of its version, and the fingerprint that was read."""

    text: int
    row: int
    partition: int
    version: int
    round: int
    fingerprint: str


class Rows:
    """The rows of one index, to be changed within a transaction of its connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._partitions: dict[tuple[int, bool, bool], int] = {}

    def numbers(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the numbers of controls by path; new controls get one."""
        found = {}
        for path in paths:
            row = self._connection.execute("SELECT number FROM controls WHERE path = ?", (path,)).fetchone()
            if row is None:
                row = (self._connection.execute("INSERT INTO controls (path) VALUES (?)", (path,)).lastrowid,)
            found[path] = int(row[0])
        return found

    def kept(self, document: str, *, is_draft: bool) -> KeptRow | None:
        """Return the row of a document or draft; ``None`` where there is none."""
        row = self._connection.execute(_KEPT, (document, is_draft)).fetchone()
        return None if row is None else KeptRow(*row)

    def remove(self, kept: Iterable[KeptRow]) -> None:
        """Remove documents."""
        execute = self._connection.execute
        gone: Counter[int] = Counter()
        for each in sorted(kept):  # in order: texts are written out where their numbers go back
            card = execute("SELECT card FROM documents WHERE row = ?", (each.row,)).fetchone()[0]
            for table in ("fields", "rests", "texts"):
                execute(f"DELETE FROM {table} WHERE rowid = ?", (each.text,))
            execute("DELETE FROM documents WHERE row = ?", (each.row,))
            gone[each.partition] -= 1
            self._connection.executemany(
                _REMOVE_ENTRY,
                [(number, each.partition, fold, value, each.row) for number, fold, value, _ in entries(decode(card))],
            )
        self._count(gone)

    def add(self, documents: Iterable[PreparedDocument]) -> None:
        """Insert documents that have no row."""
        placed = list(self._placed(documents))
        many = self._connection.executemany
        many(_ADD_DOCUMENT, [_row(each, *at) for each, at in placed])
        many(_ADD_TEXT, [(text, row) for _, (row, text, _) in placed])
        many(_ADD_FIELDS, [(text, *each.fields) for each, (_, text, _) in placed])
        many(_ADD_REST, [(text, each.rest) for each, (_, text, _) in placed])
        for each, (row, _, partition) in placed:
            self._enter(partition, row, each.entries)
        several = {number for each, _ in placed for number, *_, edge in each.entries if edge != BOTH}
        many("UPDATE controls SET several = 1 WHERE number = ? AND NOT several", [(number,) for number in several])
        self._count(Counter(partition for _, (_, _, partition) in placed))

    def partition_of(self, document: PreparedDocument) -> int:
        """Return the partition that a document belongs to: one that is seen."""
        return self._partition(document.version, is_draft=document.is_draft, is_hidden=False)

    def merge(self) -> bool:
        """Merge pieces of the index of texts, a few at a time; return whether there may be more."""
        before = self._connection.total_changes
        for table in TEXTS:
            self._connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (_MERGED,))
        return self._connection.total_changes - before > len(TEXTS)

    def _placed(self, documents: Iterable[PreparedDocument]) -> Iterator[tuple[PreparedDocument, tuple[int, int, int]]]:
        """Yield the documents with their row, text and partition; those saved at one instant have adjacent rows."""
        text = self._connection.execute("SELECT coalesce(max(text), 0) FROM texts").fetchone()[0]
        taken: dict[int, int] = {}
        for each in documents:
            text += 1
            first = first_row(each.modified)
            row = taken[first] + 1 if first in taken else self._free(first)
            taken[first] = row
            yield each, (row, text, self.partition_of(each))

    def _enter(self, partition: int, row: int, found: Iterable[EntryRow]) -> None:
        self._connection.executemany(
            _ADD_ENTRY, [(number, partition, fold, value, row, edge) for number, fold, value, edge in found]
        )

    def _partition(self, version: int, *, is_draft: bool, is_hidden: bool) -> int:
        """Return the partition of the saved documents, or of the drafts, of a version; make a missing one."""
        key = version, is_draft, is_hidden
        known = self._partitions.get(key)
        if known is None:
            execute = self._connection.execute
            found = execute("SELECT number FROM shelves WHERE version = ? AND draft = ? AND hidden = ?", key).fetchone()
            if found is None:
                found = (execute("INSERT INTO shelves (version, draft, hidden) VALUES (?, ?, ?)", key).lastrowid,)
            known = self._partitions[key] = int(found[0])
        return known

    def _free(self, first: int) -> int:
        """Return a row for another document that was saved at the same instant."""
        end = first + ROWS_PER_MILLISECOND
        last = self._connection.execute(
            "SELECT max(row) FROM documents WHERE row >= ? AND row < ?", (first, end)
        ).fetchone()[0]
        return first if last is None else int(last) + 1

    def _count(self, changes: Mapping[int, int]) -> None:
        self._connection.executemany(
            "UPDATE shelves SET documents = documents + ? WHERE number = ?",
            [(change, partition) for partition, change in changes.items()],
        )


def _row(document: PreparedDocument, row: int, text: int, partition: int) -> tuple[object, ...]:
    return (
        *(row, text, partition, document.is_draft, document.document),
        *(document.fingerprint, document.round, document.created, document.card),
    )


class BulkRows(Rows):
    """The rows of a new index, in a file that nobody else has open: entries are written at the end, in their order.

    ``hidden`` are the documents that are not to be seen. Methods raise ``sqlite3.Error`` and ``OSError``.
    """

    def __init__(self, path: str, connection: sqlite3.Connection, hidden: frozenset[DocumentName]) -> None:
        super().__init__(connection)
        self._path = path
        self._hidden = hidden
        self._staged: dict[int, list[tuple[int, int | str, int | str, int, int]]] = {}
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE", "cache_size = -65536"):
            connection.execute(f"PRAGMA {pragma}")
        connection.executescript(TABLES)
        files.ensure_file(path + STAGED)
        connection.execute("ATTACH ? AS staged", (path + STAGED,))
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
            connection.execute(f"PRAGMA staged.{pragma}")
        tune_for_filling(connection)
        connection.execute("BEGIN")
        write_fact(connection, SCHEMA_FACT, SCHEMA)

    def add(self, documents: Iterable[PreparedDocument]) -> None:
        """Insert documents."""
        super().add(documents)
        for number, found in self._staged.items():
            self._connection.executemany(f"INSERT INTO staged.{_table(number)} VALUES (?, ?, ?, ?, ?)", found)
            found.clear()

    def finish(self, tree: str) -> None:
        """Complete the index, as of when its documents were read; ``tree`` is the identity of the tree."""
        for number in sorted(self._staged):
            self._connection.execute(
                "INSERT INTO entries (number, shelf, fold, value, row, edge)"
                f" SELECT {number}, shelf, fold, value, row, edge FROM staged.{_table(number)}"
                " ORDER BY shelf, fold, value, row"
            )
        for table in TEXTS:
            self._connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
        self._connection.execute("COMMIT")
        tune_for_changes(self._connection)
        self._connection.executescript(INDEXES)
        write_fact(self._connection, TREE, tree)
        write_fact(self._connection, COMPLETE, 1)
        self._connection.execute("DETACH staged")
        files.remove(self._path + STAGED)

    def partition_of(self, document: PreparedDocument) -> int:
        """Return the partition that is seen, or the hidden one."""
        is_hidden = (document.document, document.is_draft) in self._hidden
        return self._partition(document.version, is_draft=document.is_draft, is_hidden=is_hidden)

    def _enter(self, partition: int, row: int, found: Iterable[EntryRow]) -> None:
        for number, fold, value, edge in found:
            staged = self._staged.get(number)
            if staged is None:
                staged = self._staged[number] = []
                self._connection.execute(f"CREATE TABLE staged.{_table(number)} (shelf, fold, value, row, edge)")
            staged.append((partition, fold, value, row, edge))


def _table(number: int) -> str:
    return f"control{number}" if number > 0 else f"fact{-number}"
