"""The tables of an index file, and the facts about it as a whole.

The number of a ``row`` tells when its document was saved. Rows are far apart, so the index of texts, whose size depends
on how near its numbers are, has numbers of its own: those of ``texts``.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

from persistence.index.sqlite.records import COLUMNS

SCHEMA = 2
"""The version of the tables and of what is written into them; an index of another one is rebuilt."""

FIELDS = tuple(f"field{number}" for number in range(COLUMNS))
"""The columns of text of indexed controls."""

TABLES = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE controls (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, several INTEGER NOT NULL DEFAULT 0);
CREATE TABLE editions (
    version INTEGER PRIMARY KEY, mark TEXT NOT NULL, controls TEXT, round INTEGER NOT NULL,
    is_outdated INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE shelves (
    number INTEGER PRIMARY KEY, version INTEGER NOT NULL, draft INTEGER NOT NULL, hidden INTEGER NOT NULL DEFAULT 0,
    documents INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE documents (
    row INTEGER PRIMARY KEY, text INTEGER NOT NULL, shelf INTEGER NOT NULL, draft INTEGER NOT NULL,
    document TEXT NOT NULL, mark TEXT NOT NULL, round INTEGER NOT NULL, created TEXT NOT NULL, card TEXT NOT NULL
);
CREATE TABLE entries (
    number INTEGER NOT NULL, shelf INTEGER NOT NULL, fold NOT NULL, value NOT NULL, row INTEGER NOT NULL,
    edge INTEGER NOT NULL, PRIMARY KEY (number, shelf, fold, value, row)
) WITHOUT ROWID;
CREATE TABLE texts (text INTEGER PRIMARY KEY, row INTEGER NOT NULL);
CREATE TABLE missed (document TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE VIRTUAL TABLE fields USING fts5(
    {", ".join(FIELDS)}, tokenize = 'trigram case_sensitive 1', detail = column, columnsize = 0
);
CREATE VIRTUAL TABLE rests USING fts5(rest, tokenize = 'trigram case_sensitive 1', detail = none, columnsize = 0);
"""
"""The names of tables and columns are those of the files that exist.

A row of ``shelves`` is a partition (``partitions``), one of ``editions`` the state of a form version by which documents
were read, and ``mark`` is the fingerprint of a definition or document.
"""

INDEXES = """
CREATE UNIQUE INDEX documents_by_name ON documents (document, draft);
CREATE INDEX documents_by_shelf ON documents (shelf, row);
"""
"""Apart, because a new index is filled before it has them."""

TEXTS = ("fields", "rests")
"""The tables of the index of texts."""

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
    """Return a fact; ``None`` where it is not known."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def write_fact(connection: sqlite3.Connection, name: str, value: str | int) -> None:
    """Store a fact."""
    connection.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))


def tune(connection: sqlite3.Connection, **settings: int) -> None:
    """Set options of the index of texts (SQLite FTS5, 6); raises ``sqlite3.Error``."""
    for table in TEXTS:
        for name, value in settings.items():
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (name, value))


def tune_for_changes(connection: sqlite3.Connection) -> None:
    """Let a change write no more than it must: by default, each would rewrite a good part of what there is.

    Pieces are merged sixteen at a time when there are so many, and by the updater when it has nothing else to do.
    """
    tune(connection, automerge=0, crisismerge=16, hashsize=1 << 20)


def tune_for_filling(connection: sqlite3.Connection) -> None:
    """Let a new index be written in large pieces, which are merged at the end."""
    tune(connection, automerge=0, crisismerge=1_000, hashsize=16 << 20)


def is_whole(connection: sqlite3.Connection) -> bool:
    """Return whether an index has the tables that it should have, as it says itself; raises ``sqlite3.Error``."""
    return _said(connection) == _expected()


@cache
def _expected() -> list[tuple[str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES + INDEXES)
        return _said(connection)


def _said(connection: sqlite3.Connection) -> list[tuple[str, str | None]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
