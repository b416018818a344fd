"""The long run.

``COST_SECONDS`` in the environment says how long it searches, 1,200 by default; ``COST_KINDS`` names kinds, with commas
between, where not all are to be tried.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from tests import rig_service
from tests.rigs.cost.climbing import KEPT, Climb, Cost, Make, Trial, climb
from tests.rigs.cost.kinds import KINDS, Genes, lay_down
from tests.rigs.cost.served import PLANTED
from tests.rigs.processes import MIB
from tests.rigs.report import Report
from tests.service import alone

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
