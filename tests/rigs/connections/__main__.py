"""The long run: ``python -m tests.rigs.connections``. Ends with tables, and with status 1 on a fault."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from tests import nginx
from tests.rigs.connections import slow, smuggling, throng
from tests.table import table

_EACH = 40
_SECONDS = 6.0
_MINUTE = 60.0


def main() -> int:
    if nginx.NGINX is None:
        click.echo("nginx is not installed")
        return 1
    with tempfile.TemporaryDirectory(prefix="persistence-connections-") as directory:
        faults = list(_parts(Path(directory)))
    click.echo("\n".join(["", *faults]) if faults else "\nEverything holds.")
    return int(bool(faults))


def _parts(directory: Path) -> Iterator[str]:
    directory.chmod(0o755)  # nginx' workers may be of another user
    outcomes = smuggling.run(directory / "smuggling")
    click.echo("\n".join(smuggling.listed(outcomes)))
    click.echo(f"\n{table(smuggling.HEADINGS, smuggling.rows(outcomes))}\n")
    yield from smuggling.faults(outcomes)

    scenes = []
    for scene in slow.scenes(directory / "slow", each=_EACH, seconds=_SECONDS, alone=True):
        click.echo(f"{scene.name}, {scene.through}: {scene.beside.count} answered")
        scenes.append(scene)
        yield from scene.faults
    click.echo(f"\n{table(slow.HEADINGS, [scene.row for scene in scenes])}\n")

    minute = throng.run(directory / "throng", seconds=_MINUTE)
    click.echo(f"closed by nginx: {dict(minute.crowd.closed_by_server)}; answers: {dict(minute.crowd.answers)}")
    click.echo(f"\n{table(throng.HEADINGS, minute.rows())}")
    yield from minute.faults


if __name__ == "__main__":
    sys.exit(main())
