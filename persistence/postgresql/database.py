"""A database, as a process uses it: transactions and reads.

A thread has a stack of the transactions that it is in. What it reads meanwhile through the same database, it reads in
the innermost one, and so sees what that has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import psycopg
from psycopg import errors as codes
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from persistence.closable import Closable
from persistence.errors import BusyError, DiskError, StartupError
from persistence.limits import LISTED_ROWS, MOST_CONNECTIONS
from persistence.postgresql.address import parse
from persistence.postgresql.connections import PooledConnections
from persistence.postgresql.failures import (
    RETRY_AFTER,
    UnconfirmedError,
    as_domain_error,
    database_errors,
    is_elsewhere,
    outcome_unknown,
)
from persistence.postgresql.probes import Probe
from persistence.postgresql.session import Session

Rows = Session
"""A connection whose rows are tuples."""

OLDEST_SERVER = 13
"""The oldest major version of PostgreSQL that the service works with."""


class _Blocks(threading.local):
    """The transactions that a thread is in, the innermost last."""

    def __init__(self) -> None:
        self.connections: list[Rows] = []


class Database(Closable):
    """A database and the schema at ``address``, for one process. ``lock_timeout`` is in seconds."""

    def __init__(self, uri: str, *, lock_timeout: float, most_connections: int = MOST_CONNECTIONS) -> None:
        self.address = parse(uri)
        self.lock_timeout = lock_timeout
        self._probe = Probe(self.apart, self.address)
        self._connections = PooledConnections(self.address, lock_timeout, most_connections, self._probe)
        self._blocks = _Blocks()

    def close(self) -> None:
        """End all connections of this process."""
        self._connections.close()

    @property
    def connections(self) -> tuple[int, int]:
        """Open and allowed connections of this process."""
        return self._connections.number

    @property
    def generation(self) -> int:
        """A counter that changes when a connection is replaced: the server may be a different one."""
        return self._connections.generation

    @contextmanager
    def transaction(
        self, action: str, subject: object = "", *, first: str | None = "", values: Sequence[object] = ()
    ) -> Iterator[Session]:
        """Run a block as one transaction, committed at its end; all reads of this thread within it are part of it.

        The statements ``first`` run in the round trip that begins it; ``Session.first`` has their results. If they are
        ``None``, nothing is waited for but the results that are fetched, and at last the commit.
        """
        connection = self._connections.take(action, subject)
        try:
            with database_errors(action, subject), ExitStack() as block:
                connection.begin(block, first, values)
                self._blocks.connections.append(connection)
                try:
                    yield connection
                finally:
                    self._blocks.connections.remove(connection)
                _commit(connection, action, subject)
        except BaseException as error:
            _roll_back(connection, error)
            raise
        finally:
            self._connections.put_back(connection)

    @contextmanager
    def reading(self, action: str, subject: object = "") -> Iterator[Rows]:
        """Lend the connection of this thread's transaction, or one where each statement is alone."""
        if self._blocks.connections:
            with database_errors(action, subject):
                yield self._blocks.connections[-1]
        else:
            with self.apart(action, subject) as connection:
                yield connection

    def listed(
        self, action: str, subject: object, statement: str, values: Sequence[object], last: tuple[object, ...]
    ) -> Iterator[TupleRow]:
        """Yield the rows of ``rows_after`` some at a time; no transaction is open meanwhile."""
        return rows_after(lambda: self.reading(action, subject), statement, values, last)

    @contextmanager
    def joined(self, action: str, subject: object = "") -> Iterator[Rows]:
        """Lend the connection of this thread's transaction, or begin one."""
        block = self.reading if self._blocks.connections else self.transaction
        with block(action, subject) as connection:
            yield connection

    @contextmanager
    def apart(self, action: str, subject: object = "") -> Iterator[Session]:
        """Lend a connection on which each statement is committed alone, also within a transaction of this thread."""
        connection = self._connections.take(action, subject)
        try:
            with database_errors(action, subject):
                yield connection
        except BaseException as error:
            _roll_back(connection, error)
            raise
        finally:
            self._connections.put_back(connection)

    @contextmanager
    def session(self, action: str, subject: object = "") -> Iterator[Rows]:
        """Connect for a block apart from the pool, for work that takes long; statements have no deadline."""
        with self.connected() as connection, database_errors(action, subject):
            connection.execute("SELECT set_config('idle_in_transaction_session_timeout', '0', false)")
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Rows]:
        """Let this thread read for a block what is committed at its beginning."""
        with self.session("reading", self.address) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._blocks.connections.append(connection)
            try:
                yield connection
            finally:
                self._blocks.connections.remove(connection)
                connection.execute("ROLLBACK")

    def probe(self) -> str | None:
        """Return the cause that keeps the database from being written, tried out by a commit."""
        return self._probe.cause()

    def require_committing(self) -> None:
        """Refuse to begin what would wait for replicas, or for a disk that hangs, as another commit did."""
        cause = self._probe.cause() if self._probe.is_doubted else None
        if cause is not None:
            raise BusyError(cause, RETRY_AFTER)

    @contextmanager
    def connected(self, patience: float | None = None) -> Iterator[Rows]:
        """Connect once, apart from the pool; the server has no deadline, ``patience`` is for its answer, in seconds."""
        with ExitStack() as opened:
            try:
                connection = opened.enter_context(Session.connect(self.address.conninfo, autocommit=True))
                if connection.info.server_version < OLDEST_SERVER * 10_000:
                    raise StartupError(f"{self.address} is older than PostgreSQL {OLDEST_SERVER}")
                self._connections.configure(connection)
                connection.execute("SELECT set_config('statement_timeout', '0', false)")
            except psycopg.Error as error:
                raise StartupError(str(as_domain_error(error, "connecting to", self.address))) from None
            connection.patience = patience
            yield connection


def rows_after(
    lend: Callable[[], AbstractContextManager[Rows]], statement: str, values: Sequence[object], last: tuple[object, ...]
) -> Iterator[TupleRow]:
    """Yield all rows, some at a time: ``statement`` asks for those after the key ``last``, with which rows begin."""
    while True:
        with lend() as connection:
            rows = connection.execute(statement.encode(), (*values, *last, LISTED_ROWS), binary=True).fetchall()
        yield from rows
        if len(rows) < LISTED_ROWS:
            return
        last = rows[-1][: len(last)]


def _commit(connection: Session, action: str, subject: object) -> None:
    connection.warnings.clear()
    try:
        committed = connection.commit_transaction()
    except codes.PipelineAborted as error:
        raise _swallowed(action, subject) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if connection.closed or isinstance(error, codes.AdminShutdown | codes.CrashShutdown):
            raise outcome_unknown(error, action, subject) from error
        raise
    if committed != "COMMIT":
        raise _swallowed(action, subject)
    if connection.warnings:  # a synchronous replica was given up waiting for: it is stored here, and only here
        raise outcome_unknown(UnconfirmedError(connection.warnings[0]), action, subject)


def _swallowed(action: str, subject: object) -> DiskError:
    return DiskError(f"{action} {subject}: nothing was stored, because a statement of the transaction has failed")


def _roll_back(connection: Session, error: BaseException) -> None:
    """End the transaction of a connection, or the connection, if a statement has failed on it.

    The library would take statements that the server has skipped for prepared ones.
    """
    is_lost = is_elsewhere(error) or (error.__cause__ is not None and is_elsewhere(error.__cause__))
    status = connection.info.transaction_status
    if is_lost or status not in {TransactionStatus.IDLE, TransactionStatus.INTRANS}:
        connection.close()
    elif status == TransactionStatus.INTRANS:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
