"""The state of an index as it says itself: facts, form versions, and the fingerprints of what was read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from persistence.index.sqlite.rows import DocumentName
from persistence.index.sqlite.schema import CHANGES, COMPLETE, REBUILDING, TREE, read_fact, write_fact

Connection = sqlite3.Connection


class IndexedVersion(NamedTuple):
    """A form version as the index has it.

    ``controls`` are the numbers of its indexed controls as JSON; ``None`` where it is not published. ``round`` changes
    whenever its documents must be read again.
    """

    fingerprint: str
    controls: str | None
    round: int


class IndexState:
    """Reads and changes the state of one index. Methods raise ``sqlite3.Error``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def is_complete(self) -> bool:
        """Return whether the index has rows of all documents, and does not only stand for one that is being built."""
        return bool(read_fact(self._connection, COMPLETE))

    @property
    def tree(self) -> str:
        """Return the identity of the tree with which the index was last known to be up to date."""
        return str(read_fact(self._connection, TREE))

    @tree.setter
    def tree(self, identity: str) -> None:
        write_fact(self._connection, TREE, identity)

    @property
    def changes(self) -> int:
        """Return the number of changes to the index."""
        return int(read_fact(self._connection, CHANGES) or 0)

    @changes.setter
    def changes(self, number: int) -> None:
        write_fact(self._connection, CHANGES, number)

    # Documents.

    def fingerprints(self, document: str) -> tuple[str, str]:
        """Return the fingerprints of a draft and of the saved document that were read; empty where there is no row."""
        found = dict(
            self._connection.execute("SELECT draft, mark FROM documents WHERE document = ?", (document,)).fetchall()
        )
        return found.get(1, ""), found.get(0, "")

    def count(self) -> int:
        """Return the number of documents and drafts."""
        return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def names(self, after: int, most: int) -> list[tuple[int, str, bool]]:
        """Return the next documents after a row: their rows, and whether they are drafts."""
        found = self._connection.execute(
            "SELECT row, document, draft FROM documents WHERE row > ? ORDER BY row LIMIT ?", (after, most)
        )
        return [(row, document, bool(draft)) for row, document, draft in found]

    def names_of(self, version: int, after: int, most: int) -> list[tuple[int, str]]:
        """Return the next documents of a version after a row."""
        return self._connection.execute(
            "SELECT row, document FROM documents WHERE row > ? AND shelf IN"
            " (SELECT number FROM shelves WHERE version = ?) ORDER BY row LIMIT ?",
            (after, version, most),
        ).fetchall()

    def hidden(self, but: int) -> frozenset[DocumentName]:
        """Return the documents that are hidden because their definition was deleted, except those of one version."""
        found = self._connection.execute(
            "SELECT d.document, d.draft FROM documents d JOIN shelves s ON s.number = d.shelf"
            " WHERE s.hidden AND s.version <> ?",
            (but,),
        )
        return frozenset((document, bool(draft)) for document, draft in found)

    # Changes during a rebuild.

    @property
    def is_rebuilding(self) -> bool:
        """Return whether another index is being built."""
        return bool(read_fact(self._connection, REBUILDING))

    def begin_rebuild(self) -> None:
        """List changed documents from now on."""
        write_fact(self._connection, REBUILDING, 1)

    def end_rebuild(self) -> None:
        """List changed documents no longer; an index that only stands for another one goes on."""
        if self.is_complete:
            write_fact(self._connection, REBUILDING, 0)
            self._connection.execute("DELETE FROM missed")

    def miss(self, documents: Iterable[str]) -> None:
        """List documents that have changed, which the new index may not have read."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO missed (document) VALUES (?)", [(document,) for document in documents]
        )

    def missed(self) -> list[str]:
        """Return the documents that have changed since the rebuild began."""
        return [document for (document,) in self._connection.execute("SELECT document FROM missed").fetchall()]

    # Form versions.

    def controls(self) -> dict[str, int]:
        """Return the numbers of controls by path."""
        return dict(self._connection.execute("SELECT path, number FROM controls").fetchall())

    def definitions(self) -> list[tuple[int, str]]:
        """Return the versions that documents were read by, with the fingerprints of their definitions."""
        return self._connection.execute("SELECT version, mark FROM editions").fetchall()

    def outdated(self) -> list[int]:
        """Return the versions whose documents must be read again."""
        found = self._connection.execute("SELECT version FROM editions WHERE is_outdated ORDER BY version")
        return [version for (version,) in found]

    def version(self, number: int) -> IndexedVersion | None:
        """Return a version; ``None`` where the index does not know it."""
        row = self._connection.execute(
            "SELECT mark, controls, round FROM editions WHERE version = ?", (number,)
        ).fetchone()
        return None if row is None else IndexedVersion(*row)

    def add_version(self, number: int, version: IndexedVersion) -> None:
        """Store a version that the index does not know."""
        self._connection.execute(
            "INSERT INTO editions (version, mark, controls, round) VALUES (?, ?, ?, ?)", (number, *version)
        )

    def change_version(self, number: int, version: IndexedVersion, *, is_outdated: bool) -> None:
        """Store the new state of a version; if it ``is_outdated``, its documents must be read again."""
        self._connection.execute(
            "UPDATE editions SET mark = ?, controls = ?, round = ?, is_outdated = is_outdated OR ? WHERE version = ?",
            (*version, is_outdated, number),
        )

    def hide_version(self, number: int) -> None:
        """Hide the documents of a version whose definition was deleted (spec search 2.5)."""
        self._connection.execute("UPDATE shelves SET hidden = 1 WHERE version = ?", (number,))

    def settle_version(self, number: int, in_round: int) -> None:
        """Note that the documents of a version have been read again, unless its definition changed since."""
        self._connection.execute(
            "UPDATE editions SET is_outdated = 0 WHERE version = ? AND round = ?", (number, in_round)
        )


def controls_json(numbers: Iterable[int]) -> str:
    """Return the numbers of controls as ``IndexedVersion`` has them."""
    return json.dumps(list(numbers))
