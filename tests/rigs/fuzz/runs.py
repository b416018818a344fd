"""The three kinds of fuzzing as functions: so many requests against a service, and what they showed.

``FUZZ_REQUESTS`` in the environment says how many the long run makes, more or less; ``FUZZ_SEED`` repeats one.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import click
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.rigs import processes
from tests.rigs.fuzz import interface, judge
from tests.rigs.fuzz.bodies import DIFFERENCES, Bodies, Place, places
from tests.rigs.fuzz.documents import definitions, documents
from tests.rigs.fuzz.judge import Exchange, Request, exchange
from tests.rigs.fuzz.made import described, odd
from tests.rigs.report import Report, Tally
from tests.service import Service, running

_MOST_VIOLATIONS = 20
_ROUND = 10
"""Requests of a kind in a round at least: the first ones of a seed are always the plainest."""

_APART = 1000
"""Between the seeds of rounds."""
_SLOWEST = "slowest, ms"
_PREFIXES = {"svc": "Svc-", "orbeon": "Orbeon-"}

Case = TypeVar("Case")

HEADINGS = (
    *("requests", "2xx", "3xx", "4xx", "501", "other 5xx", "of gunicorn", "no answer", _SLOWEST),
    *("files open", "files open after", "KiB", "KiB after", "left over"),
)


@dataclass(slots=True)
class RunTotals(Tally):
    """What was seen: answers by status, what must not be, and differences to libxml2."""

    headings: Sequence[str] = HEADINGS
    differences: Counter[str] = field(default_factory=Counter)

    def see(self, seen: Exchange) -> None:
        status = seen.answer.status if seen.answer else 0
        kind = "501" if status == 501 else "other 5xx" if status >= 500 else f"{status // 100}xx"
        for heading in ("requests", kind if status else "no answer"):
            self[heading] += 1
        self["of gunicorn"] += seen.answer is not None and not judge.is_of_service(seen.answer)
        self[_SLOWEST] = max(self[_SLOWEST], round(seen.seconds * 1000))

    def complain(self, what: str) -> None:
        """Keep a violation, up to so many different ones."""
        if what not in self.violations and len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(what)

    def add(self, other: RunTotals) -> None:
        slowest = max(self[_SLOWEST], other[_SLOWEST])
        self.counts += other.counts
        self[_SLOWEST] = slowest
        self.differences += other.differences
        for each in other.violations:
            self.complain(each)


@dataclass(frozen=True, slots=True)
class Job:
    """A run: which kind, against what, how many requests at least, and the seed (``None``: always the same ones)."""

    kind: str
    port: int
    dialect: str
    requests: int
    seed: int | None


_SHARES = {"described": 0.7, "odd": 0.12, "XML": 0.18}
"""Which part of the requests is of which kind."""

_PARTS = 2
"""Every kind is done in so many jobs of its own seed, because making requests takes longer than serving them."""

_WARMING = 0.1
_MOST_MEMORY = 16 << 10
"""KiB by which the memory of a worker may grow after it is warm."""

_THREADS = 8
"""Of a worker, besides those that answer requests."""


def long_run(report: Report, directory: Path) -> None:
    """Make at least 20,000 requests in both dialects."""
    requests = int(os.environ.get("FUZZ_REQUESTS", "29000"))
    first = int(os.environ.get("FUZZ_SEED") or secrets.randbelow(1_000_000_000))
    click.echo(f"seed {first}; two services, about {requests} requests")
    context, differences = multiprocessing.get_context("spawn"), Counter[str]()
    with ProcessPoolExecutor(_PARTS, mp_context=context) as pool:
        for dialect in _PREFIXES:
            with running(directory / dialect, dialect=dialect, workers=2, threads=_THREADS) as service:
                few = round(requests / 2 * _WARMING / len(_SHARES))
                together("warming", [job for kind in _SHARES for job in _jobs(kind, service, few, first)], pool.map)
                for kind, share in _SHARES.items():
                    jobs = _jobs(kind, service, round(requests / 2 * share), first + _PARTS)
                    totals = measured(service, jobs, most_memory=_MOST_MEMORY, threads=_THREADS, runs=pool.map)
                    differences += totals.differences
                    report.add(totals)
    for name, count in sorted(differences.items()):
        decision = DIFFERENCES.get(name, "a violation")
        report.add_row(("service and libxml2 differ", "documents", "decision"), (name, count, decision))


def _jobs(kind: str, service: Service, requests: int, first: int) -> list[Job]:
    return [Job(kind, service.port, service.dialect, requests // _PARTS, first + part) for part in range(_PARTS)]


def run(job: Job) -> RunTotals:
    return _KINDS[job.kind](job)


def together(name: str, jobs: Iterable[Job], runs: Callable[..., Iterator[RunTotals]] = map) -> RunTotals:
    """Do the jobs, with a pool's ``map`` at the same time, and add up what they showed."""
    totals = RunTotals(name)
    for own in runs(run, jobs):
        totals.add(own)
    return totals


def measured(
    service: Service,
    jobs: Sequence[Job],
    *,
    most_memory: int,
    threads: int,
    runs: Callable[..., Iterator[RunTotals]] = map,
) -> RunTotals:
    """Do the jobs against a service, and complain of what it holds or has left more than before.

    Its workers may grow by ``most_memory`` KiB each, and make ``threads`` to answer requests.
    """
    before = processes.held(service)
    totals = together(f"{service.dialect}, {jobs[0].kind}", jobs, runs)
    after, strays = processes.held(service), processes.strays(service)
    most_threads = threads + processes.OTHER_THREADS
    for what in (*processes.growth(before, after, most_memory=most_memory, most_threads=most_threads), *strays):
        totals.complain(what)
    totals["left over"] = len(strays) + after.leftovers
    for held, suffix in ((before, ""), (after, " after")):
        totals[f"files open{suffix}"] = sum(worker.descriptors for worker in held.workers)
        totals[f"KiB{suffix}"] = sum(worker.memory for worker in held.workers)
    totals.ended()
    return totals


def _described(job: Job) -> RunTotals:
    """Requests made from the documented interface, each below every prefix; in rounds, to have something to read."""
    totals, ask = _asking(job)
    strategies = list(described(job.dialect))
    each = job.requests // sum(prefixes for prefixes, _ in strategies) + 1
    rounds = max(1, each // _ROUND)
    for number in range(rounds):
        own = replace(job, seed=None if job.seed is None else job.seed + number * _APART)
        for _, strategy in strategies:
            _repeat(own, each // rounds + 1, strategy, lambda requests: list(map(ask, requests)))
    return totals


def _odd(job: Job) -> RunTotals:
    totals, ask = _asking(job)
    _repeat(job, job.requests, odd(job.dialect, _PREFIXES[job.dialect].encode()), ask)
    return totals


def _xml(job: Job) -> RunTotals:
    """XML as bodies; two to five requests for each document."""
    totals, ask = _asking(job)
    bodies, all_places = Bodies(ask, _PREFIXES[job.dialect], differences=totals.differences), places(f"xml-{job.seed}")
    bodies.hold(all_places)

    def put(case: tuple[Place, bytes]) -> None:
        for complaint in bodies.put(*case):
            totals.complain(complaint)

    cases = st.sampled_from(all_places).flatmap(
        lambda place: st.tuples(st.just(place), documents() | definitions if place.attachments else documents())
    )
    _repeat(job, job.requests // 2, cases, put)
    return totals


_KINDS: dict[str, Callable[[Job], RunTotals]] = {"described": _described, "odd": _odd, "XML": _xml}


def _asking(job: Job) -> tuple[RunTotals, Callable[[Request], Exchange]]:
    totals = RunTotals(job.kind)
    known = interface.read(job.dialect)

    def ask(request: Request) -> Exchange:
        seen = exchange(job.port, request)
        totals.see(seen)
        for complaint in judge.complaints(seen, known):
            totals.complain(f"{complaint}: {request}")
        return seen

    return totals, ask


def _repeat(job: Job, times: int, strategy: SearchStrategy[Case], act: Callable[[Case], object]) -> None:
    """Act on so many cases. Nothing is shrunk: what the service holds differs from one request to the next."""

    @settings(
        max_examples=times,
        database=None,
        deadline=None,
        derandomize=job.seed is None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def each(case: Case) -> None:
        act(case)

    (each if job.seed is None else seed(job.seed)(each))()
