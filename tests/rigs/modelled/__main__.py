"""The long run: ``python -m tests.rigs.modelled``.

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
from tests.rigs.modelled.removing import DATABASE, SPLIT, TREE, remove
from tests.rigs.modelled.rig import Plan, run
from tests.rigs.report import Report
from tests.rigs.server import weak
from tests.rigs.weakened import OF_ANSWERS, OF_REMOVALS, TRUSTING

_WHOLE = Plan("everything", 40.0, stretches=2)
_JUMPS = (0.5, 3.0)
_WEAK = Plan("weakened", 6.0, worker_kills=None, service_kills=None, commands=None)


@click.command()
@click.option("--seconds", default=_WHOLE.seconds, help="How long clients work in each of the three runs.")
@click.option("--seed", default=_WHOLE.seed, help="What chance is made of.")
def main(*, seconds: float, seed: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that disks are unmounted
    report = Report()
    with tempfile.TemporaryDirectory(prefix="persistence-modelled-") as name:
        _compare(report, Path(name), replace(_WHOLE, seconds=seconds, seed=seed))
        _remove(report, Path(name) / "removing", seconds / 2, seed)
    sys.exit(report.end())


def _compare(report: Report, directory: Path, plan: Plan) -> None:
    report.add(run(plan, directory / "whole"))
    if reason := skewed.refusal():
        report.leave_out(f"clock jumps: {reason}")
    else:
        jumping = replace(plan, name="clock jumps", clock_jumps=_JUMPS, seed=plan.seed + 1)
        report.add(run(jumping, directory / "jumping"))
    if reason := refusal(WHOLE_SECONDS, directory / "disks"):
        report.leave_out(f"whole seconds: {reason}")
    else:
        with mounted(WHOLE_SECONDS, directory / "disks") as made:
            report.add(run(replace(plan, name="whole seconds", seed=plan.seed + 2), made / "run"))
    for name in OF_ANSWERS:
        if name != TRUSTING or skewed.refusal() is None:
            jumps = (0.2, 0.6) if name == TRUSTING else None
            weakened = replace(_WEAK, name=f"weakened: {name}", variant=weak(name), clock_jumps=jumps, seed=plan.seed)
            report.add(run(weakened, directory / name.replace(" ", "-")), is_planted=True)


def _remove(report: Report, directory: Path, seconds: float, seed: int) -> None:
    for kind in (TREE, SPLIT):
        report.add(remove(kind, directory / kind, seconds, seed=seed))
    if postgresql.MISSING:
        report.leave_out(f"{DATABASE}: {postgresql.MISSING}")
    else:
        server = postgresql.start(postgresql.new_place())
        try:
            postgresql.make_database(server)
            uri = postgresql.prepared(server.uri(postgresql.fresh_schema()))
            report.add(remove(DATABASE, directory / DATABASE, seconds, seed=seed, uri=uri))
        finally:
            server.stop()
    if reason := refusal(WHOLE_SECONDS, directory / "disks"):
        report.leave_out(f"{SPLIT}, whole seconds: {reason}")
    else:
        with mounted(WHOLE_SECONDS, directory / "disks") as made:
            report.add(remove(SPLIT, made / "run", seconds, seed=seed))
    for name in OF_REMOVALS:
        removed = remove(TREE, directory / name, seconds, seed=seed, variant=weak(name))
        removed.name = f"weakened: {name}"
        report.add(removed, is_planted=True)


if __name__ == "__main__":
    main()
