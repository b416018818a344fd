"""Whole runs of one request through many faults, in a service of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.rigs.faults.judge import FULL, Outcome, tolerance
from tests.rigs.faults.reading import Reading, meet, prepared
from tests.rigs.faults.trial import LOOKING, WRITING, Trial
from tests.rigs.report import Tally, prefixed
from tests.rigs.scenarios import (
    ATTACH_LARGE,
    ATTACH_OVER,
    BESIDE,
    CREATE,
    DELETE,
    DELETE_DRAFT_ATTACHMENT,
    FIRST_REPLACE,
    PROMOTE,
    PUBLISH_SECOND,
    REPLACE,
    UNINDEXED,
    Scenario,
)
from tests.rigs.strikes import Point, struck_service
from tests.rigs.weakened import OF_WRITING
from tests.service import Service

SCENARIOS = (
    *(CREATE, BESIDE, FIRST_REPLACE, REPLACE, UNINDEXED, ATTACH_OVER, ATTACH_LARGE),
    *(PUBLISH_SECOND, DELETE, PROMOTE, DELETE_DRAFT_ATTACHMENT),
)
"""The requests that meet a fault."""

ERRORS = (*FULL, "EIO", "EROFS", "EMFILE")
_MOST_MEMORY = 12 << 10
"""KiB: as much come and stay with the indexes of the forms that were changed last (32 of them, 9 MiB measured)."""
_WRITTEN = ("points", "refused", "open", "tolerated", "in a row", "KiB more")
_READ = ("points", "refused", "cut off", "whole")


@dataclass(slots=True)
class Run(Tally):
    """What one request went through; ``kinds`` by error and kind, ``after_commit`` by call, kind and why."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    after_commit: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def see(self, outcome: Outcome) -> None:
        self.kinds[outcome.error, outcome.kind] += 1
        self[outcome.kind] += 1
        self.violations += prefixed(f"{outcome.error} at {outcome.point}", outcome.faults)


Choose = Callable[[Sequence[Point]], Iterable[tuple[Point, Sequence[str]]]]
"""Which points of a request are struck, and with which errors."""


def every(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    """Each error at each point; where a request only looks, one."""
    return ((point, ["EIO"] if point.call in LOOKING else ERRORS) for point in points)


def strike_all(
    scenario: Scenario, directory: Path, *, choose: Choose = every, times: int = 0, weakness: str = ""
) -> Run:
    """One error in each request, at the chosen points; and ``times`` in a row at each of them before the change."""
    run = Run(str(scenario), _WRITTEN)
    with struck_service(directory, weakness=weakness) as service:
        trial = Trial(service, directory)
        chosen = list(choose(trial.points(scenario)))
        run["points"] = len(chosen)
        for point, errors in chosen:
            for error in errors:
                outcome = trial.strike(scenario, point, error)
                run.see(outcome)
                if outcome.kind != "refused":
                    why = tolerance(point) or "" if outcome.kind == "tolerated" else ""
                    run.after_commit[f"{point.call} {point.about}", outcome.kind, why] += 1
        if times and scenario.repeats:
            points = [point for point, _ in chosen if point.call in WRITING and not point.committed]
            points = [point for point in points if not point.is_for_the_index]
            _repeat(run, trial, scenario, points, times)
        run.violations += trial.restart()
    run.ended()
    return run


def _repeat(run: Run, trial: Trial, scenario: Scenario, points: Sequence[Point], times: int) -> None:
    before = trial.footprint()
    for number, point in enumerate(points):
        error = ERRORS[number % len(ERRORS)]
        faults = trial.repeat(scenario, point, error, times)
        run.violations += prefixed(f"{error} at {point}, {times} times", faults)
        run["in a row"] += times
    run["KiB more"] = trial.footprint().memory - before.memory
    if run["KiB more"] > _MOST_MEMORY:
        run.violations.append(f"{run['KiB more']} KiB more after {run['in a row']} refusals")


def read_all(directory: Path, titles: Sequence[str] = (), weakness: str = "") -> list[Run]:
    """Each error that may come of reading, at each point of each reading request, or of those of some titles."""
    with struck_service(directory, weakness=weakness) as service:
        readings = [reading for reading in prepared(service) if not titles or reading.title in titles]
        return [_read(service, directory, reading) for reading in readings]


def noticed(weakness: str, directory: Path) -> list[str]:
    if weakness in OF_WRITING:
        return strike_all(REPLACE, directory, choose=_vital, weakness=weakness).violations
    return [violation for run in read_all(directory, ["GET data"], weakness) for violation in run.violations]


def _vital(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    notes = [point for point in points if point.call == "write" and point.is_for_the_index]
    fsyncs = [point for point in points if point.call == "fsync"]
    return [(point, ["EIO"]) for point in (*notes, *fsyncs[:2])]


def _read(service: Service, directory: Path, reading: Reading) -> Run:
    run, points = Run(reading.title, _READ), set[Point]()
    for met in meet(service, directory, reading):
        points.add(met.point)
        run.see(met)
    run["points"] = len(points)
    run.ended()
    return run
