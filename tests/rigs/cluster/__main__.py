"""The long run: ``python -m tests.rigs.cluster``. Ends with tables, and with status 1 where anything was wrong.

With ``--short`` the primary is killed twice and cut off once, in some minutes. Exit status 3: not possible here.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests.rigs.cluster import network
from tests.rigs.cluster.database import missing
from tests.rigs.cluster.faults import CUT, INSTANCE, PRIMARY, summary
from tests.rigs.cluster.runs import ASYNCHRONOUS, Plan, Report, run
from tests.rigs.weakened import UNCONDITIONAL
from tests.table import table

_NOT_POSSIBLE = 3
_MOST_LINES = 40
_RUNS = (
    *("run", "primaries killed", "instances killed", "cut off", "acknowledged writes", "lost", "unknown outcomes"),
    *("operations in histories", "not linearizable", "seconds"),
)
_INTERRUPTIONS = ("fault", "times", "shortest, s", "median, s", "longest, s", "requests cut, 502 or 503")
_EACH = ("fault", "which", "seconds without an acknowledged write", "requests cut, 502 or 503")


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
    network.enter()
    good = (
        [] if only else [Plan("short" if short else "long", *((2, 1, 2_000) if short else (kills, cuts, operations)))]
    )
    weak = [] if short else [plan for plan in _weak() if only in (None, plan.weakness)]
    with tempfile.TemporaryDirectory(prefix="persistence-cluster-") as temporary:
        place = directory or Path(temporary)
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
        reports = [_reported(plan, place / plan.name.replace(" ", "-")) for plan in (*good, *weak)]
    click.echo(f"\n{table(_RUNS, map(_row, reports))}")
    wrong = [line for report in reports if not report.plan.weakness for line in report.violations]
    missed = [report.plan.name for report in reports if report.plan.weakness and not _is_caught(report)]
    click.echo(
        "\n".join(["", *wrong[:_MOST_LINES], f"{len(wrong)} violations", *(f"not caught: {it}" for it in missed)])
    )
    sys.exit(int(bool(wrong or missed)))


def _reported(plan: Plan, directory: Path) -> Report:
    report = run(plan, directory, click.echo)
    _show(report)
    return report


def _weak() -> tuple[Plan, ...]:
    return (
        Plan(UNCONDITIONAL, 0, 0, 1_000, weakness=UNCONDITIONAL),
        Plan(ASYNCHRONOUS, 3, 0, 1_000, weakness=ASYNCHRONOUS, kills_instances=False),
    )


def _is_caught(report: Report) -> bool:
    """Return whether the lack of a protection shows: as a loss, or in the histories."""
    return bool(report.lost if report.plan.weakness == ASYNCHRONOUS else report.judgement.not_linear)


def _row(report: Report) -> tuple[object, ...]:
    kinds = [each.fault.kind for each in report.interruptions]
    judged = report.judgement
    return (
        *(report.plan.name, *(kinds.count(kind) for kind in (PRIMARY, INSTANCE, CUT))),
        *(report.acknowledged, len(report.lost), report.unknown + judged.unknown.total(), judged.operations),
        *(len(judged.not_linear), f"{report.seconds:.0f}"),
    )


def _show(report: Report) -> None:
    click.echo(f"\n## {report.plan.name}\n\nA node is cut off by: {report.means}. Copied again: {report.copied}.\n")
    if report.interruptions:
        rows = [
            (each.fault.kind, each.fault.which, f"{each.seconds:.1f}", each.unanswered) for each in report.interruptions
        ]
        click.echo(f"{table(_EACH, rows)}\n\n{table(_INTERRUPTIONS, summary(report.interruptions))}\n")
    statuses = sorted({status for _, status in report.statuses})
    kinds = sorted({what for what, _ in report.statuses})
    counts = [(what, *(report.statuses[what, status] for status in statuses)) for what in kinds]
    click.echo(table(("request", *statuses), counts))
    judged = report.judgement
    click.echo(
        f"\nHistories: {judged.operations} operations on {judged.documents} documents, {len(judged.not_linear)} not"
        f" linearizable, {len(judged.undecided)} undecided; outcomes unknown: {dict(judged.unknown)}; at most"
        f" {judged.hardest} steps tried"
    )
    if report.plan.weakness:
        click.echo("\n".join(report.violations[:3]))


if __name__ == "__main__":
    main()
