"""The index files that a process has open."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from persistence.index import identity, tally
from persistence.index.connections import Connections
from persistence.index.making import State, state_of
from persistence.model.addresses import Form

_MOST_FORMS = 32
"""Forms whose index files are kept open."""

_LOOKS = 3
_LOOK = 0.02
"""Seconds between two looks whether an index is ready."""


class Pool:
    """Connections to the files of forms, those used last; for all threads."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._open: OrderedDict[Form, Connections] = OrderedDict()
        self._lock = threading.Lock()
        self._ready: set[str] = set()

    def used(self, form: Form, path: str) -> Connections:
        """The connections to a file, opened if they are not yet; those used least recently are closed.

        Raises:
            UnusableError, sqlite3.Error: it is no index that can be used.
        """
        with self._lock:
            used = self._open.get(form)
            if used is not None and used.path == path and not used.is_gone():
                self._open.move_to_end(form)
                return used
        self.close(form)
        fresh = Connections(path)
        with self._lock:
            self._open[form] = fresh
            least = self._open.popitem(last=False)[1] if len(self._open) > _MOST_FORMS else None
        if least is not None:
            least.close()
        return fresh

    def close(self, form: Form) -> None:
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
