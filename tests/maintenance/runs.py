"""What the processes of the long run do: Python does not import the ``__main__`` of a package into them."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from tests import opened
from tests.maintenance import kills
from tests.maintenance.damage import case
from tests.maintenance.rounds import Round
from tests.maintenance.scenarios import SCENARIOS, directory
from tests.rigs.report import Tally, prefixed

STRIKES = {"killed": kills.kill, "full": kills.FULL, "broken": kills.BROKEN, "read-only": kills.READ_ONLY}
CASES_AT_ONCE = 25


def struck(pristine: Path, scratch: Path, number: int, end: float) -> Tally:
    """Strike a scenario in each way, unless the time is over; returns how often, and what did not hold then."""
    scenario, inflict = SCENARIOS[number]
    if time.time() > end:
        return Tally(f"{scenario.name}, left out", tuple(STRIKES)).ended()
    scratch.mkdir()
    tally = Tally(scenario.name, tuple(STRIKES))
    try:
        round_ = Round(directory(pristine, scratch, inflict), scratch, scenario)
    except (AssertionError, OSError) as error:  # what others have found is to be reported all the same
        tally.violations.append(f"cannot be prepared: {error!r}")
        return tally.ended()
    for what, strike in STRIKES.items():
        for at, found in round_.faults(strike):
            tally[what] += 1
            tally.violations += prefixed(f"{what} at {at}", found)
    shutil.rmtree(scratch, ignore_errors=True)
    tally.violations += _left()
    return tally.ended()


def damaged(pristine: Path, scratch: Path, first: int, end: float) -> tuple[int, list[str]]:
    """Repair trees with random damage; returns how many, none where the time was over, and what did not hold then."""
    if time.time() > end:
        return 0, []
    violations = []
    for seed in range(first, first + CASES_AT_ONCE):
        inflicted, found = case(pristine, scratch / f"damaged-{first}", seed)
        violations += [f"damage {seed} ({', '.join(inflicted.lines)}): {each}" for each in found]
    return CASES_AT_ONCE, violations + _left()


def _left() -> list[str]:
    left = opened.threads()
    return [f"{len(left)} threads of services are left"] if left else []


def quietly() -> None:
    """Keep the log of the service in this process off standard error."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
