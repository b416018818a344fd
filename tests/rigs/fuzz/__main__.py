"""The long run: at least 20 000 requests in both dialects."""

from __future__ import annotations

import multiprocessing
import secrets
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from tests.rigs.fuzz.runs import Job, measured, together
from tests.rigs.fuzz.verdict import DIFFERENCES
from tests.rigs.report import Report
from tests.service import Service, running

SHARES = {"described": 0.7, "odd": 0.12, "XML": 0.18}
"""Which part of the requests is of which kind."""

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
                few = round(requests / 2 * _WARMING / len(SHARES))
                together("warming", [job for kind in SHARES for job in _jobs(kind, service, few, seed)], pool.map)
                for kind, share in SHARES.items():
                    jobs = _jobs(kind, service, round(requests / 2 * share), seed + _PARTS)
                    totals = measured(service, jobs, most_memory=_MOST_MEMORY, threads=_THREADS, runs=pool.map)
                    differences += totals.differences
                    report.add(totals)
    for name, count in sorted(differences.items()):
        decision = DIFFERENCES.get(name, "a violation")
        report.add_row(("service and libxml2 differ", "documents", "decision"), (name, count, decision))
    sys.exit(report.end())


def _jobs(kind: str, service: Service, requests: int, seed: int) -> list[Job]:
    return [Job(kind, service.port, service.dialect, requests // _PARTS, seed + part) for part in range(_PARTS)]


if __name__ == "__main__":
    main()
