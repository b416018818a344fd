"""The long run: ``python -m tests.rigs.cluster``.

With ``--short`` the primary is killed twice and cut off once, in some minutes. Exit status 3: not possible here.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests.rigs.cluster import network
from tests.rigs.cluster.database import missing
from tests.rigs.cluster.runs import ASYNCHRONOUS, LOST, Plan, run
from tests.rigs.linear.runs import NOT_LINEAR
from tests.rigs.report import Report
from tests.rigs.weakened import UNCONDITIONAL

_NOT_POSSIBLE = 3
_WEAK = {
    Plan(UNCONDITIONAL, 0, 0, 1_000, weakness=UNCONDITIONAL): NOT_LINEAR,
    Plan(ASYNCHRONOUS, 3, 0, 1_000, weakness=ASYNCHRONOUS, kills_instances=False): LOST,
}
"""Runs without a protection, and the heading under which that shows."""


@click.command()
@click.option("--kills", default=20, help="how often the primary is killed, and an instance")
@click.option("--cuts", default=2, help="how often the primary is cut off from the network")
@click.option("--operations", default=20_000, help="operations in histories that are judged")
@click.option("--short", is_flag=True, help="two kills, one cut, 2,000 operations, and no planted defects")
@click.option("--only", type=click.Choice([UNCONDITIONAL, ASYNCHRONOUS]), help="only this planted defect")
@click.option("--directory", type=click.Path(path_type=Path), help="keep all files below this directory")
def main(kills: int, cuts: int, operations: int, short: bool, only: str | None, directory: Path | None) -> None:  # noqa: FBT001
    if lacking := missing():
        click.echo(f"not possible here, and not counted: these packages are missing: {' '.join(lacking)}")
        sys.exit(_NOT_POSSIBLE)
    if refusal := network.enter():
        click.echo(f"not possible here, and not counted: {refusal}")
        sys.exit(_NOT_POSSIBLE)
    report = Report()
    plan = Plan("short", 2, 1, 2_000) if short else Plan("long", kills, cuts, operations)
    with tempfile.TemporaryDirectory(prefix="persistence-cluster-") as temporary:
        place = directory or Path(temporary)
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
        if not only:
            report.add(run(plan, place / plan.name))
        for each, found_as in () if short else _WEAK.items():
            if only in (None, each.weakness):
                report.add(run(each, place / each.name.replace(" ", "-")), is_planted=True, found_as=found_as)
    sys.exit(report.end())


if __name__ == "__main__":
    main()
