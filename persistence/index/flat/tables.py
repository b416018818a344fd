"""The tables of flat views, and changing their rows within a transaction of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from persistence.errors import BadRequestError
from persistence.index.flat.documents import Filled
from persistence.model.flat_views import DOCUMENT_COLUMN, METADATA_COLUMNS, FlatView

_LONGEST_STATEMENT = 1_000_000
"""Bytes of a statement that SQLite takes."""


def create(connection: sqlite3.Connection, view: FlatView) -> None:
    """Make the table of a view, without rows.

    Raises:
        BadRequestError: its columns have too long names.
    """
    # Numbers and times have the affinity of texts: what was entered is what is read.
    columns = [f"{_quoted(name)} TEXT" for name in view.column_names]
    columns[0] += " NOT NULL"
    first = 1 if view.repetitions else len(METADATA_COLUMNS)
    for at, name in enumerate(view.repetitions, first):
        columns[at] = f"{_quoted(name)} INTEGER NOT NULL"
    key = ", ".join(map(_quoted, (DOCUMENT_COLUMN, *view.repetitions)))
    statement = f"CREATE TABLE {_quoted(view.name)} ({', '.join(columns)}, PRIMARY KEY ({key}))"
    if len(statement) > _LONGEST_STATEMENT:
        raise BadRequestError("the names of the columns of a flat view are too long together")
    connection.execute(statement)


def drop(connection: sqlite3.Connection, views: Iterable[FlatView]) -> None:
    """Remove the tables of some views."""
    for view in views:
        connection.execute(f"DROP TABLE IF EXISTS {_quoted(view.name)}")


def remove(connection: sqlite3.Connection, views: Iterable[FlatView], document: str) -> None:
    """Take the rows of a document out."""
    for view in views:
        connection.execute(f"DELETE FROM {_quoted(view.name)} WHERE {_quoted(DOCUMENT_COLUMN)} = ?", (document,))


def add(connection: sqlite3.Connection, filled: Filled) -> None:
    """Take the rows of a document in, of which there are none."""
    for view in filled.views:
        rows = filled.rows[view.name]
        if rows:
            first = filled.metadata if view.around is None else filled.metadata[:1]
            places = ", ".join("?" * len(view.column_names))
            connection.executemany(
                f"INSERT INTO {_quoted(view.name)} VALUES ({places})", ((*first, *cells) for cells in rows)
            )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
