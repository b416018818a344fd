"""Which form versions have flat views, how these are called, and which column has the values of which control."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from persistence.model.addresses import Form
from persistence.model.flat_views import FlatColumn, FlatView

CATALOGUE = ("catalogue_versions", "catalogue_views", "catalogue_columns")

TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE catalogue_versions (
    app TEXT NOT NULL, form TEXT NOT NULL, version INTEGER NOT NULL, definition TEXT NOT NULL, tree TEXT NOT NULL,
    PRIMARY KEY (app, form, version)
) WITHOUT ROWID;
CREATE TABLE catalogue_views (
    app TEXT NOT NULL, form TEXT NOT NULL, version INTEGER NOT NULL, number INTEGER NOT NULL,
    view TEXT NOT NULL COLLATE NOCASE UNIQUE, around TEXT, path TEXT NOT NULL, repetition TEXT,
    PRIMARY KEY (app, form, version, number)
) WITHOUT ROWID;
CREATE TABLE catalogue_columns (
    view TEXT NOT NULL COLLATE NOCASE, number INTEGER NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL,
    PRIMARY KEY (view, number)
) WITHOUT ROWID;
"""
"""Paths are those of elements below the root element of a document, with ``/`` between."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A form version with flat views, or one that is to have some.

    ``definition`` is the entity tag of the definition that they are made by; it is empty while they are to be made by
    the one that is stored. ``tree`` is the identity of the tree that rows were read from; rows of another may be stale.
    """

    definition: str
    tree: str


class Catalogue:
    """The catalogue in the file of a connection. Methods raise ``sqlite3.Error``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany

    def forms(self) -> list[Form]:
        """The forms that have entries."""
        return [Form(*row) for row in self._execute("SELECT DISTINCT app, form FROM catalogue_versions")]

    def is_of(self, tree: str) -> bool:
        """Whether all rows were read from a tree."""
        return not self._execute("SELECT 1 FROM catalogue_versions WHERE tree <> ?", (tree,)).fetchone()

    def entries(self, form: Form) -> dict[int, Entry]:
        """The versions of a form that have entries."""
        found = self._execute(
            "SELECT version, definition, tree FROM catalogue_versions WHERE app = ? AND form = ?", (form.app, form.name)
        )
        return {version: Entry(definition, tree) for version, definition, tree in found}

    def views(self, form: Form, version: int) -> tuple[FlatView, ...]:
        """The views of a version, that of documents first."""
        rows = self._execute(
            "SELECT view, around, path, repetition FROM catalogue_views WHERE app = ? AND form = ? AND version = ?"
            " ORDER BY number",
            (form.app, form.name, version),
        ).fetchall()
        found: dict[str, FlatView] = {}
        starts: dict[str, tuple[str, ...]] = {}
        for name, around, path, repetition in rows:
            starts[name] = start = _steps(path)
            columns = tuple(
                FlatColumn(column, _steps(path)[len(start) :])
                for column, path in self._execute(
                    "SELECT name, path FROM catalogue_columns WHERE view = ? ORDER BY number", (name,)
                )
            )
            outer = () if around is None else (*found[around].repetitions, repetition)
            within = start if around is None else start[len(starts[around]) :]
            found[name] = FlatView(name, columns, around, within, outer)
        return tuple(found.values())

    def names(self) -> list[str]:
        """The names of all views."""
        return [name for (name,) in self._execute("SELECT view FROM catalogue_views")]

    def ask(self, form: Form, version: int) -> None:
        """Let the views of a version be made by the definition that is stored; till then they stay as they are."""
        self._execute(
            "INSERT INTO catalogue_versions VALUES (?, ?, ?, '', '')"
            " ON CONFLICT DO UPDATE SET definition = excluded.definition, tree = excluded.tree",
            (form.app, form.name, version),
        )

    def doubt(self, form: Form) -> None:
        """Let the rows of a form be read anew."""
        self._execute("UPDATE catalogue_versions SET tree = '' WHERE app = ? AND form = ?", (form.app, form.name))

    def enter(self, form: Form, version: int, entry: Entry, views: Iterable[FlatView]) -> None:
        """Take the views of a version down."""
        key = form.app, form.name, version
        self._execute("INSERT INTO catalogue_versions VALUES (?, ?, ?, ?, ?)", (*key, entry.definition, entry.tree))
        starts: dict[str, tuple[str, ...]] = {}
        for number, view in enumerate(views, 1):
            start = view.path if view.around is None else starts[view.around] + view.path
            starts[view.name] = start
            repetition = view.repetitions[-1] if view.repetitions else None
            row = *key, number, view.name, view.around, "/".join(start), repetition
            self._execute("INSERT INTO catalogue_views VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._executemany(
                "INSERT INTO catalogue_columns VALUES (?, ?, ?, ?)",
                [
                    (view.name, at, column.name, "/".join(start + column.path))
                    for at, column in enumerate(view.columns, 1)
                ],
            )

    def remove(self, form: Form, version: int) -> None:
        """Forget a version."""
        key = form.app, form.name, version
        where = "WHERE app = ? AND form = ? AND version = ?"
        self._execute(f"DELETE FROM catalogue_columns WHERE view IN (SELECT view FROM catalogue_views {where})", key)
        self._execute(f"DELETE FROM catalogue_views {where}", key)
        self._execute(f"DELETE FROM catalogue_versions {where}", key)


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("/")) if path else ()
