"""The long run: at least 20 000 requests in both dialects."""

from __future__ import annotations

import multiprocessing
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from tests.rigs import processes
from tests.rigs.fuzz.runs import HEADINGS, Job, RunTotals, run
from tests.rigs.fuzz.verdict import DIFFERENCES
from tests.rigs.processes import Held
from tests.rigs.report import Report
from tests.service import Service, running

SHARES = {"described": 0.7, "odd": 0.12, "XML": 0.18}
"""Which part of the requests is of which kind."""

_HELD = ("files open", "files open after", "KiB", "KiB after", "left over")
_PARTS = 2
"""Every kind is done in so many jobs of its own seed, because making requests takes longer than serving them."""

_WARMING = 0.1
_MOST_MEMORY = 16 << 10
"""KiB by which the memory of a worker may grow after it is warm."""

_THREADS = 8
"""Of a worker, besides those that answer requests."""


@click.command(help=__doc__)
@click.option("--requests", default=29_000, help="how many, more or less")
@click.option("--seed", default=lambda: secrets.randbelow(1_000_000_000), type=int, help="of the run to repeat")
def main(*, requests: int, seed: int) -> None:
    click.echo(f"seed {seed}; two services, about {requests} requests")
    report, context, differences = Report(), multiprocessing.get_context("spawn"), Counter[str]()
    with ProcessPoolExecutor(_PARTS, mp_context=context) as pool, tempfile.TemporaryDirectory() as directory:
        for dialect in ("svc", "orbeon"):
            with running(Path(directory) / dialect, dialect=dialect, workers=2, threads=_THREADS) as service:
                _jobs(pool, service, SHARES, round(requests // 2 * _WARMING), seed)
                for kind, share in SHARES.items():
                    totals = _measured(pool, service, kind, round(requests // 2 * share), seed + _PARTS)
                    differences += totals.differences
                    report.add(totals)
    for name, count in sorted(differences.items()):
        decision = DIFFERENCES.get(name, "a violation")
        report.add_row(("service and libxml2 differ", "documents", "decision"), (name, count, decision))
    sys.exit(report.end())


def _measured(pool: ProcessPoolExecutor, service: Service, kind: str, requests: int, seed: int) -> RunTotals:
    before = processes.held(service)
    totals = _jobs(pool, service, [kind], requests, seed)
    after, strays = processes.held(service), processes.strays(service)
    grown = processes.growth(before, after, most_memory=_MOST_MEMORY, most_threads=_THREADS + processes.OTHER_THREADS)
    for what in (*grown, *strays):
        totals.complain(what)
    totals["left over"] = len(strays) + after.leftovers
    for held, suffix in ((before, ""), (after, " after")):
        totals[f"files open{suffix}"] = _sum(held, "descriptors")
        totals[f"KiB{suffix}"] = _sum(held, "memory")
    return totals


def _sum(held: Held, name: str) -> int:
    return sum(getattr(worker, name) for worker in held.workers)


def _jobs(pool: ProcessPoolExecutor, service: Service, kinds: Iterable[str], requests: int, seed: int) -> RunTotals:
    named = list(kinds)
    totals = RunTotals(f"{service.dialect}, {' '.join(named)}", (*HEADINGS, *_HELD))
    each = requests // (_PARTS * len(named))
    jobs = [Job(kind, service.port, service.dialect, each, seed + part) for kind in named for part in range(_PARTS)]
    for own in pool.map(run, jobs):
        totals.add(own)
    totals.ended()
    return totals


if __name__ == "__main__":
    main()
