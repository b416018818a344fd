"""The long run: ``python -m tests.rigs.connections``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests import nginx
from tests.rigs.connections import slow, smuggling
from tests.rigs.report import Report

_EACH = 40
_SECONDS = 6.0
_MINUTE = 60.0


def main() -> int:
    report = Report()
    if nginx.NGINX is None:
        report.wrong.append("nginx is not installed")
        return report.end()
    with tempfile.TemporaryDirectory(prefix="persistence-connections-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # nginx' workers may be of another user
        outcomes = smuggling.run(directory / "smuggling")
        click.echo("\n".join(smuggling.listed(outcomes)))
        for row in smuggling.rows(outcomes):
            report.add_row(smuggling.HEADINGS, row)
        report.wrong += smuggling.faults(outcomes)
        for scene in slow.scenes(directory / "slow", each=_EACH, seconds=_SECONDS, alone=True):
            click.echo(f"{scene.name}, {scene.through}: {scene.beside.count} answered")
            report.add_row(slow.SLOW_HEADINGS, scene.row)
            report.wrong += scene.faults
        minute = slow.throng(directory / "throng", seconds=_MINUTE, mix=slow.MIX)
    for row in minute.rows:
        report.add_row(slow.HEADINGS, row)
    report.wrong += minute.faults
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
