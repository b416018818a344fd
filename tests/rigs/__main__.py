"""The long runs: ``python -m tests.rigs crash``. With ``--try`` it only says whether that rig can be run here."""

from __future__ import annotations

import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import click

from tests.rigs.report import Report

_RIGS = ("cluster", "connections", "cost", "crash", "faults", "fuzz", "linear", "modelled", "powercut")
_OTHERS = {"maintenance": "tests.maintenance.rounds"}


@click.command()
@click.argument("rig", type=click.Choice((*_RIGS, *_OTHERS)))
@click.option("--try", "is_trial", is_flag=True, help="Only say whether it can be run here.")
def main(rig: str, *, is_trial: bool) -> None:
    if rig in {"modelled", "powercut"}:  # others would wait for all that their processes have still to do
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that disks are unmounted
    runs, report = import_module(_OTHERS.get(rig, f"tests.rigs.{rig}.runs")), Report()
    with tempfile.TemporaryDirectory(prefix=f"persistence-{rig}-", ignore_cleanup_errors=True) as directory:
        if hasattr(runs, "refusals") and (reasons := runs.refusals(Path(directory))):
            sys.exit("\n".join(f"NOT TRIED: {reason}" for reason in reasons))
        if not is_trial:
            runs.long_run(report, Path(directory))
            sys.exit(report.end())


if __name__ == "__main__":
    main()
