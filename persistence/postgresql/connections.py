"""The connections of a process to a database: a pool of them, each with its parameters and deadlines."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Any, Self

import psycopg
from psycopg_pool import ConnectionPool

from persistence.closable import Closable, closed
from persistence.errors import BusyError
from persistence.limits import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    OUTAGE_SECONDS,
    SILENT_SECONDS,
    STATEMENT_ANSWER_SECONDS,
    STATEMENT_SECONDS,
)
from persistence.metrics.observations import POOL_IN_USE, POOL_TIMEOUTS, POOL_WAITING, POOL_WAITS
from persistence.postgresql.address import DatabaseAddress
from persistence.postgresql.failures import RETRY_AFTER, UnconfirmedError, cause, database_errors
from persistence.postgresql.probes import Probe, awaits_replicas
from persistence.postgresql.session import Session

_RECONNECTING = 2.0
"""Seconds in which the pool tries again by itself; after them, the next request makes it try."""

_AT_ONCE = 0.05
"""Seconds for a connection that is free, or is made at once."""

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


class _Taken(threading.local):
    """The number of connections that a thread has."""

    number = 0


class PooledConnections(Closable):
    """The connections of a process to the database at an ``address``; ``lock_timeout`` is in seconds.

    ``generation`` changes with each new connection. ``probe`` hears of what takes too long.
    """

    def __init__(self, address: DatabaseAddress, lock_timeout: float, most: int, probe: Probe) -> None:
        self.address = address
        self.generation = 0
        self._lock_timeout = lock_timeout
        self._most = most
        self._probe = probe
        self._patience = max(lock_timeout, CONNECT_SECONDS)
        self._lock = threading.Lock()
        self._pools: dict[int, ConnectionPool[Session]] = {}  # those of other processes are kept: not ours to end
        self._is_closed = False
        self._refused = ""
        self._taken = _Taken()

    def close(self) -> None:
        """End all connections of this process."""
        with self._lock:
            self._is_closed = True
            pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()

    @property
    def number(self) -> tuple[int, int]:
        """Open and allowed connections of this process."""
        pool = self._pools.get(os.getpid())
        return (0 if pool is None else pool.get_stats().get("pool_size", 0)), self._most

    def take(self, action: str, subject: object) -> Session:
        """Return a connection; a thread that has one already gets another without waiting for threads that have."""
        POOL_WAITING.append(1)
        try:
            with database_errors(action, subject):
                connection = self._beside() if self._taken.number else self._from_pool(action, subject)
        finally:
            POOL_WAITING.append(-1)
        POOL_IN_USE.append(1)
        self._taken.number += 1
        return connection

    def _from_pool(self, action: str, subject: object) -> Session:
        begun, waits = time.monotonic(), min(self._patience, OUTAGE_SECONDS)
        while True:
            try:
                connection = self._pool().getconn(waits)
            except psycopg.OperationalError as error:
                waited = time.monotonic() - begun
                waits = min(self._patience - waited, OUTAGE_SECONDS)
                if waits <= 0 or self._refused:
                    POOL_TIMEOUTS.append(waited)
                    refused = f": {self._refused}" if self._refused else ""
                    text = f"{action} {subject}".rstrip() + f": no connection to {self.address} within {waited:.1f} s"
                    raise BusyError(text + refused, RETRY_AFTER) from error
            else:
                POOL_WAITS.append(time.monotonic() - begun)
                return connection

    def _beside(self) -> Session:
        pool = self._pool()
        try:
            return pool.getconn(_AT_ONCE)
        except psycopg.OperationalError:
            connection = pool.connection_class.connect(self.address.conninfo, autocommit=True)
        connection.is_pooled = False
        try:
            self.configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def put_back(self, connection: Session) -> None:
        """Give back what ``take`` has returned."""
        POOL_IN_USE.append(-1)
        self._taken.number -= 1
        pool = self._pools.get(os.getpid())
        if pool is None or not connection.is_pooled:
            connection.close()
        else:
            pool.putconn(connection)

    def _pool(self) -> ConnectionPool[Session]:
        pool = self._pools.get(os.getpid())
        if pool is not None:
            return pool
        with self._lock:
            if self._is_closed:
                raise closed(str(self.address))
            pool = self._pools.get(os.getpid())
            if pool is None:
                pool = ConnectionPool(
                    self.address.conninfo,
                    connection_class=self._session_class(),
                    kwargs={"autocommit": True},
                    min_size=0,
                    max_size=self._most,
                    open=True,
                    configure=self.configure,
                    check=_require_open,
                    name=self.address.described,
                    timeout=self._patience,
                    reconnect_timeout=_RECONNECTING,
                    num_workers=2,
                )
                self._pools[os.getpid()] = pool
            return pool

    def _session_class(self) -> type[Session]:
        connections = self

        class Recording(Session):
            @classmethod
            def connect(cls, conninfo: str = "", **options: Any) -> Self:
                try:
                    made = super().connect(conninfo, **options)
                except psycopg.Error as error:
                    connections._refused = cause(error)
                    raise
                connections._refused = ""
                return made

        return Recording

    def _overdue(self, connection: Session, waited: float) -> None:
        """Give up a commit that waits for replicas: cancelling would let others see what they may never have."""
        if awaits_replicas(self.address.conninfo, connection.info.backend_pid):
            connection.close()
            self._probe.note_unconfirmed()
            raise UnconfirmedError(f"no synchronous replica has answered for {waited:.1f} s")
        self._probe.doubt()

    def _silent(self, cause: str) -> None:
        self._refused = cause
        self._pool().drain()

    def configure(self, connection: Session) -> None:
        """Set the parameters and deadlines of a new connection."""
        self.generation += 1
        connection.patience = STATEMENT_SECONDS + STATEMENT_ANSWER_SECONDS
        connection.overdue_after = self._lock_timeout
        connection.on_overdue, connection.on_silence = self._overdue, self._silent
        connection.execute(
            _SESSION,
            {
                "search_path": f'"{self.address.schema}"',
                "lock": str(max(1, round(self._lock_timeout * 1000))),
                "statement": str(STATEMENT_SECONDS * 1000),
                "idle": str(IDLE_SECONDS * 1000),
                "silent": str(SILENT_SECONDS // 3),
            },
        )


def _require_open(connection: Session) -> None:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):  # an idle server says nothing but that it ends
        connection.close()
        raise psycopg.OperationalError("the server has ended the connection")
