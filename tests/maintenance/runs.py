"""What the processes of the long run do: Python does not import the ``__main__`` of a package into them."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import click

from tests import opened
from tests.maintenance import kills
from tests.maintenance.damage import case
from tests.maintenance.rounds import Round
from tests.maintenance.scenarios import SCENARIOS, directory

STRIKES = {"killed": kills.kill, "full": kills.FULL, "broken": kills.BROKEN, "read-only": kills.READ_ONLY}
CASES_AT_ONCE = 25


def struck(pristine: Path, scratch: Path, number: int, end: float) -> tuple[list[int], list[str]]:
    """Strike a scenario in each way; returns how often, nothing where the time was over, and what did not hold then."""
    if time.time() > end:
        return [], []
    scratch.mkdir()
    scenario, inflict = SCENARIOS[number]
    counts, violations = list[int](), list[str]()
    try:
        round_ = Round(directory(pristine, scratch, inflict), scratch, scenario)
    except (AssertionError, OSError) as error:  # what others have found is to be reported all the same
        return [0] * len(STRIKES), [f"{scenario.name} cannot be prepared: {error!r}"]
    for what, strike in STRIKES.items():
        outcomes = dict(round_.faults(strike))
        counts.append(len(outcomes))
        violations += [f"{scenario.name}, {what} at {at}: {each}" for at, found in outcomes.items() for each in found]
    shutil.rmtree(scratch, ignore_errors=True)
    return counts, violations + _left()


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


def quietly() -> Callable[[str], None]:
    """Keep the log of the service in this process off standard error; what to say goes to standard output."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return click.echo
