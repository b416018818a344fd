"""The long run: ``python -m tests.upkeep``. Ends with tables, and with status 1 where anything was wrong.

Every command is struck at every call that changes the tree: killed, and refused by a full, a broken and a read-only
disk; and trees with random damage are repaired.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click

from tests import opened
from tests.table import table
from tests.upkeep import kills
from tests.upkeep.damage import case
from tests.upkeep.rounds import Round
from tests.upkeep.scenarios import SCENARIOS, directory
from tests.upkeep.workshop import furnished

_STRIKES = {"killed": kills.kill, "full": kills.FULL, "broken": kills.BROKEN, "read-only": kills.READ_ONLY}
_CASES = 1000


def main() -> int:
    """Do it all."""
    say = _quietly()
    begun, rows, violations = time.monotonic(), [], list[str]()
    with tempfile.TemporaryDirectory(prefix="persistence-upkeep-") as name:
        scratch = Path(name)
        with furnished(scratch / "pristine") as workshop:
            pristine = workshop.root
        for scenario, inflict in SCENARIOS:
            round_ = Round(directory(pristine, scratch, inflict), scratch, scenario)
            counts = []
            for what, strike in _STRIKES.items():
                outcomes = dict(round_.faults(strike))
                counts.append(len(outcomes))
                violations += [
                    f"{scenario.name}, {what} at {at}: {each}" for at, found in outcomes.items() for each in found
                ]
            rows.append((scenario.name, *counts))
            say(f"{scenario.name}: {sum(counts)} calls, {len(violations)} violations so far")
        for seed in range(_CASES):
            inflicted, found = case(pristine, scratch / "damaged", seed)
            violations += [f"damage {seed} ({', '.join(inflicted.lines)}): {each}" for each in found]
    say(f"\n{table(('command', *_STRIKES), rows)}\n\n{_CASES} trees with random damage")
    left = opened.threads()
    violations += [f"{len(left)} threads of services are left"] if left else []
    seconds, threads = time.monotonic() - begun, threading.active_count()
    say("\n".join(("", *violations, f"{len(violations)} violations, {threads} threads, {seconds:.0f} s in all")))
    return int(bool(violations))


def _quietly() -> Callable[[str], None]:
    """Keep the log of the service in this process off standard error; what to say goes to standard output."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return click.echo


if __name__ == "__main__":
    sys.exit(main())
