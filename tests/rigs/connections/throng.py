"""Slow clients to gunicorn and through nginx, ten thousand connections for a minute, and an ordinary client there."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from statistics import mean

from tests import nginx
from tests.rigs.connections.crowd import Crowd, Kind, Times, crowd, measured, prepare
from tests.rigs.connections.smuggling import DIRECT, NGINX
from tests.rigs.processes import Process
from tests.service import Service, running

HEADINGS = ("", "before", "meanwhile", "after")
MIX = {Kind.IDLE: 3000, Kind.KEPT: 4000, Kind.HEAD: 1000, Kind.BODY: 2000}
_PAUSE = 4.0  # less than the time between two bytes that nginx allows
_BETWEEN = 0.01
_PATIENCE = 20.0
_SETTLING = 60.0
_MOST = 0.95  # of the connections, on average: those that nginx has just closed are being opened again
_KEPT = 32  # connections to the service that each worker of nginx keeps for a minute


@dataclass(frozen=True, slots=True)
class Resources:
    """What nginx and the workers hold: megabytes in memory, and open descriptors but for those of an index."""

    nginx_memory: float
    nginx_descriptors: int
    worker_memory: float
    worker_descriptors: int


@dataclass(frozen=True, slots=True)
class Minute:
    """What happened: the ordinary client quiet and among the others, and what was held before, meanwhile and after.

    ``kept`` connections between nginx and the service may be left.
    """

    size: int
    kept: int
    quiet: Times
    beside: Times
    crowd: Crowd
    before: Resources
    meanwhile: Resources
    after: Resources
    leftovers: tuple[str, ...]

    def rows(self) -> Iterator[tuple[object, ...]]:
        three = (self.before, self.meanwhile, self.after)
        yield "connections wanted", 0, self.size, 0
        yield "open, on average", 0, f"{mean(self.crowd.open):.0f}", 0
        yield "open, fewest", 0, min(self.crowd.open), 0
        yield "closed by nginx and opened again", "", sum(self.crowd.closed_by_server.values()), ""
        yield "connections refused", "", sum(self.crowd.failures.values()), ""
        yield "ordinary requests answered", self.quiet.count, self.beside.count, ""
        yield "ordinary requests not answered", len(self.quiet.failures), len(self.beside.failures), ""
        yield "GET p50 p99; PUT p50 p99, times quiet", "1 1; 1 1", self.beside.ratios(self.quiet), ""
        yield "nginx, MB in memory", *(f"{held.nginx_memory:.0f}" for held in three)
        yield "nginx, descriptors", *(held.nginx_descriptors for held in three)
        yield "workers, MB in memory", *(f"{held.worker_memory:.0f}" for held in three)
        yield "workers, descriptors", *(held.worker_descriptors for held in three)
        yield "temporary files", "", "", len(self.leftovers)

    @property
    def faults(self) -> list[str]:
        faults = [f"beside {self.size} connections: {failure}" for failure in self.beside.failures]
        if not self.beside.reads or not self.beside.writes:
            faults.append("nobody was answered")
        if mean(self.crowd.open) < _MOST * self.size:
            faults.append(f"only {mean(self.crowd.open):.0f} of {self.size} connections were open")
        if self.after.nginx_descriptors > self.before.nginx_descriptors + self.kept:
            faults.append(
                f"nginx keeps {self.after.nginx_descriptors} descriptors, {self.before.nginx_descriptors} before"
            )
        if self.after.worker_descriptors > self.before.worker_descriptors + self.kept:
            faults.append(f"workers keep {self.after.worker_descriptors} and had {self.before.worker_descriptors} open")
        return faults + [f"left behind: {name}" for name in self.leftovers]


def run(directory: Path, *, seconds: float, mix: Mapping[Kind, int] | None = None) -> Minute:
    mix = MIX if mix is None else mix
    # As many as this process may have, for the nginx it starts; root's nginx could also ask for more itself.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        service = stack.enter_context(running(directory / "service", workers=2, threads=8, command="gunicorn"))
        prepare(service)
        face = stack.enter_context(nginx.in_front_of(service, directory / "nginx"))
        quiet = measured(face, min(seconds, 10.0), patience=_PATIENCE, pause=_BETWEEN)
        before = _held(face, service)
        with crowd(face.port, mix, pause=_PAUSE) as seen:
            beside = measured(face, seconds, patience=_PATIENCE, pause=_BETWEEN)
            meanwhile = _held(face, service)
        kept = _KEPT * len(face.workers())
        after = _settled(face, service, before, kept)
        spooled = [path for name in ("body", "proxy") for path in (directory / "nginx" / name).rglob("*")]
        left = [*service.leftovers(), *(path for path in spooled if path.is_file())]
    names = tuple(path.relative_to(directory).as_posix() for path in left)
    return Minute(sum(mix.values()), kept, quiet, beside, seen, before, meanwhile, after, names)


def _settled(face: Service, service: Service, before: Resources, kept: int) -> Resources:
    """What is held when the connections are gone, for which servers may take a while."""
    deadline = time.monotonic() + _SETTLING
    while True:
        held = _held(face, service)
        is_settled = (
            held.nginx_descriptors <= before.nginx_descriptors + kept
            and held.worker_descriptors <= before.worker_descriptors + kept
            and not service.leftovers()
        )
        if is_settled or time.monotonic() > deadline:
            return held
        time.sleep(0.1)


def _held(face: Service, service: Service) -> Resources:
    """What is held now; memory that processes share is counted in parts."""
    held = list[float | int]()
    for each in (face, service):
        processes = [Process(pid) for pid in each.workers()]
        memory = sum(process.status("Pss", "smaps_rollup") for process in processes) / 1024
        held += [memory, sum(process.descriptors for process in processes)]
    return Resources(*held)


SLOW_HEADINGS = (
    *("slow clients", "through", "answered", "not answered", "GET p50 p99; PUT p50 p99, times quiet"),
    *("closed by the server", "served again after, s"),
)
_KINDS = (Kind.IDLE, Kind.HEAD, Kind.BODY, Kind.READER)
_SLOW_PAUSE = 0.5
_PATIENCES = {DIRECT: 3.0, NGINX: 20.0}
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
            quiet = measured(face, seconds, patience=_PATIENCES[through])
            for name, counts in _sets(each, alone=alone).items():
                with crowd(face.port, counts, pause=_SLOW_PAUSE) as seen:
                    beside = measured(face, seconds, patience=_PATIENCES[through])
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
