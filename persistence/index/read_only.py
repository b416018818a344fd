"""Reading an index without writing anything, as a full disk asks for.

Whoever opens an index to use it writes: SQLite makes a log and a file of shared memory beside it, and maps the latter.
Two ways of opening write nothing (SQLite, Write-Ahead Logging, Read-Only Databases):

- Where the shared memory is there, because others have the index open or have died, it is only read. SQLite finds for
  itself whether it can be relied on, and else reads the log.
- Where neither is there, the index was closed in order, and all is in the one file. It is opened as one that does not
  change; whether that was so is seen afterwards.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from persistence.errors import DiskFullError
from persistence.index import connections, identity, tally
from persistence.index.connections import Reader
from persistence.index.damage import SENSELESS, UnusableError
from persistence.index.generations import Generations
from persistence.index.looking import Looking
from persistence.index.making import State, state_of
from persistence.index.sources import Source

_SHARED = "mode=ro&readonly_shm=1"
_UNCHANGING = "mode=ro&immutable=1"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """The index of one form in the tree of a root, to be read as it is. Methods raise ``OSError``."""

    root: str
    generations: Generations
    source: Source

    def asked(self, work: Callable[[Reader], T], nothing: T, noted: Iterable[str]) -> T:
        """Return what some work finds, or ``nothing`` where there are no documents; ``noted`` may have changed.

        Raises:
            DiskFullError: something would have to be written first.
        """
        full = DiskFullError(f"there is no room to bring the index of {self.source.form} up to date")
        path = self.generations.current()
        if path is None:
            if next(self.source.documents(), None) is None:
                return nothing
            raise full
        changes = tally.beside(path)

        def look(reader: Reader) -> T:
            connections.require_schema(reader.connection, path)
            if state_of(reader.connection, identity.of(self.root), changes) is not State.READY:
                raise full
            looking = Looking(reader.connection, self.source)
            if looking.stale(noted) or looking.changed_definitions() or looking.outdated():
                raise full
            return work(reader)

        try:
            return _read(path, look)
        except (sqlite3.Error, UnusableError, FileNotFoundError, *SENSELESS) as error:
            raise full from error  # if it is damaged, that can wait until it can be made anew


def _read(path: str, work: Callable[[Reader], T]) -> T:
    """Do some work on one state of an index.

    Raises:
        UnusableError: the index is in no state in which it can only be read.
        sqlite3.Error: it cannot be opened or read.
        FileNotFoundError: it is gone.
    """
    log, shared = connections.companions(path)
    if shared is not None:
        return _opened(path, _SHARED, work)
    before = _stamp(path)
    if log is not None:
        raise UnusableError(path)
    found = _opened(path, _UNCHANGING, work)
    if connections.companions(path) != (None, None) or _stamp(path) != before:
        raise UnusableError(path)
    return found


def _opened(path: str, options: str, work: Callable[[Reader], T]) -> T:
    reader = Reader(path, options)
    with closing(reader.connection):
        reader.connection.execute("BEGIN")
        return work(reader)


def _stamp(path: str) -> tuple[int, int, int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
