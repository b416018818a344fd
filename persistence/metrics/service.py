"""The metrics of a service: the directory that its workers share, and what one of them shows.

The master makes the directory before there are workers, and removes it when it ends. It is in memory where there is
room: each count is a write to a mapped file. One whose master was killed is removed by the next service that starts.

The files are those of prometheus_client's multiprocess mode. Each worker has the number of a place that no living one
has (``count_as``), and not its process id: one that follows a dead one goes on counting in its files, so that there are
as many files as workers at one time, and no count gets smaller. The room of these files is taken before they are
mapped, as a write where there is none kills the process. A file that cannot be read, as a process that was killed or a
full disk may leave one, costs what it counted.
"""

from __future__ import annotations

import atexit
import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric, generate_latest, multiprocess, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from persistence import __version__
from persistence.errors import DiskError, PersistenceError, disk_errors
from persistence.limits import LEASES_COUNTED
from persistence.maintenance.records import LastBackup, LastCheck, last
from persistence.metrics import observations
from persistence.metrics.instruments import (
    GAUGES,
    PLOTS,
    PLOTS_BYTES,
    RequestFigures,
    Span,
    instruments,
    plots_in,
    totals_of,
)
from persistence.model.instants import Instant, to_datetime
from persistence.model.versions import DocumentLease
from persistence.providers.opened import Providers
from persistence.settings import Settings
from persistence.storage import files
from persistence.storage.document_leases import moment
from persistence.storage.locks import try_lock

_IN_MEMORY = "/dev/shm"  # noqa: S108 - mkdtemp makes the name, and nobody else may look into it
_PREFIX = "persistence-metrics-"
_LOCK = "lock"
_ATTEMPTS = 20
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which the library finds the directory; so workers find it, too."""

_BYTES = {"counter": 1 << 18, "histogram": 1 << 19, "gauge_livesum": 1 << 14, "gauge_livemax": 1 << 14}
"""Bytes of the files of one worker, by their kinds: more than all combinations of labels need that can occur."""

_merged: Callable[[list[str]], Iterable[Metric]] = multiprocess.MultiProcessCollector.merge

_worker: int | None = None


def count_as(number: int) -> None:
    """Let this process count in the files of a number, instead of those of its process id."""
    global _worker  # noqa: PLW0603 - it is a fact of the process
    _worker = number


def _number() -> int:
    return os.getpid() if _worker is None else _worker


def forget_worker(number: int) -> None:
    with suppress(OSError):
        multiprocess.mark_process_dead(number, os.environ.get(_VARIABLE, ""))


def begin() -> None:
    """Make the directory for the workers of this process; it is removed when the process ends."""
    is_there = os.access(_IN_MEMORY, os.W_OK | os.X_OK)
    above = os.path.realpath(_IN_MEMORY if is_there else tempfile.gettempdir())
    with disk_errors(f"metrics in {above}"):
        sweep(above)
        path = own_directory(above)
        atexit.register(_end, path, os.getpid())
        _reserve(f"{path}/{PLOTS}", PLOTS_BYTES)
    os.environ[_VARIABLE] = path


def own_directory(above: str) -> str:
    """Make a directory, and lock it until the last of the processes ends."""
    # Another service that starts may take one for a dead service's before it is locked, and remove it.
    for _ in range(_ATTEMPTS):
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=above)
        descriptor = files.open_shared(f"{path}/{_LOCK}")
        if try_lock(descriptor) and os.path.exists(f"{path}/{_LOCK}"):
            return path
        os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), above)


@cache
def joined() -> str:
    """Return the directory for this process, which counts there from now on; without a master, it makes one."""
    if not os.path.isdir(os.environ.get(_VARIABLE, "")):
        begin()
    path = os.environ[_VARIABLE]
    with disk_errors(f"metrics in {path}"):
        multiprocess.mark_process_dead(_number(), path)
        for kind, size in _BYTES.items():
            file = f"{path}/{kind}_{_number()}.db"
            if not _is_readable(file):
                files.remove(file)
            _reserve(file, size)
    values.ValueClass = values.MultiProcessValue(_number)
    return path


def collected(path: str) -> Iterable[Metric]:
    """Return what the workers that share a directory have counted, as far as it can be read."""
    found = [f"{path}/{name}" for name in os.listdir(path) if name.endswith(".db")]
    try:
        return _merged(found)
    except Exception:  # noqa: BLE001 - as below
        return _merged([each for each in found if _is_readable(each)])


def _is_readable(path: str) -> bool:
    try:
        _merged([path])
    except Exception:  # noqa: BLE001 - see above
        return False
    return True


def _reserve(path: str, size: int) -> None:
    with suppress(FileNotFoundError):
        if os.stat(path).st_size >= size:
            return
    fresh = f"{path}.new"
    files.remove(fresh)
    with files.closing(files.open_new(fresh)) as descriptor:
        files.reserve(descriptor, size)
    files.rename(fresh, path)


def sweep(above: str) -> None:
    with os.scandir(above) as found:
        for entry in found:
            is_own = entry.name.startswith(_PREFIX) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if is_own and entry.is_dir(follow_symlinks=False):
                lock = f"{entry.path}/{_LOCK}"
                with suppress(OSError), files.closing(files.open_to_read(lock)) as descriptor:  # else just being made
                    if try_lock(descriptor):
                        files.remove_tree(entry.path)


def _end(path: str, process: int) -> None:
    if os.getpid() == process:  # a worker that was forked from it ends as well
        files.remove_tree(path)


CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4  # The media type of `Metrics.text`, which every version of Prometheus reads


class Measure(NamedTuple):
    """A value that is looked up when somebody asks, by a name of ``GAUGES``, with its labels in their order."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


class Metrics(Collector):
    """The metrics of a service. Of a process there may be several, which then count together."""

    def __init__(
        self,
        measures: Callable[[], Iterable[Measure]],
        delays: Callable[[], Mapping[str, float]] = dict,
        connections: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        """Join the metrics of the other workers. Raises ``DiskError`` where there is no room for that."""
        self._measures = measures
        self._delays = delays
        self._connections = connections
        self._directory = joined()
        self._instruments = instruments()
        self._plots = plots_in(self._directory)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self.requests = RequestFigures(self._instruments)
        self._instruments.workers.set(1)

    def tick(self) -> None:
        """Count what was observed, and take a sample for plots if one is due. Workers call it about once a second."""
        own, taken = self._instruments, observations.taken
        self.requests.count()
        waits = ((observations.LOCK_WAITS, own.lock_waits), (observations.POOL_WAITS, own.pool_waits))
        timeouts = ((observations.LOCK_TIMEOUTS, own.lock_timeouts), (observations.POOL_TIMEOUTS, own.pool_timeouts))
        pool = ((observations.POOL_WAITING, own.pool_waiting), (observations.POOL_IN_USE, own.pool_in_use))
        for found, gauge in pool:
            change = sum(taken(found))
            if change:
                gauge.inc(change)
        for found, histogram in ((observations.FSYNCS, own.fsyncs), *waits):
            for seconds in taken(found):
                histogram.observe(seconds)
        for found, counter in (*timeouts, (observations.AUDIT_FAULTS, own.audit_faults)):
            for _ in taken(found):
                counter.inc()
        for place, seconds in self._delays().items():
            own.index_delay.labels(place).set(seconds)
        is_open, most = self._connections()
        own.pool_open.set(is_open)
        own.pool_most.set(most)
        now = time.time()
        with suppress(OSError):  # the directory is gone: the service ends
            if self._plots.is_due(now):
                self._plots.put(totals_of(collected(self._directory), now))

    def text(self) -> bytes:
        self.tick()
        return generate_latest(self._registry)

    def spans(self, seconds: float) -> list[Span]:
        """Return rates and latencies of the last ``seconds``, three hours at most, the oldest first, for plots."""
        self.tick()
        return self._plots.spans(seconds)

    def collect(self) -> Iterator[Metric]:
        yield from collected(self._directory)
        started = os.stat(f"{self._directory}/{_LOCK}").st_mtime
        gauges: dict[str, Metric] = {}
        for each in (Measure("persistence_start_time_seconds", started), *self._measures()):
            meaning, labels = GAUGES[each.name]
            metric = gauges.setdefault(each.name, Metric(each.name, meaning, "gauge"))
            metric.add_sample(each.name, dict(zip(labels, each.labels, strict=True)), each.value)
        yield from gauges.values()


class Measuring:
    """Looks up the state of the places of a service. ``missing_keys`` counts its missing encryption keys.

    ``next_expiry`` returns when the next API key will expire, if one will.
    """

    def __init__(
        self,
        settings: Settings,
        providers: Providers,
        missing_keys: Callable[[], int],
        next_expiry: Callable[[], Instant | None],
    ) -> None:
        self._settings = settings
        self._missing_keys = missing_keys
        self._next_expiry = next_expiry
        self._providers = providers
        self._by_name = {
            each.database.name if each.database else place: each for place, each in providers.places.items()
        }

    def measures(self) -> Iterator[Measure]:
        yield Measure("persistence_info", 1, (__version__, self._settings.dialect))
        for space in self._providers.free_space():
            provider = self._by_name.get(space.place)
            if not space.fault and provider is not None and not provider.storage.is_remote:
                now = moment()
                with suppress(PersistenceError):
                    read = islice(provider.storage.leases.listed(), LEASES_COUNTED)
                    living = sum(1 for each in read if isinstance(each, DocumentLease) and each.remaining(now))
                    yield Measure("persistence_leases", living, (space.place,))
            yield Measure("persistence_place_up", 0 if space.fault else 1, (space.place,))
            if space.free is not None:
                yield Measure("persistence_place_free_bytes", space.free, (space.place,))
        home = self._settings.home
        with suppress(DiskError):
            check = last(home, LastCheck)
            yield Measure("persistence_last_check_time_seconds", _seconds(check))
            if check is not None:
                found = {"damage": check.damage, "leftover": check.leftover, "notice": check.notice}
                for severity, number in found.items():
                    yield Measure("persistence_last_check_findings", number, (severity,))
                yield Measure("persistence_last_check_remaining", check.remaining)
        with suppress(DiskError):
            backup = last(home, LastBackup)
            yield Measure("persistence_last_backup_time_seconds", _seconds(backup))
            if backup is not None:
                yield Measure("persistence_last_backup_folders", backup.folders)
                yield Measure("persistence_last_backup_problems", backup.problems + backup.missing)
        yield Measure("persistence_encryption_keys_missing", self._missing_keys())
        with suppress(PersistenceError):
            if (expires := self._next_expiry()) is not None:
                yield Measure("persistence_next_api_key_expiry_time_seconds", to_datetime(expires).timestamp())
        for place, tree in self._providers.trees.items():
            with suppress(DiskError):
                yield Measure("persistence_index_waiting", tree.index.waiting(), (place,))

    def delays(self) -> dict[str, float]:
        return {place: tree.index.delay for place, tree in self._providers.trees.items()}


def _seconds(run: LastCheck | LastBackup | None) -> float:
    """Return when a run ended; 0 of one that never was, so that alerts on its age fire."""
    return 0 if run is None else to_datetime(run.at).timestamp()
