"""The flat views of a database: their catalogue, the views, and the table with the rows of all of them.

The values of a row are an array: a form may have more and longer values than fit into a row with a column for each, and
no save may fail because of that. A publication makes a *generation* of the views of a version; while it is filled, the
views show the one before. Functions raise the errors of psycopg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import msgspec
from psycopg import Cursor, sql
from psycopg.rows import TupleRow

from persistence.index.sources import DocumentRows
from persistence.model.addresses import Form
from persistence.model.flat_views import METADATA_COLUMNS, CataloguedView, FlatView, catalogued, from_catalogue
from persistence.postgresql.connections import DatabaseAddress
from persistence.postgresql.database import Rows

LONGEST_NAME = 63  # Characters of a name, which are bytes: names of flat views are ASCII

MOST_COLUMNS = 1600  # Columns of a view

_REMOVED_AT_ONCE = 10_000

# What is appended to makes PostgreSQL unpack an array once for all columns, instead of once for each of them. The
# barrier keeps functions in a report's conditions from seeing rows of other views.
_VIEW = (
    "CREATE OR REPLACE VIEW {} WITH (security_barrier) AS SELECT {} FROM {} AS stored"
    " CROSS JOIN LATERAL (SELECT array_append(stored.cells, NULL) AS cells OFFSET 0) AS unpacked WHERE view = {}"
)

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
        listed = (
            CataloguedView(name, around, path, repetition, tuple((column, at) for column, at in columns))
            for _, _, name, around, path, repetition, columns in own
        )
        names = {row[2]: row[1] for row in own}
        result.append(Generation(number, version, GenerationState(state), from_catalogue(listed), names))
    return result


def taken_names(connection: Rows, address: DatabaseAddress, own: Iterable[Generation]) -> set[str]:
    """Return the names that views of other generations, or anything else in the schema, have."""
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        " UNION SELECT name FROM flat_view JOIN flat_generation ON flat_generation.number = generation WHERE state = 0",
        (f'"{address.flat_schema}"',),
    )
    return {str(name) for (name,) in found} - {view.name for each in own for view in each.views}


def add(connection: Rows, form: Form, version: int, views: Sequence[FlatView]) -> int:
    """Add a generation that will be filled; return its number."""
    connection.execute("INSERT INTO form (app, name) VALUES (%s, %s) ON CONFLICT DO NOTHING", (form.app, form.name))
    ((number,),) = connection.execute(
        "INSERT INTO flat_generation (form, version, state) SELECT id, %s, 0 FROM form WHERE app = %s AND name = %s"
        " RETURNING number",
        (version, form.app, form.name),
    )
    listed = catalogued(views)
    made = connection.execute(
        "INSERT INTO flat_view (generation, name, around, path, repetition)"
        " SELECT %s, name, around, path, repetition FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])"
        " WITH ORDINALITY AS view (name, around, path, repetition, at) ORDER BY at RETURNING name, number",
        (number, *map(list, zip(*(each[:4] for each in listed), strict=True))),
    )
    numbers: dict[str, int] = dict(made.fetchall())
    columns = [
        (numbers[each.name], at, name, path) for each in listed for at, (name, path) in enumerate(each.columns, 1)
    ]
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


def remove_purged(connection: Rows, form: Form, views: Sequence[int]) -> None:
    connection.execute(
        "DELETE FROM flat_row WHERE view = ANY(%s) AND NOT EXISTS (SELECT FROM revision"
        " WHERE form = (SELECT id FROM form WHERE app = %s AND name = %s)"
        " AND kind = 0 AND folder = document AND name = 'data.xml' AND is_current)",
        (list(views), form.app, form.name),
    )


def lock_documents(connection: Rows, form: Form, documents: Sequence[str]) -> list[str]:
    """Keep documents from being changed until the transaction ends; return those that still have a revision."""
    found = connection.execute(
        "SELECT folder FROM revision WHERE form = (SELECT id FROM form WHERE app = %s AND name = %s)"
        " AND kind = 0 AND folder = ANY(%s) AND name = 'data.xml' AND is_current FOR SHARE",
        (form.app, form.name, list(documents)),
    )
    return [str(folder) for (folder,) in found]


def writers(connection: Rows) -> set[str]:
    """Return the open transactions that have changed a revision."""
    found = connection.execute(
        "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = 'revision'::regclass"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND mode = 'RowExclusiveLock' AND granted AND pid <> pg_backend_pid()"
    )
    return {str(each) for (each,) in found}


def remove_rows(connection: Rows, views: Sequence[int]) -> bool:
    """Delete some of the rows of views; return whether there may be more."""
    removed = connection.execute(
        "WITH gone AS (DELETE FROM flat_row WHERE ctid = ANY(ARRAY("
        "SELECT ctid FROM flat_row WHERE view = ANY(%s) LIMIT %s)) RETURNING 1) SELECT count(*) FROM gone",
        (list(views), _REMOVED_AT_ONCE),
    ).fetchone()
    return removed is not None and bool(removed[0])


def forget(connection: Rows, number: int) -> None:
    connection.execute(
        "DELETE FROM flat_column USING flat_view WHERE view = flat_view.number AND generation = %s", (number,)
    )
    connection.execute("DELETE FROM flat_view WHERE generation = %s", (number,))
    connection.execute("DELETE FROM flat_generation WHERE number = %s", (number,))
