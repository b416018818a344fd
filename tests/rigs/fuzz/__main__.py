"""The long run: at least 20 000 requests in both dialects, and a table of what they did."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.rigs.fuzz import leaks
from tests.rigs.fuzz.leaks import Held
from tests.rigs.fuzz.runs import Job, RunTotals, run
from tests.rigs.fuzz.verdict import DIFFERENCES
from tests.service import Service, running
from tests.table import table

SHARES = {"described": 0.7, "odd": 0.12, "XML": 0.18}
"""Which part of the requests is of which kind."""

_PARTS = 2
"""Every kind is done in so many jobs of its own seed, because making requests takes longer than serving them."""

_WARMING = 0.1
_MOST_MEMORY = 16 << 10
"""KiB by which the memory of a worker may grow after it is warm."""

_THREADS = 8
"""Of a worker, besides those that answer requests."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=29_000, help="how many, more or less")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000_000), help="of the run to repeat")
    options = parser.parse_args()
    _say(f"seed {options.seed}; two services, about {options.requests} requests")
    began = time.monotonic()
    results = list(_both(options.requests // 2, options.seed))
    _report(results)
    _say(f"{sum(totals.requests for _, totals, *_ in results)} requests in {time.monotonic() - began:.0f} s")
    violations = [f"{dialect}: {what}" for dialect, totals, *_ in results for what in totals.violations]
    for violation in violations:
        _say(f"VIOLATION {violation}")
    return 1 if violations else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


Row = tuple[str, RunTotals, Held, Held, int]


def _both(requests: int, seed: int) -> Iterator[Row]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PARTS, mp_context=context) as pool, tempfile.TemporaryDirectory() as directory:
        for dialect in ("svc", "orbeon"):
            with running(Path(directory) / dialect, dialect=dialect, workers=2, threads=_THREADS) as service:
                _jobs(pool, service, dialect, round(requests * _WARMING), seed)
                yield from _measured(pool, service, dialect, requests, seed + _PARTS)


def _measured(pool: ProcessPoolExecutor, service: Service, dialect: str, requests: int, seed: int) -> Iterator[Row]:
    """Each kind in turn, with what the service held before and after."""
    for kind, share in SHARES.items():
        before = leaks.held(service)
        totals = _jobs(pool, service, dialect, round(requests * share), seed, (kind,))
        after = leaks.held(service)
        grown = leaks.growth(before, after, most_memory=_MOST_MEMORY, most_threads=_THREADS + leaks.OTHER_THREADS)
        for what in (*grown, *leaks.strays(service)):
            totals.complain(what)
        _say(f"{dialect}, {kind}: {totals.requests} requests")
        yield dialect, totals, before, after, len(leaks.strays(service)) + after.leftovers


def _jobs(
    pool: ProcessPoolExecutor,
    service: Service,
    dialect: str,
    requests: int,
    seed: int,
    kinds: tuple[str, ...] = tuple(SHARES),
) -> RunTotals:
    """Kinds of requests in equal numbers, in parallel."""
    each = requests // (_PARTS * len(kinds))
    jobs = [Job(kind, service.port, dialect, each, seed + part) for kind in kinds for part in range(_PARTS)]
    totals = RunTotals(" ".join(kinds))
    for own in pool.map(run, jobs):
        totals.add(own)
    return totals


def _report(results: list[Row]) -> None:
    headings = (
        *("dialect", "kind", "requests", "2xx", "3xx", "4xx", "501", "other 5xx", "of gunicorn", "no answer"),
        *("slowest (s)", "files open", "after", "MiB", "after", "left over"),
    )
    _say(f"\n{table(headings, map(_row, results))}\n")
    differences: dict[str, int] = {}
    for _, totals, *_ in results:
        for name, count in totals.differences.items():
            differences[name] = differences.get(name, 0) + count
    rows = ((name, count, DIFFERENCES.get(name, "a violation")) for name, count in sorted(differences.items()))
    _say(f"{table(('service and libxml2 differ', 'documents', 'decision'), rows)}\n")


def _row(result: Row) -> tuple[object, ...]:
    dialect, totals, before, after, left = result
    hundreds = {
        number: sum(n for status, n in totals.statuses.items() if (status or 0) // 100 == number) for number in range(6)
    }
    return (
        *(dialect, totals.kind, totals.requests, hundreds[2], hundreds[3], hundreds[4], totals.statuses[501]),
        *(hundreds[5] - totals.statuses[501], totals.of_server, totals.statuses[None], f"{totals.slowest:.2f}"),
        *(before.descriptors, after.descriptors, before.memory, after.memory, left),
    )


if __name__ == "__main__":
    sys.exit(main())
