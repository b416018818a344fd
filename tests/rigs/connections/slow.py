"""Slow clients of each kind, to gunicorn itself and through nginx, and an ordinary client beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tests import nginx
from tests.rigs.connections.crowd import Crowd, Kind, Times, crowd, measured, prepare
from tests.rigs.connections.smuggling import DIRECT, NGINX
from tests.service import Service, running

HEADINGS = (
    *("slow clients", "through", "answered", "not answered", "GET p50 p99; PUT p50 p99, times quiet"),
    *("closed by the server", "served again after, s"),
)
_KINDS = (Kind.IDLE, Kind.HEAD, Kind.BODY, Kind.READER)
_PAUSE = 0.5
_PATIENCE = {DIRECT: 3.0, NGINX: 20.0}
"""Seconds that an ordinary client waits: who is not served by gunicorn at once is not served at all."""
_RECOVERY = 90.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What happened beside some slow clients; ``recovery`` in seconds, ``None`` where it did not come."""

    name: str
    through: str
    beside: Times
    quiet: Times
    crowd: Crowd
    recovery: float | None

    @property
    def faults(self) -> list[str]:
        """What must not be: that nginx leaves an ordinary client waiting, or anyone when the slow ones have gone."""
        late = [] if self.recovery is not None else ["nobody is served any more"]
        refused = self.beside.failures if self.through == NGINX else []
        return [f"{self.name}, {self.through}: {fault}" for fault in (*refused, *late)]

    @property
    def row(self) -> tuple[object, ...]:
        closed = sum(self.crowd.closed_by_server.values())
        recovery = "never" if self.recovery is None else f"{self.recovery:.1f}"
        ratios = self.beside.ratios(self.quiet)
        return self.name, self.through, self.beside.count, len(self.beside.failures), ratios, closed, recovery


def scenes(directory: Path, *, each: int, seconds: float, alone: bool) -> Iterator[Scene]:
    """So many slow clients of each kind at once, and with ``alone`` each kind by itself before."""
    with ExitStack() as stack:
        service = stack.enter_context(running(directory / "service", workers=2, threads=8, command="gunicorn"))
        prepare(service)
        faces = {DIRECT: service, NGINX: stack.enter_context(nginx.in_front_of(service, directory / "nginx"))}
        for through, face in faces.items():
            quiet = measured(face, seconds, patience=_PATIENCE[through])
            for name, counts in _sets(each, alone=alone).items():
                with crowd(face.port, counts, pause=_PAUSE) as seen:
                    beside = measured(face, seconds, patience=_PATIENCE[through])
                yield Scene(name, through, beside, quiet, seen, _recovery(face))
        assert _is_clean(service), service.leftovers()


def _sets(each: int, *, alone: bool) -> dict[str, Mapping[Kind, int]]:
    together: dict[str, Mapping[Kind, int]] = {f"{each} of each kind": dict.fromkeys(_KINDS, each)}
    return {f"{each} {kind.value}": {kind: each} for kind in _KINDS if alone} | together


def _recovery(face: Service) -> float | None:
    began = time.monotonic()
    while time.monotonic() - began < _RECOVERY:
        try:
            if face.raw("GET", "/healthz").status == 200:
                return time.monotonic() - began
        except (OSError, HTTPException):
            time.sleep(0.1)
    return None


def _is_clean(service: Service) -> bool:
    deadline = time.monotonic() + _RECOVERY
    while service.leftovers():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
