"""The file of flat views: one for all forms, at a path that stays the same."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from persistence.index import connections, facts
from persistence.index.damage import UnusableError
from persistence.index.flat.catalogue import CATALOGUE, TABLES
from persistence.storage import directories, files
from persistence.storage.layout import FLAT, Layout
from persistence.storage.locks import LockFile

SCHEMA = 1
"""The version of the catalogue's tables."""

_WAL = 64 << 20
"""Bytes of the log of changes that are kept on disk after a large one."""

_LONGEST_WAIT = 10.0
_OTHER_FILES = ("-wal", "-shm")

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FlatFile:
    """The file in the tree of a root. It is made whole and aside, so whoever finds it can use it.

    Nothing but SQLite may open it: where a process closes a file, its locks of that file are gone, SQLite's too.
    Methods raise ``OSError`` and ``BusyError``.
    """

    root: str

    @property
    def path(self) -> str:
        """Where it is."""
        return f"{self._directory}/flat.sqlite"

    @property
    def identity(self) -> Identity | None:
        """What tells it from another one that takes its place; ``None`` where there is none."""
        return connections.identity_of(self.path)

    def opened(self) -> sqlite3.Connection:
        """A connection to the file, which must be there.

        Raises:
            UnusableError: it is damaged, or of another version of the service.
            sqlite3.Error: it cannot be opened now.
        """
        connections.require_own(self.path)
        connection = connections.opened_to_write(self.path)
        try:
            _check(connection)
            connection.execute(f"PRAGMA journal_size_limit = {_WAL}")
            connection.execute("PRAGMA secure_delete = ON")  # a value may have gone because it is encrypted now
        except BaseException:
            connection.close()
            raise
        return connection

    def make(self) -> None:
        """Make it where there is none. Raises ``sqlite3.Error`` too."""
        directories.ensure(self._directory)
        files.ensure_file(self._lock)
        with LockFile(self._lock).exclusive("the file of flat views is being made", timeout=_LONGEST_WAIT):
            if files.exists(self.path):
                return
            fresh = f"{self.path}-new"
            for path in (self.path, fresh):
                _remove(path)
            files.ensure_file(fresh)
            with closing(connections.opened_to_write(fresh)) as connection:
                connection.executescript(TABLES)
                facts.write(connection, facts.SCHEMA_FACT, SCHEMA)
            connections.sync(fresh)
            files.rename(fresh, self.path)
            directories.sync(self._directory)

    def settle(self, identity: Identity | None) -> None:
        """Take down that it has the views of all forms that had some, if it is still that one.

        Raises:
            UnusableError, sqlite3.Error: it cannot be opened.
        """
        if identity is not None and self.identity == identity:
            with closing(self.opened()) as connection:
                facts.write(connection, facts.COMPLETE, 1)

    def discard(self, identity: Identity | None) -> None:
        """Remove it if it is the one that was found to be unusable."""
        with LockFile(self._lock).exclusive("the file of flat views is being made", timeout=_LONGEST_WAIT):
            if identity is not None and self.identity == identity:
                _remove(self.path)

    @property
    def _directory(self) -> str:
        return Layout(os.path.realpath(self.root)).own(FLAT)

    @property
    def _lock(self) -> str:
        return f"{self._directory}/lock"


def is_lost(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is damaged as a whole. One that cannot be opened may be in order."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _check(connection: sqlite3.Connection) -> None:
    try:
        schema = facts.read(connection, facts.SCHEMA_FACT)
        for table in CATALOGUE:
            connection.execute(f"SELECT 1 FROM {table} LIMIT 0")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_ERROR:
            raise
        schema = None  # there is no such table
    if schema != SCHEMA:
        raise UnusableError("the file of flat views is not of this version")


def _remove(path: str) -> None:
    for suffix in ("", *_OTHER_FILES):
        files.remove(path + suffix)
