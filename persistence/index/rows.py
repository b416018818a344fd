"""Changing the rows of an index: documents go out with everything that was kept of them, and come in again."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from persistence.index.records import (
    BOTH,
    ROWS_PER_MILLISECOND,
    Entry,
    Prepared,
    decode,
    entries,
    first_row,
)
from persistence.index.schema import FIELDS

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

Name = tuple[str, bool]
"""A document, and whether its draft is meant."""


class Kept(NamedTuple):
    """Where a document is in the index, by which edition, and the mark of the state that was read."""

    text: int
    row: int
    shelf: int
    version: int
    round: int
    mark: str


class Place(NamedTuple):
    """The numbers of a document."""

    row: int
    text: int
    shelf: int


class Rows:
    """The rows of one index, to be changed within a transaction of its connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._shelves: dict[tuple[int, bool, bool], int] = {}

    def numbers(self, paths: Iterable[str]) -> dict[str, int]:
        """The numbers of controls by path; those that have none get one."""
        found = {}
        for path in paths:
            row = self._connection.execute("SELECT number FROM controls WHERE path = ?", (path,)).fetchone()
            if row is None:
                row = (self._connection.execute("INSERT INTO controls (path) VALUES (?)", (path,)).lastrowid,)
            found[path] = int(row[0])
        return found

    def kept(self, document: str, *, is_draft: bool) -> Kept | None:
        """The row of a document or draft; ``None`` where there is none."""
        row = self._connection.execute(_KEPT, (document, is_draft)).fetchone()
        return None if row is None else Kept(*row)

    def remove(self, kept: Iterable[Kept]) -> None:
        """Take documents out."""
        execute = self._connection.execute
        gone: Counter[int] = Counter()
        for each in sorted(kept):  # in order: texts are written out where their numbers go back
            card = execute("SELECT card FROM documents WHERE row = ?", (each.row,)).fetchone()[0]
            for table in ("fields", "rests", "texts"):
                execute(f"DELETE FROM {table} WHERE rowid = ?", (each.text,))
            execute("DELETE FROM documents WHERE row = ?", (each.row,))
            gone[each.shelf] -= 1
            self._connection.executemany(
                _REMOVE_ENTRY,
                [(number, each.shelf, fold, value, each.row) for number, fold, value, _ in entries(decode(card))],
            )
        self._count(gone)

    def add(self, documents: Iterable[Prepared]) -> None:
        """Take in documents of which there is no row."""
        placed = list(self._placed(documents))
        many = self._connection.executemany
        many(
            _ADD_DOCUMENT,
            [
                (
                    at.row,
                    at.text,
                    at.shelf,
                    each.is_draft,
                    each.document,
                    each.mark,
                    each.round,
                    each.created,
                    each.card,
                )
                for each, at in placed
            ],
        )
        many(_ADD_TEXT, [(at.text, at.row) for _, at in placed])
        many(_ADD_FIELDS, [(at.text, *each.fields) for each, at in placed])
        many(_ADD_REST, [(at.text, each.rest) for each, at in placed])
        for each, at in placed:
            self._enter(at, each.entries)
        self._note_several({number for each, _ in placed for number, *_, edge in each.entries if edge != BOTH})
        self._count(Counter(at.shelf for _, at in placed))

    def _placed(self, documents: Iterable[Prepared]) -> Iterator[tuple[Prepared, Place]]:
        """The documents with their numbers; those saved at one instant have rows one after the other."""
        text = self._connection.execute("SELECT coalesce(max(text), 0) FROM texts").fetchone()[0]
        taken: dict[int, int] = {}
        for each in documents:
            text += 1
            first = first_row(each.modified)
            row = taken[first] + 1 if first in taken else self._free(first)
            taken[first] = row
            yield each, Place(row, text, self.shelf_of(each))

    def _enter(self, place: Place, found: Iterable[Entry]) -> None:
        self._connection.executemany(
            _ADD_ENTRY,
            [(number, place.shelf, fold, value, place.row, edge) for number, fold, value, edge in found],
        )

    def shelf_of(self, document: Prepared) -> int:
        """The shelf that a document belongs on: one that is seen."""
        return self.shelf(document.version, is_draft=document.is_draft, is_hidden=False)

    def shelf(self, version: int, *, is_draft: bool, is_hidden: bool) -> int:
        """A shelf of the saved documents, or of the drafts, of a version."""
        key = version, is_draft, is_hidden
        known = self._shelves.get(key)
        if known is None:
            execute = self._connection.execute
            found = execute("SELECT number FROM shelves WHERE version = ? AND draft = ? AND hidden = ?", key).fetchone()
            if found is None:
                found = (execute("INSERT INTO shelves (version, draft, hidden) VALUES (?, ?, ?)", key).lastrowid,)
            known = self._shelves[key] = int(found[0])
        return known

    def _free(self, first: int) -> int:
        """A row for another document that was saved at the same instant."""
        end = first + ROWS_PER_MILLISECOND
        last = self._connection.execute(
            "SELECT max(row) FROM documents WHERE row >= ? AND row < ?", (first, end)
        ).fetchone()[0]
        return first if last is None else int(last) + 1

    def _note_several(self, numbers: Iterable[int]) -> None:
        """Remember of which controls a document may have several values; facts are none."""
        self._connection.executemany(
            "UPDATE controls SET several = 1 WHERE number = ? AND NOT several", [(number,) for number in numbers]
        )

    def _count(self, changes: Mapping[int, int]) -> None:
        self._connection.executemany(
            "UPDATE shelves SET documents = documents + ? WHERE number = ?",
            [(change, shelf) for shelf, change in changes.items()],
        )
