"""Samples of requests and latencies for plots: what was counted by the end of each ten seconds, for three hours.

They are in one file that all workers map. Whichever worker looks first in a span takes its sample; the place of a
sample follows from its time. If two do so at once they write the same.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from prometheus_client import Metric
from prometheus_client.utils import floatToGoString

from persistence.metrics.instruments import LATENCIES, REQUESTS, SECONDS
from persistence.metrics.shared import PLOTS, PLOTS_BYTES
from persistence.storage import files

SPAN = 10
"""Seconds between two samples."""

_FORMAT = struct.Struct(f"<dddd{len(LATENCIES)}d")
_COUNT = 3 * 3600 // SPAN
_NOT_SHOWN = frozenset({"health", "pages"})
_LONGEST_GAP = 6 * SPAN
"""Seconds between two samples between which nothing can be said: no worker was there."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of what all workers have counted since the service was started.

    ``at`` is in seconds since the epoch, ``errors`` are statuses from 500, ``seconds`` the sum of all latencies.
    ``classes`` are the requests by class of latency, as ``LATENCIES`` has them.
    """

    at: float
    requests: float
    errors: float
    seconds: float
    classes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Span:
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
        descriptor = files.open_shared(f"{directory}/{PLOTS}")
        try:
            self._map = mmap.mmap(descriptor, PLOTS_BYTES)
        finally:
            os.close(descriptor)

    def is_due(self, now: float) -> bool:
        """Return whether nobody has taken the sample of the span of an instant."""
        (at,) = struct.unpack_from("<d", self._map, _place(now))
        return int(at) // SPAN != int(now) // SPAN

    def put(self, totals: Totals) -> None:
        """Keep a sample."""
        sample = _FORMAT.pack(totals.at, totals.requests, totals.errors, totals.seconds, *totals.classes)
        place = _place(totals.at)
        self._map[place : place + len(sample)] = sample

    def spans(self, seconds: float) -> list[Span]:
        """Return the spans of the last ``seconds``, the oldest first; none where nobody has taken samples."""
        since = time.time() - seconds
        samples = sorted((each for each in self._samples() if each.at >= since), key=lambda each: each.at)
        return [
            _span(before, after)
            for before, after in pairwise(samples)
            if after.at - before.at <= _LONGEST_GAP and after.requests >= before.requests
        ]

    def _samples(self) -> Iterator[Totals]:
        for number in range(_COUNT):
            at, requests, errors, seconds, *classes = _FORMAT.unpack_from(self._map, number * _FORMAT.size)
            if at:
                yield Totals(at, requests, errors, seconds, tuple(classes))


@cache
def plots_in(directory: str) -> Plots:
    """Return the samples of a service, whose file a process maps once."""
    return Plots(directory)


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


def _span(before: Totals, after: Totals) -> Span:
    seconds = after.at - before.at
    classes = [b - a for a, b in zip(before.classes, after.classes, strict=True)]
    return Span(
        after.at,
        (after.requests - before.requests) / seconds,
        (after.errors - before.errors) / seconds,
        _quantile(classes, 0.5),
        _quantile(classes, 0.95),
    )


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
