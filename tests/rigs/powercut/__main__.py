"""The long run: ``python -m tests.rigs.powercut``. Ends with tables, and with status 1 where anything was wrong.

With ``--try`` it only says whether it can be run here.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from tests.rigs.disks import TO_CUT, Kind, refusal
from tests.rigs.powercut.commands import COMMANDS, IMPORT
from tests.rigs.powercut.rig import Outcome, Plan, Rig, judges, rig
from tests.rigs.powercut.traced import Searched, searches
from tests.rigs.strikes import TracingError
from tests.rigs.weakened import CONTENT_FSYNC, OF_POWER_CUTS
from tests.table import table

_PLAN = Plan(at_rest=50, under_load=50)
_WEAKENED_PICTURES = 6
_COMMAND_PICTURES = 6
_LINES = 20

_HEADINGS = (
    *("file system", "snapshots", "writes", "acknowledged before the cut", "in flight at the cut", "states read"),
    *("older revisions read", "started for real", "snapshots with violations", "seconds"),
)
_COMMAND_HEADINGS = (
    *("command", "file system", "snapshots", "states read", "older revisions read"),
    *("snapshots with violations", "seconds"),
)
_DEFECT_HEADINGS = ("without", "where", "caught", "of", "for example")


@click.command()
@click.option("--try", "is_trial", is_flag=True, help="Only say whether it can be run here.")
def main(*, is_trial: bool) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that disks are unmounted
    sys.exit(_run_all(is_trial=is_trial))


def _run_all(*, is_trial: bool) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="persistence-powercut-") as name, judges(Path(name)) as pool:
        directory = Path(name)
        missing = [reason for kind in TO_CUT if (reason := refusal(kind, directory, is_to_cut=True))]
        for reason in missing:
            click.echo(f"NOT TRIED: {reason}")
        if missing or is_trial:
            return int(bool(missing))
        runs = [_run(kind, directory / kind.title, pool) for kind in TO_CUT]
        traced = _traced(directory)
    whole = [outcome for outcome, _, _ in runs]
    under = [pair for _, pairs, _ in runs for pair in pairs]
    defects = [row for _, _, rows in runs for row in rows] + [_traced_row(each) for each in traced]
    click.echo(f"\n{table(_HEADINGS, [_row(outcome) for outcome in whole])}")
    click.echo(f"\n{table(_COMMAND_HEADINGS, [_command_row(*pair) for pair in under])}")
    click.echo(f"\n{table(_DEFECT_HEADINGS, defects)}")
    click.echo(f"\n{time.monotonic() - began:.0f} s in all")
    violations = [line for outcome in (*whole, *(each for _, each in under)) for line in outcome.violations]
    violations += [f"{each.name}: {each.sound} crashes break a promise without it" for each in traced if each.sound]
    missed = [f"not caught: without {row[0]}, {row[1]}" for row in defects if row[2] == 0]
    _say(violations + missed)
    return int(bool(violations or missed) or not traced)


def _run(
    kind: Kind, directory: Path, pool: ProcessPoolExecutor
) -> tuple[Outcome, list[tuple[str, Outcome]], list[tuple[object, ...]]]:
    directory.mkdir()
    with rig(kind, directory, pool) as on_disk:
        click.echo(f"{kind}: {_PLAN.at_rest} snapshots at rest and {_PLAN.under_load} under load …")
        whole = on_disk.run(_PLAN)
        click.echo(f"  {whole.seconds:.0f} s, {whole.caught} with violations")
        _say(whole.violations)
        under, rows = _commands(on_disk)
        for protection in OF_POWER_CUTS:
            outcome = on_disk.run_without(protection, _WEAKENED_PICTURES)
            click.echo(
                f"  without {protection}: {outcome.seconds:.0f} s, {outcome.caught} of {outcome.pictures} caught"
            )
            rows.append(_defect_row(protection, outcome))
    return whole, under, rows


def _commands(on_disk: Rig) -> tuple[list[tuple[str, Outcome]], list[tuple[object, ...]]]:
    """Run commands with all protections, and an import without one: a purge writes no content."""
    under = []
    for command in COMMANDS:
        outcome = on_disk.run_command(command, _COMMAND_PICTURES)
        click.echo(f"  {command.name}: {outcome.seconds:.0f} s, {outcome.caught} of {outcome.pictures} with violations")
        _say(outcome.violations)
        under.append((command.name, outcome))
    weakened = on_disk.run_command(IMPORT, _COMMAND_PICTURES, CONTENT_FSYNC)
    click.echo(f"  {IMPORT.name} without {CONTENT_FSYNC}: {weakened.caught} of {weakened.pictures} caught")
    return under, [_defect_row(f"{CONTENT_FSYNC}, {IMPORT.name}", weakened)]


def _traced(directory: Path) -> list[Searched]:
    click.echo("trace model of a file system that promises only POSIX …")
    try:
        return list(searches(directory / "traced"))
    except (TracingError, FileNotFoundError) as error:
        click.echo(f"NOT TRIED: {error}")
        return []


def _row(outcome: Outcome) -> tuple[object, ...]:
    return (
        *(outcome.kind, outcome.pictures, outcome.writes, outcome.acknowledged, outcome.in_flight, outcome.states),
        *(outcome.older, outcome.real, outcome.caught, f"{outcome.seconds:.0f}"),
    )


def _command_row(name: str, outcome: Outcome) -> tuple[object, ...]:
    return (
        *(name, outcome.kind, outcome.pictures, outcome.states, outcome.older, outcome.caught),
        f"{outcome.seconds:.0f}",
    )


def _defect_row(protection: str, outcome: Outcome) -> tuple[object, ...]:
    example = outcome.violations[0].partition(": ")[2] if outcome.violations else ""
    return protection, outcome.kind, outcome.caught, outcome.pictures, example


def _traced_row(searched: Searched) -> tuple[object, ...]:
    return searched.name, "trace model", searched.caught, searched.states, searched.example.partition(": ")[2]


def _say(lines: Iterable[str]) -> None:
    said = list(lines)
    for line in said[:_LINES]:
        click.echo(f"  {line}")
    if len(said) > _LINES:
        click.echo(f"  and {len(said) - _LINES} more")


if __name__ == "__main__":
    main()
