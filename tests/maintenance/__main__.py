"""The long run: ``python -m tests.maintenance``.

Every command is struck at every call that changes the tree: killed, and refused by a full, a broken and a read-only
disk; and trees with random damage are repaired. With ``MAINTENANCE_SECONDS`` set, nothing is begun after so
many seconds; another command comes first each day, and what was left out is said.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.maintenance.rounds import CASES_AT_ONCE, SCENARIOS, damaged, quietly, struck
from tests.maintenance.workshop import furnished
from tests.rigs.report import Report, Tally

_PROCESSES = 2
_CASES = 1000
_DAY = 24 * 3600


def main() -> int:
    quietly()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="persistence-maintenance-") as name, _pool() as pool:
        scratch = Path(name)
        with furnished(scratch / "pristine") as workshop:
            pristine = workshop.root
        end = time.time() + float(os.environ.get("MAINTENANCE_SECONDS", _DAY))
        first = int(time.time() // _DAY) % len(_NUMBERS)
        numbers = [*_NUMBERS[first:], *_NUMBERS[:first]]
        repaired = [pool.submit(damaged, pristine, scratch, seed, end) for seed in range(0, _CASES, CASES_AT_ONCE)]
        rounds = [pool.submit(struck, pristine, scratch / f"struck-{number}", number, end) for number in numbers]
        random = Tally("random damage", ["trees"])
        for each in repaired:
            trees, found = each.result()
            random["trees"] += trees
            random.violations += found
        report.add(random.ended())
        for each in rounds:
            report.add(each.result())
    return report.end()


_NUMBERS = range(len(SCENARIOS))


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(_PROCESSES, get_context("spawn"), initializer=quietly)


if __name__ == "__main__":
    sys.exit(main())
