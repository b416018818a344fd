"""Rebuilds of the indexes of a tree, in this process or in others, and on request (spec search 5)."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from persistence import children
from persistence.children import Child
from persistence.closable import Closable, closed
from persistence.errors import BusyError, DiskError, disk_errors
from persistence.index.protocol import RebuildAim, ReindexingState, ReindexingStatus
from persistence.index.sources import SourceDescription
from persistence.index.sqlite.engine import FlatFile, UnusableError
from persistence.index.sync.flat_maker import FlatMaker
from persistence.index.sync.rebuild import Generations, Progress, Rebuild
from persistence.storage import files, locks, nofollow
from persistence.storage.layout import REINDEXING, Layout
from persistence.storage.locks import LockFile
from persistence.storage.reader import StoreReader

_LONGEST_WAIT = 24 * 3600.0
"""Seconds for which a rebuild waits for another one, which comes to an end."""

_PAUSE = 0.2
"""Seconds between two reports of progress."""


class IndexTask(msgspec.Struct, frozen=True):
    """The index of one form, and the aim of its rebuild. ``only`` is as in ``Rebuild.run``."""

    source: SourceDescription
    aim: RebuildAim = RebuildAim.READY
    only: int | None = None


class FlatTask(msgspec.Struct, frozen=True):
    """The flat views of one form, or of one version; except those of the tree ``but``.

    If the views of a version are new (``is_new``), their columns are made by its definition too.
    """

    source: SourceDescription
    version: int | None = None
    but: str = ""
    is_new: bool = False


class IndexJob(msgspec.Struct, frozen=True):
    """The rebuild of some indexes in the tree of a root, and then of flat views. A ``RebuildJob``."""

    root: str
    tasks: tuple[IndexTask, ...] = ()
    flat: tuple[FlatTask, ...] = ()

    @property
    def forms(self) -> int:
        return len(self.tasks)

    def count(self) -> int:
        """Return roughly how many documents and drafts there are. Raises ``DiskError``."""
        return sum(1 for task in self.tasks for _ in self._rebuild(task).source.documents())

    def run(self, progress: Progress) -> None:
        """Rebuild now, in this process. Raises as ``RebuildJob.run`` does."""
        for cause in self.work(progress):
            raise DiskError(f"no flat views of {cause}")

    def begin(self) -> Child:
        """Start a process of its own that rebuilds: it has all processors. Raises ``OSError``."""
        with tempfile.TemporaryFile() as given:  # not an argument: there may be thousands of forms
            given.write(msgspec.json.encode(self))
            given.seek(0)
            return children.start("-m", "persistence.index", stdin=given, stdout=subprocess.DEVNULL)

    def work(self, progress: Progress = lambda _: None) -> Iterator[str]:
        """Make the indexes and then the flat views; yield the causes where some of these cannot be made.

        Raises as ``run`` does.
        """
        if self.tasks:
            with disk_errors("making the index"), reported(self, progress) as report:
                for task in self.tasks:
                    with disk_errors("making the index of", task.source.form):
                        self._rebuild(task).run(
                            task.aim,
                            timeout=_LONGEST_WAIT,
                            progress=report,
                            only=task.only,
                        )
        yield from self._make_flat_views()

    def _make_flat_views(self) -> Iterator[str]:
        file = FlatFile(self.root)
        with disk_errors("looking at the tables of flat views"):
            found = file.identity
        for task in self.flat:
            maker = FlatMaker.of(task.source.opened(self.root), self.root)
            if task.version is None:
                yield from maker.refill_all(but=task.but)
            elif task.is_new:
                maker.create(task.version)
            else:
                maker.refill(task.version)
        read = {task.source.form for task in self.flat if task.version is None}
        if read.issuperset(StoreReader(self.root).forms()):
            with suppress(UnusableError, DiskError, BusyError):  # otherwise it is done once more
                file.settle(found)

    def _rebuild(self, task: IndexTask) -> Rebuild:
        return Rebuild(self.root, Generations(Layout(self.root), task.source.form), task.source.opened(self.root))


@contextmanager
def reported(job: IndexJob, progress: Progress) -> Iterator[Progress]:
    """Wait for other rebuilds to end, and report the progress of a job during the block, also to ``progress``.

    Raises ``OSError``.
    """
    path = f"{job.root}/{REINDEXING}"
    files.ensure_file(path)
    current, written = 0, 0.0

    def report(documents: int) -> None:
        nonlocal current, written
        current += documents
        progress(documents)
        if time.monotonic() > written + _PAUSE:
            written = time.monotonic()
            status = ReindexingStatus(ReindexingState.INDEXING, min(current, total), total)
            files.overwrite(path, msgspec.json.encode(status))  # in place: it is locked

    with LockFile(path).exclusive("another index is being made", timeout=_LONGEST_WAIT):
        total = job.count()
        report(0)
        yield report


def progress_in(root: str) -> ReindexingStatus:
    """Return the progress of the rebuild in the tree of a root. Raises ``OSError``."""
    try:
        descriptor = nofollow.open_to_read(f"{root}/{REINDEXING}")
    except FileNotFoundError:
        return ReindexingStatus()
    try:
        if locks.try_lock(descriptor):
            return ReindexingStatus()
        data = nofollow.read_small(descriptor)
    finally:
        os.close(descriptor)
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(data, type=ReindexingStatus)
    return ReindexingStatus(ReindexingState.INDEXING)


_LONGEST_END = 10.0
"""Seconds that a process may take at its end to remove its unfinished files."""


class JobProcesses(Closable):
    """Starts processes that rebuild, and owns them. For all threads.

    An index that a process has not finished when it is ended is rebuilt by the next search. The processes are no forks,
    as the service has threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Child] = []
        self._is_closed = False

    def begin(self, job: IndexJob) -> Child:
        """Start a process that does a job."""
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
