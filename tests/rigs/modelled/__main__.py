"""The long run: ``python -m tests.rigs.modelled``. Ends with a table, and with status 1 where anything was wrong.

The same on a file system with whole seconds, and with a clock that jumps; then without one protection at a time. At
last clients that remove for good and bring back, in trees and a database.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from tests.postgresql import server as postgresql
from tests.rigs.clock import skewed
from tests.rigs.disks import WHOLE_SECONDS, mounted, refusal
from tests.rigs.modelled.removal_rig import DATABASE, REMOVAL_HEADINGS, SPLIT, TREE, Removals, remove
from tests.rigs.modelled.rig import HEADINGS, Outcome, Plan, run
from tests.rigs.server import weak
from tests.rigs.weakened import OF_ANSWERS, OF_REMOVALS, TRUSTING
from tests.table import table

_WHOLE = Plan("everything", 40.0, stretches=2)
_JUMPS = (0.5, 3.0)
_WEAK = Plan("weakened", 6.0, worker_kills=None, service_kills=None, commands=None)
_LINES = 20


@click.command()
@click.option("--seconds", default=_WHOLE.seconds, help="How long clients work in each of the three runs.")
@click.option("--seed", default=_WHOLE.seed, help="What chance is made of.")
def main(*, seconds: float, seed: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that disks are unmounted
    plan = replace(_WHOLE, seconds=seconds, seed=seed)
    with tempfile.TemporaryDirectory(prefix="persistence-modelled-") as name:
        directory = Path(name)
        good, untried = [_reported(plan, directory / "whole")], []
        if reason := skewed.refusal():
            untried.append(f"clock jumps: {reason}")
        else:
            jumping = replace(plan, name="clock jumps", clock_jumps=_JUMPS, seed=seed + 1)
            good.append(_reported(jumping, directory / "jumping"))
        (directory / "disks").mkdir()
        if reason := refusal(WHOLE_SECONDS, directory / "disks"):
            untried.append(f"whole seconds: {reason}")
        else:
            with mounted(WHOLE_SECONDS, directory / "disks") as made:
                good.append(_reported(replace(plan, name="whole seconds", seed=seed + 2), made / "run"))
        weak = [name for name in OF_ANSWERS if name != TRUSTING or skewed.refusal() is None]
        bad = [_reported(_weakened(name, seed), directory / name.replace(" ", "-")) for name in weak]
        status = _summed_up(good, bad, untried)
        is_wrong = _removed(directory / "removing", seconds / 2, seed)
    sys.exit(status or is_wrong)


def _removed(directory: Path, seconds: float, seed: int) -> int:
    """Run the clients that remove for good, everywhere; return the exit status."""
    (directory / "disks").mkdir(parents=True)
    good = {kind: remove(kind, directory / kind, seconds, seed=seed) for kind in (TREE, SPLIT)}
    if postgresql.MISSING:
        click.echo(f"NOT TRIED: {DATABASE}: {postgresql.MISSING}")
    else:
        server = postgresql.start(postgresql.new_place())
        try:
            postgresql.make_database(server)
            uri = postgresql.prepared(server.uri(postgresql.fresh_schema()))
            good[DATABASE] = remove(DATABASE, directory / DATABASE, seconds, seed=seed, uri=uri)
        finally:
            server.stop()
    if reason := refusal(WHOLE_SECONDS, directory / "disks"):
        click.echo(f"NOT TRIED: {SPLIT}, whole seconds: {reason}")
    else:
        with mounted(WHOLE_SECONDS, directory / "disks") as made:
            good[f"{SPLIT}, whole seconds"] = remove(SPLIT, made / "run", seconds, seed=seed)
    bad: dict[str, Removals] = {
        f"weakened: {name}": remove(TREE, directory / name, seconds, seed=seed, variant=weak(name))
        for name in OF_REMOVALS
    }
    rows = [(name, *each.row) for name, each in (*good.items(), *bad.items())]
    click.echo(f"\n{table(REMOVAL_HEADINGS, rows)}")
    for name, each in good.items():
        for line in each.violations[:_LINES]:
            click.echo(f"  {name}: {line}")
    missed = [name for name, each in bad.items() if not each.violations]
    for name in missed:
        click.echo(f"not caught: {name}")
    return int(bool(missed or any(each.violations for each in good.values())))


def _weakened(weakness: str, seed: int) -> Plan:
    jumps = (0.2, 0.6) if weakness == TRUSTING else None
    return replace(_WEAK, name=f"weakened: {weakness}", variant=weak(weakness), clock_jumps=jumps, seed=seed)


def _reported(plan: Plan, directory: Path) -> Outcome:
    click.echo(f"{plan.name}: {plan.clients} clients for {plan.seconds:g} s, seed {plan.seed} …")
    outcome = run(plan, directory, click.echo)
    for line in outcome.violations[:_LINES]:
        click.echo(f"  {line}")
    return outcome


def _summed_up(good: list[Outcome], bad: list[Outcome], untried: list[str]) -> int:
    click.echo(f"\n{table(HEADINGS, [outcome.row for outcome in good + bad])}")
    for line in untried:
        click.echo(f"NOT TRIED: {line}")
    missed = [outcome.plan.name for outcome in bad if not outcome.violations]
    for name in missed:
        click.echo(f"not caught: {name}")
    return int(bool(missed or any(outcome.violations for outcome in good)))


if __name__ == "__main__":
    main()
