"""The long run."""

from __future__ import annotations

from pathlib import Path

import click

from tests import nginx
from tests.rigs.connections import slow, smuggling
from tests.rigs.report import Report

_EACH = 40
_SECONDS = 6.0
_MINUTE = 60.0


def refusals(_directory: Path) -> list[str]:
    return [] if nginx.NGINX else ["nginx is not installed"]


def long_run(report: Report, directory: Path) -> None:
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
