"""The long run: ``python -m tests.rigs.crash``.

Every request is killed at every system call, in two rounds; and every crash that a model allows is judged after every
step of a recorded request, as it is and with each protection taken away.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.rigs import strikes
from tests.rigs.crash.defects import DEFECTS
from tests.rigs.crash.kill import Killer
from tests.rigs.crash.runs import RECORDED, Judge, Recording, record, search
from tests.rigs.report import Report, Tally, prefixed
from tests.rigs.scenarios import LEASES, TO_KILL, Scenario

_PROCESSES = 2
_ROUNDS = {"the next write": Killer.then_write, "check --repair": Killer.then_check}
_KILLS = ("points killed", "old", "between", "new", "leftovers found", "then gone")
_STATES = ("steps", "states")
_PLANTED = ("defects planted", "caught")


def main() -> int:
    report = Report()
    with tempfile.TemporaryDirectory(prefix="persistence-crash-") as directory:
        reason = strikes.refusal(Path(directory))
    if reason is not None:
        report.wrong.append(f"not possible here: {reason}")
        return report.end()
    with ProcessPoolExecutor(_PROCESSES) as pool:
        every = (*TO_KILL, *LEASES)
        futures = {pool.submit(_kills, scenario, name): str(scenario) for scenario in every for name in _ROUNDS}
        futures |= {pool.submit(_crashes, scenario): f"crashes of {scenario}" for scenario in RECORDED}
        for done in as_completed(futures):  # a part that breaks down does not keep the others from being seen
            error = done.exception()
            for tally in done.result() if error is None else [Tally(futures[done], violations=[repr(error)])]:
                report.add(tally)
    return report.end()


def _kills(scenario: Scenario, name: str) -> list[Tally]:
    tally = Tally(f"{scenario}, then {name}", _KILLS)
    with (
        tempfile.TemporaryDirectory(prefix="persistence-crash-") as directory,
        strikes.struck_service(Path(directory), properties=scenario.properties) as service,
    ):
        killer = Killer(service, Path(directory))
        trial = killer.trial(scenario)
        for outcome in _ROUNDS[name](killer, trial, trial.points):
            tally["points killed"] += 1
            done = {any(outcome.committed), all(outcome.committed)}
            tally["between" if len(done) > 1 else "new" if done == {True} else "old"] += 1
            tally["leftovers found"] += bool(outcome.left)
            tally["then gone"] += bool(outcome.left and not outcome.faults)
            tally.violations += prefixed(outcome.point, outcome.faults)
    return [tally.ended()]


def _crashes(request: Scenario) -> list[Tally]:
    """Judge every crash of a request that is recorded once, as it is and with defects."""
    with tempfile.TemporaryDirectory(prefix="persistence-crash-") as directory:
        recording = record(request, Path(directory) / "recorded")
        with Judge(Path(directory) / "judged") as judge:
            return [tally for ordered in (True, False) for tally in _searched(request, recording, judge, ordered)]


def _searched(request: Scenario, recording: Recording, judge: Judge, ordered: bool) -> Iterator[Tally]:  # noqa: FBT001
    name = f"{request}, names change {'in order' if ordered else 'in any order'}"
    tally = Tally(name, _STATES)
    tally["steps"] = len(recording.operations)
    for faults in search(recording, judge, ordered=ordered):
        tally["states"] += 1
        tally.violations += faults
    yield tally.ended()
    tally = Tally(f"planted: {name}", _PLANTED)
    for defect in DEFECTS:
        if defect.request == request and defect.ordered == ordered:
            operations = defect.planted(recording.operations)
            found = search(recording.but(operations), judge, ordered=ordered)
            is_caught = operations != recording.operations and any(found)
            tally["defects planted"] += 1
            tally["caught"] += is_caught
            tally.violations += [] if is_caught else [f"not caught: {defect}"]
    yield tally.ended()


if __name__ == "__main__":
    sys.exit(main())
