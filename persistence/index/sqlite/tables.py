"""The files of an index: their tables, state and rows, and the connections to them.

The ``seq`` of a document contains the time at which its document was saved. Rows are far apart, so the index of texts,
whose size depends on how near its numbers are, has numbers of its own: those of ``texts``.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from persistence.closable import Closable, closed_after_error
from persistence.errors import BusyError, DiskError, DiskFullError, as_disk_error
from persistence.index.protocol import SEPARATOR, Card, VersionState
from persistence.index.sources import DocumentName
from persistence.model.addresses import Form
from persistence.model.sidecar import fresh_id
from persistence.model.texts import Instant, epoch_nanoseconds
from persistence.storage import files
from persistence.storage.files import NotOpenedError
from persistence.storage.layout import SPOOL, Layout
from persistence.storage.locks import LockFile

_SUFFIX = ".sqlite"
_NAME = re.compile(rf"[0-9a-f]{{40}}{re.escape(_SUFFIX)}")
_UNFINISHED = re.compile(r"current\.\d+")
"""The remains that ``files.write_durably`` leaves of the small file, if it is killed."""
_BUSY = "the index of the form is being made"


class Generations:
    """The index files of a form. Methods raise ``OSError``."""

    def __init__(self, layout: Layout, form: Form) -> None:
        self._directory = layout.index(form)
        self._pointer = layout.current_index(form)
        self._lock = f"{self._directory}/lock"

    def current(self) -> str | None:
        try:
            name = files.read_file(self._pointer).decode(errors="replace")
        except (FileNotFoundError, NotADirectoryError, NotOpenedError):  # a link is replaced by the next index's
            return None
        return f"{self._directory}/{name}" if _NAME.fullmatch(name) else None

    def fresh(self) -> str:
        return f"{self._directory}/{fresh_id()}{_SUFFIX}"

    def use(self, path: str) -> None:
        files.write_durably(self._pointer, os.path.basename(path).encode())

    def invalidate(self, path: str) -> None:
        """Use a file no longer, if it is the one in use."""
        if self.current() == path:
            files.remove(self._pointer)

    def sweep(self) -> None:
        """Remove the files that are not in use; only while no other process makes one."""
        for path in self._others():
            with suppress(OSError):
                files.remove(path)

    def stray_files(self) -> list[str]:
        """Return the files beside the one in use that a killed rebuild left."""
        # Where no file is in use, the process that makes the next one removes the others.
        try:
            with LockFile(self._lock).exclusive(_BUSY):
                return self._others() if self.current() else []
        except (FileNotFoundError, BusyError):
            return []

    def _others(self) -> list[str]:
        current = os.path.basename(self.current() or "")
        found = []
        for name in os.listdir(self._directory):
            base = name.partition(_SUFFIX)[0] + _SUFFIX
            if (_NAME.fullmatch(base) and base != current) or _UNFINISHED.fullmatch(name):
                found.append(f"{self._directory}/{name}")
        return found

    @contextmanager
    def rebuilding(self, *, timeout: float) -> Iterator[None]:
        """Keep others from making an index of the form for a block; wait for them up to ``timeout`` seconds."""
        files.ensure(self._directory)
        files.ensure_file(self._lock)
        with LockFile(self._lock).exclusive(_BUSY, timeout=timeout):
            yield


COLUMNS = 32  # The number of columns of text of indexed controls; controls share them in turn

SEQS_PER_MILLISECOND = 1 << 20
_LAST_MILLISECOND = (1 << 43) - 2
"""Since 1970, and until then: of the instants before 1691 and after 2248 all are one, because these numbers end."""


def first_seq(modified: Instant) -> int:
    """Return the lowest ``seq`` of a document saved at an instant: they are in the order in which these were saved."""
    milliseconds = epoch_nanoseconds(modified) // 1_000_000
    return max(-_LAST_MILLISECOND, min(milliseconds, _LAST_MILLISECOND)) * SEQS_PER_MILLISECOND


def columns(card: Card) -> tuple[str | None, ...]:
    found: list[str | None] = [None] * COLUMNS
    for number, values in card.values.items():
        if values and number > 0:
            at, text = column_of(number), SEPARATOR.join(values).casefold()
            before = found[at]
            found[at] = text if before is None else f"{before}{SEPARATOR}{text}"
    return tuple(found)


def column_of(number: int) -> int:
    return number % COLUMNS


SCHEMA = 7  # The version of the tables and of their content; an index of another one is rebuilt

FIELDS = tuple(f"field{number}" for number in range(COLUMNS))  # The columns of text of indexed controls

TABLES = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE control (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
CREATE TABLE indexed_version (
    version INTEGER PRIMARY KEY, round INTEGER NOT NULL, state TEXT NOT NULL, data_format TEXT NOT NULL,
    fingerprint TEXT NOT NULL, keys TEXT NOT NULL
);
CREATE TABLE partition (
    number INTEGER PRIMARY KEY, version INTEGER NOT NULL, draft INTEGER NOT NULL, round INTEGER NOT NULL,
    documents INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE document (
    seq INTEGER PRIMARY KEY, text INTEGER NOT NULL, partition INTEGER NOT NULL, draft INTEGER NOT NULL,
    document TEXT NOT NULL, fingerprint TEXT NOT NULL, created TEXT NOT NULL, card TEXT NOT NULL
);
CREATE TABLE entry (
    control INTEGER NOT NULL, partition INTEGER NOT NULL, fold NOT NULL, value NOT NULL, seq INTEGER NOT NULL,
    edge INTEGER NOT NULL, PRIMARY KEY (control, partition, fold, value, seq)
) WITHOUT ROWID;
CREATE TABLE texts (text INTEGER PRIMARY KEY, seq INTEGER NOT NULL);
CREATE TABLE missed (document TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE VIRTUAL TABLE fields USING fts5(
    {", ".join(FIELDS)}, tokenize = 'trigram case_sensitive 1', detail = column, columnsize = 0
);
CREATE VIRTUAL TABLE free_text USING fts5(
    text, tokenize = 'trigram case_sensitive 1', detail = none, columnsize = 0
);
"""
"""A row of ``indexed_version`` is a ``VersionState``; ``round`` is a generation."""

HIDDEN = "(p.round < v.round AND v.state = 'DELETED')"  # Of a partition ``p`` and its version ``v``

INDEXES = """
CREATE UNIQUE INDEX document_by_name ON document (document, draft);
CREATE INDEX document_by_partition ON document (partition, seq);
"""
"""Apart, because a new index is filled before it has them."""

TEXTS = ("fields", "free_text")  # The tables of the index of texts: of indexed controls, and of all else

SCHEMA_FACT = "schema"
TREE = "tree"  # The identity of the tree with which the index was last known to be up to date
COMPLETE = "complete"
"""The flag that the index has rows of all documents; without it, it stands for one that is being built."""
REBUILDING = "rebuilding"
"""The flag that another index is being built, which may miss changes: they are listed in ``missed``."""
CHANGES = "changes"  # The number of changes to the index


def read_fact(connection: sqlite3.Connection, name: str) -> str | int | None:
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def write_fact(connection: sqlite3.Connection, name: str, value: str | int) -> None:
    connection.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))


def tune(connection: sqlite3.Connection, *, crisismerge: int = 16) -> None:
    """Let a change of the index of texts write little; by default, each would rewrite a large part (SQLite FTS5, 6)."""
    # Pieces are merged when there are ``crisismerge``, and by the updater when it has nothing else to do.
    for table in TEXTS:
        for name, value in (("automerge", 0), ("crisismerge", crisismerge), ("hashsize", 1 << 20)):
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (name, value))


@cache
def _expected() -> list[tuple[str, str | None]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES + INDEXES)
        return _tables_of(connection)


def _tables_of(connection: sqlite3.Connection) -> list[tuple[str, str | None]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


class IndexedRow(NamedTuple):
    """The place of a document in the index, the generation of its version, and the fingerprint that was read."""

    text: int
    seq: int
    partition: int
    version: int
    generation: int
    fingerprint: str


_KEPT = (
    "SELECT d.draft, d.text, d.seq, d.partition, p.version, p.round, d.fingerprint"
    " FROM document d JOIN partition p ON p.number = d.partition WHERE d.document = ?"
)


class IndexState(Closable):
    """Reads and changes the state of an index by a connection that it owns. Methods raise ``sqlite3.Error``."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self._execute = connection.execute

    def close(self) -> None:
        self.connection.close()

    @property
    def is_complete(self) -> bool:
        return bool(read_fact(self.connection, COMPLETE))

    @property
    def tree(self) -> str:
        return str(read_fact(self.connection, TREE))

    @tree.setter
    def tree(self, identity: str) -> None:
        write_fact(self.connection, TREE, identity)

    @property
    def changes(self) -> int:
        return int(read_fact(self.connection, CHANGES) or 0)

    @changes.setter
    def changes(self, number: int) -> None:
        write_fact(self.connection, CHANGES, number)

    # Documents.

    def fingerprints(self, document: str) -> tuple[str, str]:
        """Return the fingerprints of a draft and of the saved document that were read; empty where there is no row."""
        found = dict(
            self._execute("SELECT draft, fingerprint FROM document WHERE document = ?", (document,)).fetchall()
        )
        return found.get(1, ""), found.get(0, "")

    def kept(self, document: str) -> dict[bool, IndexedRow]:
        return {bool(draft): IndexedRow(*row) for draft, *row in self._execute(_KEPT, (document,))}

    def count(self) -> int:
        return int(self._execute("SELECT count(*) FROM document").fetchone()[0])

    def names(self, after: int, most: int) -> list[tuple[int, DocumentName]]:
        found = self._execute(
            "SELECT seq, document, draft FROM document WHERE seq > ? ORDER BY seq LIMIT ?", (after, most)
        )
        return [(row, DocumentName(document, bool(draft))) for row, document, draft in found]

    def names_of(self, version: int, after: int, most: int) -> list[tuple[int, str]]:
        return self._execute(
            "SELECT seq, document FROM document WHERE seq > ? AND partition IN"
            " (SELECT number FROM partition WHERE version = ?) ORDER BY seq LIMIT ?",
            (after, version, most),
        ).fetchall()

    def hidden(self, but: int) -> dict[DocumentName, int]:
        """Return the versions of documents that are hidden, except those of one version."""
        found = self._execute(
            "SELECT d.document, d.draft, p.version FROM document d JOIN partition p ON p.number = d.partition"
            f" JOIN indexed_version v USING (version) WHERE {HIDDEN} AND p.version <> ?",
            (but,),
        )
        return {DocumentName(document, bool(draft)): version for document, draft, version in found}

    # Changes during a rebuild.

    @property
    def is_rebuilding(self) -> bool:
        return bool(read_fact(self.connection, REBUILDING))

    def begin_rebuild(self) -> None:
        write_fact(self.connection, REBUILDING, 1)

    def end_rebuild(self) -> None:
        """List changed documents no longer; an index that only stands for another one goes on."""
        if self.is_complete:
            write_fact(self.connection, REBUILDING, 0)
            self._execute("DELETE FROM missed")

    def miss(self, documents: Iterable[str]) -> None:
        self.connection.executemany(
            "INSERT OR IGNORE INTO missed (document) VALUES (?)", [(document,) for document in documents]
        )

    def missed(self) -> list[str]:
        return [document for (document,) in self._execute("SELECT document FROM missed")]

    # Form versions.

    def partitions(self) -> list[tuple[Any, ...]]:
        """Return the rows of ``searched_partitions``; one without a number for each version without documents."""
        return self._execute(
            "SELECT p.number, v.version, p.draft, p.round, p.documents, v.round, state, data_format, fingerprint, keys"
            " FROM indexed_version v LEFT JOIN partition p ON p.version = v.version AND p.documents > 0"
            " ORDER BY p.number"
        ).fetchall()

    def version(self, number: int) -> VersionState | None:
        row = self._execute(
            "SELECT round, state, data_format, fingerprint, keys FROM indexed_version WHERE version = ?", (number,)
        ).fetchone()
        return None if row is None else VersionState.of_row(row)

    def store_version(self, number: int, state: VersionState) -> None:
        self._execute("INSERT OR REPLACE INTO indexed_version VALUES (?, ?, ?, ?, ?, ?)", (number, *state.row))


_LONGEST_WAIT = 10.0
_RETRY_AFTER = 2

_LONGEST_LOG = 8_000
"""Pages of changes after which they are written where they belong: a page that changes often is written there once."""

_DAMAGE = frozenset(
    {
        *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_SCHEMA),
        *(sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT),
    }
)
TRANSIENT = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
        *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM),
    }
)
"""Codes of errors that say nothing about the content of a file."""
_OF_DAMAGE = "user-defined function raised exception", "invalid fts5 file format", "vtable constructor failed"
"""Errors of statements that damage makes: functions of one's own fail only where a card cannot be read."""

_LEAST = 1 << 20  # Bytes that must be free: much more than SQLite maps at a time
_LEAST_INODES = 16  # Files that can still be made: an index has four, and another one may be made beside it
_USED_UP = (errno.ENOSPC, errno.EDQUOT)


UNSAFE = ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE")
"""Pragmas for a file that nobody uses before it is finished, and that is removed if that fails."""


# Connections to the files of the engine, the check that one is an index of this version, and the errors of SQLite.
#
# Only SQLite may open such a file: closing it would release the locks that this process has on it, which others would
# no longer respect (SQLite, How To Corrupt An SQLite Database File, 2.2).


class UnusableError(Exception):
    """An index that must be rebuilt: it is damaged, or gone. ``cause`` is the text of SQLite, if it has found that."""

    # ``mistake`` is an error of Python's, which shows damage, or in an index that was just built, a mistake of ours.
    def __init__(self, path: str, cause: str = "", mistake: Exception | None = None) -> None:
        super().__init__(cause or path)
        self.path = path
        self.cause = cause
        self.mistake = mistake


class OutdatedError(UnusableError):
    """An index that was made by another version of the service."""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def connected(path: str, *, cached_statements: int = 128) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(path)}?mode=rw",
        uri=True,
        isolation_level=None,
        timeout=_LONGEST_WAIT,
        check_same_thread=False,
        cached_statements=cached_statements,
    )


def opened_to_write(path: str) -> sqlite3.Connection:
    connection = connected(path)
    with closed_after_error(connection):
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", f"wal_autocheckpoint = {_LONGEST_LOG}"):
            connection.execute(f"PRAGMA {pragma}")
    return connection


def sync(path: str) -> None:
    with files.closing(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)) as descriptor:
        files.sync(descriptor)


def identities(*paths: str) -> list[tuple[int, int] | None]:
    """Return what distinguishes each file from another one at the same path; ``None`` where there is none."""
    found = list[tuple[int, int] | None]()
    for path in paths:
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_dev))
    return found


def require_own(path: str) -> None:
    """Make sure that an index and its companions are files with no other name: SQLite would write through a link."""
    for each in (path, f"{path}-wal", f"{path}-shm"):
        try:
            status = os.lstat(each)
        except FileNotFoundError:
            if each == path:
                raise UnusableError(path) from None
            continue
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise UnusableError(path)


@contextmanager
def domain_errors(subject: str) -> Iterator[None]:
    """Raise the domain error for one of SQLite in a block, in which ``subject`` is used."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_domain_error(error, subject) from error


FAILURES = (
    sqlite3.Error,
    FileNotFoundError,
    *(LookupError, TypeError, ValueError, StopIteration, msgspec.DecodeError),  # bytes changed, unnoticed by SQLite
)
"""Errors of using an index, for ``meaning_of``."""


def meaning_of(error: Exception, path: str, subject: str) -> UnusableError | DiskError | BusyError:
    """Return what an error says of the index at a path: that it must be rebuilt, or that something is in the way."""
    match error:
        case sqlite3.Error():
            return UnusableError(path, str(error)) if _is_damage(error, path) else as_domain_error(error, subject)
        case FileNotFoundError():
            return as_disk_error(error, "using", subject) if os.path.exists(path) else UnusableError(path)
        case _:
            return UnusableError(path, f"{type(error).__name__}: {error}", error)


def code_of(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: sqlite3.Error, path: str) -> bool:
    """Return whether an error shows that a file is damaged; otherwise it is the disk, or others are busy with it."""
    # If SQLite refuses a statement, the tables tell: where these are as they should be, the statement is at fault, and
    # a rebuilt index would not understand it either.
    code = getattr(error, "sqlite_errorcode", None)
    try:
        with closing(connected(path)) as connection:
            if code is None or code == sqlite3.SQLITE_READONLY_DBMOVED:
                return True
            if code & 0xFF != sqlite3.SQLITE_ERROR:
                return (code & 0xFF) in _DAMAGE
            return any(text in str(error) for text in _OF_DAMAGE) or _tables_of(connection) != _expected()
    except sqlite3.Error:
        return True


def as_domain_error(error: sqlite3.Error, subject: str) -> DiskError | BusyError:
    """Return the domain error for one that says nothing about the content of a file; ``subject`` was being used."""
    text = f"{subject}: {error}"
    match code_of(error):
        case sqlite3.SQLITE_FULL:
            return DiskFullError(text)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return BusyError(text, _RETRY_AFTER)
        case _:
            return DiskError(text)


def require_space(root: str) -> None:
    """Make sure that SQLite has room to write below a root."""
    # It keeps an index's shared memory in a file that it maps. Where the disk is too full for the next page of that,
    # the system kills the process (SIGBUS). Where there is no inode for that file, SQLite reports a damaged index. A
    # file system that copies a page when it changes (btrfs) needs room for each change of the shared memory, and does
    # not tell of its quotas. It counts no inodes; there the room is tried out.
    status = os.statvfs(root)
    is_short_of_inodes = status.f_files and status.f_favail < _LEAST_INODES  # some file systems do not count them
    is_short_of_bytes = status.f_bavail * status.f_frsize < _LEAST
    if is_short_of_inodes or is_short_of_bytes or (not status.f_files and is_full(root)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_full(root: str) -> bool:
    """Test whether the disk is full by taking room: quotas do not show in what some file systems report as free."""
    # SQLite reports this as any other error of the disk.
    try:
        descriptor = files.open_unnamed(f"{root}/{SPOOL}")
        if descriptor is not None:
            with files.closing(descriptor):
                files.reserve(descriptor, _LEAST)
    except OSError as error:
        return error.errno in _USED_UP
    return False


def remove_index(path: str) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        files.remove(path + suffix)
