"""A database, as a process uses it: its pool of connections, transactions and reads, each with its deadlines.

A thread has a stack of the transactions that it is in. What it reads meanwhile through the same database, it reads in
the innermost one, and so sees what that has changed.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import psycopg
from psycopg import Connection
from psycopg import errors as codes
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

from persistence.closable import Closable, closed
from persistence.errors import BusyError, DiskError, StartupError
from persistence.limits.database import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    IDLE_SECONDS,
    MOST_CONNECTIONS,
    OUTAGE_SECONDS,
    SILENT_SECONDS,
    STATEMENT_SECONDS,
)
from persistence.postgresql.address import parse
from persistence.postgresql.failures import (
    RETRY_AFTER,
    as_domain_error,
    cause,
    database_errors,
    is_elsewhere,
    outcome_unknown,
)
from persistence.postgresql.session import Session

Rows = Connection[TupleRow]
"""A connection whose rows are tuples."""

OLDEST_SERVER = 13
"""The oldest major version of PostgreSQL that the service works with."""

_RECONNECTING = 2.0
"""Seconds in which the pool tries again by itself; after them, the next request makes it try."""

_SESSION = """
SELECT set_config('search_path', %(search_path)s, false),
  set_config('TimeZone', 'UTC', false),
  set_config('default_transaction_isolation', 'read committed', false),
  set_config('jit', 'off', false),
  set_config('lock_timeout', %(lock)s, false),
  set_config('statement_timeout', %(statement)s, false),
  set_config('idle_in_transaction_session_timeout', %(idle)s, false),
  set_config('tcp_keepalives_idle', %(silent)s, false),
  set_config('tcp_keepalives_interval', %(silent)s, false),
  set_config('tcp_keepalives_count', '2', false),
  set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)
"""


class _Blocks(threading.local):
    """The transactions that a thread is in, the innermost last."""

    def __init__(self) -> None:
        self.connections: list[Rows] = []


class Database(Closable):
    """A database and a schema in it. ``lock_timeout`` is in seconds.

    ``address`` says which one it is. A process that was forked makes connections of its own. ``generation`` is another
    number after each new connection, which may lead to another server.
    """

    def __init__(self, uri: str, *, lock_timeout: float, most_connections: int = MOST_CONNECTIONS) -> None:
        """Know a database; connect to it when it is first used.

        Raises:
            ConfigurationError: the address is none.
        """
        self.address = parse(uri)
        self.lock_timeout = lock_timeout
        self._most = most_connections
        self._patience = max(lock_timeout, CONNECT_SECONDS)
        self._lock = threading.Lock()
        self._pools: dict[int, ConnectionPool[Session]] = {}  # those of other processes are kept: not ours to end
        self._is_closed = False
        self._refused = ""
        self.generation = 0
        self._blocks = _Blocks()

    def close(self) -> None:
        """End all connections of this process; nothing is read or written afterwards."""
        with self._lock:
            self._is_closed = True
            pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()

    @contextmanager
    def transaction(
        self, doing: str, what: object = "", *, first: str = "", values: Sequence[object] = ()
    ) -> Iterator[Session]:
        """Run a block as one transaction, which is committed at its end; ``doing`` and ``what`` are for errors.

        The statements ``first`` are run in the same round trip that begins it; ``Session.first`` has their results.
        All reads of this thread within the block are part of the transaction.

        Raises:
            OutcomeUnknownError: the connection was lost within the commit.
            BusyError: the database cannot be had, or a lock or statement took too long.
            DiskError: it refused, or has no room left; or a statement of the block has failed, whoever caught that.
        """
        connection = self._taken(doing, what)
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
            self._put_back(connection)

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
    def apart(self, doing: str, what: object = "") -> Iterator[Rows]:
        """Lend a connection on which each statement is committed alone, also within a transaction of this thread.

        Raises as ``transaction``.
        """
        connection = self._taken(doing, what)
        try:
            with database_errors(doing, what):
                yield connection
        except BaseException as error:
            _roll_back(connection, error)
            raise
        finally:
            self._put_back(connection)

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
        """Return the cause that keeps the service from writing for now; ``None`` where nothing does."""
        try:
            with self.reading("looking at", self.address) as connection:
                row = connection.execute(
                    "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')"
                ).fetchone()
        except (BusyError, DiskError) as error:
            return str(error)
        return None if row == (False, "off") else f"{self.address} can only be read: it is a replica, or made read-only"

    @contextmanager
    def connected(self) -> Iterator[Rows]:
        """Connect once, apart from the pool and before it: at a start, when the cause of a failure has to be said.

        Each statement is a transaction, and none has a deadline.

        Raises:
            StartupError: it cannot be had, or is too old; the text has no password.
        """
        with ExitStack() as opened:
            try:
                connection = opened.enter_context(Session.connect(self.address.conninfo, autocommit=True))
                if connection.info.server_version < OLDEST_SERVER * 10_000:
                    raise StartupError(f"{self.address} is older than PostgreSQL {OLDEST_SERVER}")
                self._configure(connection)
                connection.execute("SELECT set_config('statement_timeout', '0', false)")
            except psycopg.Error as error:
                raise StartupError(str(as_domain_error(error, "connecting to", self.address))) from None
            connection.patience = None
            yield connection

    def _taken(self, doing: str, what: object) -> Session:
        """Return a connection of the pool, waiting for one to be free; not for long while the server refuses new ones.

        Raises:
            BusyError: none was to be had.
        """
        begun, waits = time.monotonic(), min(self._patience, OUTAGE_SECONDS)
        with database_errors(doing, what):
            while True:
                try:
                    return self._pool().getconn(waits)
                except psycopg.OperationalError as error:
                    waited = time.monotonic() - begun
                    waits = min(self._patience - waited, OUTAGE_SECONDS)
                    if waits <= 0 or self._refused:
                        text = f"{doing} {what}".rstrip()
                        refused = f": {self._refused}" if self._refused else ""
                        raise BusyError(
                            f"{text}: no connection to {self.address} within {waited:.1f} s{refused}", RETRY_AFTER
                        ) from error

    def _put_back(self, connection: Session) -> None:
        pool = self._pools.get(os.getpid())
        if pool is None:
            connection.close()
        else:
            pool.putconn(connection)

    def _pool(self) -> ConnectionPool[Session]:
        pool = self._pools.get(os.getpid())
        return self._opened() if pool is None else pool

    def _opened(self) -> ConnectionPool[Session]:
        with self._lock:
            if self._is_closed:
                raise closed(str(self.address))
            pool = self._pools.get(os.getpid())
            if pool is None:
                pool = ConnectionPool(
                    self.address.conninfo,
                    connection_class=self._noting(),
                    kwargs={"autocommit": True},
                    min_size=0,
                    max_size=self._most,
                    open=True,
                    configure=self._configure,
                    check=_require_open,
                    name=self.address.described,
                    timeout=self._patience,
                    reconnect_timeout=_RECONNECTING,
                    num_workers=2,
                )
                self._pools[os.getpid()] = pool
            return pool

    def _noting(self) -> type[Session]:
        """Return the class of connections that notes why none can be had: the pool says only that it waited."""
        database = self

        class Noting(Session):
            @classmethod
            def connect(cls, conninfo: str = "", **options: Any) -> Self:
                try:
                    made = super().connect(conninfo, **options)
                except psycopg.Error as error:
                    database._refused = cause(error)
                    raise
                database._refused = ""
                return made

        return Noting

    def _configure(self, connection: Session) -> None:
        self.generation += 1
        connection.patience = STATEMENT_SECONDS + ANSWER_SECONDS
        connection.execute(
            _SESSION,
            {
                "search_path": f'"{self.address.schema}"',
                "lock": str(max(1, round(self.lock_timeout * 1000))),
                "statement": str(STATEMENT_SECONDS * 1000),
                "idle": str(IDLE_SECONDS * 1000),
                "silent": str(SILENT_SECONDS // 3),
            },
        )


def _require_open(connection: Session) -> None:
    """Make sure that the server has not ended an idle connection: without a round trip.

    Raises:
        OperationalError: it has; the pool takes another one.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):  # an idle server says nothing but that it ends
        connection.close()
        raise psycopg.OperationalError("the server has ended the connection")


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
        raise outcome_unknown(psycopg.OperationalError(connection.warnings[0]), doing, what)


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
