"""The index files that a process has open."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from persistence.closable import Closable, closed
from persistence.index import identity, tally
from persistence.index.connections import Connections
from persistence.index.making import State, state_of
from persistence.limits import INDEXES_KEPT
from persistence.model.addresses import Form

_LOOKS = 3
_LOOK = 0.02
"""Seconds between two looks whether an index is ready."""


class Pool(Closable):
    """Connections to the files of forms, those used last; for all threads. It owns them."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._open: OrderedDict[Form, Connections] = OrderedDict()
        self._lock = threading.Lock()
        self._ready: set[str] = set()
        self._is_closed = False

    def used(self, form: Form, path: str) -> Connections:
        """The connections to a file, opened if they are not yet; those used least recently are closed.

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
        fresh = Connections(path)
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
        """Close all connections; those in use are closed by whoever is using them."""
        with self._lock:
            self._is_closed = True
            unused = list(self._open.values())
            self._open.clear()
        for each in unused:
            each.close()

    def discard(self, form: Form) -> None:
        """Close the connections of a form: they are damaged, or another file is in the place of theirs."""
        with self._lock:
            used = self._open.pop(form, None)
        if used is not None:
            self._ready.discard(used.path)
            used.close()

    def is_ready(self, used: Connections) -> bool:
        """Whether an index can be asked, which is remembered."""
        if used.path in self._ready:
            return True
        for _ in range(_LOOKS):
            changes = tally.beside(used.path)
            with used.reading() as reader:
                if state_of(reader.connection, identity.of(self._root), changes) is State.READY:
                    self._ready.add(used.path)
                    return True
            time.sleep(_LOOK)  # somebody may just be changing it
        return False
