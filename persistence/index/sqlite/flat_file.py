"""The file of flat views: one for all forms, at a path that stays the same. It has their tables and their catalogue."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from persistence.closable import Closable, closed_after_error
from persistence.errors import BadRequestError, BusyError, DiskError
from persistence.forms.flat_tables import DOCUMENT_COLUMN, FlatView, from_catalogue
from persistence.index.sources import DocumentRows
from persistence.index.sqlite import tables
from persistence.index.sqlite.sqlite_dialect import quoted
from persistence.index.sqlite.tables import COMPLETE, SCHEMA_FACT, UnusableError, code_of, read_fact, write_fact
from persistence.model.addresses import Form
from persistence.storage import files
from persistence.storage.layout import FLAT, Layout
from persistence.storage.locks import LockFile

SCHEMA = 2  # The version of the catalogue's tables, and of the paths in it: an older file is made again

_WAL = 64 << 20  # Bytes of the log of changes that are kept on disk after a large one

_LONGEST_WAIT = 10.0
_LONGEST_STATEMENT = 1_000_000  # Bytes of a statement that SQLite takes

_BEING_MADE = "the file of flat views is being made"

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

FileIdentity = tuple[int, int]


class InconsistentError(DiskError):
    """Tables of flat views that contradict their catalogue, in a file that can be read."""


FLAT_FAILURES = (sqlite3.Error, UnusableError)  # Errors of using the file, for flat_failure


def flat_failure(error: Exception, action: str) -> UnusableError | DiskError | BusyError:
    # ``UnusableError``: it is damaged as a whole; ``InconsistentError``: tables are wrong; else the disk or other
    # processes are in the way. One that cannot be opened may be in order.
    lost = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    if not isinstance(error, sqlite3.Error) or code_of(error) in lost:
        return UnusableError("the file of flat views", str(error))
    meaning = tables.as_domain_error(error, action)
    return meaning if code_of(error) in tables.TRANSIENT else InconsistentError(str(meaning))


class FlatFile:
    """The file in the tree of a root. It is made whole and aside, so a process that finds it can use it."""

    # Nothing but SQLite may open it: where a process closes a file, its locks of that file are gone, SQLite's too.
    # Methods raise ``OSError`` and ``BusyError``.
    def __init__(self, root: str) -> None:
        self._directory = Layout(os.path.realpath(root)).own(FLAT)
        self._lock = f"{self._directory}/lock"
        self.path = f"{self._directory}/flat.sqlite"

    @property
    def identity(self) -> FileIdentity | None:
        return tables.identities(self.path)[0]

    def opened(self, patience: float = _LONGEST_WAIT) -> FlatCatalogue:
        """Open the file, which must be there, for changes that wait so many seconds for others."""
        tables.require_own(self.path)
        connection = tables.opened_to_write(self.path)
        with closed_after_error(connection):
            _check(connection)
            connection.execute(f"PRAGMA journal_size_limit = {_WAL}")
            connection.execute("PRAGMA secure_delete = ON")  # a value may have gone because it is encrypted now
            connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        return FlatCatalogue(connection)

    def make(self) -> None:
        """Make it where there is none. Raises ``sqlite3.Error`` too."""
        files.ensure(self._directory)
        files.ensure_file(self._lock)
        with LockFile(self._lock).exclusive(_BEING_MADE, timeout=_LONGEST_WAIT):
            if files.exists(self.path):
                return
            fresh = f"{self.path}-new"
            for path in (self.path, fresh):
                tables.remove_index(path)
            files.ensure_file(fresh)
            with closing(tables.opened_to_write(fresh)) as connection:
                connection.executescript(TABLES)
                write_fact(connection, SCHEMA_FACT, SCHEMA)
            tables.sync(fresh)
            files.rename(fresh, self.path)
            files.sync_directory(self._directory)

    def settle(self, identity: FileIdentity | None) -> None:
        """Note that it has the views of all forms that have some, if it is still that file."""
        if identity is not None and self.identity == identity:
            with self.opened() as catalogue:
                catalogue.complete()

    def discard(self, identity: FileIdentity | None) -> None:
        with LockFile(self._lock).exclusive(_BEING_MADE, timeout=_LONGEST_WAIT):
            if identity is not None and self.identity == identity:
                tables.remove_index(self.path)


def _check(connection: sqlite3.Connection) -> None:
    try:
        schema = read_fact(connection, SCHEMA_FACT)
        for table in CATALOGUE:
            connection.execute(f"SELECT 1 FROM {table} LIMIT 0")
    except sqlite3.Error as error:
        if code_of(error) != sqlite3.SQLITE_ERROR:
            raise
        schema = None  # there is no such table
    if schema != SCHEMA:
        raise UnusableError("the file of flat views is not of this version")


class CataloguedVersion(NamedTuple):
    """A form version with flat views, or one that is to have some."""

    definition: str  # the entity tag of the one they were made by; empty while they are to be made by the stored one
    tree: str  # that rows were read from; rows of another one may be stale


class FlatCatalogue(Closable):
    """The catalogue in the file of a connection, which it owns, and the rows. Methods raise ``sqlite3.Error``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        with tables.transaction(self._connection):
            yield

    def checkpoint(self, patience: float) -> None:
        """Empty the log of changes: it has deleted rows, too. Wait so many seconds for readers."""
        self._execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        self._execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @property
    def is_complete(self) -> bool:
        return read_fact(self._connection, COMPLETE) is not None

    def complete(self) -> None:
        write_fact(self._connection, COMPLETE, 1)

    def forms(self) -> list[Form]:
        return [Form(*row) for row in self._execute("SELECT DISTINCT app, form FROM catalogue_versions")]

    def is_of(self, tree: str) -> bool:
        return not self._execute("SELECT 1 FROM catalogue_versions WHERE tree <> ?", (tree,)).fetchone()

    def versions(self, form: Form) -> dict[int, CataloguedVersion]:
        found = self._execute(
            "SELECT version, definition, tree FROM catalogue_versions WHERE app = ? AND form = ?", (form.app, form.name)
        )
        return {version: CataloguedVersion(*entry) for version, *entry in found}

    def views(self, form: Form, version: int) -> tuple[FlatView, ...]:
        """Return the views of a version, the view of documents first."""
        rows = self._execute(
            "SELECT view, around, path, repetition FROM catalogue_views WHERE app = ? AND form = ? AND version = ?"
            " ORDER BY number",
            (form.app, form.name, version),
        ).fetchall()
        columns = "SELECT name, path FROM catalogue_columns WHERE view = ? ORDER BY number"
        return from_catalogue(
            (name, around, path, repetition, self._execute(columns, (name,))) for name, around, path, repetition in rows
        )

    def names(self) -> list[str]:
        return [name for (name,) in self._execute("SELECT view FROM catalogue_views")]

    def request(self, form: Form, version: int) -> None:
        """Let the views of a version be made by the stored definition; until then they stay as they are."""
        self._execute(
            "INSERT INTO catalogue_versions VALUES (?, ?, ?, '', '')"
            " ON CONFLICT DO UPDATE SET definition = excluded.definition, tree = excluded.tree",
            (form.app, form.name, version),
        )

    def doubt(self, form: Form) -> None:
        self._execute("UPDATE catalogue_versions SET tree = '' WHERE app = ? AND form = ?", (form.app, form.name))

    def add(self, form: Form, version: int, entry: CataloguedVersion, views: Sequence[FlatView]) -> None:
        """Add a version with its views, and make their tables, without rows."""
        key = form.app, form.name, version
        self._execute("INSERT INTO catalogue_versions VALUES (?, ?, ?, ?, ?)", (*key, entry.definition, entry.tree))
        for number, view in enumerate(views, 1):
            self._execute("INSERT INTO catalogue_views VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*key, number, *view.row))
            self._executemany(
                "INSERT INTO catalogue_columns VALUES (?, ?, ?, ?)",
                [(view.name, at, *column.row) for at, column in enumerate(view.columns, 1)],
            )
            # Numbers and times have the affinity of texts: they are read as they were entered.
            columns = [f"{quoted(name)} TEXT" for name in view.column_names]
            columns[0] += " NOT NULL"
            for at, name in enumerate(view.repetitions, 1):
                columns[at] = f"{quoted(name)} INTEGER NOT NULL"
            columns.append(f"PRIMARY KEY ({', '.join(map(quoted, (DOCUMENT_COLUMN, *view.repetitions)))})")
            statement = f"CREATE TABLE {quoted(view.name)} ({', '.join(columns)})"
            if len(statement) > _LONGEST_STATEMENT:
                raise BadRequestError("the names of the columns of a flat view are too long together")
            self._execute(statement)

    def remove(self, form: Form, version: int) -> None:
        for view in self.views(form, version):
            self._execute(f"DROP TABLE IF EXISTS {quoted(view.name)}")
        key = form.app, form.name, version
        where = "WHERE app = ? AND form = ? AND version = ?"
        self._execute(f"DELETE FROM catalogue_columns WHERE view IN (SELECT view FROM catalogue_views {where})", key)
        self._execute(f"DELETE FROM catalogue_views {where}", key)
        self._execute(f"DELETE FROM catalogue_versions {where}", key)

    def add_rows(self, rows: DocumentRows) -> None:
        """Insert the rows of a document; there must be none of it."""
        for view in rows.views:
            found = rows.rows[view.name]
            if found:
                first = rows.metadata if view.around is None else rows.metadata[:1]
                values = ", ".join("?" * len(view.column_names))
                self._executemany(
                    f"INSERT INTO {quoted(view.name)} VALUES ({values})", ((*first, *cells) for cells in found)
                )

    def remove_rows(self, views: Iterable[FlatView], document: str) -> None:
        for view in views:
            self._execute(f"DELETE FROM {quoted(view.name)} WHERE {quoted(DOCUMENT_COLUMN)} = ?", (document,))
