"""The metrics of a service, as one of its worker processes counts and shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from persistence import observed
from persistence.metrics.instruments import GAUGES, Instruments, instruments
from persistence.metrics.plots import Span, plots_in, totals_of
from persistence.metrics.requests import RequestFigures
from persistence.metrics.shared import SharedMetrics, collected, joined

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""The media type of ``Metrics.text``, which every version of Prometheus reads."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A value that is looked up when somebody asks, by a name of ``GAUGES``, with its labels in their order."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


Measures = Callable[[], Iterable[Measure]]


class Metrics:
    """The metrics of a service. ``requests`` is told of requests; ``measures`` looks values up.

    Of a process there may be several, which then count together.
    """

    def __init__(
        self,
        measures: Measures,
        delays: Callable[[], Mapping[str, float]] = dict,
        connections: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        """Join the metrics of the other workers. Raises ``DiskError`` where there is no room for that.

        ``delays`` returns the delay of the index of each place, in seconds, in this process. ``connections`` returns
        how many connections to databases this process has open, and how many it may have.
        """
        self._delays = delays
        self._connections = connections
        self._shared = joined()
        self._instruments = instruments()
        self._plots = plots_in(self._shared.path)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Everything(self._shared, measures))
        self.requests = RequestFigures(self._instruments)

    def tick(self) -> None:
        """Count what was observed, and take a sample for plots if one is due. Workers call it about once a second."""
        self.requests.count()
        _count_observed(self._instruments)
        for place, seconds in self._delays().items():
            self._instruments.index_delay.labels(place).set(seconds)
        is_open, most = self._connections()
        self._instruments.pool_open.set(is_open)
        self._instruments.pool_most.set(most)
        now = time.time()
        with suppress(OSError):  # the directory is gone: the service ends
            if self._plots.is_due(now):
                self._plots.put(totals_of(collected(self._shared.path), now))

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        self.tick()
        return generate_latest(self._registry)

    def spans(self, seconds: float) -> list[Span]:
        """Return rates and latencies of the last ``seconds``, three hours at most, the oldest first, for plots."""
        self.tick()
        return self._plots.spans(seconds)


def _count_observed(own: Instruments) -> None:
    histograms: tuple[tuple[observed.Observations, Histogram], ...] = (
        (observed.FSYNCS, own.fsyncs),
        (observed.LOCK_WAITS, own.lock_waits),
        (observed.POOL_WAITS, own.pool_waits),
    )
    counters: tuple[tuple[observed.Observations, Counter], ...] = (
        (observed.LOCK_TIMEOUTS, own.lock_timeouts),
        (observed.POOL_TIMEOUTS, own.pool_timeouts),
        (observed.AUDIT_FAULTS, own.audit_faults),
    )
    for observations, gauge in ((observed.POOL_WAITING, own.pool_waiting), (observed.POOL_IN_USE, own.pool_in_use)):
        change = sum(observed.taken(observations))
        if change:
            gauge.inc(change)
    for observations, histogram in histograms:
        for seconds in observed.taken(observations):
            histogram.observe(seconds)
    for observations, counter in counters:
        for _ in observed.taken(observations):
            counter.inc()


class _Everything(Collector):
    """Collects what all workers have counted, and looks up the rest."""

    def __init__(self, shared: SharedMetrics, measures: Measures) -> None:
        self._shared = shared
        self._measures = measures

    def collect(self) -> Iterator[Metric]:
        workers = self._shared.forget_dead()
        yield from collected(self._shared.path)
        yield from _gauges(
            (
                Measure("persistence_start_time_seconds", self._shared.started),
                Measure("persistence_workers", workers),
                *self._measures(),
            )
        )


def _gauges(measures: Iterable[Measure]) -> Iterator[Metric]:
    by_name: dict[str, Metric] = {}
    for each in measures:
        meaning, labels = GAUGES[each.name]
        metric = by_name.setdefault(each.name, Metric(each.name, meaning, "gauge"))
        metric.add_sample(each.name, dict(zip(labels, each.labels, strict=True)), each.value)
    yield from by_name.values()
