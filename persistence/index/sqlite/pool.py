"""The index files that a process has open, and their connections."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from persistence.closable import Closable, closed
from persistence.index.sqlite.connections import Reader, check, companions, identity_of, opened_to_write
from persistence.index.sqlite.faults import UnusableError
from persistence.index.sqlite.schema import SCHEMA_FACT, read_fact
from persistence.limits import INDEXES_KEPT, READERS_KEPT
from persistence.model.addresses import Form


class OpenIndex(Closable):
    """The connections of this process to one file, which must be there and be an index of this version.

    It owns them. Opening raises ``UnusableError`` and ``sqlite3.Error``.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_ready = False
        check(path)
        self._identity = identity_of(path)
        self._size = os.lstat(path).st_size
        reader = Reader(path)
        try:
            read_fact(reader.connection, SCHEMA_FACT)  # now its companions are there, as long as it is open
            self._companions = companions(path)
        except BaseException:
            reader.connection.close()
            raise
        self._readers = [reader]
        self._writer: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._is_closed = False

    def is_gone(self) -> bool:
        """Return whether the file was removed, cut short or replaced since it was opened.

        Raises:
            UnusableError: its log was removed: only those who have it open see what was in it.
        """
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return True
        if (status.st_ino, status.st_dev) != self._identity or status.st_size < self._size:
            return True
        if companions(self.path) != self._companions:
            raise UnusableError(self.path)
        return False

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Lend a connection that sees one state of the index for the block."""
        with self._lock:
            reader = self._readers.pop() if self._readers else None
        if reader is None:
            reader = Reader(self.path)
        try:
            reader.connection.execute("BEGIN")
            yield reader
        finally:
            if reader.connection.in_transaction:
                reader.connection.execute("ROLLBACK")
            with self._lock:
                if len(self._readers) < READERS_KEPT and not self._is_closed:
                    self._readers.append(reader)
                    reader = None
            if reader is not None:
                reader.connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection that writes, which threads have in turn."""
        try:
            with self._turn:
                if self._writer is None:
                    self._writer = opened_to_write(self.path)
                yield self._writer
        finally:
            if self._is_closed:
                self._close_writer()

    def close(self) -> None:
        """Close the connections that nobody uses; whoever uses another one closes it afterwards."""
        with self._lock:
            self._is_closed = True
            while self._readers:
                self._readers.pop().connection.close()
        self._close_writer()

    def _close_writer(self) -> None:
        """Close the connection that writes, unless a thread has it: that one comes here afterwards."""
        if self._turn.acquire(blocking=False):
            try:
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            finally:
                self._turn.release()


class IndexPool(Closable):
    """The open index files of forms, those used last. For all threads. It owns them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Form, OpenIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    def opened(self, form: Form, path: str) -> OpenIndex:
        """Return a file, opened if it is not yet open; the least recently used ones are closed.

        Raises:
            UnusableError, sqlite3.Error: it is no index that can be used.
            BusyError: the pool was closed.
        """
        with self._lock:
            if self._is_closed:
                raise closed("the index")
            used = self._open.get(form)
            if used is not None and used.path == path and not used.is_gone():
                self._open.move_to_end(form)
                return used
        self.discard(form)
        fresh = OpenIndex(path)
        with self._lock:
            unused = [self._open.pop(form, None)]  # another thread was as fast
            self._open[form] = fresh
            if self._is_closed:
                unused = list(self._open.values())
                self._open.clear()
            elif len(self._open) > INDEXES_KEPT:
                unused.append(self._open.popitem(last=False)[1])
        for each in unused:
            if each is not None:
                each.close()
        return fresh

    def close(self) -> None:
        """Close all files; those in use are closed by whoever is using them."""
        with self._lock:
            self._is_closed = True
            unused = list(self._open.values())
            self._open.clear()
        for each in unused:
            each.close()

    def discard(self, form: Form) -> None:
        """Close the file of a form: it is damaged, or another one has taken its place."""
        with self._lock:
            used = self._open.pop(form, None)
        if used is not None:
            used.close()
