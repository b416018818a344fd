"""Rebuilding the indexes of a tree on request (spec search 5)."""

from __future__ import annotations

import threading

from persistence.errors import BusyError, DiskError, disk_errors
from persistence.index.flat.views import FlatViews
from persistence.index.index import Index
from persistence.index.protocol import ReindexingState, ReindexingStatus
from persistence.index.reindexing import progress_in
from persistence.index.work import Aim, Work
from persistence.model.addresses import Form
from persistence.storage.reader import StoreReader

_MOST_AT_ONCE = 2
"""Calls in a process that run or wait: each keeps a thread, of which there are few."""
_RETRY_AFTER = 30


class TreeReindexer:
    """Rebuilds the indexes of a tree, and reads the rows of its flat views again. A ``Reindexer``.

    Each call ends when the rebuild is done; of two at once the second waits.

    Methods raise ``DiskError``, and ``BusyError`` where so many wait already that others could not be served.
    """

    def __init__(self, store: StoreReader, index: Index, flat: FlatViews) -> None:
        self._store = store
        self._index = index
        self._flat = flat
        self._turns = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def all(self) -> None:
        """Rebuild all indexes."""
        forms = tuple(self._store.forms())
        tasks = tuple(self._index.task(form, Aim.ANEW) for form in forms)
        self._make(Work(self._store.root, tasks, tuple(map(self._flat.task, forms))))

    def version(self, form: Form, number: int) -> None:
        """Rebuild the index of one version of a form; do nothing where there is no such form."""
        if form in set(self._store.forms(form.app)):
            task = self._index.task(form, Aim.ANEW, number)
            self._make(Work(self._store.root, (task,), (self._flat.task(form, number),)))

    def status(self) -> ReindexingStatus:
        """Return the progress of the current rebuild, whichever process runs it."""
        with disk_errors("looking how far the index is"):
            found = progress_in(self._store.root)
        if found is None:
            return ReindexingStatus()
        return ReindexingStatus(ReindexingState.INDEXING, found.current, found.total)

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
