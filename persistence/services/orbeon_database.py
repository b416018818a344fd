"""The database of a form runtime, read in one snapshot: which tables and columns it has, rows, and their contents.

PostgreSQL, MySQL and SQLite are read alike. Values are left to the drivers, because SQLite has times as numbers or as
texts. Every revision is a row (spec database): rows are never updated, and a deletion is a row, too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from persistence.errors import DamagedError, RemoteError, StartupError, one_line
from persistence.limits import LARGEST_PIECE
from persistence.model.addresses import Form
from persistence.model.texts import without_encoding
from persistence.providers.router import not_installed

DEFINITIONS, DEFINITION_FILES = "orbeon_form_definition", "orbeon_form_definition_attach"
DOCUMENTS, DOCUMENT_FILES = "orbeon_form_data", "orbeon_form_data_attach"
TABLES = (DEFINITIONS, DEFINITION_FILES, DOCUMENTS, DOCUMENT_FILES)
_LEASES, _ORGANIZATIONS = "orbeon_form_data_lease", "orbeon_organization"

_CONTENT = {DEFINITIONS: "xml", DEFINITION_FILES: "file_content", DOCUMENTS: "xml", DOCUMENT_FILES: "file_content"}
_IN_ALL = ("app", "form", "last_modified_time")
_NEEDED = {
    DEFINITIONS: _IN_ALL,
    DEFINITION_FILES: (*_IN_ALL, "file_name"),
    DOCUMENTS: (*_IN_ALL, "document_id"),
    DOCUMENT_FILES: (*_IN_ALL, "document_id", "file_name"),
}
_OF_ALL = ("created", "last_modified_by", "form_version", "deleted")
_OF_DOCUMENTS = (*_OF_ALL, "username", "groupname", "organization_id", "draft")
_KNOWN = {
    DEFINITIONS: _OF_ALL,
    DEFINITION_FILES: _OF_ALL,
    DOCUMENTS: (*_OF_DOCUMENTS, "stage"),
    DOCUMENT_FILES: _OF_DOCUMENTS,
}
"""Columns that an old database may lack, which the report names."""
_LATER = ("id", "hash_algorithm", "hash_value")
"""Columns that most databases lack in one table or another."""

_PARTS = {
    True: ("app", "form", "document_id", "draft", "file_name"),
    False: ("app", "form", "form_version", "file_name"),
}
"""The columns that tell the files of documents apart, and those of definitions."""

_SHORT = 1 << 16  # Characters of XML that are read with the other columns of its row
_PAGE = 5000  # Documents whose ids are read at once
_ROWS = 200  # Rows of documents that are read at once, as far as these do not have more

_column: Callable[[str], sa.ColumnElement[Any]] = sa.column
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_SHAPE = "postgresql://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE or sqlite:///FILE"


@dataclass(frozen=True, slots=True)
class DatabaseRow:
    """A row of one of the four tables, with the values of its columns as the driver returns them."""

    # ``size`` is that of its content, in bytes or characters: ``None`` if that is NULL. ``before`` counts the rows of
    # the same file and time before it.
    table: str
    values: Mapping[str, Any]
    before: int = 0

    @property
    def document(self) -> str:
        return str(self.values["document_id"])

    @property
    def version(self) -> int:
        """The form version; 1 where the database is older than form versions."""
        found = self.values.get("form_version")
        return 1 if found is None else int(found)

    @property
    def is_draft(self) -> bool:
        return self.values.get("draft") == "Y"

    @property
    def is_deleted(self) -> bool:
        return self.values.get("deleted") == "Y"

    @property
    def size(self) -> int | None:
        found = self.values["size"]
        return None if found is None else int(found)

    def text(self, name: str) -> str | None:
        """Return the value of a column; ``None`` if it is empty, or the table lacks the column."""
        found = self.values.get(name)
        return None if found in (None, "") else str(found)


class OrbeonDatabase:
    """An open database with its snapshot; ``shown`` is its address without a password."""

    # Methods raise ``RemoteError`` when it cannot be read.

    def __init__(self, connection: sa.Connection, shown: str, schema: str | None) -> None:
        self.shown = shown
        self._connection = connection
        self._schema = schema
        self._dialect = connection.dialect.name
        self._columns = {each: self._columns_of(each) for each in (*TABLES, _LEASES, _ORGANIZATIONS)}
        if not any(map(self._columns.get, TABLES)):
            raise StartupError(f"{shown} has none of the tables of a form runtime, such as {DOCUMENTS}")

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The tables that are missing, or lack a column without which nothing can be read."""
        return tuple(
            f"{each} lacks {', '.join(lacking)}" if (lacking := self._lacking(each)) else f"{each} is missing"
            for each in TABLES
            if each not in self._readable
        )

    @cached_property
    def lacking(self) -> tuple[str, ...]:
        """The columns that old databases lack, each with its table."""
        return tuple(
            f"{name} of {each}"
            for each, found in self._columns.items()
            for name in _KNOWN.get(each, ())
            if found and name not in found
        )

    @cached_property
    def organizations(self) -> dict[int, tuple[str, ...]]:
        """The names of the levels of each organization, the root first."""
        found = dict[int, tuple[str, ...]]()
        if self._columns[_ORGANIZATIONS]:
            statement = self._select(_ORGANIZATIONS, _column("id"), _column("name"))
            for number, name in self._read(statement.order_by(_column("id"), _column("pos"))):
                found[number] = (*found.get(number, ()), str(name))
        return found

    def leases(self) -> list[tuple[str, str | None, str | None, Any]]:
        """Return the document, user, group and expiration of each lease."""
        if not self._columns[_LEASES]:
            return []
        names = ("document_id", "username", "groupname", "expiration")
        return [tuple(each) for each in self._read(self._select(_LEASES, *map(_column, names)))]

    def forms(self) -> dict[tuple[str | None, str | None], Counter[str]]:
        """Return the numbers of rows of each application and form, by table; either may be NULL."""
        found = dict[tuple[str | None, str | None], Counter[str]]()
        names = (_column("app"), _column("form"))
        for each in self._readable:
            for app, form, count in self._read(self._select(each, *names, sa.func.count()).group_by(*names)):
                found.setdefault((app, form), Counter())[each] += count
        return found

    def example(self) -> Any:
        for each in reversed(self._readable):
            for (value,) in self._read(self._select(each, sa.func.max(_column("last_modified_time")))):
                if value is not None:
                    return value
        return None

    def nameless(self, form: Form) -> Counter[str]:
        """Return the numbers of rows of a form, by table, that name no document or no file."""
        found = Counter[str]()
        for each in self._readable:
            for name in ("document_id", "file_name"):
                if name in _NEEDED[each]:
                    statement = self._of_form(each, form, sa.func.count()).where(_column(name).is_(None))
                    found[each] += self._one(statement)
        return +found

    def definitions(self, form: Form) -> list[DatabaseRow]:
        """Return the rows of all versions of a form, with their files, the oldest first."""
        return [
            row
            for each in (DEFINITIONS, DEFINITION_FILES)
            if each in self._readable
            for row in self._rows(each, form, has_xml=False)
        ]

    def documents(self, form: Form) -> Iterator[list[DatabaseRow]]:
        """Yield the rows of each document of a form, with drafts and files, the oldest first."""
        # The rows of several are read at once. Files of documents without a row come last.
        for names in self._batches(form):
            found: dict[str, list[DatabaseRow]] = {}
            is_short = sum(names.values()) <= _ROWS
            for each in (DOCUMENTS, DOCUMENT_FILES):
                if each in self._readable:
                    for row in self._rows(each, form, has_xml=is_short, documents=list(names)):
                        found.setdefault(row.document, []).append(row)
            yield from found.values()

    def xml(self, row: DatabaseRow) -> bytes:
        """Return the XML of a row in UTF-8."""
        found = row.values.get("content")
        if found is None:
            found = self._one(self._at(row, self._content(row.table)))
        if isinstance(found, bytes):
            return found
        return without_encoding(str(found)).encode("utf-8", "surrogateescape")

    def pieces(self, row: DatabaseRow) -> Iterator[bytes]:
        """Yield the content of an attachment; never more than one piece is in memory."""
        if self._dialect == "sqlite":  # whose functions read a value as a whole
            number = self._one(self._at(row, sa.literal_column("rowid")))
            driver: Any = self._connection.connection.driver_connection
            with self._translated(), driver.blobopen(row.table, _CONTENT[row.table], number, readonly=True) as blob:
                while piece := blob.read(LARGEST_PIECE):
                    yield piece
            return
        for begin in range(1, (row.size or 0) + 1, LARGEST_PIECE):
            yield bytes(self._one(self._at(row, sa.func.substring(self._content(row.table), begin, LARGEST_PIECE))))

    @cached_property
    def _readable(self) -> tuple[str, ...]:
        return tuple(each for each in TABLES if self._columns[each] and not self._lacking(each))

    def _lacking(self, name: str) -> tuple[str, ...]:
        found = self._columns[name]
        return tuple(each for each in (*_NEEDED[name], _CONTENT[name]) if found and each not in found)

    def _columns_of(self, name: str) -> frozenset[str]:
        with self._translated():
            if not sa.inspect(self._connection).has_table(name, self._schema):
                return frozenset()
            statement = self._select(name, sa.literal_column("*")).where(
                sa.literal_column("1") == sa.literal_column("0")
            )
            return frozenset(each.lower() for each in self._connection.execute(statement).keys())  # noqa: SIM118

    def _batches(self, form: Form) -> Iterator[dict[str, int]]:
        """Yield documents with their numbers of rows, in batches that have few rows together, or are one document."""
        batch: dict[str, int] = {}
        for name, count in self._documents(form):
            if batch and sum(batch.values()) + count > _ROWS:
                yield batch
                batch = {}
            batch[name] = count
        if batch:
            yield batch

    def _documents(self, form: Form) -> Iterator[tuple[str, int]]:
        """Yield the documents of a form, and their numbers of rows, in the order of the database: by pages."""
        # No cursor can stay open, because contents are read over the same connection.
        name = _column("document_id")
        for each in (DOCUMENTS, DOCUMENT_FILES):
            if each not in self._readable:
                continue
            statement = self._of_form(each, form, name, sa.func.count()).where(name.is_not(None))
            if each == DOCUMENT_FILES and DOCUMENTS in self._readable:
                data, files = (
                    sa.table(DOCUMENTS, schema=self._schema).alias("data"),
                    sa.table(each, schema=self._schema),
                )
                known: sa.Select[Any] = sa.select(sa.literal_column("1")).select_from(data)
                for part in ("app", "form", "document_id"):
                    known = known.where(sa.literal_column(f"data.{part}") == sa.literal_column(f"{files.name}.{part}"))
                statement = statement.where(~known.exists())
            statement = statement.group_by(name).order_by(name).limit(_PAGE)
            page = self._read(statement)
            while page:
                yield from ((str(document), int(count)) for document, count in page)
                page = self._read(statement.where(name > page[-1][0]))

    def _rows(
        self, name: str, form: Form, *, has_xml: bool, documents: Sequence[str] | None = None
    ) -> list[DatabaseRow]:
        known, content = self._columns[name], self._content(name)
        shown = [each for each in (*_NEEDED[name], *_KNOWN[name], *_LATER) if each in known]
        size: sa.ColumnElement[Any] = sa.func.length(content)
        selected = [_column(each) for each in shown] + [size.label("size"), self._moment.label("moment")]
        if has_xml and _CONTENT[name] == "xml":
            selected.append(sa.case((size <= _SHORT, content), else_=None).label("content"))
        statement = self._of_form(name, form, *selected)
        if documents is not None:
            statement = statement.where(_column("document_id").in_(documents))
        rows, seen = list[DatabaseRow](), Counter[tuple[Any, ...]]()
        for each in self._read(statement.order_by(_column("last_modified_time"), *self._order(name))):
            values = dict(each._mapping)  # noqa: SLF001 - the documented name
            if None in (values.get("document_id", ""), values.get("file_name", "")):
                continue  # which are counted as nameless
            key = tuple(values.get(part) for part in (*_PARTS["document_id" in known], "moment"))
            rows.append(DatabaseRow(name, values, seen[key]))
            seen[key] += 1
        return rows

    def _at(self, row: DatabaseRow, selected: sa.ColumnElement[Any]) -> sa.Select[Any]:
        """Return a statement for a part of one row, which most tables have no key for."""
        # Times are compared as texts: MySQL would take one of the hour that occurs twice for that of the other hour.
        statement = self._select(row.table, selected)
        for part in _PARTS["document_id" in row.values]:
            if part in row.values:
                value = row.values[part]
                statement = statement.where(_column(part).is_(None) if value is None else _column(part) == value)
        statement = statement.where(self._moment == row.values["moment"])
        return statement.order_by(*self._order(row.table)).limit(1).offset(row.before)

    @property
    def _moment(self) -> sa.ColumnElement[Any]:
        return sa.cast(_column("last_modified_time"), sa.String)

    def _order(self, name: str) -> tuple[sa.ColumnElement[Any], ...]:
        """Return the order in which rows of one time were stored, as far as the database knows it."""
        if "id" in self._columns[name]:
            return (_column("id"),)
        own = {"sqlite": "rowid", "postgresql": "ctid"}.get(self._dialect)
        return () if own is None else (sa.literal_column(own),)

    def _content(self, name: str) -> sa.ColumnElement[Any]:
        own = _column(_CONTENT[name])
        return sa.cast(own, sa.Text) if self._dialect == "postgresql" and own.name == "xml" else own

    def _select(self, name: str, *selected: sa.ColumnElement[Any]) -> sa.Select[Any]:
        return sa.select(*selected).select_from(sa.table(name, schema=self._schema))

    def _of_form(self, name: str, form: Form, *selected: sa.ColumnElement[Any]) -> sa.Select[Any]:
        return self._select(name, *selected).where(_column("app") == form.app, _column("form") == form.name)

    def _read(self, statement: sa.Select[Any]) -> list[Any]:
        with self._translated():
            return list(self._connection.execute(statement).all())

    def _one(self, statement: sa.Select[Any]) -> Any:
        found = self._read(statement)
        if not found:
            raise DamagedError(f"{self.shown}: a row cannot be found again")
        return found[0][0]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, self._connection.dialect.loaded_dbapi.Error) as error:
            raise RemoteError(f"{self.shown} cannot be read: {_cause(error)}") from error


@contextmanager
def open_database(address: str) -> Iterator[OrbeonDatabase]:
    """Open a database in one transaction that only reads, for a block."""
    url, schema = _url(address)
    shown = sa.make_url(address).render_as_string(hide_password=True).partition("?")[0]
    try:
        engine = sa.create_engine(url, poolclass=NullPool)
    except ImportError as error:
        raise not_installed(error) from error
    try:
        with engine.connect() as connection:
            own = _beginning(connection)
            database = OrbeonDatabase(own, shown, schema)
            yield database
    except SQLAlchemyError as error:
        raise StartupError(f"{shown} cannot be read: {_cause(error)}") from error
    finally:
        engine.dispose()


def _url(address: str) -> tuple[URL, str | None]:
    try:
        url = sa.make_url(address)
    except (ArgumentError, ValueError) as error:
        raise StartupError(f"the address of a database must be such as {_SHAPE}") from error
    if url.drivername == "sqlite":
        path = os.path.abspath(url.database or "")
        if not os.path.isfile(path):
            raise StartupError(f"{path} is not a file")
        return URL.create("sqlite", database=f"file:{quote(path)}", query={"mode": "ro", "uri": "true"}), None
    if url.drivername not in _DRIVERS or not url.database:
        raise StartupError(f"the address of a database must be such as {_SHAPE}")
    schema = url.query.get("schema")
    return url.set(drivername=_DRIVERS[url.drivername]).difference_update_query(
        ["schema"]
    ), None if schema is None else str(schema)


def _beginning(connection: sa.Connection) -> sa.Connection:
    match connection.dialect.name:
        case "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # a large file takes long
        case "mysql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        case _:
            driver: Any = connection.connection.driver_connection
            driver.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
            driver.isolation_level = None
            connection.exec_driver_sql("BEGIN")
    return connection


def _cause(error: Exception) -> str:
    """Return the words of the driver, which have no password."""
    original = getattr(error, "orig", None)
    return one_line(str(original or error).splitlines()[0] if str(original or error) else type(error).__name__)
