"""The connections of a process to a database: addresses, deadlines, a pool, probes, and errors as domain errors."""

from __future__ import annotations

import logging
import math
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from urllib.parse import unquote

import psycopg
from psycopg import ClientCursor, Connection, ProgrammingError
from psycopg import errors as codes
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool

from persistence.closable import Closable, closed
from persistence.errors import (
    BusyError,
    ConfigurationError,
    DamagedError,
    DiskError,
    DiskFullError,
    OutcomeUnknownError,
    PersistenceError,
)
from persistence.limits import (
    CONFIRMING_SECONDS,
    CONNECT_SECONDS,
    IDLE_SECONDS,
    LONGEST_SCHEMA,
    OUTAGE_SECONDS,
    SILENT_SECONDS,
    STATEMENT_ANSWER_SECONDS,
    STATEMENT_SECONDS,
)
from persistence.metrics.observations import POOL_IN_USE, POOL_TIMEOUTS, POOL_WAITING, POOL_WAITS

SCHEMES = ("postgresql", "postgres")  # The schemes of addresses of databases, as libpq reads them

DEFAULT_SCHEMA = "persistence"

_FLAT = "_flat"
_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROBES = 3  # Probes of the network without an answer after which a connection is lost


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a database and its schema. ``conninfo`` is for libpq, and has the password."""

    conninfo: str = field(repr=False)
    schema: str
    described: str

    def __str__(self) -> str:
        return self.described

    @property
    def flat_schema(self) -> str:
        """Return the schema with the flat views, which a reporting role can be granted alone."""
        return f"{self.schema}{_FLAT}"


def parse(uri: str) -> DatabaseAddress:
    """Read an address ``postgresql://…``: that of libpq, and ``schema=NAME`` in its query."""
    base, _, query = uri.partition("?")
    schema, rest = DEFAULT_SCHEMA, list[str]()
    for each in query.split("&"):
        name, _, value = each.partition("=")
        if name == "schema":
            schema = unquote(value)
        elif each:
            rest.append(each)
    address = f"{base}?{'&'.join(rest)}" if rest else base
    if _SCHEMA_NAME.fullmatch(schema) is None or len(schema) > LONGEST_SCHEMA:
        raise ConfigurationError(
            f"the schema of a database's address must be a name of letters, digits and _ of at most {LONGEST_SCHEMA}"
        )
    if schema.endswith(_FLAT):
        raise ConfigurationError(
            f"the schema of a database's address must not end in {_FLAT}: so do those of flat views, beside the tables'"
        )
    try:
        known = {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    except ProgrammingError:
        raise _unreadable() from None
    is_escaped = "@" not in known.get("host", "") + known.get("dbname", "")
    are_ports = all(port.isascii() and (port.isdigit() or not port) for port in known.get("port", "").split(","))
    if uri.partition("://")[0] not in SCHEMES or not is_escaped or not are_ports:
        raise _unreadable()
    between = SILENT_SECONDS // (_PROBES + 1)
    deadlines = {
        "connect_timeout": str(CONNECT_SECONDS),
        "keepalives_idle": str(between),
        "keepalives_interval": str(between),
        "keepalives_count": str(_PROBES),
        "tcp_user_timeout": str(SILENT_SECONDS * 1000),
        "application_name": "persistence",
        "client_encoding": "UTF8",
    }
    conninfo = make_conninfo(**{**deadlines, **known})
    return DatabaseAddress(conninfo, schema, f"{_described(known)}, schema {schema}")


def _unreadable() -> ConfigurationError:
    return ConfigurationError(
        "the address of a database cannot be read: it must be as postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…"
        " with known parameters, and %-escapes for characters such as / and @ in the password"
    )


def _described(known: dict[str, str]) -> str:
    hosts = known.get("host", known.get("hostaddr", "")).split(",")
    ports = known.get("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
    user = known.get("user")
    return f"database {known.get('dbname') or user or ''} at {places or 'this machine'}{f' as {user}' if user else ''}"


RETRY_AFTER = 5  # Seconds after which a client may try again where the database cannot be had

_UNAVAILABLE = "the database cannot be had: "
_LOST = "the connection to the database was lost within the commit"
_KINDS: tuple[tuple[tuple[type[psycopg.Error], ...], type[PersistenceError], str], ...] = (
    ((codes.LockNotAvailable,), BusyError, "another request has the lock"),
    ((codes.QueryCanceled,), BusyError, "the database took too long"),
    ((codes.SerializationFailure, codes.DeadlockDetected), BusyError, ""),
    ((codes.ReadOnlySqlTransaction,), BusyError, "the database can only be read: it is a replica, or made read-only"),
    ((codes.DiskFull,), DiskFullError, ""),
    ((codes.DataCorrupted, codes.IndexCorrupted), DamagedError, ""),
    ((codes.IoError, codes.SystemError), DiskError, ""),
    ((codes.UndefinedTable, codes.UndefinedColumn), ConfigurationError, "the tables are not those of this version: "),
    ((codes.InsufficientPrivilege,), ConfigurationError, ""),
    ((psycopg.OperationalError, psycopg.InterfaceError), BusyError, _UNAVAILABLE),
)
"""First match first, with the domain error and its text, which ends in ``: `` where that of the database follows."""


# Errors of the database as domain errors: the only place that knows their codes.
#
# No text has a password: libpq names hosts, database and user, and address refuses what it cannot read.
@contextmanager
def database_errors(action: str, subject: object = "") -> Iterator[None]:
    """Translate the errors of the database in a block into domain errors that name the action and its subject."""
    try:
        yield
    except psycopg.Error as error:
        raise as_domain_error(error, action, subject) from error


def as_domain_error(error: psycopg.Error, action: str, subject: object = "") -> PersistenceError:
    action = f"{action} {subject}".rstrip()
    found = ((domain, text) for kinds, domain, text in _KINDS if isinstance(error, kinds))
    domain, text = next(found, (DiskError, ""))
    message = f"{action}: {text if text and not text.endswith(': ') else text + cause(error)}"
    if domain is BusyError:
        return BusyError(message, RETRY_AFTER if text.startswith("the database") else 1)
    return domain(message)


class UnconfirmedError(psycopg.OperationalError):
    """A commit waits for synchronous replicas; it is not undone, but they may never confirm it."""


def outcome_unknown(error: psycopg.Error, action: str, subject: object) -> OutcomeUnknownError:
    """Return the error for a connection that was lost, or given up, while it committed."""
    message = "the commit was not confirmed" if isinstance(error, UnconfirmedError) else _LOST
    return OutcomeUnknownError(
        f"{action} {subject}: {message} ({cause(error)}): whether it is stored, the entity tag says", RETRY_AFTER
    )


def cause(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error)
    return text.strip().partition("\n")[0]


T = TypeVar("T")

_LOOKS = 0.1  # Seconds between two looks at whether the service is being ended while a server is waited for

_LOOKS_OVERDUE = 2.0  # Seconds between two looks what keeps a statement that is overdue


class Session(Connection[TupleRow]):
    """A connection that knows the warnings of its server, and ends when that does not answer for ``patience`` seconds.

    A stopped server, or one with a disk that hangs, cancels nothing itself, and its network goes on answering. All
    waits of a pipelined transaction together have that time. After ``overdue_after`` seconds it calls ``on_overdue``
    now and then with the seconds waited, which may raise to give the statement up; ``on_silence`` hears that the server
    was given up. ``asked`` are the questions of a pipelined transaction, by subject.
    """

    patience: float | None = None
    overdue_after = math.inf
    is_pooled = True

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # as libpq's wrapper gives them
        self.warnings: list[str] = []
        self.on_overdue: Callable[[Session, float], None] = lambda *_: None
        self.on_silence: Callable[[str], None] = lambda _: None
        self.first = ClientCursor(self)
        self.asked: dict[object, Any] = {}
        self._pipelined = ExitStack()
        self._waited: float | None = None
        self.add_notice_handler(self._noticed)

    def wait(self, gen: PQGen[T], interval: float = _LOOKS, timeout: float | None = None) -> T:
        if timeout is not None or self.patience is None:
            return super().wait(gen, interval, timeout)
        began, patience = time.monotonic(), max(_LOOKS, self.patience - (self._waited or 0))
        until = min(patience, self.overdue_after)
        try:
            while True:
                try:
                    return super().wait(gen, interval, max(0.0, until - (time.monotonic() - began)))
                except psycopg.OperationalError as error:
                    waited = time.monotonic() - began
                    if self.closed or waited < until or getattr(gen, "gi_frame", None) is None:  # it did not time out
                        raise
                    if waited >= patience:
                        self.close()
                        cause = f"the server has not answered for {patience:.3g} s"
                        self.on_silence(cause)
                        raise psycopg.OperationalError(cause) from error
                    self.on_overdue(self, waited)
                    until = min(patience, waited + _LOOKS_OVERDUE)
        finally:
            if self._waited is not None:
                self._waited += time.monotonic() - began

    def begin(self, block: ExitStack, first: str | None, values: Sequence[object]) -> None:
        """Begin a transaction, which ends before ``block``, and run ``first`` in the same round trip.

        Without any, the next statement whose result is fetched begins it: ``pipeline_until_commit``.
        """
        self.asked = {}
        block.callback(setattr, self, "_waited", None)
        self._pipelined = block.enter_context(ExitStack())
        if first is None:
            self._waited = 0.0
            self.pipeline_until_commit()
            self.execute("BEGIN")
        else:
            self.first = ClientCursor(self)
            self.first.execute(f"BEGIN;{first}".encode(), values or None)

    def pipeline_until_commit(self) -> None:
        """From here on, wait only for statements whose results are fetched, and for the commit."""
        self._pipelined.enter_context(self.pipeline())

    def commit_transaction(self) -> str | None:
        """Commit, with all statements that were not waited for; return the status that the server reports."""
        committed = self.execute("COMMIT")
        self._pipelined.close()
        return committed.statusmessage

    def _noticed(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self.warnings.append(diagnostic.message_primary or "")


# The pool would log each failure to connect on standard error; the causes of the refusals say the same.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_WRITABLE = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')"
_COMMIT = "SELECT pg_logical_emit_message(true, 'persistence', '')"
"""Writes a record to the write-ahead log and changes no table."""

_AWAITS_REPLICAS = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s"


class Probe:
    """Tries out commits, one at a time and not again for some seconds; ``is_doubted`` until one succeeds."""

    def __init__(self, connected: Callable[[str, object], AbstractContextManager[Session]], address: object) -> None:
        self._connected = connected
        self._address = address
        self._unconfirmed = f"{address}: no synchronous replica confirms commits"
        self._lock = threading.Lock()
        self._known_until = 0.0
        self._cause: str | None = None
        self.is_doubted = False

    def cause(self) -> str | None:
        try:
            with self._connected("looking at", self._address) as connection:
                if connection.execute(_WRITABLE).fetchone() != (False, "off"):
                    return f"{self._address} can only be read: it is a replica, or made read-only"
                if time.monotonic() >= self._known_until and self._lock.acquire(blocking=not self._known_until):
                    try:
                        self._commit(connection)
                    finally:
                        self._lock.release()
        except (BusyError, DiskError) as error:
            return str(error)
        return self._cause

    def _commit(self, connection: Session) -> None:
        if time.monotonic() < self._known_until:  # another thread did
            return
        try:
            is_confirmed = _is_confirmed(connection)
        except psycopg.OperationalError as error:
            self._cause = f"{self._address}: no commit succeeds: {cause(error)}"
        else:
            self._cause, self.is_doubted = (None, False) if is_confirmed else (self._unconfirmed, self.is_doubted)
        self._known_until = time.monotonic() + CONFIRMING_SECONDS

    def note_unconfirmed(self) -> None:
        """Replicas did not confirm a commit just now."""
        self._cause, self._known_until = self._unconfirmed, time.monotonic() + CONFIRMING_SECONDS
        self.is_doubted = True

    def doubt(self) -> None:
        """A statement takes long, perhaps because the disk of the database hangs: try that out next."""
        if not self.is_doubted:
            self._known_until, self.is_doubted = 0.0, True


def _is_confirmed(connection: Session) -> bool:
    kept = connection.overdue_after, connection.on_overdue
    connection.warnings.clear()
    connection.overdue_after, connection.on_overdue = CONFIRMING_SECONDS, _cancel
    try:
        connection.execute(_COMMIT)
    finally:
        connection.overdue_after, connection.on_overdue = kept
    return not connection.warnings


def _cancel(connection: Session, waited: float) -> None:
    if waited > 2 * CONFIRMING_SECONDS:
        connection.close()
        raise psycopg.OperationalError(f"the server has not answered for {waited:.1f} s")
    connection.cancel_safe(timeout=CONFIRMING_SECONDS)


_RECONNECTING = 2.0  # Seconds in which the pool tries again by itself; after them, the next request makes it try

_AT_ONCE = 0.05  # Seconds for a connection that is free, or is made at once

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


class _OfThread(threading.local):
    """The number of connections that a thread has, and those of the transactions it is in, the innermost last."""

    def __init__(self) -> None:
        self.taken = 0
        self.blocks: list[Session] = []


class PooledConnections(Closable):
    """The connections of a process; ``generation`` changes with each new one, as the server may be a different one."""

    def __init__(self, address: DatabaseAddress, lock_timeout: float, most: int, probe: Probe) -> None:
        self.address = address
        self.generation = 0
        self.lock_timeout = lock_timeout
        self._most = most
        self._probe = probe
        self._patience = max(lock_timeout, CONNECT_SECONDS)
        self._lock = threading.Lock()
        self._opened: ConnectionPool[Session] | None = None
        self._is_closed = False
        self._refused = ""
        self._own = _OfThread()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            pool, self._opened = self._opened, None
        if pool is not None:
            pool.close()

    @property
    def connections(self) -> tuple[int, int]:
        """Open and allowed connections of this process."""
        pool = self._opened
        return (0 if pool is None else pool.get_stats().get("pool_size", 0)), self._most

    def take(self, action: str, subject: object) -> Session:
        """Return a connection; a thread that has one already gets another without waiting for threads that have."""
        POOL_WAITING.append(1)
        try:
            with database_errors(action, subject):
                connection = self._beside() if self._own.taken else self._from_pool(action, subject)
        finally:
            POOL_WAITING.append(-1)
        POOL_IN_USE.append(1)
        self._own.taken += 1
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
        POOL_IN_USE.append(-1)
        self._own.taken -= 1
        pool = self._opened
        if pool is None or not connection.is_pooled:
            connection.close()
        else:
            pool.putconn(connection)

    def _pool(self) -> ConnectionPool[Session]:
        if (pool := self._opened) is not None:
            return pool
        with self._lock:
            if self._is_closed:
                raise closed(str(self.address))
            if self._opened is None:
                self._opened = ConnectionPool(
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
            return self._opened

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
        awaits_replicas, pid = False, connection.info.backend_pid
        with (
            suppress(psycopg.Error),
            Session.connect(self.address.conninfo, autocommit=True, connect_timeout=CONFIRMING_SECONDS) as asking,
        ):
            asking.patience = CONFIRMING_SECONDS
            awaits_replicas = asking.execute(_AWAITS_REPLICAS, (pid,)).fetchone() == (True,)
        if awaits_replicas:
            connection.close()
            self._probe.note_unconfirmed()
            raise UnconfirmedError(f"no synchronous replica has answered for {waited:.1f} s")
        self._probe.doubt()

    def _silent(self, cause: str) -> None:
        self._refused = cause
        self._pool().drain()

    def configure(self, connection: Session) -> None:
        self.generation += 1
        connection.patience = STATEMENT_SECONDS + STATEMENT_ANSWER_SECONDS
        connection.overdue_after = self.lock_timeout
        connection.on_overdue, connection.on_silence = self._overdue, self._silent
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
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):  # an idle server says nothing but that it ends
        connection.close()
        raise psycopg.OperationalError("the server has ended the connection")
