"""The tables of a database, as named steps that are applied once each, in order. A released step never changes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import psycopg
from psycopg import errors as codes
from psycopg import sql

from persistence.errors import StartupError
from persistence.index.outbox import TABLES
from persistence.postgresql.connections import DatabaseAddress, as_domain_error, cause
from persistence.postgresql.database import Database, Rows, lock_key, locked


class Step(NamedTuple):
    """A step. In its statements ``{trigrams}`` is the schema of ``pg_trgm``, and ``{flat}`` that of the flat views."""

    name: str
    statements: str


REVISIONS = """
CREATE TABLE form (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    UNIQUE (app, name)
);
CREATE TABLE revision (
    form integer NOT NULL,
    kind smallint NOT NULL,
    folder text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    modified text COLLATE "C" NOT NULL,
    is_current boolean NOT NULL,
    id text COLLATE "C" NOT NULL,
    sidecar bytea NOT NULL,
    body bytea,
    PRIMARY KEY (form, kind, folder, name, modified)
);
CREATE UNIQUE INDEX revision_current ON revision (form, kind, folder, name) WHERE is_current;
"""
"""``kind`` is 0 for data, 1 for drafts, 2 for definitions; ``folder`` is the id of a document, or a version.

``id`` is the content's. ``body`` is null in a tombstone, and for a content in pieces. No foreign key leads to ``form``,
from which nothing is ever deleted: each save would lock the row of its form.
"""

PIECES = """
CREATE TABLE piece (
    id text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (id, number)
);
ALTER TABLE piece ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE unclaimed (
    id text COLLATE "C" PRIMARY KEY,
    form integer,
    folder text COLLATE "C" NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX unclaimed_since ON unclaimed (since);
CREATE INDEX unclaimed_folder ON unclaimed (folder);
"""
"""Contents in pieces, and those of them that no revision has yet, or any more, with their form and folder."""

LEASES = """
CREATE TABLE lease (
    document text COLLATE "C" PRIMARY KEY,
    bucket smallint NOT NULL,
    holder text NOT NULL,
    holder_group text,
    ends timestamptz NOT NULL
);
CREATE INDEX lease_bucket ON lease (bucket, ends);
CREATE TABLE job (
    name text PRIMARY KEY,
    report bytea NOT NULL
);
"""
"""``ends`` is by the database's clock; the number of leases in a ``bucket`` is limited."""

SEARCH = """
CREATE TABLE control (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    form integer NOT NULL,
    path text COLLATE "C" NOT NULL,
    UNIQUE (form, path)
);
CREATE TABLE edition (
    form integer NOT NULL,
    version bigint NOT NULL,
    round integer NOT NULL,
    state text COLLATE "C" NOT NULL,
    data_format text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    keys text NOT NULL,
    PRIMARY KEY (form, version)
);
CREATE TABLE partition (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    form integer NOT NULL,
    version bigint NOT NULL,
    draft boolean NOT NULL,
    round integer NOT NULL,
    UNIQUE (form, version, draft, round)
);
CREATE TABLE partition_total (
    partition integer NOT NULL,
    shard smallint NOT NULL,
    documents bigint NOT NULL,
    PRIMARY KEY (partition, shard)
) WITH (fillfactor = 50);
CREATE TABLE document (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    form integer NOT NULL,
    document text COLLATE "C" NOT NULL,
    draft boolean NOT NULL,
    partition integer NOT NULL,
    modified text COLLATE "C" NOT NULL,
    card text NOT NULL,
    PRIMARY KEY (form, document, draft)
);
CREATE UNIQUE INDEX document_seq ON document (seq) INCLUDE (partition, modified);
CREATE INDEX document_newest ON document (partition, modified, seq);
CREATE TABLE entry (
    control integer NOT NULL,
    partition integer NOT NULL,
    fold text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    edge smallint NOT NULL,
    whole text COLLATE "C",
    PRIMARY KEY (control, partition, fold, value, seq) INCLUDE (edge)
);
CREATE INDEX entry_of_document ON entry (seq);
CREATE INDEX entry_whole ON entry (control, partition) WHERE whole IS NOT NULL;
CREATE INDEX entry_trigrams ON entry USING gin (fold {trigrams}.gin_trgm_ops)
    WITH (gin_pending_list_limit = 1024) WHERE control > 0;
CREATE INDEX entry_whole_trigrams ON entry USING gin (whole {trigrams}.gin_trgm_ops) WHERE whole IS NOT NULL;
CREATE STATISTICS entry_values (mcv) ON control, fold FROM entry;
ALTER STATISTICS entry_values SET STATISTICS 1000;
CREATE TABLE free_text (
    seq bigint PRIMARY KEY,
    fold text COLLATE "C" NOT NULL
);
CREATE INDEX free_text_trigrams ON free_text USING gin (fold {trigrams}.gin_trgm_ops)
    WITH (gin_pending_list_limit = 1024);
CREATE TABLE reindexing (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    current bigint NOT NULL,
    total bigint NOT NULL
);
"""
"""The search index, which is written in the transactions of the saves.

An ``edition`` is the state of a form version by which documents are read; a ``partition`` has the saved documents of a
version, or its drafts, that were read in one ``round`` of it. Their number is the sum of the shards in
``partition_total``: each connection counts in a shard of its own, so that no creation waits for another. ``card`` is
JSON (``Card``); ``whole`` is the folded value where ``fold`` has only its beginning. ``entry_values`` tells the planner
which values of which controls are frequent. Trigrams wait in short lists, so that no save that enters one takes long.
"""

ARRIVALS = """
CREATE TABLE arriving (
    source text NOT NULL,
    form integer NOT NULL,
    PRIMARY KEY (source, form)
);
"""
"""The forms that are being moved here, with the place where they come from."""

FLAT = """
CREATE TABLE flat_generation (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    form integer NOT NULL,
    version bigint NOT NULL,
    state smallint NOT NULL
);
CREATE INDEX flat_generation_form ON flat_generation (form);
CREATE UNIQUE INDEX flat_generation_ready ON flat_generation (form, version) WHERE state = 1;
CREATE TABLE flat_view (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    generation integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    around text COLLATE "C",
    path text COLLATE "C" NOT NULL,
    repetition text COLLATE "C"
);
CREATE INDEX flat_view_generation ON flat_view (generation);
CREATE TABLE flat_column (
    view integer NOT NULL,
    number integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    PRIMARY KEY (view, number)
);
CREATE TABLE flat_row (
    view integer NOT NULL,
    document text COLLATE "C" NOT NULL,
    numbers integer[] NOT NULL,
    cells text[] NOT NULL,
    PRIMARY KEY (view, document, numbers)
) WITH (toast_tuple_target = 8160);
CREATE VIEW {flat}.catalogue_views AS
SELECT form.app, form.name AS form, version, row_number() OVER (PARTITION BY generation ORDER BY flat_view.number)
    AS number, flat_view.name AS view, around, path, repetition
FROM flat_view JOIN flat_generation ON flat_generation.number = generation JOIN form ON form.id = form WHERE state = 1;
CREATE VIEW {flat}.catalogue_columns AS
SELECT flat_view.name AS view, flat_column.number, flat_column.name, flat_column.path
FROM flat_column JOIN flat_view ON flat_view.number = view JOIN flat_generation ON flat_generation.number = generation
WHERE state = 1;
"""
"""The views themselves are in the schema ``flat``, which a reporting role can be granted alone.

``state`` is 0 while a generation is filled, 1 while it is shown, and 2 when it was dropped. Rows stay uncompressed as
long as they fit into a page.
"""

ONE_RECORD = """
INSERT INTO job (name, report)
SELECT 'reading of documents', convert_to(json_build_object('current', current, 'total', total)::text, 'UTF8')
FROM reindexing ON CONFLICT DO NOTHING;
DROP TABLE reindexing;
"""

LONGER_LISTS = """
ALTER INDEX free_text_trigrams SET (gin_pending_list_limit = 4096);
"""
"""Trigrams of free text that are entered together need half of the write-ahead log and of the work.

Each search in texts reads the list of 4 MB, which takes half a millisecond more; one save among some hundreds enters
it.
"""

INDEXED_VERSIONS = """
ALTER TABLE edition RENAME TO indexed_version;
ALTER INDEX edition_pkey RENAME TO indexed_version_pkey;
CREATE VIEW edition AS SELECT * FROM indexed_version;
"""
"""The view is for instances of an older version that still run."""

FORMS_OF_LEASES = """
ALTER TABLE lease ADD COLUMN form text COLLATE "C" NOT NULL DEFAULT '';
"""
"""A lease that was taken by a form keeps nobody from writing to the same id in another form."""

ARRIVED_DRAFTS = """
CREATE TABLE arrived_draft (
    source text COLLATE "C",
    etag   text COLLATE "C",
    PRIMARY KEY (source, etag)
);
"""
"""Entity tags of files of drafts that moves have stored here: a draft leaves no other trace."""

EVENTS = (
    TABLES.format(identity="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", seconds="double precision", bytes="bytea")
    + "INSERT INTO outbox_fact VALUES ('feed', substr(md5(random()::text || clock_timestamp()), 1, 16)), ('last', '0');"
)

STEPS = (
    Step("forms and revisions", REVISIONS),
    Step("contents in pieces", PIECES),
    Step("leases and jobs", LEASES),
    Step("search index", SEARCH),
    Step("flat views", FLAT),
    Step("arrivals", ARRIVALS),
    Step("one record of jobs", ONE_RECORD),
    Step("longer lists of trigrams", LONGER_LISTS),
    Step("indexed versions", INDEXED_VERSIONS),
    Step("forms of leases", FORMS_OF_LEASES),
    Step("drafts that were moved", ARRIVED_DRAFTS),
    Step("events", EVENTS),
)

_RECORD = (
    "CREATE TABLE IF NOT EXISTS step (number integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL)"
)
_REFUSED = codes.InsufficientPrivilege, codes.UndefinedFile, codes.FeatureNotSupported, codes.InvalidSchemaName


def missing(database: Database) -> list[str]:
    with database.connected() as connection:
        return [step.name for step in STEPS[_applied(connection, database) :]]


def require(database: Database) -> None:
    names = missing(database)
    if len(names) == len(STEPS):
        raise StartupError(f"{database.address} is empty: 'persistence serve --init' prepares it")
    if names:
        raise StartupError(
            f"{database.address} is of an older version of the service: 'persistence upgrade' brings it up to date"
            f" ({', '.join(names)})"
        )


def init(database: Database) -> bool:
    with database.connected() as connection:
        if _applied(connection, database):
            return False
    return bool(upgrade(database))


def upgrade(database: Database) -> list[str]:
    done = []
    with database.connected() as connection:
        try:
            with locked(connection, lock_key(database.address.schema, "steps")):
                trigrams = _prepared(connection, database)
                applied = _applied(connection, database)
                with nullcontext() if applied else connection.transaction():
                    for number, step in list(enumerate(STEPS, 1))[applied:]:
                        with connection.transaction():
                            flat = f'"{database.address.flat_schema}"'
                            connection.execute(step.statements.format(trigrams=trigrams, flat=flat).encode())
                            connection.execute("INSERT INTO step VALUES (%s, %s, now())", (number, step.name))
                        done.append(step.name)
        except psycopg.Error as error:
            raise StartupError(str(as_domain_error(error, "preparing", database.address))) from error
    return done


def _applied(connection: Rows, database: Database) -> int:
    try:
        names = [str(name) for (name,) in connection.execute("SELECT name FROM step ORDER BY number").fetchall()]
    except (codes.UndefinedTable, codes.InvalidSchemaName):
        return 0
    except psycopg.Error as error:
        raise StartupError(str(as_domain_error(error, "looking at", database.address))) from error
    if names[: len(STEPS)] != [step.name for step in STEPS[: len(names)]] or len(names) > len(STEPS):
        raise StartupError(
            f"{database.address} is of a newer version of the service than this one: it has the step {names[-1]!r}"
        )
    return len(names)


def _prepared(connection: Rows, database: Database) -> str:
    address = database.address
    has_trigrams = sql.SQL("SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm'")
    _ensure_schema(connection, address.schema, address)
    _ensure(connection, has_trigrams, sql.SQL("CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public"), address)
    _ensure_schema(connection, address.flat_schema, address)
    connection.execute(_RECORD)
    row = connection.execute(
        "SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace ON extnamespace = pg_namespace.oid"
        " WHERE extname = 'pg_trgm'"
    ).fetchone()
    return str(row[0]) if row is not None else "public"


def _ensure_schema(connection: Rows, name: str, address: DatabaseAddress) -> None:
    is_there = sql.SQL("SELECT 1 FROM pg_namespace WHERE nspname = {}").format(name)
    _ensure(connection, is_there, sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name)), address)


def _ensure(
    connection: Rows, test: sql.Composed | sql.SQL, creation: sql.Composed | sql.SQL, address: DatabaseAddress
) -> None:
    if connection.execute(test).fetchone() is not None:
        return
    try:
        connection.execute(creation)
    except _REFUSED as error:
        raise StartupError(
            f"{address}: an administrator of the database has to run {creation.as_string(connection)!r}"
            f" ({cause(error)})"
        ) from error
