"""A database, as a process uses it: transactions and reads.

A thread has a stack of the transactions that it is in. What it reads meanwhile through the same database, it reads in
the innermost one, and so sees what that has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import psycopg
from psycopg import errors as codes
from psycopg.pq import TransactionStatus

from persistence.closable import Closable
from persistence.errors import BusyError, DiskError, StartupError
from persistence.limits import MOST_CONNECTIONS
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
    """A database and a schema in it. ``lock_timeout`` is in seconds.

    ``address`` says which one it is. A process that was forked makes connections of its own.
    """

    def __init__(self, uri: str, *, lock_timeout: float, most_connections: int = MOST_CONNECTIONS) -> None:
        self.address = parse(uri)
        self.lock_timeout = lock_timeout
        self._probe = Probe(self.apart, self.address)
        self._connections = PooledConnections(self.address, lock_timeout, most_connections, self._probe)
        self._blocks = _Blocks()

    def close(self) -> None:
        """End all connections of this process; nothing is read or written afterwards."""
        self._connections.close()

    @property
    def connections(self) -> tuple[int, int]:
        """Return how many connections of its pool this process has open, and how many it may have."""
        return self._connections.number

    @property
    def generation(self) -> int:
        """Return a number that is another one after each new connection, which may lead to another server."""
        return self._connections.generation

    @contextmanager
    def transaction(
        self, doing: str, what: object = "", *, first: str | None = "", values: Sequence[object] = ()
    ) -> Iterator[Session]:
        """Run a block as one transaction, which is committed at its end; ``doing`` and ``what`` are for errors.

        The statements ``first`` are run in the same round trip that begins it; ``Session.first`` has their results.
        If they are ``None``, nothing is waited for but the results that are fetched, and at last the commit.
        All reads of this thread within the block are part of the transaction.
        """
        connection = self._connections.take(doing, what)
        try:
            with database_errors(doing, what), ExitStack() as block:
                connection.begin(block, first, values)
                self._blocks.connections.append(connection)
                try:
                    yield connection
                finally:
                    self._blocks.connections.remove(connection)
                _commit(connection, doing, what)
        except BaseException as error:
            _roll_back(connection, error)
            raise
        finally:
            self._connections.put_back(connection)

    @contextmanager
    def reading(self, doing: str, what: object = "") -> Iterator[Rows]:
        """Lend a connection for a block: that of this thread's transaction, or one where each statement is alone.

        Raises as ``transaction``.
        """
        if self._blocks.connections:
            with database_errors(doing, what):
                yield self._blocks.connections[-1]
        else:
            with self.apart(doing, what) as connection:
                yield connection

    @contextmanager
    def joined(self, doing: str, what: object = "") -> Iterator[Rows]:
        """Lend a connection for a block that is a part of this thread's transaction, or one of its own.

        Raises as ``transaction``.
        """
        block = self.reading if self._blocks.connections else self.transaction
        with block(doing, what) as connection:
            yield connection

    @contextmanager
    def apart(self, doing: str, what: object = "") -> Iterator[Session]:
        """Lend a connection on which each statement is committed alone, also within a transaction of this thread.

        Raises as ``transaction``.
        """
        connection = self._connections.take(doing, what)
        try:
            with database_errors(doing, what):
                yield connection
        except BaseException as error:
            _roll_back(connection, error)
            raise
        finally:
            self._connections.put_back(connection)

    @contextmanager
    def session(self, doing: str, what: object = "") -> Iterator[Rows]:
        """Connect for a block, apart from the pool, for work that takes long; statements have no deadline.

        Raises as ``transaction``, and ``StartupError`` where it cannot connect.
        """
        with self.connected() as connection, database_errors(doing, what):
            connection.execute("SELECT set_config('idle_in_transaction_session_timeout', '0', false)")
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Rows]:
        """Let this thread read for a block what is committed at its beginning; it writes nothing meanwhile.

        Raises as ``session``.
        """
        with self.session("reading", self.address) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._blocks.connections.append(connection)
            try:
                yield connection
            finally:
                self._blocks.connections.remove(connection)
                connection.execute("ROLLBACK")

    def probe(self) -> str | None:
        """Return the cause that keeps the service from writing for now, by a commit; ``None`` where nothing does."""
        return self._probe.cause()

    def require_committing(self) -> None:
        """Begin nothing that would wait for replicas, or for a disk that hangs, as another commit did."""
        cause = self._probe.cause() if self._probe.is_doubted else None
        if cause is not None:
            raise BusyError(cause, RETRY_AFTER)

    @contextmanager
    def connected(self, patience: float | None = None) -> Iterator[Rows]:
        """Connect once, apart from the pool and before it: at a start, when the cause of a failure has to be said.

        Each statement is a transaction. The server has no deadline for it; ``patience`` is for its answer, in seconds.
        """
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


def _commit(connection: Session, doing: str, what: object) -> None:
    connection.warnings.clear()
    try:
        committed = connection.commit_transaction()
    except codes.PipelineAborted as error:
        raise _swallowed(doing, what) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if connection.closed or isinstance(error, codes.AdminShutdown | codes.CrashShutdown):
            raise outcome_unknown(error, doing, what) from error
        raise
    if committed != "COMMIT":
        raise _swallowed(doing, what)
    if connection.warnings:  # a synchronous replica was given up waiting for: it is stored here, and only here
        raise outcome_unknown(UnconfirmedError(connection.warnings[0]), doing, what)


def _swallowed(doing: str, what: object) -> DiskError:
    return DiskError(f"{doing} {what}: nothing was stored, because a statement of the transaction has failed")


def _roll_back(connection: Session, error: BaseException) -> None:
    """End the transaction of a connection, if it has one.

    A connection on which a statement of a transaction has failed is ended: the library would take statements that the
    server has skipped for prepared ones.
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
