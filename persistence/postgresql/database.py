"""A database, as a process uses it: transactions, reads, keys of resources, and records of jobs.

A thread has a stack of the transactions that it is in. What it reads meanwhile through the same database, it reads in
the innermost one, and so sees what that has changed.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import errors as codes
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from persistence.errors import BusyError, DiskError, StartupError
from persistence.index.outbox import Outbox, Statements
from persistence.limits import FORMS_KEPT, LISTED_ROWS, MOST_CONNECTIONS, STATEMENT_SECONDS
from persistence.model.addresses import Address, DefinitionAddress, Form
from persistence.postgresql.connections import (
    RETRY_AFTER,
    PooledConnections,
    Probe,
    Session,
    UnconfirmedError,
    as_domain_error,
    database_errors,
    outcome_unknown,
    parse,
)
from persistence.storage.layout import NAMES
from persistence.storage.storage import JobRecord

T = TypeVar("T")

Rows = Session  # A connection whose rows are tuples

OLDEST_SERVER = 13  # The oldest major version of PostgreSQL that the service works with


class Database(PooledConnections):
    """A database and the schema at ``address``, for one process. ``lock_timeout`` is in seconds."""

    def __init__(self, uri: str, *, lock_timeout: float, most_connections: int = MOST_CONNECTIONS) -> None:
        address = parse(uri)
        super().__init__(address, lock_timeout, most_connections, Probe(self.apart, address))

    @contextmanager
    def transaction(
        self, action: str, subject: object = "", *, first: str | None = "", values: Sequence[object] = ()
    ) -> Iterator[Session]:
        """Run a block as one transaction, committed at its end; all reads of this thread within it are part of it.

        The statements ``first`` run in the round trip that begins it; ``Session.first`` has their results. If they are
        ``None``, nothing is waited for but the results that are fetched, and at last the commit.
        """
        with self.apart(action, subject) as connection, ExitStack() as block:
            connection.begin(block, first, values)
            with pushed(self._own.blocks, connection):
                yield connection
            _commit(connection, action, subject)

    @contextmanager
    def reading(self, action: str, subject: object = "") -> Iterator[Rows]:
        """Lend the connection of this thread's transaction, or one where each statement is alone."""
        if self._own.blocks:
            with database_errors(action, subject):
                yield self._own.blocks[-1]
        else:
            with self.apart(action, subject) as connection:
                yield connection

    def rows(self, action: str, subject: object, statement: str, values: Sequence[object] = ()) -> list[TupleRow]:
        """Return the rows that a statement finds in the transaction of this thread, if it is in one."""
        with self.reading(action, subject) as connection:
            return connection.execute(statement.encode(), values, binary=True).fetchall()

    def run(self, action: str, subject: object, statement: str, values: Sequence[object]) -> None:
        """Run a statement apart from transactions of this thread."""
        with self.apart(action, subject) as connection:
            connection.execute(statement.encode(), values)

    def listed(
        self, action: str, subject: object, statement: str, values: Sequence[object], last: tuple[object, ...]
    ) -> Iterator[TupleRow]:
        """Yield the rows of ``rows_after`` some at a time; no transaction is open meanwhile."""
        return rows_after(lambda: self.reading(action, subject), statement, values, last)

    @contextmanager
    def joined(self, action: str, subject: object = "") -> Iterator[Rows]:
        block = self.reading if self._own.blocks else self.transaction
        with block(action, subject) as connection:
            yield connection

    @contextmanager
    def apart(self, action: str, subject: object = "") -> Iterator[Session]:
        """Lend a connection on which each statement is committed alone, also within a transaction of this thread."""
        connection = self.take(action, subject)
        try:
            with database_errors(action, subject):
                yield connection
        except BaseException as error:
            _roll_back(connection, error)
            raise
        finally:
            self.put_back(connection)

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
            try:
                with pushed(self._own.blocks, connection):
                    yield connection
            finally:
                connection.execute("ROLLBACK")

    def probe(self) -> str | None:
        """Return the cause that keeps the database from being written, tried out by a commit."""
        return self._probe.cause()

    def free_bytes(self) -> None:
        """Raise ``BusyError`` if it cannot be written; its free space is unknown."""
        if cause := self.probe():
            raise BusyError(cause)

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
                self.configure(connection)
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


@contextmanager
def pushed(stack: list[T], item: T) -> Iterator[None]:
    """Have an item on a stack for a block. Blocks of generators may end in another order."""
    stack.append(item)
    try:
        yield
    finally:
        stack.remove(item)


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
    """End a transaction, or the connection if a statement has failed: it takes skipped ones for prepared."""
    # Then another server is the one to write to now.
    is_lost = any(isinstance(each, codes.ReadOnlySqlTransaction) for each in (error, error.__cause__))
    status = connection.info.transaction_status
    if is_lost or status not in {TransactionStatus.IDLE, TransactionStatus.INTRANS}:
        connection.close()
    elif status == TransactionStatus.INTRANS:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()


DATA, DRAFT, DEFINITION = range(3)  # The kinds of resources, as rows have them

_FIND = "SELECT id FROM form WHERE app = %s AND name = %s"
_LOCK = "SELECT pg_advisory_lock(%s)"
_UNLOCK = "SELECT pg_advisory_unlock(%s)"
_MAKE = "INSERT INTO form (app, name) VALUES (%s, %s) ON CONFLICT (app, name) DO NOTHING"


class ResourceKey(NamedTuple):
    """The key of a resource's revisions; ``folder`` is the id of a document, or a version."""

    form: int
    kind: int
    folder: str
    name: str


def folder_of(address: Address) -> str:
    """Return the id of the document, or the version, that a resource belongs to."""
    return str(address.version) if isinstance(address, DefinitionAddress) else address.document


def key_of(form: int, address: Address) -> ResourceKey:
    kind = DEFINITION if isinstance(address, DefinitionAddress) else DRAFT if address.is_draft else DATA
    return ResourceKey(form, kind, folder_of(address), address.name)


def lock_key(schema: str, *scope: str) -> int:
    """Return the number of the lock of a scope. Scopes that share a number only wait for each other."""
    digest = hashlib.blake2b("\0".join((schema, *scope)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@contextmanager
def locked(connection: Rows, key: int) -> Iterator[None]:
    """Hold the lock of a number for a block, once whoever has it gives it back."""
    connection.execute(_LOCK, (key,))
    with _given_back(connection, key):
        yield


@contextmanager
def _given_back(connection: Rows, key: int) -> Iterator[None]:
    try:
        yield
    finally:  # the lock ends with the connection, but the server may take a while to notice that
        with suppress(psycopg.Error):
            connection.execute(_UNLOCK, (key,))


class FormNumbers:
    """The numbers of forms in a database, each made in a transaction of its own, and cached when that is committed.

    They are looked up again after each new connection: one that was not acknowledged may be another form's on the
    server that has taken over. So a statement that stores something checks the number again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[Form, int] = {}
        self._generation = 0
        self._lock = threading.Lock()

    def find(self, form: Form) -> int | None:
        """Return the number of a form; ``None`` where nothing of it was ever stored."""
        known = self._known.get(form)
        if known is not None and self._generation == self._database.generation:
            return known
        NAMES.form(form)
        with self._database.reading("looking for", form) as connection:
            return self._found(connection, form)

    def require(self, form: Form) -> int:
        """Return the number of a form, and give it one where it has none."""
        number = self.find(form)
        if number is not None:
            return number
        with self._database.apart("beginning", form) as connection:
            connection.execute(_MAKE, (form.app, form.name))
            made = self._found(connection, form)
        if made is None:
            raise LookupError(f"no number was made for {form}")
        return made

    def _found(self, connection: Rows, form: Form) -> int | None:
        generation = self._database.generation
        row = connection.execute(_FIND, (form.app, form.name)).fetchone()
        if row is None:
            return None
        number = int(row[0])
        with self._lock:
            if len(self._known) >= FORMS_KEPT or self._generation != generation:
                self._known.clear()
                self._generation = generation
            self._known[form] = number
        return number


_LOOK = 0.1  # Seconds between two attempts to have a turn

_TRY = "SELECT pg_try_advisory_lock(%s)"
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
            with _given_back(connection, self._key):
                yield

    def is_taken(self) -> bool:
        return self._database.rows("looking for a running", self._name, _TRY_TO_SHARE, (self._key,)) == [(False,)]

    def read(self) -> bytes:
        rows = self._database.rows("looking at the progress of the", self._name, _READ, (self._name,))
        return bytes(rows[0][0]) if rows else b""

    def write(self, text: bytes) -> None:
        self._database.run("recording the progress of the", self._name, _WRITE, (self._name, text))


class DatabaseOutbox(Outbox):
    """The outbox of a database, which is in its tables whether events are recorded or not."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.turn = DatabaseJob(database, "delivery of events")

    @contextmanager
    def transaction(self, action: str) -> Iterator[Statements]:
        with self._database.transaction(action) as connection:

            def run(statement: str, *values: object) -> list[tuple[object, ...]]:
                cursor = connection.execute(statement.replace("?", "%s"), values)
                return [] if cursor.description is None else cursor.fetchall()

            yield run
