"""Filling a new index: what is sorted is written at the end, in its order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from persistence.index import facts
from persistence.index.records import Entry, Prepared
from persistence.index.rows import Name, Place, Rows
from persistence.index.schema import INDEXES, SCHEMA, TABLES, TEXTS, tune_for_changes, tune_for_filling
from persistence.storage import files

STAGED = "-staged"
"""The end of the name of the file in which entries wait."""


class Bulk(Rows):
    """A new index, in a file that nobody else has open. Methods raise ``sqlite3.Error`` and ``OSError``.

    ``cleared`` are the documents that are not to be seen.
    """

    def __init__(self, path: str, connection: sqlite3.Connection, cleared: frozenset[Name]) -> None:
        super().__init__(connection)
        self._path = path
        self._cleared = cleared
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
        facts.write(connection, facts.SCHEMA_FACT, SCHEMA)

    def add(self, documents: Iterable[Prepared]) -> None:
        """Take documents in."""
        super().add(documents)
        for number, found in self._staged.items():
            self._connection.executemany(f"INSERT INTO staged.{_table(number)} VALUES (?, ?, ?, ?, ?)", found)
            found.clear()

    def finish(self, tree: str) -> None:
        """Make it a complete index of a tree (``identity``), as of when its documents were read."""
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
        facts.write(self._connection, facts.TREE, tree)
        facts.write(self._connection, facts.COMPLETE, 1)
        self._connection.execute("DETACH staged")
        files.remove(self._path + STAGED)

    def shelf_of(self, document: Prepared) -> int:
        """The shelf that is seen, or another one."""
        if (document.document, document.is_draft) in self._cleared:
            return self.shelf(document.version, is_draft=document.is_draft, is_hidden=True)
        return super().shelf_of(document)

    def _enter(self, place: Place, found: Iterable[Entry]) -> None:
        for number, fold, value, edge in found:
            staged = self._staged.get(number)
            if staged is None:
                staged = self._staged[number] = []
                self._connection.execute(f"CREATE TABLE staged.{_table(number)} (shelf, fold, value, row, edge)")
            staged.append((place.shelf, fold, value, place.row, edge))


def _table(number: int) -> str:
    return f"control{number}" if number > 0 else f"fact{-number}"
