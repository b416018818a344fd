"""The run against Ceph's radosgw: ``python -m tests.s3``. Ends with a table, and with status 1 if anything is wrong.

Where the cluster cannot start, it says so, and ends with status 3: nothing was shown then.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from tests.s3.gateway import MISSING, Gateway, NotStartedError, serving_gateway
from tests.s3.trials import Outcome, kills, large, moves, outages
from tests.table import table

_KILLS = 12
_NOT_TRIED = 3


def main() -> int:
    if MISSING:
        click.echo(f"NOT TRIED: {', '.join(MISSING)} not installed (Debian: ceph-mon ceph-osd ceph-common radosgw)")
        return _NOT_TRIED
    with tempfile.TemporaryDirectory(prefix="persistence-s3-") as directory:
        try:
            with serving_gateway(Path(directory) / "ceph") as gateway:
                outcomes = list(_reported(gateway, Path(directory)))
        except NotStartedError as error:
            click.echo(f"NOT TRIED: the cluster does not start: {error}")
            return _NOT_TRIED
    rows = [(each.name, each.seen, "" if each.is_good else "WRONG") for each in outcomes]
    click.echo(f"\n{table(('tried', 'seen', ''), rows)}")
    return int(not all(each.is_good for each in outcomes))


def _reported(gateway: Gateway, directory: Path) -> Iterator[Outcome]:
    trials = (
        large(gateway, directory / "large"),
        kills(gateway, directory / "kills", _KILLS),
        moves(gateway, directory / "moves", _KILLS),
        outages(gateway, directory / "outages"),
    )
    for trial in trials:
        for outcome in trial:
            click.echo(f"{outcome.name}: {outcome.seen}")
            yield outcome


if __name__ == "__main__":
    sys.exit(main())
