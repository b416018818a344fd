"""Hill climbing: of each kind of request, the costliest that were found are changed a little, again and again.

``COST_SECONDS`` in the environment says how long the long run searches, 1,200 by default; ``COST_KINDS`` names kinds,
with commas between, where not all are to be tried.
"""

from __future__ import annotations

import http.client
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

import click

from tests import rig_service
from tests.rigs.cost.kinds import KINDS, Genes, Sent, lay_down
from tests.rigs.cost.served import PLANTED
from tests.rigs.processes import MIB, Process
from tests.rigs.report import Report
from tests.service import Service, alone

Make = Callable[[Genes], Sent]

SECONDS = 1.0
"""Of processor time for each megabyte of a body: what is promised."""

MEMORY = 100 * MIB
"""Above the idle worker, for each megabyte of a body."""

LEFT = 30 * MIB
"""Above what the worker had before a request, some seconds afterwards."""

KEPT = 160 * MIB
"""Above the idle worker, after all requests: caches, 90 MB as ``limits.py`` bounds them, and what lies between them."""

_BEST = 4
_FRESH = 0.3
_PATIENCE = 60.0


@dataclass(frozen=True)
class Cost:
    """What a request took; ``left`` is what the worker has more than before it, in bytes."""

    seconds: float
    memory: int
    megabytes: float
    status: str
    left: int = 0

    @property
    def share(self) -> float:
        """The part of what is promised that it took: over 1 the promise is broken."""
        allowed = self.megabytes
        return max(self.seconds / (SECONDS * allowed), self.memory / (MEMORY * allowed))

    @property
    def is_kept(self) -> bool:
        return self.share <= 1 and self.left <= LEFT


@dataclass
class Climb:
    kind: str
    make: Make
    tried: int = 0
    served: int = 0
    """How many of these were no error: what is refused at once tells little."""

    best: list[tuple[float, Genes]] = field(default_factory=list)

    def next(self, random: random.Random) -> Genes:
        if not self.best or random.random() < _FRESH:
            return Genes.drawn(random)
        return random.choice(self.best)[1].mutated(random)

    def note(self, genes: Genes, cost: Cost) -> None:
        self.tried += 1
        self.served += cost.status < "400"
        self.best = sorted([*self.best, (cost.share, genes)], key=lambda each: -each[0])[:_BEST]


class Trial:
    """Tries requests on one worker. ``idle`` is its memory before the first."""

    def __init__(self, service: Service, ordinary: Iterable[Sent] = ()) -> None:
        """Begin, once the worker has answered some ordinary requests: it loads much only when it is needed."""
        self.service = service
        service.timeout = _PATIENCE
        for sent in ordinary:
            for each in (*sent.first, sent):
                self._go(each)
        time.sleep(2.5)
        self.process = Process(self.service.workers()[0])
        self.process.rest()
        self.idle = self.process.resident

    def measure(self, sent: Sent, *, is_exact: bool = False) -> Cost:
        """What it takes; exactly, with all that it leaves the worker to do, and what that has afterwards."""
        self.process = Process(self.service.workers()[0])
        for each in sent.first:
            self._go(each)
        if is_exact:
            self.process.rest()
            time.sleep(1.5)
        before = self.process.resident
        self.process.forget_highest()
        began = self.process.seconds
        status = self._go(sent)
        if is_exact:
            time.sleep(1.2)  # the index takes in what was stored
            self.process.rest()
        try:
            cost = Cost(self.process.seconds - began, self.process.highest - before, sent.megabytes, status)
        except OSError:  # the worker was killed
            return Cost(_PATIENCE, 0, sent.megabytes, f"{status}, worker gone")
        if is_exact:
            time.sleep(1.5)  # the worker looks at its memory once a second
            return replace(cost, left=self.process.resident - before)
        return cost

    def _go(self, sent: Sent) -> str:
        try:
            return str(sent.go(self.service).status)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return type(error).__name__


def climb(
    trial: Trial, kinds: Mapping[str, Make], seconds: float, *, enough: float = float("inf"), seed: int = 0
) -> dict[str, Climb]:
    """Search in all kinds by turns for so long, or until each has a request that takes ``enough`` of the promise."""
    chance = random.Random(seed)
    climbs = {kind: Climb(kind, make) for kind, make in kinds.items()}
    end = time.monotonic() + seconds
    for each in cycle(climbs.values()):
        if time.monotonic() >= end or all(known.best and known.best[0][0] > enough for known in climbs.values()):
            break
        genes = each.next(chance)
        each.note(genes, trial.measure(each.make(genes)))
    return climbs


HEADINGS = ("kind", "tried", "served", "body, MB", "s", "s per MB", "MB", "MB per MB", "left, MB", "status", "kept")
ORDINARY = Genes(shape=1, size=5_000, length=20, other=3, character=0, choice=3)
PLANTED_KINDS = ("headers", "names")
"""The kinds that are too costly with the defects of ``served``."""

_LONGEST_PLANTED = 600.0
"""Seconds; a machine that is not busy finds both in one minute."""

ENVIRONMENT = {
    "PERSISTENCE_WORKER_MEMORY": "0",  # growth is to be seen, not replaced
    "PERSISTENCE_ENCRYPTION_KEY": f"k1:{'5a' * 32}",
    "MALLOC_ARENA_MAX": "1",  # malloc_trim() gives back what is free in the midst of this one
    "MALLOC_MMAP_THRESHOLD_": str(64 << 10),
}


def long_run(report: Report, directory: Path) -> None:
    """Search, measure the worst of each kind again, and say what they took; then with planted defects."""
    seconds = float(os.environ.get("COST_SECONDS", "1200"))
    chosen = os.environ.get("COST_KINDS")
    kinds = {kind: make for kind, make in KINDS.items() if chosen is None or kind in chosen.split(",")}
    found, left = searched(directory / "service", kinds, seconds)
    planted = {kind: KINDS[kind] for kind in PLANTED_KINDS}
    caught, _ = searched(directory / "planted", planted, _LONGEST_PLANTED, enough=1.3)
    click.echo(f"after all of it the worker has {left / MIB:.0f} MB more than when it was idle")
    if left > KEPT:
        report.wrong.append(f"the worker has {left / MIB:.0f} MB more than when it was idle")
    for each, cost, genes in found:
        report.add_row(HEADINGS, row(each.kind, each, cost))
        report.wrong += [] if cost.is_kept and each.tried else [f"{each.kind}: {genes}"]
    for each, cost, _ in caught:
        report.add_row(HEADINGS, row(f"planted: {each.kind}", each, cost))
        report.expect_caught(each.kind, not cost.is_kept)


def searched(
    directory: Path, kinds: Mapping[str, Make], seconds: float, enough: float = 0.0
) -> tuple[list[tuple[Climb, Cost, Genes]], int]:
    """Search in some kinds on a service of its own: what was tried, the worst of each, and the bytes that are left.

    With ``enough`` of the promise it is the one with planted defects, and the search ends when it has found them.
    """
    env = {**ENVIRONMENT, **rig_service.ENVIRONMENT, PLANTED: "1" if enough else ""}
    with alone(directory, workers=1, threads=8, env=env, module="tests.rigs.cost.served") as service:
        lay_down(service)
        trial = Trial(service, (make(ORDINARY) for make in KINDS.values()))
        click.echo(f"idle: {trial.idle / MIB:.0f} MB; {len(kinds)} kinds for {seconds:.0f} s …")
        climbs = climb(trial, kinds, seconds, enough=enough or float("inf"))
        found = [(each, *worst(trial, each)) for each in climbs.values()]
        return found, trial.process.resident - trial.idle


def worst(trial: Trial, climb: Climb) -> tuple[Cost, Genes]:
    """The costliest of a kind, measured again with all that follows; noise of one measurement is not in all three."""
    _, genes = climb.best[0]
    costs = [trial.measure(climb.make(genes), is_exact=True)]
    while not costs[-1].is_kept and len(costs) < 3:
        costs.append(trial.measure(climb.make(genes), is_exact=True))
    cost = min(costs, key=lambda cost: (not cost.is_kept, cost.share))
    click.echo(f"  {climb.kind}: {cost.seconds:.2f} s, {cost.memory / MIB:.0f} MB for {cost.megabytes:.1f} MB; {genes}")
    return cost, genes


def row(name: str, climb: Climb, cost: Cost) -> tuple[object, ...]:
    memory, size = max(cost.memory, 0) / MIB, cost.megabytes
    seconds = f"{size:.1f}", f"{cost.seconds:.2f}", f"{cost.seconds / size:.2f}"
    bytes_ = f"{memory:.0f}", f"{memory / size:.0f}", f"{max(cost.left, 0) / MIB:.0f}"
    return name, climb.tried, climb.served, *seconds, *bytes_, cost.status, "yes" if cost.is_kept else "NO"
