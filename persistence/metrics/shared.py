"""The directory in which the worker processes of one service share their metrics, and the number of each of them.

The master makes it before there are workers, and removes it when it ends. It is in memory where there is room: each
count is a write to a mapped file. One whose master was killed is removed by the next service that starts.

A worker has the smallest number that no living one has, and holds a lock on it for as long as it lives. So a worker
that follows a dead one goes on counting in its files: their number is that of the workers at one time, and no count
gets smaller. The room of these files is taken before they are mapped, as a write where there is none kills the process.
A file that cannot be read, as a process that was killed or a full disk may leave one, costs what it counted.
"""

from __future__ import annotations

import atexit
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count

from prometheus_client import Metric, multiprocess, values

from persistence.errors import disk_errors
from persistence.storage import directories, files, nofollow
from persistence.storage.locks import try_lock

_IN_MEMORY = "/dev/shm"  # noqa: S108 - mkdtemp makes the name, and nobody else may look into it
_PREFIX = "persistence-metrics-"
_LOCK = "lock"
_ATTEMPTS = 20
_SLOT = "worker-"
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which the library finds the directory; so workers find it, too."""

_BYTES = {"counter": 1 << 18, "histogram": 1 << 19, "gauge_livesum": 1 << 14, "gauge_livemax": 1 << 14}
"""Bytes of the files of one worker, by their kinds: more than all combinations of labels need that can occur."""

PLOTS = "plots"
"""The file of samples for plots."""
PLOTS_BYTES = 1 << 18
"""Its bytes."""


@dataclass(frozen=True, slots=True)
class SharedMetrics:
    """The directory, as the worker of a number uses it."""

    path: str
    number: int

    @property
    def started(self) -> float:
        """When the service was started, in seconds since the epoch."""
        return os.stat(f"{self.path}/{_LOCK}").st_mtime

    def forget_dead(self) -> int:
        """Remove the gauges of workers that have ended; return the number of those that live."""
        living = 1
        with suppress(OSError):
            for number in _numbers(self.path):
                if number == self.number:
                    continue
                if _is_free(f"{self.path}/{_SLOT}{number}"):
                    multiprocess.mark_process_dead(number, self.path)
                else:
                    living += 1
        return living


def begin() -> None:
    """Make the directory for the workers of this process; it is removed when the process ends."""
    above = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()
    above = os.path.realpath(above)
    with disk_errors(f"metrics in {above}"):
        sweep(above)
        path = own_directory(above)
        atexit.register(_end, path, os.getpid())
        _reserve(f"{path}/{PLOTS}", PLOTS_BYTES)
    os.environ[_VARIABLE] = path


def own_directory(above: str) -> str:
    """Make a directory, and lock it until the last of the processes ends.

    Another service that starts may take one for a dead service's before it is locked, and remove it.
    """
    for _ in range(_ATTEMPTS):
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=above)
        descriptor = files.open_shared(f"{path}/{_LOCK}")
        if try_lock(descriptor) and os.path.exists(f"{path}/{_LOCK}"):
            return path
        os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), above)


@cache
def joined() -> SharedMetrics:
    """Return the directory for this process, which counts there from now on, under a number of its own.

    Without a master, the process makes the directory for itself.
    """
    if not os.path.isdir(os.environ.get(_VARIABLE, "")):
        begin()
    path = os.environ[_VARIABLE]
    with disk_errors(f"metrics in {path}"):
        number = next(number for number in count() if _is_taken(f"{path}/{_SLOT}{number}"))
        multiprocess.mark_process_dead(number, path)
        for kind, size in _BYTES.items():
            file = f"{path}/{kind}_{number}.db"
            if not _is_readable(file):
                files.remove(file)
            _reserve(file, size)
    values.ValueClass = values.MultiProcessValue(lambda: number)
    return SharedMetrics(path, number)


def collected(path: str) -> Iterable[Metric]:
    """Return what the workers that share a directory have counted, as far as it can be read."""
    found = [f"{path}/{name}" for name in os.listdir(path) if name.endswith(".db")]
    try:
        return _merged(found)
    except Exception:  # noqa: BLE001 - as below
        return _merged([each for each in found if _is_readable(each)])


def _merged(paths: list[str]) -> Iterable[Metric]:
    merged: Iterable[Metric] = multiprocess.MultiProcessCollector.merge(paths)
    return merged


def _is_readable(path: str) -> bool:
    try:
        _merged([path])
    except Exception:  # noqa: BLE001 - see above
        return False
    return True


def _is_taken(path: str) -> bool:
    descriptor = files.open_shared(path)
    if try_lock(descriptor):
        return True
    os.close(descriptor)
    return False


def _is_free(path: str) -> bool:
    descriptor = nofollow.open_to_read(path)
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def _numbers(path: str) -> Iterator[int]:
    for name in os.listdir(path):
        if name.startswith(_SLOT):
            yield int(name.removeprefix(_SLOT))


def _reserve(path: str, size: int) -> None:
    with suppress(FileNotFoundError):
        if os.stat(path).st_size >= size:
            return
    fresh = f"{path}.new"
    files.remove(fresh)
    descriptor = files.open_new(fresh)
    try:
        files.reserve(descriptor, size)
    finally:
        os.close(descriptor)
    files.rename(fresh, path)


def sweep(above: str) -> None:
    """Remove the directories of services that were killed."""
    with os.scandir(above) as found:
        for entry in found:
            is_own = entry.name.startswith(_PREFIX) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if is_own and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # it is just being made, or removed
                    _remove_dead(entry.path)


def _remove_dead(path: str) -> None:
    descriptor = nofollow.open_to_read(f"{path}/{_LOCK}")
    try:
        if try_lock(descriptor):
            directories.remove_tree(path)
    finally:
        os.close(descriptor)


def _end(path: str, process: int) -> None:
    if os.getpid() == process:  # a worker that was forked from it ends as well
        directories.remove_tree(path)
