"""Applying the steps that make the tables of a database, and recording them.

That is done under a lock of the schema, so that several nodes may start at once. A new schema gets all steps in one
transaction, so that one who is killed meanwhile leaves an empty one; an older schema gets each in one of its own.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress

import psycopg
from psycopg import errors as codes
from psycopg import sql

from persistence.errors import StartupError
from persistence.postgresql.database import Database, Rows
from persistence.postgresql.failures import as_domain_error, cause
from persistence.postgresql.places import lock_key
from persistence.postgresql.steps import STEPS

_RECORD = (
    "CREATE TABLE IF NOT EXISTS step (number integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL)"
)
_LOCK = "SELECT pg_advisory_lock(%s)"
_UNLOCK = "SELECT pg_advisory_unlock(%s)"


def missing(database: Database) -> list[str]:
    """Return the names of the steps that have not been applied: all of them in an empty database."""
    with database.connected() as connection:
        return [step.name for step in STEPS[_applied(connection, database) :]]


def require(database: Database) -> None:
    """Make sure that the database has the tables of this version of the service."""
    names = missing(database)
    if len(names) == len(STEPS):
        raise StartupError(f"{database.address} is empty: 'persistence serve --init' prepares it")
    if names:
        raise StartupError(
            f"{database.address} is of an older version of the service: 'persistence upgrade' brings it up to date"
            f" ({', '.join(names)})"
        )


def init(database: Database) -> bool:
    """Prepare a database that is empty; return whether it was. One with tables is left as it is."""
    with database.connected() as connection:
        if _applied(connection, database):
            return False
    return bool(upgrade(database))


def upgrade(database: Database) -> list[str]:
    """Apply all steps that are to be applied yet; return their names."""
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
    _ensure_schema(connection, database.address.schema, database)
    _ensure(
        connection,
        sql.SQL("SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm'"),
        sql.SQL("CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public"),
        database,
    )
    _ensure_schema(connection, database.address.flat_schema, database)
    connection.execute(_RECORD)
    row = connection.execute(
        "SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace ON extnamespace = pg_namespace.oid"
        " WHERE extname = 'pg_trgm'"
    ).fetchone()
    return str(row[0]) if row is not None else "public"


def _ensure_schema(connection: Rows, name: str, database: Database) -> None:
    _ensure(
        connection,
        sql.SQL("SELECT 1 FROM pg_namespace WHERE nspname = {}").format(name),
        sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name)),
        database,
    )


def _ensure(
    connection: Rows, test: sql.Composed | sql.SQL, creation: sql.Composed | sql.SQL, database: Database
) -> None:
    if connection.execute(test).fetchone() is not None:
        return
    try:
        connection.execute(creation)
    except (
        codes.InsufficientPrivilege,
        codes.UndefinedFile,
        codes.FeatureNotSupported,
        codes.InvalidSchemaName,
    ) as error:
        raise StartupError(
            f"{database.address}: an administrator of the database has to run {creation.as_string(connection)!r}"
            f" ({cause(error)})"
        ) from error
