"""The tables of an index file, and its state as it says itself: facts, form versions, and fingerprints.

The number of a ``row`` contains the time at which its document was saved. Rows are far apart, so the index of texts,
whose size depends on how near its numbers are, has numbers of its own: those of ``texts``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from typing import NamedTuple

from persistence.closable import Closable
from persistence.index.sources import DocumentName
from persistence.index.sqlite.records import COLUMNS

SCHEMA = 4
"""The version of the tables and of their content; an index of another one is rebuilt."""

FIELDS = tuple(f"field{number}" for number in range(COLUMNS))
"""The columns of text of indexed controls."""

TABLES = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE controls (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, several INTEGER NOT NULL DEFAULT 0);
CREATE TABLE versions (
    version INTEGER PRIMARY KEY, mark TEXT NOT NULL, controls TEXT, round INTEGER NOT NULL,
    is_outdated INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE partitions (
    number INTEGER PRIMARY KEY, version INTEGER NOT NULL, draft INTEGER NOT NULL, hidden INTEGER NOT NULL DEFAULT 0,
    documents INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE documents (
    row INTEGER PRIMARY KEY, text INTEGER NOT NULL, partition INTEGER NOT NULL, draft INTEGER NOT NULL,
    document TEXT NOT NULL, mark TEXT NOT NULL, round INTEGER NOT NULL, created TEXT NOT NULL, card TEXT NOT NULL
);
CREATE TABLE entries (
    number INTEGER NOT NULL, partition INTEGER NOT NULL, fold NOT NULL, value NOT NULL, row INTEGER NOT NULL,
    edge INTEGER NOT NULL, PRIMARY KEY (number, partition, fold, value, row)
) WITHOUT ROWID;
CREATE TABLE texts (text INTEGER PRIMARY KEY, row INTEGER NOT NULL);
CREATE TABLE missed (document TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE VIRTUAL TABLE fields USING fts5(
    {", ".join(FIELDS)}, tokenize = 'trigram case_sensitive 1', detail = column, columnsize = 0
);
CREATE VIRTUAL TABLE rests USING fts5(
    rest, tokenize = 'trigram case_sensitive 1', detail = none, columnsize = 0
);
"""
"""A row of ``versions`` is the state of a form version by which documents were read; ``mark`` is the fingerprint of a
definition or document.
"""

INDEXES = """
CREATE UNIQUE INDEX documents_by_name ON documents (document, draft);
CREATE INDEX documents_by_partition ON documents (partition, row);
"""
"""Apart, because a new index is filled before it has them."""

TEXTS = ("fields", "rests")
"""The tables of the index of texts: of indexed controls, and of all else."""

SCHEMA_FACT = "schema"
TREE = "tree"
"""The identity of the tree with which the index was last known to be up to date."""
COMPLETE = "complete"
"""The flag that the index has rows of all documents; without it, it stands for one that is being built."""
REBUILDING = "rebuilding"
"""The flag that another index is being built, which may miss changes: they are listed in ``missed``."""
CHANGES = "changes"
"""The number of changes to the index."""


def read_fact(connection: sqlite3.Connection, name: str) -> str | int | None:
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def write_fact(connection: sqlite3.Connection, name: str, value: str | int) -> None:
    connection.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))


def tune(connection: sqlite3.Connection, *, crisismerge: int = 16) -> None:
    """Let a change of the index of texts write little; by default, each would rewrite a large part (SQLite FTS5, 6).

    Pieces are merged when there are ``crisismerge``, and by the updater when it has nothing else to do.
    """
    for table in TEXTS:
        for name, value in (("automerge", 0), ("crisismerge", crisismerge), ("hashsize", 1 << 20)):
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (name, value))


def optimize(connection: sqlite3.Connection) -> None:
    """Merge all pieces of the index of texts."""
    for table in TEXTS:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")


def is_whole(connection: sqlite3.Connection) -> bool:
    """Return whether an index has the tables that it should have, as it says itself; raises ``sqlite3.Error``."""
    return _tables_of(connection) == _expected()


@cache
def _expected() -> list[tuple[str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES + INDEXES)
        return _tables_of(connection)


def _tables_of(connection: sqlite3.Connection) -> list[tuple[str, str | None]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


class KeptRow(NamedTuple):
    """The place of a document in the index, the round of its version, and the fingerprint that was read."""

    text: int
    row: int
    partition: int
    version: int
    round: int
    fingerprint: str


class IndexedVersion(NamedTuple):
    """A form version as the index has it.

    ``controls`` are the numbers of its indexed controls; ``None`` where it is not published. ``round`` changes whenever
    its documents must be read again.
    """

    fingerprint: str
    controls: tuple[int, ...] | None
    round: int


_KEPT = (
    "SELECT d.draft, d.text, d.row, d.partition, p.version, d.round, d.mark"
    " FROM documents d JOIN partitions p ON p.number = d.partition WHERE d.document = ?"
)


class IndexState(Closable):
    """Reads and changes the state of the index at a path, by a connection that it owns.

    Only the engine uses the connection. Methods raise ``sqlite3.Error``.
    """

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    def close(self) -> None:
        self.connection.close()

    @property
    def is_complete(self) -> bool:
        """Return whether the index has rows of all documents, and does not only stand for one that is being built."""
        return bool(read_fact(self.connection, COMPLETE))

    @property
    def tree(self) -> str:
        """Return the identity of the tree with which the index was last known to be up to date."""
        return str(read_fact(self.connection, TREE))

    @tree.setter
    def tree(self, identity: str) -> None:
        write_fact(self.connection, TREE, identity)

    @property
    def changes(self) -> int:
        return int(read_fact(self.connection, CHANGES) or 0)

    @changes.setter
    def changes(self, number: int) -> None:
        write_fact(self.connection, CHANGES, number)

    # Documents.

    def fingerprints(self, document: str) -> tuple[str, str]:
        """Return the fingerprints of a draft and of the saved document that were read; empty where there is no row."""
        found = dict(
            self.connection.execute("SELECT draft, mark FROM documents WHERE document = ?", (document,)).fetchall()
        )
        return found.get(1, ""), found.get(0, "")

    def kept(self, document: str) -> dict[bool, KeptRow]:
        """Return the rows of a document by whether they are of its draft, as far as there are any."""
        return {bool(draft): KeptRow(*row) for draft, *row in self.connection.execute(_KEPT, (document,))}

    def count(self) -> int:
        """Return the number of documents and drafts."""
        return int(self.connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def names(self, after: int, most: int) -> list[tuple[int, DocumentName]]:
        """Return the next documents and drafts after a row, each with its row."""
        found = self.connection.execute(
            "SELECT row, document, draft FROM documents WHERE row > ? ORDER BY row LIMIT ?", (after, most)
        )
        return [(row, DocumentName(document, bool(draft))) for row, document, draft in found]

    def names_of(self, version: int, after: int, most: int) -> list[tuple[int, str]]:
        """Return the next documents of a version after a row."""
        return self.connection.execute(
            "SELECT row, document FROM documents WHERE row > ? AND partition IN"
            " (SELECT number FROM partitions WHERE version = ?) ORDER BY row LIMIT ?",
            (after, version, most),
        ).fetchall()

    def hidden(self, but: int) -> frozenset[DocumentName]:
        """Return the documents that are hidden because their definition was deleted, except those of one version."""
        found = self.connection.execute(
            "SELECT d.document, d.draft FROM documents d JOIN partitions p ON p.number = d.partition"
            " WHERE p.hidden AND p.version <> ?",
            (but,),
        )
        return frozenset(DocumentName(document, bool(draft)) for document, draft in found)

    # Changes during a rebuild.

    @property
    def is_rebuilding(self) -> bool:
        """Return whether another index is being built."""
        return bool(read_fact(self.connection, REBUILDING))

    def begin_rebuild(self) -> None:
        """List changed documents from now on."""
        write_fact(self.connection, REBUILDING, 1)

    def end_rebuild(self) -> None:
        """List changed documents no longer; an index that only stands for another one goes on."""
        if self.is_complete:
            write_fact(self.connection, REBUILDING, 0)
            self.connection.execute("DELETE FROM missed")

    def miss(self, documents: Iterable[str]) -> None:
        """List documents that have changed, which the new index may not have read."""
        self.connection.executemany(
            "INSERT OR IGNORE INTO missed (document) VALUES (?)", [(document,) for document in documents]
        )

    def missed(self) -> list[str]:
        """Return the documents that have changed since the rebuild began."""
        return [document for (document,) in self.connection.execute("SELECT document FROM missed")]

    # Form versions.

    def controls(self) -> dict[str, int]:
        """Return the numbers of controls by path."""
        return dict(self.connection.execute("SELECT path, number FROM controls").fetchall())

    def definitions(self) -> list[tuple[int, str]]:
        """Return the versions that documents were read by, with the fingerprints of their definitions."""
        return self.connection.execute("SELECT version, mark FROM versions").fetchall()

    def outdated(self) -> list[int]:
        """Return the versions whose documents must be read again."""
        found = self.connection.execute("SELECT version FROM versions WHERE is_outdated ORDER BY version")
        return [version for (version,) in found]

    def version(self, number: int) -> IndexedVersion | None:
        row = self.connection.execute(
            "SELECT mark, controls, round FROM versions WHERE version = ?", (number,)
        ).fetchone()
        if row is None:
            return None
        fingerprint, controls, in_round = row
        return IndexedVersion(fingerprint, None if controls is None else tuple(json.loads(controls)), in_round)

    def store_version(self, number: int, version: IndexedVersion, *, is_outdated: bool = False) -> None:
        """Store the new state of a version; if it ``is_outdated``, its documents must be read again."""
        controls = None if version.controls is None else json.dumps(version.controls)
        self.connection.execute(
            "INSERT INTO versions (version, mark, controls, round, is_outdated) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET mark = excluded.mark, controls = excluded.controls, round = excluded.round,"
            " is_outdated = is_outdated OR excluded.is_outdated",
            (number, version.fingerprint, controls, version.round, is_outdated),
        )

    def hide_version(self, number: int) -> None:
        """Hide the documents of a version whose definition was deleted (spec search 2.5)."""
        self.connection.execute("UPDATE partitions SET hidden = 1 WHERE version = ?", (number,))

    def settle_version(self, number: int, in_round: int) -> None:
        """Note that the documents of a version have been read again, unless its definition changed since."""
        self.connection.execute(
            "UPDATE versions SET is_outdated = 0 WHERE version = ? AND round = ?", (number, in_round)
        )
