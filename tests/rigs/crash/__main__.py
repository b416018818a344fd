"""The long run: ``python -m tests.rigs.crash``. Ends with tables, and with status 1 where anything was wrong.

Every request is killed at every system call, in two rounds; and every crash that a model allows is judged after every
step of a recorded request, as it is and with each protection taken away.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import click

from tests.rigs import strikes
from tests.rigs.crash.defects import DEFECTS
from tests.rigs.crash.kill import Killer, ready
from tests.rigs.crash.runs import RECORDED, Judge, Recording, record, search
from tests.rigs.scenarios import LEASES, TO_KILL, Scenario
from tests.table import table

_PROCESSES = 2
_ROUNDS = {"the next write": Killer.then_write, "check --repair": Killer.then_check}
_KILLS = (
    *("request", "points killed", "then", "old", "between", "new"),
    *("leftovers found", "then gone", "seconds", "violations"),
)
_STATES = ("request", "names change", "steps", "states", "seconds", "violations")
_PLANTED = ("request", "names change", "defects planted", "caught", "seconds")


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the work, done: rows for tables by their headings, and what is wrong, a line each."""

    name: str
    rows: tuple[tuple[tuple[str, ...], tuple[object, ...]], ...]
    violations: tuple[str, ...]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="persistence-crash-") as directory:
        reason = strikes.refusal(Path(directory))
    if reason is not None:
        click.echo(f"not possible here: {reason}")
        return 1
    begun = time.monotonic()
    parts = _all_parts()
    for headings in (_KILLS, _STATES, _PLANTED):
        rows = [row for part in parts for where, row in part.rows if where == headings]
        click.echo(f"\n{table(headings, rows)}")
    violations = [f"{part.name}: {violation}" for part in parts for violation in part.violations]
    click.echo("\n".join(("", *violations, f"{len(violations)} violations, {time.monotonic() - begun:.0f} s in all")))
    return int(bool(violations))


def _all_parts() -> list[Part]:
    """Every part in the order of the tables, each reported as soon as it is done."""
    with ProcessPoolExecutor(_PROCESSES) as pool:
        futures = {
            pool.submit(_kills, scenario, name): f"{scenario}, then {name}"
            for scenario in (*TO_KILL, *LEASES)
            for name in _ROUNDS
        }
        futures |= {pool.submit(_crashes, scenario): f"crashes of {scenario}" for scenario in RECORDED}
        for done in as_completed(futures):
            part = _result(done, futures[done])
            click.echo(f"{part.name}: {len(part.violations)} violations")
        return [_result(future, name) for future, name in futures.items()]


def _result(done: Future[Part], name: str) -> Part:
    """The part, or that it broke down: it then counts as wrong, and does not keep the others from being seen."""
    error = done.exception()
    return done.result() if error is None else Part(name, (), (f"{type(error).__name__}: {error}",))


def _kills(scenario: Scenario, name: str) -> Part:
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="persistence-crash-") as directory,
        ready(Path(directory), properties=scenario.properties) as killer,
    ):
        trial = killer.trial(scenario)
        outcomes = _ROUNDS[name](killer, trial, trial.points)
    violations = tuple(f"{outcome.point}: {fault}" for outcome in outcomes for fault in outcome.faults)
    old = sum(not any(outcome.committed) for outcome in outcomes)
    new = sum(all(outcome.committed) for outcome in outcomes)
    left = [outcome for outcome in outcomes if outcome.left]
    gone = sum(not outcome.faults for outcome in left)
    counts = (old, len(outcomes) - old - new, new, len(left), gone)
    row = (scenario, len(outcomes), name, *counts, _seconds(begun), len(violations))
    return Part(f"{scenario}, then {name}", ((_KILLS, row),), violations)


def _crashes(request: Scenario) -> Part:
    """Judge every crash of a request that is recorded once, as it is and with defects."""
    with tempfile.TemporaryDirectory(prefix="persistence-crash-") as directory:
        recording = record(request, Path(directory) / "recorded")
        with Judge(Path(directory) / "judged") as judge:
            parts = [
                part(request, recording, judge, ordered=ordered)
                for part in (_searched, _planted)
                for ordered in (True, False)
            ]
    rows = tuple(row for part in parts for row in part.rows)
    return Part(f"crashes of {request.name}", rows, tuple(line for part in parts for line in part.violations))


def _searched(request: Scenario, recording: Recording, judge: Judge, *, ordered: bool) -> Part:
    begun = time.monotonic()
    found = list(search(recording, judge, ordered=ordered))
    violations = tuple(fault for faults in found for fault in faults)
    row = (request.name, _order(ordered), len(recording.operations), len(found), _seconds(begun), len(violations))
    return Part(request.name, ((_STATES, row),), violations)


def _planted(request: Scenario, recording: Recording, judge: Judge, *, ordered: bool) -> Part:
    begun = time.monotonic()
    planted = [defect for defect in DEFECTS if defect.request == request and defect.ordered == ordered]
    missed = []
    for defect in planted:
        operations = defect.planted(recording.operations)
        found = search(recording.but(operations), judge, ordered=ordered)
        if operations == recording.operations or not any(found):
            missed.append(f"not caught: {defect}")
    row = (request.name, _order(ordered), len(planted), len(planted) - len(missed), _seconds(begun))
    return Part(request.name, ((_PLANTED, row),), tuple(missed))


def _order(ordered: bool) -> str:  # noqa: FBT001 - one value, and its name
    return "in order" if ordered else "in any order"


def _seconds(begun: float) -> str:
    return f"{time.monotonic() - begun:.1f}"


if __name__ == "__main__":
    sys.exit(main())
