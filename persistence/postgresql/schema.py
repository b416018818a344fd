"""Applying the steps that make the tables of a database, and recording them, under a lock of the schema.

A new schema gets all steps in one transaction, so that one that is killed leaves it empty; an older one gets each in
its own.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress

import psycopg
from psycopg import errors as codes
from psycopg import sql

from persistence.errors import StartupError
from persistence.postgresql.address import DatabaseAddress
from persistence.postgresql.database import Database, Rows
from persistence.postgresql.failures import as_domain_error, cause
from persistence.postgresql.places import lock_key
from persistence.postgresql.steps import STEPS

_RECORD = (
    "CREATE TABLE IF NOT EXISTS step (number integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL)"
)
_REFUSED = codes.InsufficientPrivilege, codes.UndefinedFile, codes.FeatureNotSupported, codes.InvalidSchemaName
_LOCK = "SELECT pg_advisory_lock(%s)"
_UNLOCK = "SELECT pg_advisory_unlock(%s)"


def missing(database: Database) -> list[str]:
    """Return the names of the steps that have not been applied."""
    with database.connected() as connection:
        return [step.name for step in STEPS[_applied(connection, database) :]]


def require(database: Database) -> None:
    """Refuse a database without the tables of this version of the service."""
    names = missing(database)
    if len(names) == len(STEPS):
        raise StartupError(f"{database.address} is empty: 'persistence serve --init' prepares it")
    if names:
        raise StartupError(
            f"{database.address} is of an older version of the service: 'persistence upgrade' brings it up to date"
            f" ({', '.join(names)})"
        )


def init(database: Database) -> bool:
    """Prepare an empty database; return whether it was empty."""
    with database.connected() as connection:
        if _applied(connection, database):
            return False
    return bool(upgrade(database))


def upgrade(database: Database) -> list[str]:
    """Apply the missing steps; return their names."""
    done = []
    with database.connected() as connection:
        key = lock_key(database.address.schema, "steps")
        try:
            connection.execute(_LOCK, (key,))
            trigrams = _prepared(connection, database)
            applied = _applied(connection, database)
            with nullcontext() if applied else connection.transaction():
                for number, step in list(enumerate(STEPS, 1))[applied:]:
                    with connection.transaction():
                        statements = step.statements.format(trigrams=trigrams, flat=f'"{database.address.flat_schema}"')
                        connection.execute(statements.encode())
                        connection.execute("INSERT INTO step VALUES (%s, %s, now())", (number, step.name))
                    done.append(step.name)
        except psycopg.Error as error:
            raise StartupError(str(as_domain_error(error, "preparing", database.address))) from error
        finally:  # the server may take a while to notice that the connection ends
            with suppress(psycopg.Error):
                connection.execute(_UNLOCK, (key,))
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
