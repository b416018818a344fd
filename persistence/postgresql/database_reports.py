"""The flat views of a database: made when a definition is published, and kept in the transactions of saves.

The values of a row are an array: a form may have more and longer values than fit into a row with a column for each, and
no save may fail because of that. A publication makes a *generation* of the views of a version; while it is filled, the
views show the one before.

How no save is lost while views are filled, and nobody sees half of them:

1. A transaction lists a new generation of the views in the catalogue. Saves that see it keep its rows from then on.
2. The publication waits for the transactions that have changed a revision before, and may not have seen it.
3. Batches of documents are read. The current revision of each is locked meanwhile: a save that replaces it waits for
   the batch, and writes its own rows after it. One that has replaced it already has written its rows itself.
4. A transaction puts the views over the new rows, in the place of those over the rows of the generation before.
5. The rows of the generation before are removed, after the saves that still kept them.

Saves wait for one batch at most, and never for a publication. What a publication that was interrupted has left is
removed by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

import msgspec
from psycopg import Cursor, sql
from psycopg import errors as codes
from psycopg.rows import TupleRow

from persistence.bounded_cache import BoundedCache
from persistence.errors import BusyError, ConflictError, DiskError, DiskFullError, PersistenceError
from persistence.forms.flat_tables import (
    METADATA_COLUMNS,
    FlatNaming,
    FlatView,
    RowReader,
    from_catalogue,
    read_flat_views,
)
from persistence.index.sources import DocumentRows, Source, flat_definition, flat_rows
from persistence.limits import DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES
from persistence.model.addresses import Form
from persistence.postgresql.connections import DatabaseAddress, cause
from persistence.postgresql.database import Database, Rows, lock_key
from persistence.postgresql.index_rows import SourceOf

LONGEST_NAME = 63  # Characters of a name, which are bytes: names of flat views are ASCII

MOST_COLUMNS = 1600  # Columns of a view

_REMOVED_AT_ONCE = 10_000

# What is appended to makes PostgreSQL unpack an array once for all columns, instead of once for each of them. The
# barrier keeps functions in a report's conditions from seeing rows of other views.
_VIEW = (
    "CREATE OR REPLACE VIEW {} WITH (security_barrier) AS SELECT {} FROM {} AS stored"
    " CROSS JOIN LATERAL (SELECT array_append(stored.cells, NULL) AS cells OFFSET 0) AS unpacked WHERE view = {}"
)

_TAKEN_NAMES = """
SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)
UNION SELECT name FROM flat_view JOIN flat_generation ON flat_generation.number = generation WHERE state = 0
"""
"""The names that anything in the schema of flat views has, or that views will have which are being filled."""

_UNCHANGED = """
SELECT folder FROM revision WHERE form = (SELECT id FROM form WHERE app = %s AND name = %s)
AND kind = 0 AND folder = ANY(%s) AND name = 'data.xml' AND is_current FOR SHARE
"""
_REMOVE_SOME = f"""
DELETE FROM flat_row WHERE ctid = ANY(ARRAY(SELECT ctid FROM flat_row WHERE view = ANY(%s) LIMIT {_REMOVED_AT_ONCE}))
"""
_FORGET = """
WITH views AS (DELETE FROM flat_view WHERE generation = %(number)s RETURNING number),
columns AS (DELETE FROM flat_column USING views WHERE view = views.number)
DELETE FROM flat_generation WHERE number = %(number)s
"""
_LONGEST_CHANGE = 2
"""Seconds for which a view waits for those who read it; meanwhile others who want to read it wait, too."""


class GenerationState(IntEnum):
    """The state of a generation, as the table has it."""

    FILLING = 0
    READY = 1
    DROPPED = 2


@dataclass(frozen=True, slots=True)
class Generation:
    """The views of a version as one publication has made them; ``numbers`` are their numbers by name."""

    number: int
    version: int
    state: GenerationState
    views: tuple[FlatView, ...]
    numbers: Mapping[str, int]


def ask_states(connection: Rows, form: Form) -> Cursor[TupleRow]:
    """Ask for number, version and state of the generations of a form, without waiting in a pipeline."""
    return connection.execute(
        "SELECT number, version, state FROM flat_generation"
        " WHERE form = (SELECT id FROM form WHERE app = %s AND name = %s) ORDER BY number",
        (form.app, form.name),
    )


def generations(connection: Rows, found: Iterable[TupleRow]) -> list[Generation]:
    """Return the generations that ``ask_states`` found, with their views; these never change."""
    wanted = list(found)
    views = connection.execute(
        "SELECT generation, number, name, around, path, repetition, ARRAY(SELECT ARRAY[name, path]"
        " FROM flat_column WHERE view = flat_view.number ORDER BY flat_column.number) FROM flat_view"
        " WHERE generation = ANY(%s) ORDER BY number",
        ([number for number, _, _ in wanted],),
    ).fetchall()
    result = []
    for number, version, state in wanted:
        own = [row for row in views if row[0] == number]
        listed = (row[2:] for row in own)
        names = {row[2]: row[1] for row in own}
        result.append(Generation(number, version, GenerationState(state), from_catalogue(listed), names))
    return result


def add_generation(connection: Rows, form: Form, version: int, views: Sequence[FlatView]) -> int:
    """Add a generation that will be filled; return its number."""
    connection.execute("INSERT INTO form (app, name) VALUES (%s, %s) ON CONFLICT DO NOTHING", (form.app, form.name))
    ((number,),) = connection.execute(
        "INSERT INTO flat_generation (form, version, state) SELECT id, %s, 0 FROM form WHERE app = %s AND name = %s"
        " RETURNING number",
        (version, form.app, form.name),
    )
    made = connection.execute(
        "INSERT INTO flat_view (generation, name, around, path, repetition)"
        " SELECT %s, name, around, path, repetition FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])"
        " WITH ORDINALITY AS view (name, around, path, repetition, at) ORDER BY at RETURNING name, number",
        (number, *map(list, zip(*(each.row for each in views), strict=True))),
    )
    numbers: dict[str, int] = dict(made.fetchall())
    columns = [(numbers[each.name], at, *column.row) for each in views for at, column in enumerate(each.columns, 1)]
    if columns:
        connection.execute(
            "INSERT INTO flat_column SELECT * FROM unnest(%s::int[], %s::int[], %s::text[], %s::text[])",
            tuple(map(list, zip(*columns, strict=True))),
        )
    return int(number)


def set_state(connection: Rows, numbers: Sequence[int], state: GenerationState) -> None:
    connection.execute("UPDATE flat_generation SET state = %s WHERE number = ANY(%s)", (state, list(numbers)))


def replace_views(connection: Rows, address: DatabaseAddress, gone: Iterable[str], new: Generation) -> None:
    """Drop some views, and put those of a generation in the place of others with their names.

    A view that only gets more columns stays the same object: privileges on it stay, and views that others made of it.
    """
    found = connection.execute(
        "SELECT relname, array_agg(attname::text ORDER BY attnum) FROM pg_attribute JOIN pg_class ON oid = attrelid"
        " WHERE relnamespace = to_regnamespace(%s) AND relname = ANY(%s) AND attnum > 0 GROUP BY relname",
        (f'"{address.flat_schema}"', list(new.numbers)),
    )
    there = {str(name): tuple(columns) for name, columns in found}
    fresh = {view.name: view.column_names for view in new.views}
    unlike = {name for name, columns in there.items() if columns != fresh[name][: len(columns)]}
    with connection.pipeline():
        drop_views(connection, address, {*gone, *unlike})
        for view in new.views:
            own = view.column_names[1 : len(view.column_names) - len(view.columns)]
            first = "numbers" if view.repetitions else "unpacked.cells"
            sources = ["document", *(f"{first}[{at}]" for at, _ in enumerate(own, 1))]
            offset = 0 if view.repetitions else len(own)
            sources += [f"unpacked.cells[{at}]" for at, _ in enumerate(view.columns, offset + 1)]
            columns = [
                sql.SQL("{} AS {}").format(sql.SQL(source), sql.Identifier(name))
                for source, name in zip(sources, view.column_names, strict=True)
            ]
            definition = sql.SQL(_VIEW).format(
                sql.Identifier(address.flat_schema, view.name),
                sql.SQL(", ").join(columns),
                sql.Identifier(address.schema, "flat_row"),
                sql.Literal(new.numbers[view.name]),
            )
            connection.execute(definition)


def drop_views(connection: Rows, address: DatabaseAddress, names: Iterable[str]) -> None:
    with connection.pipeline():
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{_LONGEST_CHANGE}s",))
        for name in names:
            connection.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(sql.Identifier(address.flat_schema, name)))


def write_rows(
    connection: Rows, views: Sequence[int], documents: Sequence[str], rows: Iterable[tuple[DocumentRows, Generation]]
) -> None:
    """Replace the rows of some documents in some views. An unchanged row is not written again."""
    fresh = []
    for of_document, generation in rows:
        document, *metadata = of_document.metadata[: len(METADATA_COLUMNS)]
        for view in of_document.views:
            number, depth = generation.numbers[view.name], len(view.repetitions)
            first = metadata if view.around is None else []
            for row in of_document.rows[view.name]:
                cells = [*first, *row[depth:]]
                fresh.append({"view": number, "document": document, "numbers": row[:depth], "cells": cells})
    connection.execute(
        "WITH fresh AS MATERIALIZED (SELECT * FROM json_to_recordset(%(fresh)s::json)"
        " AS row (view int, document text, numbers int[], cells text[])), gone AS (DELETE FROM flat_row"
        " WHERE view = ANY(%(views)s) AND document = ANY(%(documents)s)"
        " AND (view, document, numbers) NOT IN (SELECT view, document, numbers FROM fresh))"
        " INSERT INTO flat_row SELECT view, document, numbers, cells FROM fresh"
        " ON CONFLICT (view, document, numbers) DO UPDATE SET cells = excluded.cells"
        " WHERE flat_row.cells IS DISTINCT FROM excluded.cells",
        {"fresh": msgspec.json.encode(fresh).decode(), "views": list(views), "documents": list(documents)},
    )


_REMOVE_PURGED = """
DELETE FROM flat_row WHERE view = ANY(%s) AND NOT EXISTS (
    SELECT FROM revision WHERE form = (SELECT id FROM form WHERE app = %s AND name = %s)
    AND kind = 0 AND folder = document AND name = 'data.xml' AND is_current
)
"""


def writers(connection: Rows) -> set[str]:
    """Return the open transactions that have changed a revision."""
    found = connection.execute(
        "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = 'revision'::regclass"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND mode = 'RowExclusiveLock' AND granted AND pid <> pg_backend_pid()"
    )
    return {str(each) for (each,) in found}


_BATCH = 100  # Documents whose rows are written in one transaction; saves of them wait for it

_ROWS = 5000  # Rows that are written by one statement, if they are not of one document

_WAITS_FOR_WRITERS = 60.0
_PAUSE = 0.02
_ATTEMPTS = 5
_RETRY_AFTER = 5


def naming(prefix: str, longest: int, *, prefixes_in_main: bool) -> FlatNaming:
    limit = LONGEST_NAME
    return FlatNaming(prefix, min(longest, limit), prefixes_in_main, limit, MOST_COLUMNS)


class FlatRows:
    """Keeps the rows of documents, in the transactions that change these."""

    def __init__(self, database: Database, source_of: SourceOf) -> None:
        self._database = database
        self._source_of = source_of
        self._kept: BoundedCache[_FormViews] = BoundedCache(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)

    def ask(self, form: Form) -> Cursor[TupleRow]:
        """Ask for the views of a form, in the transaction of a change: the answer comes with that of others."""
        with self._database.reading("writing the flat views of", form) as connection:
            asked = connection.asked[form] = ask_states(connection, form)
            return asked

    def changed(self, form: Form, document: str) -> None:
        """Bring the rows of a saved document up to date after a change, in its transaction."""
        with self._database.reading("writing the flat views of", form) as connection:
            if found := tuple(connection.asked.pop(form, None) or self.ask(form)):
                self._views(connection, form, found).write(connection, self._source_of(form), [document])

    def fill(self, connection: Rows, form: Form, number: int, documents: Sequence[str]) -> bool:
        """Bring rows up to date in one generation, but for documents that others change; return whether it is kept."""
        found = tuple(each for each in ask_states(connection, form) if each[0] == number)
        if not found or found[0][-1] == GenerationState.DROPPED:
            return False
        # They cannot be changed until the transaction ends; those that have no current revision any more are left out.
        locked = connection.execute(_UNCHANGED, (form.app, form.name, list(documents)))
        if unchanged := [str(document) for (document,) in locked]:
            self._views(connection, form, found).write(connection, self._source_of(form), unchanged)
        return True

    def _views(self, connection: Rows, form: Form, found: tuple[TupleRow, ...]) -> _FormViews:
        return self._kept.get((form, found), lambda: _FormViews(generations(connection, found)))


class _FormViews:
    """The views of versions of a form, as they are at one time."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        self._numbers = [number for each in generations for number in each.numbers.values()]
        self._layers = [
            {each.version: (each, RowReader(each.views)) for each in generations if each.state is state}
            for state in (GenerationState.READY, GenerationState.FILLING)
        ]

    def write(self, connection: Rows, source: Source, documents: Sequence[str]) -> None:
        read: list[str] = []
        found: list[tuple[DocumentRows, Generation]] = []
        for document in documents:
            read.append(document)
            for layer in filter(None, self._layers):
                readers = {version: reader for version, (_, reader) in layer.items()}
                rows = flat_rows(source.view, source.form, readers, document)
                if rows is not None:
                    found.append((rows, layer[rows.version][0]))
            if sum(len(rows.rows[view.name]) for rows, _ in found for view in rows.views) >= _ROWS:
                write_rows(connection, self._numbers, read, found)
                read, found = [], []
        if read:
            write_rows(connection, self._numbers, read, found)


class DatabaseReports:
    """The flat views of a database. Raises ``ConflictError`` where other views were made of a view to be removed."""

    def __init__(self, database: Database, rows: FlatRows, source_of: SourceOf) -> None:
        self._database = database
        self._rows = rows
        self._source_of = source_of

    def create(self, form: Form, version: int) -> None:
        """Make the views of a version by its stored definition, with the rows of all its documents."""
        number = self._begin(form, version)
        if number is not None:
            try:
                self._await_writers(form)
                if self._fill(form, number):
                    self._install(form, version, number)
            except BaseException:
                with suppress(PersistenceError):
                    with self._changing(form) as connection:
                        set_state(connection, [number], GenerationState.DROPPED)
                    self._clean(form)
                raise
        self._clean(form)

    def drop(self, form: Form, version: int) -> None:
        """Drop the views of a version whose definition was deleted, unless it is there again."""
        with self._changing(form) as connection:
            own = self._generations(connection, form, version)
            if own and flat_definition(self._source_of(form).catalog, form, version) is None:
                set_state(connection, [each.number for each in own], GenerationState.DROPPED)
        self._clean(form)

    def refill(self, form: Form, version: int | None = None) -> None:
        """Read the rows of a version, or of all versions, again; make the views that are missing."""
        catalog = self._source_of(form).catalog
        with self._database.reading("looking at the flat views of", form) as connection:
            found = ask_states(connection, form).fetchall()
        ready = {each: number for number, each, state in found if state == GenerationState.READY}
        wanted = (each for each in catalog.storage.versions(form) if catalog.of(form, each).has_flat_views)
        for each in sorted({*(each for _, each, _ in found), *wanted}):
            if version not in {None, each}:
                continue
            if each in ready and catalog.of(form, each).published is not None:
                self._fill(form, ready[each])
                with self._database.transaction("filling the flat views of", form) as connection:
                    for own in self._generations(connection, form, each):
                        if own.number == ready[each]:
                            connection.execute(_REMOVE_PURGED, (list(own.numbers.values()), form.app, form.name))
            else:
                self.create(form, each)
        self._clean(form)

    def _begin(self, form: Form, version: int) -> int | None:
        with self._changing(form) as connection:
            own = self._generations(connection, form, version)
            stored = flat_definition(self._source_of(form).catalog, form, version)
            views: tuple[FlatView, ...] = ()
            if stored is not None:
                found = connection.execute(_TAKEN_NAMES, (f'"{self._database.address.flat_schema}"',))
                taken = {str(name) for (name,) in found} - {view.name for each in own for view in each.views}
                views = read_flat_views(stored[1], form, version, self._source_of(form).described.naming, taken)
            same = [each for each in own if each.state is GenerationState.READY and views in ((), each.views)]
            outdated = [each.number for each in own if each.state is GenerationState.FILLING]
            set_state(connection, outdated, GenerationState.DROPPED)
            if not views:
                set_state(connection, [each.number for each in same], GenerationState.DROPPED)
            return None if same or not views else add_generation(connection, form, version, views)

    def _fill(self, form: Form, number: int) -> bool:
        documents = self._source_of(form).view.documents(form)
        while batch := list(islice(documents, _BATCH)):
            with self._database.transaction("filling the flat views of", form) as connection:
                if not self._rows.fill(connection, form, number, batch):
                    return False
        return True

    def _install(self, form: Form, version: int, number: int) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._changing(form) as connection:
                    self._replace(connection, self._generations(connection, form, version), number)
            except BusyError as error:
                if attempt == _ATTEMPTS:
                    text = f"reports that are running keep the flat views of {form} from being replaced"
                    raise BusyError(text, _RETRY_AFTER) from error
            else:
                return

    def _replace(self, connection: Rows, own: Sequence[Generation], number: int) -> None:
        new = next((each for each in own if each.number == number and each.state is GenerationState.FILLING), None)
        if new is None:
            return
        before = [each for each in own if each.state is GenerationState.READY]
        gone = {name for each in before for name in each.numbers if name not in new.numbers}
        try:
            replace_views(connection, self._database.address, gone, new)
        except codes.DependentObjectsStillExist as error:
            text = "the flat views cannot be replaced, because other views in the database are made of them"
            raise ConflictError(f"{text}: {cause(error)}") from error
        set_state(connection, [each.number for each in before], GenerationState.DROPPED)
        set_state(connection, [number], GenerationState.READY)

    def _clean(self, form: Form) -> None:
        """Remove the dropped generations. What is in the way is left to the next publication."""
        with suppress(BusyError, DiskFullError):
            with self._database.reading("looking at the flat views of", form) as connection:
                dropped = [
                    each for each in self._generations(connection, form) if each.state is GenerationState.DROPPED
                ]
            if not dropped:
                return
            is_hidden = self._hide(form)
            self._await_writers(form)
            for each in dropped:
                with self._database.reading("emptying the flat views of", form) as connection:
                    while connection.execute(_REMOVE_SOME, (list(each.numbers.values()),)).rowcount > 0:
                        pass
                if is_hidden:
                    with self._changing(form) as connection:
                        connection.execute(_FORGET, {"number": each.number})

    def _hide(self, form: Form) -> bool:
        try:
            with self._changing(form) as connection:
                every = self._generations(connection, form)
                shown = {name for each in every if each.state is GenerationState.READY for name in each.numbers}
                gone = {name for each in every if each.state is GenerationState.DROPPED for name in each.numbers}
                drop_views(connection, self._database.address, gone - shown)
        except (BusyError, DiskError):  # a report is running, or others made views of them
            return False
        return True

    def _await_writers(self, form: Form) -> None:
        deadline = time.monotonic() + _WAITS_FOR_WRITERS
        action = "looking for writers while making the flat views of"
        with self._database.reading(action, form) as connection:
            left = writers(connection)
        while left:
            if time.monotonic() > deadline:
                raise BusyError(f"a request has been storing for so long that no flat views of {form} can be made")
            time.sleep(_PAUSE)
            with self._database.reading(action, form) as connection:
                left &= writers(connection)

    def _generations(self, connection: Rows, form: Form, version: int | None = None) -> list[Generation]:
        found = [each for each in ask_states(connection, form) if version in {None, each[1]}]
        return generations(connection, found)

    @contextmanager
    def _changing(self, form: Form) -> Iterator[Rows]:
        with self._database.transaction("making flat views of", form) as connection:
            # Nobody else changes the catalogue until the transaction ends. Saves do not wait.
            key = lock_key(self._database.address.schema, "flat views")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
            yield connection
