"""The record of a long work in a database: a lock that lasts as long as a connection, and a small text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg

from persistence.errors import BusyError, StartupError
from persistence.limits import STATEMENT_SECONDS
from persistence.postgresql.database import Database
from persistence.postgresql.failures import RETRY_AFTER, database_errors
from persistence.postgresql.places import lock_key
from persistence.storage.managed import JobRecord

_LOOK = 0.1
"""Seconds between two attempts to have a turn."""

_TRY = "SELECT pg_try_advisory_lock(%s)"
_GIVE = "SELECT pg_advisory_unlock(%s)"
_TRY_TO_SHARE = "SELECT pg_try_advisory_xact_lock_shared(%s)"
_READ = "SELECT report FROM job WHERE name = %s"
_WRITE = "INSERT INTO job (name, report) VALUES (%s, %b) ON CONFLICT (name) DO UPDATE SET report = excluded.report"


class DatabaseJob(JobRecord):
    """The record of a job with a ``name``. A node that dies, or loses the database, loses its turn."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._key = lock_key(database.address.schema, "job", name)

    @contextmanager
    def turn(self, refusal: str, timeout: float, is_ending: Callable[[], bool]) -> Iterator[None]:
        ends = time.monotonic() + timeout
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._database.connected(STATEMENT_SECONDS))
            except StartupError as error:
                raise BusyError(str(error), RETRY_AFTER) from error
            while True:
                with database_errors(f"waiting for another {self._name}"):
                    row = connection.execute(_TRY, (self._key,)).fetchone()
                if row == (True,):
                    break
                if time.monotonic() >= ends or is_ending():
                    raise BusyError(refusal)
                time.sleep(_LOOK)
            try:
                yield
            finally:  # the lock ends with the connection, but the server may take a while to notice that
                with suppress(psycopg.Error):
                    connection.execute(_GIVE, (self._key,))

    def is_taken(self) -> bool:
        with self._database.reading(f"looking for a running {self._name}") as connection:
            return connection.execute(_TRY_TO_SHARE, (self._key,)).fetchone() == (False,)

    def read(self) -> bytes:
        with self._database.reading(f"looking at the progress of the {self._name}") as connection:
            row = connection.execute(_READ, (self._name,), binary=True).fetchone()
        return b"" if row is None else bytes(row[0])

    def write(self, text: bytes) -> None:
        with self._database.apart(f"recording the progress of the {self._name}") as connection:
            connection.execute(_WRITE, (self._name, text))
