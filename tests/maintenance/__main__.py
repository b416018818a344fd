"""The long run: ``python -m tests.maintenance``. Ends with tables, and with status 1 where anything was wrong.

Every command is struck at every call that changes the tree: killed, and refused by a full, a broken and a read-only
disk; and trees with random damage are repaired. With ``MAINTENANCE_SECONDS`` set, nothing is begun after so
many seconds; another command comes first each day, and what was left out is said.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import click

from tests import opened
from tests.maintenance import kills
from tests.maintenance.damage import case
from tests.maintenance.rounds import Round
from tests.maintenance.scenarios import SCENARIOS, directory
from tests.maintenance.workshop import furnished
from tests.table import table

_STRIKES = {"killed": kills.kill, "full": kills.FULL, "broken": kills.BROKEN, "read-only": kills.READ_ONLY}
_PROCESSES = 2
_CASES = 1000
_DAY = 24 * 3600
_CASES_AT_ONCE = 25


def main() -> int:
    """Do it all."""
    say = _quietly()
    begun, rows, violations = time.monotonic(), [], list[str]()
    with tempfile.TemporaryDirectory(prefix="persistence-maintenance-") as name, _pool() as pool:
        scratch = Path(name)
        with furnished(scratch / "pristine") as workshop:
            pristine = workshop.root
        end = time.time() + float(os.environ.get("MAINTENANCE_SECONDS", _DAY))
        first = int(time.time() // _DAY) % len(_NUMBERS)
        numbers = [*_NUMBERS[first:], *_NUMBERS[:first]]
        damaged = [pool.submit(_damaged, pristine, scratch, seed, end) for seed in range(0, _CASES, _CASES_AT_ONCE)]
        struck = [pool.submit(_struck, pristine, scratch / f"struck-{number}", number, end) for number in numbers]
        trees = 0
        for each_damaged in damaged:
            done, found = each_damaged.result()
            trees += done
            violations += found
        for number, each in zip(numbers, struck, strict=True):
            counts, found = each.result()
            scenario, _ = SCENARIOS[number]
            rows.append((scenario.name, *(counts or ["left out"] * len(_STRIKES))))
            violations += found
            say(f"{scenario.name}: {sum(counts)} calls, {len(violations)} violations so far")
    say(f"\n{table(('command', *_STRIKES), rows)}\n\n{trees} trees with random damage")
    say("\n".join(("", *violations, f"{len(violations)} violations, {time.monotonic() - begun:.0f} s in all")))
    return int(bool(violations))


_NUMBERS = range(len(SCENARIOS))


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(_PROCESSES, get_context("spawn"), initializer=_quietly)


def _struck(pristine: Path, scratch: Path, number: int, end: float) -> tuple[list[int], list[str]]:
    """Strike a scenario in each way; returns how often, nothing where the time was over, and what did not hold then."""
    if time.time() > end:
        return [], []
    scratch.mkdir()
    scenario, inflict = SCENARIOS[number]
    round_ = Round(directory(pristine, scratch, inflict), scratch, scenario)
    counts, violations = [], list[str]()
    for what, strike in _STRIKES.items():
        outcomes = dict(round_.faults(strike))
        counts.append(len(outcomes))
        violations += [f"{scenario.name}, {what} at {at}: {each}" for at, found in outcomes.items() for each in found]
    shutil.rmtree(scratch, ignore_errors=True)
    return counts, violations + _left()


def _damaged(pristine: Path, scratch: Path, first: int, end: float) -> tuple[int, list[str]]:
    """Repair trees with random damage; returns how many, none where the time was over, and what did not hold then."""
    if time.time() > end:
        return 0, []
    violations = []
    for seed in range(first, first + _CASES_AT_ONCE):
        inflicted, found = case(pristine, scratch / f"damaged-{first}", seed)
        violations += [f"damage {seed} ({', '.join(inflicted.lines)}): {each}" for each in found]
    return _CASES_AT_ONCE, violations + _left()


def _left() -> list[str]:
    left = opened.threads()
    return [f"{len(left)} threads of services are left"] if left else []


def _quietly() -> Callable[[str], None]:
    """Keep the log of the service in this process off standard error; what to say goes to standard output."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return click.echo


if __name__ == "__main__":
    sys.exit(main())
