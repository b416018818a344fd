"""Requests in the metrics. What is known of one is put down while it is answered, and counted a second later.

So most of the work is done for many requests at once, and no client waits for it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from persistence.limits import OBSERVATIONS_KEPT
from persistence.metrics.instruments import LATENCIES, Instruments, count_in_bulk
from persistence.model.addresses import DATA_XML, FORM_XHTML, PUBLIC_PREFIX, SERVICE_PREFIX

Answered = tuple[str, str, int, float, int, int]
"""Method, path, status, seconds until the response could begin, bytes received and sent."""

_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "LOCK", "UNLOCK"})
_OTHER = "other"
_LEASES = frozenset({"LOCK", "UNLOCK"})
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
    "": "health",
}
"""Kinds of resources by the first name of a path."""
_RESOURCE = re.compile(r"/crud/[^/]*/[^/]*/(form|d(?:ata|raft))(?:/([^/]*)(?:/([^/]*))?|\Z)")
"""Paths of resources without the prefix of the face: their collection, and the next two names."""
_MAIN = frozenset({None, "", FORM_XHTML})
_MAIN_OF_DATA = frozenset({None, "", DATA_XML})
_COUNTED_AT_ONCE = OBSERVATIONS_KEPT // 2


def kind_of(method: str, path: str) -> str:
    """Return the kind of resource that a request is for."""
    if method in _LEASES:
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

    def add(self, answered: Answered) -> None:
        """Put a request down that was answered."""
        self._answered.append(answered)
        if len(self._answered) >= _COUNTED_AT_ONCE:  # where nobody counts them each second
            self.count()

    def count(self) -> None:
        """Count what was put down; several threads may do so."""
        totals: dict[tuple[str, str], _Total] = {}
        for method, path, status, seconds, received, sent in self._taken():
            key = (method if method in _METHODS else _OTHER, kind_of(method, path))
            total = totals.get(key)
            if total is None:
                total = totals[key] = _Total()
            total.seconds += seconds
            total.received += received
            total.sent += sent
            total.classes[bisect_left(LATENCIES, seconds)] += 1
            total.statuses[status] = total.statuses.get(status, 0) + 1
        for key, total in totals.items():
            self._count(*key, total)

    def _taken(self) -> list[Answered]:
        taken: list[Answered] = []
        try:
            for _ in range(len(self._answered)):
                taken.append(self._answered.popleft())  # noqa: PERF401 - another thread may take some of them
        except IndexError:
            pass
        return taken

    def _count(self, method: str, kind: str, total: _Total) -> None:
        own = self._instruments
        for status, number in total.statuses.items():
            own.requests.labels(method, kind, f"{status // 100}xx").inc(number)
        count_in_bulk(own.seconds.labels(method, kind), total.classes, total.seconds)
        if total.received:
            own.received.labels(kind).inc(total.received)
        if total.sent:
            own.sent.labels(kind).inc(total.sent)
