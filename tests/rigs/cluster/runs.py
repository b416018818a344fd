"""One run: a cluster, its load, its torment, and the judgement of what is left."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.orders import definition
from tests.rigs.cluster import faults, load
from tests.rigs.cluster.database import Database
from tests.rigs.cluster.instances import Balancer, Instance
from tests.rigs.ledger import FORM
from tests.rigs.linear import client
from tests.rigs.linear.checker import Operation
from tests.rigs.linear.client import Record
from tests.rigs.linear.runs import JUDGED, count, judge, performed
from tests.rigs.report import Tally
from tests.rigs.server import Variant, weak
from tests.rigs.weakened import UNCONDITIONAL

ASYNCHRONOUS = "asynchronous replication"
"""A protection that the database lacks, not the service."""

LOST = "lost"
_HEADINGS = (faults.PRIMARY, faults.INSTANCE, faults.CUT, "acknowledged writes", LOST, *JUDGED)
# Histories of concurrent requests to few documents through both instances, for ``tests.rigs.linear``.

_CLIENTS = 8
_BEFORE, _AFTER = 3.0, 3.0
_CYCLE = 36.0
"""Seconds that a killed primary and a killed instance take about, for spreading the histories over a run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How often what is done; ``weakness`` names a protection that is missing."""

    name: str
    kills: int
    cuts: int
    operations: int
    weakness: str = ""
    kills_instances: bool = True


@dataclass(slots=True)
class Outcome:
    plan: Plan
    tally: Tally
    means: str = ""
    copied: int = 0
    """Nodes that did not follow of themselves, and were copied again."""

    interruptions: list[faults.Interruption] = field(default_factory=list)
    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)


def run(plan: Plan, directory: Path, say: Callable[[str], None]) -> Outcome:
    outcome = Outcome(plan, Tally(plan.name, _HEADINGS))
    with _cluster(plan, directory) as cluster:
        say(f"{plan.name}: started in {outcome.tally.seconds + time.monotonic():.0f} s")
        outcome.means = cluster.database.network.means
        load.service_at(cluster.balancer.port).publish(FORM, definition(), Form_Definition_Version="1")
        tormentor = faults.Tormentor(cluster.database, cluster.instances, cluster.balancer, say)
        seen, records, end = _loaded(plan, cluster, tormentor, directory / "over")
        say(f"{sum(len(client.acknowledged) for client in seen)} writes were acknowledged; reading them all")
        _judge(outcome, cluster, seen, records)
    times = [at for client in seen for at in client.times]
    unanswered = [at for client in seen for at in client.unanswered]
    outcome.interruptions = faults.interruptions(tormentor.faults, times, unanswered, end)
    outcome.tally.counts += Counter(each.kind for each in tormentor.faults)
    outcome.tally.violations += faults.too_long(outcome.interruptions)
    outcome.copied = tormentor.copied
    outcome.tally.ended()
    return outcome


@dataclass(frozen=True, slots=True)
class _Cluster:
    database: Database
    instances: tuple[Instance, Instance]
    balancer: Balancer


@contextmanager
def _cluster(plan: Plan, directory: Path) -> Iterator[_Cluster]:
    directory.mkdir()
    with ExitStack() as stack:
        database = Database(directory, is_synchronous=plan.weakness != ASYNCHRONOUS)
        stack.callback(database.close)
        database.start()
        variant = weak(UNCONDITIONAL) if plan.weakness == UNCONDITIONAL else Variant()
        first, second = (Instance(name, directory, database.uri, variant) for name in ("first", "second"))
        for instance in (first, second):
            stack.callback(instance.kill)
            instance.start()
            instance.await_ready()
        balancer = Balancer(first, second, directory)
        stack.callback(balancer.close)
        yield _Cluster(database, (first, second), balancer)


def _loaded(
    plan: Plan, cluster: _Cluster, tormentor: faults.Tormentor, over: Path
) -> tuple[list[load.Seen], list[Record], float]:
    port, seconds = cluster.balancer.port, plan.kills * _CYCLE
    with (
        ProcessPoolExecutor(_CLIENTS, mp_context=multiprocessing.get_context("spawn")) as pool,
        ThreadPoolExecutor(1) as beside,
    ):
        clients = [pool.submit(load.run, port, number, over) for number in range(_CLIENTS)]
        history: Future[list[Record]] = beside.submit(perform_all, port, plan.operations, seconds, 1)
        try:
            time.sleep(_BEFORE)
            tormentor.torment(plan.kills, plan.cuts, kills_instances=plan.kills_instances)
            records = history.result()
            time.sleep(_AFTER)
        finally:
            end = time.monotonic()
            over.touch()
        return [client.result() for client in clients], records, end


def _judge(outcome: Outcome, cluster: _Cluster, seen: list[load.Seen], records: list[Record]) -> None:
    ports, tally = [instance.port for instance in cluster.instances], outcome.tally
    tally["acknowledged writes"] = sum(len(client.acknowledged) for client in seen)
    tally["unknown outcomes"] = sum(client.unknown for client in seen)
    outcome.statuses = sum((client.statuses for client in seen), Counter[tuple[str, str]]())
    lost = load.lost(ports, seen)
    tally[LOST] = len(lost)
    tally.violations += [*lost, *(fault for client in seen for fault in client.faults), *load.miscounted(ports, seen)]
    last = read_all(cluster.balancer.port, outcome.plan.operations)
    judge_all(tally, records, last, outcome.plan.operations)


_HISTORIANS = 4
_OF_A_ROUND = 10
_TOGETHER = 4
"""Documents that take turns."""

_ROUNDS_OF_EACH = 5
_OUTAGE = 60.0
_MOST_TRIED = 1_000_000
_OPERATIONS_OF_EACH = _HISTORIANS * _OF_A_ROUND * _ROUNDS_OF_EACH


def rounds(operations: int) -> list[str]:
    """The document of each round, for so many operations in all: a few documents take turns, then the next few."""
    number = max(1, operations // _OPERATIONS_OF_EACH)
    documents = [f"linear-{each}" for each in range(number)]
    groups = [documents[at : at + _TOGETHER] for at in range(0, number, _TOGETHER)]
    return [document for group in groups for _ in range(_ROUNDS_OF_EACH) for document in group]


def perform_all(port: int, operations: int, seconds: float, seed: int) -> list[Record]:
    named = rounds(operations)
    own = {"pause": seconds / len(named), "outage": _OUTAGE}
    return performed(
        [client.Plan(port, number, named, _OF_A_ROUND, seed * 1000 + number, **own) for number in range(_HISTORIANS)]
    )


def read_all(port: int, operations: int) -> Record:
    """Read each document once more, long after: what a later failure has taken back is found out."""
    documents = list(dict.fromkeys(rounds(operations)))
    (record,) = performed([client.Plan(port, 0, documents, 0, 0, outage=_OUTAGE)])
    return record


def judge_all(tally: Tally, records: Sequence[Record], last: Record, operations: int) -> None:
    """Check the whole history of each document.

    It is not cut into rounds: what was cut off in one may take effect in a later one, in a database that goes on.
    """
    named = rounds(operations)
    histories: dict[str, list[Operation]] = {document: [] for document in named}
    for number, document in enumerate(named):
        histories[document] += [operation for record in records for operation in record.rounds[number]]
    for document, found in zip(histories, last.rounds, strict=True):
        histories[document] += found
    count(tally, [*records, last], histories.values())
    for document, history in histories.items():
        judge(tally, document, history, most=_MOST_TRIED)
