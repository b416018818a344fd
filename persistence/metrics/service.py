"""The metrics of a service: instruments that its workers share, samples of them for plots, and what is looked up.

The master makes a directory, in memory where there is room, and removes it when it ends; one whose master was killed
is removed by the next service. Its files are those of prometheus_client's multiprocess mode. Each worker has the number
of a place that no living one has (``count_as``): one that follows a dead one goes on counting in its files, so that no
count gets smaller. The room of files is taken before they are mapped, as a write where there is none kills the process.
A file that cannot be read costs what it counted.

``docs/metrics.md`` explains the instruments. Labels have few values, whatever clients send. Requests are put down while
they are answered, and counted a second later. A sample is what was counted by the end of ten seconds, for three hours;
its place in the file that all workers map follows from its time, so two workers write the same.
"""

from __future__ import annotations

import atexit
import errno
import mmap
import os
import re
import struct
import tempfile
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice, pairwise
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
    multiprocess,
    values,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from persistence import __version__
from persistence.errors import DiskError, PersistenceError, disk_errors
from persistence.limits import LEASES_COUNTED, OBSERVATIONS_KEPT
from persistence.maintenance.records import LastBackup, LastCheck, last
from persistence.metrics import observations
from persistence.metrics.observations import taken
from persistence.model.addresses import DATA_XML, FORM_XHTML, PUBLIC_PREFIX, SERVICE_PREFIX
from persistence.model.texts import Instant, to_datetime
from persistence.model.versions import DocumentLease
from persistence.providers.opened import Providers
from persistence.settings import Settings
from persistence.storage import files
from persistence.storage.document_leases import moment
from persistence.storage.locks import try_lock

LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, float("inf"))
"""Upper bounds of the classes of latencies, in seconds."""
_WAITS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_FSYNCS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)

REQUESTS = "persistence_requests"
SECONDS = "persistence_request_seconds"

GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "persistence_info": ("Version and dialect of the service; always 1.", ("version", "dialect")),
    "persistence_start_time_seconds": ("When the service was started, in seconds since the epoch.", ()),
    "persistence_index_waiting": ("Documents whose changes are not in the index yet.", ("place",)),
    "persistence_leases": ("Leases in force.", ("place",)),
    "persistence_events_waiting": ("Events that a webhook has not got yet.", ("place", "target")),
    "persistence_events_paused": ("1 if the delivery to a webhook is paused, else 0.", ("place", "target")),
    "persistence_last_check_time_seconds": ("When the last check of everything ended, in seconds since the epoch.", ()),
    "persistence_last_check_findings": ("What it found.", ("severity",)),
    "persistence_last_check_remaining": ("What of that it did not repair.", ()),
    "persistence_last_backup_time_seconds": ("When the last backup ended, in seconds since the epoch.", ()),
    "persistence_last_backup_folders": ("Documents, drafts and form versions in it.", ()),
    "persistence_last_backup_problems": ("Damaged files in it, and parts that are missing.", ()),
    "persistence_encryption_keys_missing": ("Encryption keys that what is stored may need and that are not here.", ()),
    "persistence_next_api_key_expiry_time_seconds": (
        "When the next API key will expire, in seconds since the epoch; missing where none will.",
        (),
    ),
    "persistence_place_up": ("1 if the service can write into the place, else 0.", ("place",)),
    "persistence_place_free_bytes": ("Bytes that the service may still use in the place.", ("place",)),
}  # Metrics that are looked up when somebody asks for them: the meaning and the labels of each


class Instruments:
    """The instruments of a process, which count in its files if there are any by now."""

    def __init__(self) -> None:
        own = CollectorRegistry(auto_describe=False)  # nobody collects from it: the files of all workers are read
        counter, histogram = partial(Counter, registry=own), partial(Histogram, registry=own)
        summed = partial(Gauge, multiprocess_mode="livesum", registry=own)
        labels = ("method", "kind", "status")
        self.requests = counter(REQUESTS, "Requests, by method, kind of resource and class of status.", labels)
        self.seconds = histogram(SECONDS, "Seconds until a response could begin.", labels[:2], buckets=LATENCIES)
        self.received = counter("persistence_received_bytes", "Bytes of request bodies that were read.", ("kind",))
        self.sent = counter("persistence_sent_bytes", "Bytes of response bodies.", ("kind",))
        self.fsyncs = histogram("persistence_fsync_seconds", "Seconds of an fsync.", buckets=_FSYNCS)
        waits = partial(histogram, buckets=_WAITS)
        self.lock_waits = waits("persistence_lock_wait_seconds", "Seconds until a writer had its lock.")
        self.lock_timeouts = counter("persistence_lock_timeouts", "Writers that waited for a lock in vain.")
        self.pool_waits = waits("persistence_database_wait_seconds", "Seconds until a connection was there.")
        self.pool_timeouts = counter("persistence_database_timeouts", "Requests that waited for a connection in vain.")
        self.pool_waiting = summed("persistence_database_waiting", "Requests that wait for a connection.")
        self.pool_in_use = summed("persistence_database_connections", "Connections in use.")
        self.pool_open = summed("persistence_database_open_connections", "Connections that are open, in use or not.")
        self.pool_most = summed("persistence_database_most_connections", "Connections that may be open.")
        self.workers = summed("persistence_workers", "Worker processes that are alive.")
        name = "persistence_index_delay_seconds"
        meaning = "Seconds for which the oldest change has not been in the index."
        self.index_delay = Gauge(name, meaning, ("place",), multiprocess_mode="livemax", registry=own)
        self.audit_faults = counter("persistence_audit_faults", "Lines of the audit that could not be written.")


instruments = cache(Instruments)  # Returns those of this process


Answered = tuple[str, str, int, float, int, int]
"""Method, path, status, seconds until the response could begin, bytes received and sent."""

_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "LOCK", "UNLOCK"})
_OTHER = "other"
_SERVICE = SERVICE_PREFIX.split("/")[1:]
_KINDS = {
    "form": "form",
    "search": "search",
    "distinct-values": "search",
    "history": "history",
    "export": "export",
    "import": "import",
    "admin": "pages",
    "healthz": "health",
    "readyz": "health",
    "metrics": "health",
    "version": "health",
    "openapi.yaml": "health",
    "api": "health",
    "": "health",
}  # Kinds of resources by the first name of a path
_RESOURCE = re.compile(r"/crud/[^/]*/[^/]*/(form|d(?:ata|raft))(?:/([^/]*)(?:/([^/]*))?|\Z)")
"""Paths of resources without the prefix of the API: their collection, and the next two names."""
_MAIN = frozenset({None, "", FORM_XHTML})
_MAIN_OF_DATA = frozenset({None, "", DATA_XML})


def kind_of(method: str, path: str) -> str:
    if method in {"LOCK", "UNLOCK"}:
        return "lease"
    found = _RESOURCE.match(path, len(PUBLIC_PREFIX) if path.startswith(PUBLIC_PREFIX) else 0)
    if found is not None:
        collection, first, second = found.groups()
        is_main = first in _MAIN if collection == "form" else second in _MAIN_OF_DATA
        return str(collection) if is_main else "attachment"
    names = path.removeprefix(PUBLIC_PREFIX).split("/")
    if path.startswith(f"{SERVICE_PREFIX}/") and names[1:3] == _SERVICE:
        if names[-1] == "attachments":
            return "attachment"
        return "form" if "publish" in names[-2:] else _OTHER
    return _KINDS.get(names[1], _OTHER) if len(names) > 1 else _OTHER


class RequestFigures:
    """Counts requests in the instruments. ``add`` puts one down; ``count`` counts those that were put down."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._answered: deque[Answered] = deque(maxlen=OBSERVATIONS_KEPT)
        self.add = self._answered.append

    def count(self) -> None:
        """Count what was put down; several threads may do so."""
        statuses, places = defaultdict[tuple[str, str, str], int](int), defaultdict[tuple[str, str, int], int](int)
        sums = defaultdict[tuple[str, str], float](float)
        received, sent = defaultdict[str, int](int), defaultdict[str, int](int)
        for method, path, status, seconds, bytes_received, bytes_sent in taken(self._answered):
            key = _, kind = method if method in _METHODS else _OTHER, kind_of(method, path)
            statuses[*key, f"{status // 100}xx"] += 1
            places[*key, bisect_left(LATENCIES, seconds)] += 1
            sums[key] += seconds
            received[kind] += bytes_received
            sent[kind] += bytes_sent
        own = self._instruments
        for labels, number in statuses.items():
            own.requests.labels(*labels).inc(number)
        # ``observe`` of the library would add one at a time.
        for (method, kind, place), number in places.items():
            own.seconds.labels(method, kind)._buckets[place].inc(number)  # noqa: SLF001
        for key, seconds in sums.items():
            own.seconds.labels(*key)._sum.inc(seconds)  # noqa: SLF001
        for counter, numbers in ((own.received, received), (own.sent, sent)):
            for kind, number in numbers.items():
                if number:
                    counter.labels(kind).inc(number)


PLOTS = "plots"  # The file of samples for plots
PLOTS_BYTES = 1 << 18  # Its bytes
SPAN = 10  # Seconds between two samples
_FORMAT = struct.Struct(f"<dddd{len(LATENCIES)}d")
_COUNT = 3 * 3600 // SPAN
_NOT_SHOWN = frozenset({"health", "pages"})
_LONGEST_GAP = 6 * SPAN  # Seconds between two samples between which nothing can be said: no worker was there


class Totals(NamedTuple):
    """Sums since the start, ``at`` in seconds; ``errors`` are statuses from 500, ``classes`` those of ``LATENCIES``."""

    at: float
    requests: float
    errors: float
    seconds: float
    classes: tuple[float, ...]


class Span(NamedTuple):
    """The requests between two samples; ``at`` is the end, in seconds since the epoch."""

    # ``rate`` and ``error_rate`` are requests a second. ``median`` and ``slow`` are the latencies, in seconds, that
    # half and 95 of 100 requests did not exceed; they are estimated from classes, and ``None`` without requests.
    at: float
    rate: float
    error_rate: float
    median: float | None
    slow: float | None


class Plots:
    """The samples of a service, by the path of its directory."""

    def __init__(self, directory: str) -> None:
        with files.closing(files.open_shared(f"{directory}/{PLOTS}")) as descriptor:
            self._map = mmap.mmap(descriptor, PLOTS_BYTES)

    def is_due(self, now: float) -> bool:
        """Return whether nobody has taken the sample of the span of an instant."""
        (at,) = struct.unpack_from("<d", self._map, _place(now))
        return int(at) // SPAN != int(now) // SPAN

    def put(self, totals: Totals) -> None:
        sample = _FORMAT.pack(*totals[:4], *totals.classes)
        place = _place(totals.at)
        self._map[place : place + len(sample)] = sample

    def spans(self, seconds: float) -> list[Span]:
        """Return the spans of the last ``seconds``, the oldest first; none where nobody has taken samples."""
        since, samples, found = time.time() - seconds, list[Totals](), list[Span]()
        for number in range(_COUNT):
            at, requests, errors, of_all, *classes = _FORMAT.unpack_from(self._map, number * _FORMAT.size)
            if at and at >= since:
                samples.append(Totals(at, requests, errors, of_all, tuple(classes)))
        for before, after in pairwise(sorted(samples)):
            between = after.at - before.at
            if between <= _LONGEST_GAP and after.requests >= before.requests:
                rate = (after.requests - before.requests) / between
                error_rate = (after.errors - before.errors) / between
                counted = [b - a for a, b in zip(before.classes, after.classes, strict=True)]
                found.append(Span(after.at, rate, error_rate, _quantile(counted, 0.5), _quantile(counted, 0.95)))
        return found


plots_in = cache(Plots)  # Returns the samples of a service by its directory; a process maps their file once


def totals_of(collected: Iterable[Metric], at: float) -> Totals:
    """Return the totals of what was collected, but for the requests of supervisors and of the pages themselves."""
    requests = errors = seconds = 0.0
    classes = [0.0] * len(LATENCIES)
    places = {floatToGoString(bound): number for number, bound in enumerate(LATENCIES)}
    for metric in collected:
        for sample in metric.samples if metric.name in {REQUESTS, SECONDS} else ():
            if sample.labels["kind"] in _NOT_SHOWN:
                continue
            if metric.name == REQUESTS:
                requests += sample.value
                errors += sample.value if sample.labels["status"] == "5xx" else 0
            elif sample.name.endswith("_sum"):
                seconds += sample.value
            elif sample.name.endswith("_bucket"):
                classes[places[sample.labels["le"]]] += sample.value
    return Totals(at, requests, errors, seconds, tuple(b - a for a, b in pairwise((0.0, *classes))))


def _quantile(classes: list[float], part: float) -> float | None:
    rank = sum(classes) * part
    if rank <= 0:
        return None
    below, lower = 0.0, 0.0
    for number, upper in zip(classes, LATENCIES, strict=True):
        if below + number >= rank:
            return lower if upper == LATENCIES[-1] else lower + (upper - lower) * (rank - below) / number
        below, lower = below + number, upper
    return lower


def _place(at: float) -> int:
    return (int(at) // SPAN % _COUNT) * _FORMAT.size


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

    # The state of the places is looked up, and with ``missing_keys`` and ``next_expiry`` that of the keys.
    def __init__(
        self,
        settings: Settings,
        providers: Providers,
        missing_keys: Callable[[], Sequence[str]],
        next_expiry: Callable[[], Instant | None],
    ) -> None:
        """Join the metrics of the other workers. Raises ``DiskError`` where there is no room for that."""
        self._settings = settings
        self._providers = providers
        self._missing_keys = missing_keys
        self._next_expiry = next_expiry
        self._directory = joined()
        self._instruments = instruments()
        self._plots = plots_in(self._directory)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self.requests = RequestFigures(self._instruments)
        self._instruments.workers.set(1)

    def tick(self) -> None:
        """Count what was observed, and take a sample for plots if one is due. Workers call it about once a second."""
        own = self._instruments
        self.requests.count()
        own.pool_waiting.inc(sum(taken(observations.POOL_WAITING)))
        own.pool_in_use.inc(sum(taken(observations.POOL_IN_USE)))
        waits = ((observations.LOCK_WAITS, own.lock_waits), (observations.POOL_WAITS, own.pool_waits))
        for found, histogram in ((observations.FSYNCS, own.fsyncs), *waits):
            for seconds in taken(found):
                histogram.observe(seconds)
        own.lock_timeouts.inc(len([*taken(observations.LOCK_TIMEOUTS)]))
        own.pool_timeouts.inc(len([*taken(observations.POOL_TIMEOUTS)]))
        own.audit_faults.inc(len([*taken(observations.AUDIT_FAULTS)]))
        for place, tree in self._providers.trees.items():
            own.index_delay.labels(place).set(tree.index.delay)
        is_open, most = self._providers.connections()
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

    def _measures(self) -> Iterator[Measure]:
        yield Measure("persistence_info", 1, (__version__, self._settings.dialect))
        places = self._providers.places.items()
        by_name = {each.database.name if each.database else place: each for place, each in places}
        for space in self._providers.free_space():
            provider = by_name.get(space.place)
            if not space.fault and provider is not None and not provider.storage.is_remote:
                now = moment()
                with suppress(PersistenceError):
                    read = islice(provider.storage.leases.listed(), LEASES_COUNTED)
                    living = sum(1 for each in read if isinstance(each, DocumentLease) and each.remaining(now))
                    yield Measure("persistence_leases", living, (space.place,))
                    targets = {} if provider.outbox is None else provider.outbox.targets()
                    newest = provider.outbox.bounds()[1] if provider.outbox is not None and targets else 0
                    for name, state in targets.items():
                        yield Measure("persistence_events_waiting", newest - state.position, (space.place, name))
                        yield Measure("persistence_events_paused", state.is_paused, (space.place, name))
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
        yield Measure("persistence_encryption_keys_missing", len(self._missing_keys()))
        with suppress(PersistenceError):
            if (expires := self._next_expiry()) is not None:
                yield Measure("persistence_next_api_key_expiry_time_seconds", to_datetime(expires).timestamp())
        for place, tree in self._providers.trees.items():
            with suppress(DiskError):
                yield Measure("persistence_index_waiting", tree.index.waiting(), (place,))


def _seconds(run: LastCheck | LastBackup | None) -> float:
    """Return when a run ended; 0 of one that never was, so that alerts on its age fire."""
    return 0 if run is None else to_datetime(run.at).timestamp()
