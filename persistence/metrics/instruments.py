"""The instruments of a worker process: what it counts of requests and other work, and samples of that for plots.

``docs/metrics.md`` explains them. Labels have few values, whatever clients send: no names of users, forms or documents.
What is known of a request is put down while it is answered, and counted a second later: most of the work is done for
many requests at once, and no client waits for it. The samples are what was counted by the end of each ten seconds, for
three hours, in one file that all workers map. Whichever worker looks first in a span takes its sample; the place of a
sample follows from its time. If two do so at once they write the same.
"""

from __future__ import annotations

import mmap
import re
import struct
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.utils import floatToGoString

from persistence.limits import OBSERVATIONS_KEPT
from persistence.metrics.observations import taken
from persistence.model.addresses import DATA_XML, FORM_XHTML, PUBLIC_PREFIX, SERVICE_PREFIX
from persistence.storage import files

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
        name, meaning = "persistence_lock_wait_seconds", "Seconds until a writer had its lock."
        self.lock_waits = histogram(name, meaning, buckets=_WAITS)
        self.lock_timeouts = counter("persistence_lock_timeouts", "Writers that waited for a lock in vain.")
        name, meaning = "persistence_database_wait_seconds", "Seconds until a connection was there."
        self.pool_waits = histogram(name, meaning, buckets=_WAITS)
        name, meaning = "persistence_database_timeouts", "Requests that waited for a connection in vain."
        self.pool_timeouts = counter(name, meaning)
        self.pool_waiting = summed("persistence_database_waiting", "Requests that wait for a connection.")
        self.pool_in_use = summed("persistence_database_connections", "Connections in use.")
        name, meaning = "persistence_database_open_connections", "Connections that are open, in use or not."
        self.pool_open = summed(name, meaning)
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


@dataclass(slots=True)
class _Total:
    """The sum of some requests of one method and kind."""

    seconds: float = 0.0
    received: int = 0
    sent: int = 0
    classes: list[int] = field(default_factory=lambda: [0] * len(LATENCIES))
    statuses: dict[int, int] = field(default_factory=dict)


class RequestFigures:
    """Counts requests in the instruments. ``add`` puts one down; ``count`` counts those that were put down."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._answered: deque[Answered] = deque(maxlen=OBSERVATIONS_KEPT)
        self.add = self._answered.append

    def count(self) -> None:
        """Count what was put down; several threads may do so."""
        totals: dict[tuple[str, str], _Total] = {}
        for method, path, status, seconds, received, sent in taken(self._answered):
            key = (method if method in _METHODS else _OTHER, kind_of(method, path))
            total = totals.get(key)
            if total is None:
                total = totals[key] = _Total()
            total.seconds += seconds
            total.received += received
            total.sent += sent
            total.classes[bisect_left(LATENCIES, seconds)] += 1
            total.statuses[status] = total.statuses.get(status, 0) + 1
        own = self._instruments
        for (method, kind), total in totals.items():
            for status, number in total.statuses.items():
                own.requests.labels(method, kind, f"{status // 100}xx").inc(number)
            histogram = own.seconds.labels(method, kind)  # ``observe`` of the library would add one at a time
            histogram._sum.inc(total.seconds)  # noqa: SLF001
            for bucket, number in zip(histogram._buckets, total.classes, strict=True):  # noqa: SLF001
                if number:
                    bucket.inc(number)
            if total.received:
                own.received.labels(kind).inc(total.received)
            if total.sent:
                own.sent.labels(kind).inc(total.sent)


PLOTS = "plots"  # The file of samples for plots
PLOTS_BYTES = 1 << 18  # Its bytes
SPAN = 10  # Seconds between two samples
_FORMAT = struct.Struct(f"<dddd{len(LATENCIES)}d")
_COUNT = 3 * 3600 // SPAN
_NOT_SHOWN = frozenset({"health", "pages"})
_LONGEST_GAP = 6 * SPAN  # Seconds between two samples between which nothing can be said: no worker was there


class Totals(NamedTuple):
    """Sums of what all workers have counted since the service was started.

    ``at`` is in seconds since the epoch, ``errors`` are statuses from 500, ``seconds`` the sum of all latencies.
    ``classes`` are the requests by class of latency, as ``LATENCIES`` has them.
    """

    at: float
    requests: float
    errors: float
    seconds: float
    classes: tuple[float, ...]


class Span(NamedTuple):
    """The requests between two samples; ``at`` is the end, in seconds since the epoch.

    ``rate`` and ``error_rate`` are requests a second. ``median`` and ``slow`` are the latencies, in seconds, that half
    and 95 of 100 requests did not exceed; they are estimated from classes, and ``None`` without requests.
    """

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
                rate, error_rate = (
                    (after.requests - before.requests) / between,
                    (after.errors - before.errors) / between,
                )
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
