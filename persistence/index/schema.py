"""The tables of an index.

The number of a ``row`` says when its document was saved. Rows are far apart, so the index of texts, whose size depends
on how near its numbers are, has numbers of its own: those of ``texts``.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

from persistence.index.records import COLUMNS

SCHEMA = 2
"""The version of the tables and of what is written into them; an index of another one is built anew."""

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

INDEXES = """
CREATE UNIQUE INDEX documents_by_name ON documents (document, draft);
CREATE INDEX documents_by_shelf ON documents (shelf, row);
"""
"""Apart, because a new index is filled before it has them."""

TEXTS = ("fields", "rests")
"""The tables of the index of texts."""


def tune(connection: sqlite3.Connection, **settings: int) -> None:
    """Set what the index of texts does (SQLite FTS5, 6); raises ``sqlite3.Error``."""
    for table in TEXTS:
        for name, value in settings.items():
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (name, value))


def tune_for_changes(connection: sqlite3.Connection) -> None:
    """Let a change write what it must and no more: by itself, each would rewrite a good part of what there is.

    Pieces are merged sixteen at a time when there are so many, and by the indexer when nothing else is to be done.
    """
    tune(connection, automerge=0, crisismerge=16, hashsize=1 << 20)


def tune_for_filling(connection: sqlite3.Connection) -> None:
    """Let a new index be written in large pieces, which are merged at the end."""
    tune(connection, automerge=0, crisismerge=1_000, hashsize=16 << 20)


def is_whole(connection: sqlite3.Connection) -> bool:
    """Whether an index has the tables that it is to have, as it says itself; raises ``sqlite3.Error``."""
    return _said(connection) == _expected()


@cache
def _expected() -> list[tuple[str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES + INDEXES)
        return _said(connection)


def _said(connection: sqlite3.Connection) -> list[tuple[str, str | None]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
