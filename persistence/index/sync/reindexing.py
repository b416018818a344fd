"""Rebuilding the indexes of a tree on request (spec search 5), and the processes that rebuild."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from persistence.closable import Closable, closed
from persistence.errors import BusyError, DiskError, disk_errors
from persistence.index.protocol import RebuildAim, ReindexingState, ReindexingStatus
from persistence.index.sync.jobs import IndexJob, progress_in
from persistence.model.addresses import Form
from persistence.storage.reader import StoreReader

if TYPE_CHECKING:
    from persistence.index.sync.tree_index import TreeIndex

_MOST_AT_ONCE = 2
"""Calls in a process that run or wait: each keeps a thread, of which there are few."""
_RETRY_AFTER = 30

_LONGEST_END = 10.0
"""Seconds that a process which was told to end may take to remove its unfinished files."""


class JobProcesses(Closable):
    """Starts processes that rebuild, and owns them. For all threads.

    An index that a process has not finished when it is ended is rebuilt by the next search. The processes are no forks,
    as the service has threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    def begin(self, job: IndexJob) -> subprocess.Popen[bytes]:
        """Start a process that does a job.

        Raises:
            BusyError: this was closed.
            OSError: the process cannot be started.
        """
        with self._lock:
            if self._is_closed:
                raise closed("the maker of indexes")
            self._running = [each for each in self._running if each.poll() is None]
            process = job.begin()
            self._running.append(process)
            return process

    def run(self, job: IndexJob) -> bool:
        """Do a job in a process and wait for its end; return whether it succeeded. Raises as ``begin`` does."""
        return self.begin(job).wait() == 0

    def close(self) -> None:
        """End the processes that are still running, and wait for them."""
        with self._lock:
            self._is_closed = True
            running, self._running = self._running, []
        for process in running:
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LONGEST_END)
                continue
            process.kill()
            process.wait()


class TreeReindexer:
    """Rebuilds the indexes of a tree, and reads the rows of its flat views again. A ``Reindexer``.

    Each call ends when the rebuild is done; of two at once the second waits.

    Methods raise ``DiskError``, and ``BusyError`` where so many wait already that others could not be served.
    """

    def __init__(self, view: StoreReader, index: TreeIndex) -> None:
        self._view = view
        self._index = index
        self._turns = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def all(self) -> None:
        """Rebuild all indexes."""
        self._run(self._index.job(tuple(self._view.forms()), RebuildAim.REBUILT))

    def version(self, form: Form, number: int) -> None:
        """Rebuild the index of one version of a form; do nothing where there is no such form."""
        if form in set(self._view.forms(form.app)):
            self._run(self._index.job((form,), RebuildAim.REBUILT, number))

    def status(self) -> ReindexingStatus:
        """Return the progress of the current rebuild, whichever process runs it."""
        with disk_errors("looking how far the index is"):
            found = progress_in(self._view.root)
        if found is None:
            return ReindexingStatus()
        return ReindexingStatus(ReindexingState.INDEXING, found.current, found.total)

    def _run(self, job: IndexJob) -> None:
        if not self._turns.acquire(blocking=False):
            raise BusyError("indexes are being made anew, and others wait for their turn already", _RETRY_AFTER)
        try:
            with disk_errors("making the index anew"):
                is_done = self._index.run_apart(job)
            if not is_done:
                raise DiskError("the index could not be made anew; the log says why")
        finally:
            self._turns.release()
