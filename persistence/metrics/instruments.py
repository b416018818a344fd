"""The instruments: all metrics that workers count, with their names and labels. ``docs/metrics.md`` explains them.

Labels have few values, whatever clients send: no names of users, forms or documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, float("inf"))
"""Upper bounds of the classes of latencies, in seconds."""
_WAITS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_FSYNCS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)

REQUESTS = "persistence_requests"
SECONDS = "persistence_request_seconds"

GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "persistence_info": ("Version and dialect of the service; always 1.", ("version", "dialect")),
    "persistence_start_time_seconds": ("When the service was started, in seconds since the epoch.", ()),
    "persistence_workers": ("Worker processes that are alive.", ()),
    "persistence_index_waiting": ("Documents whose changes are not in the index yet.", ("place",)),
    "persistence_leases": ("Leases in force.", ("place",)),
    "persistence_last_check_time_seconds": ("When the last check of everything ended, in seconds since the epoch.", ()),
    "persistence_last_check_findings": ("What it found.", ("severity",)),
    "persistence_last_check_remaining": ("What of that it did not repair.", ()),
    "persistence_last_backup_time_seconds": ("When the last backup ended, in seconds since the epoch.", ()),
    "persistence_last_backup_folders": ("Documents, drafts and form versions in it.", ()),
    "persistence_last_backup_problems": ("Damaged files in it, and parts that are missing.", ()),
    "persistence_encryption_keys_missing": ("Encryption keys that what is stored may need and that are not here.", ()),
    "persistence_place_up": ("1 if the service can write into the place, else 0.", ("place",)),
    "persistence_place_free_bytes": ("Bytes that the service may still use in the place.", ("place",)),
}
"""Metrics that are looked up when somebody asks for them: the meaning and the labels of each."""


class Instruments:
    """The instruments of a process, which count in its files if there are any by now."""

    def __init__(self) -> None:
        own = CollectorRegistry(auto_describe=False)  # nobody collects from it: the files of all workers are read
        self.requests = Counter(
            REQUESTS,
            "Requests, by method, kind of resource and class of status.",
            ("method", "kind", "status"),
            registry=own,
        )
        self.seconds = Histogram(
            SECONDS, "Seconds until a response could begin.", ("method", "kind"), buckets=LATENCIES, registry=own
        )
        self.received = Counter(
            "persistence_received_bytes", "Bytes of request bodies that were read.", ("kind",), registry=own
        )
        self.sent = Counter("persistence_sent_bytes", "Bytes of response bodies.", ("kind",), registry=own)
        self.fsyncs = Histogram("persistence_fsync_seconds", "Seconds of an fsync.", buckets=_FSYNCS, registry=own)
        self.lock_waits = Histogram(
            "persistence_lock_wait_seconds", "Seconds until a writer had its lock.", buckets=_WAITS, registry=own
        )
        self.lock_timeouts = Counter(
            "persistence_lock_timeouts", "Writers that waited for a lock in vain.", registry=own
        )
        self.pool_waits = Histogram(
            "persistence_database_wait_seconds", "Seconds until a connection was there.", buckets=_WAITS, registry=own
        )
        self.pool_timeouts = Counter(
            "persistence_database_timeouts", "Requests that waited for a connection in vain.", registry=own
        )
        self.pool_waiting = _summed("persistence_database_waiting", "Requests that wait for a connection.", own)
        self.pool_in_use = _summed("persistence_database_connections", "Connections in use.", own)
        self.pool_open = _summed(
            "persistence_database_open_connections", "Connections that are open, in use or not.", own
        )
        self.pool_most = _summed("persistence_database_most_connections", "Connections that may be open.", own)
        self.index_delay = Gauge(
            "persistence_index_delay_seconds",
            "Seconds for which the oldest change has not been in the index.",
            ("place",),
            multiprocess_mode="livemax",
            registry=own,
        )
        self.audit_faults = Counter(
            "persistence_audit_faults", "Lines of the audit that could not be written.", registry=own
        )


def _summed(name: str, meaning: str, registry: CollectorRegistry) -> Gauge:
    return Gauge(name, meaning, multiprocess_mode="livesum", registry=registry)


def known() -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    """Yield the name of every metric, with its kind and its labels."""
    for each in vars(Instruments()).values():
        (described,) = each.describe()
        suffix = "_total" if described.type == "counter" else ""
        yield f"{described.name}{suffix}", (described.type, tuple(each._labelnames))  # noqa: SLF001
    for name, (_, labels) in GAUGES.items():
        yield name, ("gauge", labels)


@cache
def instruments() -> Instruments:
    return Instruments()


def count_in_bulk(child: Histogram, classes: list[int], total: float) -> None:
    """Add observations to a histogram that were counted by class already: ``observe`` takes as long for each one."""
    child._sum.inc(total)  # noqa: SLF001 - the library adds one at a time
    for bucket, number in zip(child._buckets, classes, strict=True):  # noqa: SLF001
        if number:
            bucket.inc(number)
