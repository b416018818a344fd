"""The long run: ``python -m tests.rigs.linear``."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.rigs.linear.load import NOT_LINEAR, Load, run
from tests.rigs.report import Report
from tests.rigs.server import weak
from tests.rigs.weakened import OF_CONCURRENCY

_LOADS = (
    Load("100 documents", tuple(f"document-{number}" for number in range(100)), 20_000),
    Load("one document", ("document",) * 100, 20_000, seed=2),
    Load("one document, 2 workers", ("document",) * 25, 5_000, workers=2, seed=3),
)
_WEAK = Load("weakened", tuple(f"document-{number}" for number in range(10)), 2_000, seed=4)


def main() -> int:
    report = Report()
    with tempfile.TemporaryDirectory(prefix="persistence-linear-") as directory:
        for load in _LOADS:
            tally = run(load, Path(directory) / load.name.replace(" ", "-"))
            if not tally["kills"]:
                tally.violations.append("no worker was killed")
            report.add(tally)
        for name in OF_CONCURRENCY:
            tally = run(replace(_WEAK, name=f"weakened: {name}"), Path(directory) / name.replace(" ", "-"), weak(name))
            report.add(tally, is_planted=True, found_as=NOT_LINEAR)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
