"""A schema that the tests of one process share, for those that would else make one each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from persistence.postgresql.database import Database
from tests.postgresql.server import Server, fresh_schema, prepared

_TABLES = ("revision", "form", "piece", "unclaimed", "lease", "job")
"""The tables of a storage without an index."""


@pytest.fixture(scope="session")
def _shared_schema(database_server: Server) -> Iterator[Database]:
    name = fresh_schema()
    with Database(prepared(database_server.uri(name)), lock_timeout=10) as database:
        yield database
    database_server.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
def storage_uri(_shared_schema: Database, database_server: Server) -> str:
    """The address of a database with empty tables, for a storage without an index."""
    with _shared_schema.apart("emptying") as connection:
        for table in _TABLES:
            connection.execute(f"DELETE FROM {table}".encode())  # noqa: S608 - one of its own
    return database_server.uri(_shared_schema.address.schema)
