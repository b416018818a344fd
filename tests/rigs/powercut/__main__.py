"""The long run: ``python -m tests.rigs.powercut``.

With ``--try`` it only says whether it can be run here. The defects that no picture of a journaling file system shows
are planted in ``make test-crash``, whose model is of one that promises only what POSIX does.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

import click

from tests.rigs.disks import TO_CUT, disk, refusal
from tests.rigs.powercut.commands import COMMANDS, IMPORT
from tests.rigs.powercut.rig import CAUGHT, Plan, Rig, judges
from tests.rigs.report import Report
from tests.rigs.weakened import CONTENT_FSYNC, OF_POWER_CUTS

_PLAN = Plan(at_rest=50, under_load=50)
_PICTURES = 6
"""Of a command, and of a service without a protection."""


@click.command()
@click.option("--try", "is_trial", is_flag=True, help="Only say whether it can be run here.")
def main(*, is_trial: bool) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that disks are unmounted
    report = Report()
    with tempfile.TemporaryDirectory(prefix="persistence-powercut-") as name, judges(Path(name)) as pool:
        directory = Path(name)
        missing = [reason for kind in TO_CUT if (reason := refusal(kind, directory, is_to_cut=True))]
        for reason in missing:
            click.echo(f"NOT TRIED: {reason}")
        if missing or is_trial:
            sys.exit(int(bool(missing)))
        for kind in TO_CUT:
            (directory / kind.title).mkdir()
            with disk(kind, directory / kind.title) as made:
                _cut(report, Rig(made, directory / kind.title, pool))
    sys.exit(report.end())


def _cut(report: Report, rig: Rig) -> None:
    """Cut the power of the service and of commands; and without a protection: a purge writes no content."""
    report.add(rig.run(_PLAN))
    for command in COMMANDS:
        report.add(rig.run_command(command, _PICTURES))
    report.add(rig.run_command(IMPORT, _PICTURES, CONTENT_FSYNC), is_planted=True, found_as=CAUGHT)
    for protection in OF_POWER_CUTS:
        report.add(rig.run_without(protection, _PICTURES), is_planted=True, found_as=CAUGHT)


if __name__ == "__main__":
    main()
