"""The long run: ``python -m tests.rigs.linear``. Ends with a table, and with status 1 where anything was wrong."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from tests.rigs.linear.load import HEADINGS, Load, Report, run
from tests.rigs.weakened import OF_CONCURRENCY
from tests.table import table

_LOADS = (
    Load("100 documents", tuple(f"document-{number}" for number in range(100)), 20_000),
    Load("one document", ("document",) * 100, 20_000, seed=2),
    Load("one document, 2 workers", ("document",) * 25, 5_000, workers=2, seed=3),
)
_WEAK = Load("weakened", tuple(f"document-{number}" for number in range(10)), 2_000, seed=4)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="persistence-linear-") as directory:
        good = [_reported(load, Path(directory) / str(number)) for number, load in enumerate(_LOADS)]
        bad = [
            _reported(replace(_WEAK, name=f"weakened: {name}"), Path(directory) / name.replace(" ", "-"), weakness=name)
            for name in OF_CONCURRENCY
        ]
    click.echo(f"\n{table(HEADINGS, [report.row for report in good + bad])}")
    for report in good:
        for line in report.not_linear + report.faults + report.undecided:
            click.echo(f"{report.load.name}: {line}")
    missed = [report.load.name for report in bad if not report.not_linear]
    if missed:
        click.echo(f"not caught: {', '.join(missed)}")
    return int(bool(missed) or not all(report.is_good and report.kills for report in good))


def _reported(load: Load, directory: Path, weakness: str = "") -> Report:
    click.echo(f"{load.name}: {load.operations} operations by {load.clients} clients, {load.workers} workers …")
    report = run(load, directory, weakness)
    click.echo(f"  {report.seconds:.0f} s; {report.kills} kills; outcomes unknown: {dict(report.unknown)}")
    click.echo(f"  the checker tried {report.hardest} steps for a segment at most")
    return report


if __name__ == "__main__":
    sys.exit(main())
