"""Making the index anew, and how far that is (spec search 5)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from persistence.errors import BusyError, DiskError, disk_errors
from persistence.forms.writing import attribute, element
from persistence.index.flat.views import FlatViews
from persistence.index.index import Index
from persistence.index.reindexing import progress_in
from persistence.index.work import Aim, Work
from persistence.model.addresses import Form
from persistence.storage.reader import StoreReader

_MOST_AT_ONCE = 2
"""Calls in a process that are being worked on or wait: each keeps a thread, of which there are few."""
_RETRY_AFTER = 30


class State(Enum):
    """What is being done, by its name in answers."""

    STOPPED = "stopped"
    INDEXING = "indexing"


@dataclass(frozen=True, slots=True)
class Status:
    """How far it is: with which document, of how many."""

    state: State = State.STOPPED
    current: int = 0
    total: int = 0

    def as_xml(self) -> bytes:
        """The answer to whoever asks."""
        said = attribute("state", self.state.value)
        if self.state is State.INDEXING:
            said += attribute("document-current", str(self.current)) + attribute("document-total", str(self.total))
        return element("status", said).encode()


class Reindexes(Protocol):
    """What makes indexes anew. Methods raise ``BusyError`` and ``DiskError``."""

    def all(self) -> None:
        """That of every form."""

    def version(self, form: Form, number: int) -> None:
        """That of one version of a form; where there is none, nothing is done."""

    def status(self) -> Status:
        """How far it is, whoever has begun it."""


class Reindexing:
    """Makes the index anew, and reads the rows of flat views anew.

    Each call ends when it is done; of two at once the second waits.

    Methods raise ``DiskError``, and ``BusyError`` where so many wait already that others could not be served.
    """

    def __init__(self, store: StoreReader, index: Index, flat: FlatViews) -> None:
        self._store = store
        self._index = index
        self._flat = flat
        self._turns = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def all(self) -> None:
        """That of every form."""
        forms = tuple(self._store.forms())
        tasks = tuple(self._index.task(form, Aim.ANEW) for form in forms)
        self._make(Work(self._store.root, tasks, tuple(map(self._flat.task, forms))))

    def version(self, form: Form, number: int) -> None:
        """That of one version of a form; where there is none, nothing is done."""
        if form in set(self._store.forms(form.app)):
            task = self._index.task(form, Aim.ANEW, number)
            self._make(Work(self._store.root, (task,), (self._flat.task(form, number),)))

    def status(self) -> Status:
        """How far it is, whoever has begun it."""
        with disk_errors("looking how far the index is"):
            found = progress_in(self._store.root)
        return Status() if found is None else Status(State.INDEXING, found.current, found.total)

    def _make(self, work: Work) -> None:
        if not self._turns.acquire(blocking=False):
            raise BusyError("indexes are being made anew, and others wait for their turn already", _RETRY_AFTER)
        try:
            with disk_errors("making the index anew"):
                is_made = self._index.make(work)
            if not is_made:
                raise DiskError("the index could not be made anew; the log says why")
        finally:
            self._turns.release()
