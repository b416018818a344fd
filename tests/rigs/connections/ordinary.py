"""An ordinary client beside all the others: is it answered, and how fast."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import cycle

from tests.rigs.connections.crowd import DOCUMENT, LARGE
from tests.service import Service

OWN = "/crud/ordinary/form/data/D/data.xml"
_HEADERS = {"Svc-Form-Definition-Version": "1", "Content-Type": "application/xml"}
_BODY = b"<d>%s</d>" % (b"x" * 5000)
_LARGE_SIZE = 8 << 20


@dataclass
class Times:
    """Seconds that the answers took, and what was not answered as it should be."""

    reads: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.reads) + len(self.writes)

    def ratios(self, quiet: Times) -> str:
        """Median and 99th percentile of reads and writes, as multiples of those in a quiet time."""
        pairs = ((self.reads, quiet.reads), (self.writes, quiet.writes))
        return "; ".join(
            f"{percentile(own, 0.5) / percentile(other, 0.5):.1f} {percentile(own, 0.99) / percentile(other, 0.99):.1f}"
            if own and other
            else "none"
            for own, other in pairs
        )


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def prepare(service: Service) -> None:
    for path, content in ((DOCUMENT, _BODY), (OWN, _BODY), (LARGE, bytes(_LARGE_SIZE))):
        answer = service.raw("PUT", path, _HEADERS, content)
        assert answer.status == 201, answer.cause


def measured(face: Service, seconds: float, *, patience: float, pause: float = 0.0) -> Times:
    """GET and PUT in turn for some seconds, each on a connection of its own and with a deadline."""
    times = Times()
    stop = time.monotonic() + seconds
    before, face.timeout = face.timeout, patience
    turns = cycle((("GET", None, 200, times.reads), ("PUT", _BODY, 204, times.writes)))
    try:
        while time.monotonic() < stop:
            _ask(face, *next(turns), times.failures)
            time.sleep(pause)
    finally:
        face.timeout = before
    return times


def _ask(
    face: Service, method: str, body: bytes | None, status: int, durations: list[float], failures: list[str]
) -> None:
    began = time.monotonic()
    try:
        answer = face.raw(method, OWN, _HEADERS if body else None, body)
    except (OSError, HTTPException) as error:
        failures.append(f"{method}: {type(error).__name__} after {time.monotonic() - began:.1f} s")
        return
    if answer.status == status and (method == "PUT" or answer.body == _BODY):
        durations.append(time.monotonic() - began)
    else:
        failures.append(f"{method}: {answer.status} {answer.body[:80]!r}")
