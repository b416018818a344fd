"""One run: a cluster, its load, its torment, and the judgement of what is left."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.rigs import weakened
from tests.rigs.cluster import aftermath, faults, histories, load
from tests.rigs.cluster.database import Database
from tests.rigs.cluster.instances import Balancer, Instance
from tests.rigs.linear.client import Record
from tests.rigs.weakened import UNCONDITIONAL

ASYNCHRONOUS = "asynchronous replication"
"""A protection that the database lacks, not the service."""

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
class Report:
    plan: Plan
    means: str = ""
    copied: int = 0
    """Nodes that did not follow of themselves, and were copied again."""

    interruptions: list[faults.Interruption] = field(default_factory=list)
    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    acknowledged: int = 0
    unknown: int = 0
    lost: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    judgement: histories.Judgement = field(default_factory=histories.Judgement)
    seconds: float = 0.0

    @property
    def violations(self) -> list[str]:
        """Everything that must not be."""
        judged = self.judgement
        slow = [
            f"{each.seconds:.1f} s without an acknowledged write after: {each.fault.kind}, {each.fault.which}"
            for each in self.interruptions
            if each.seconds > faults.MOST_SECONDS
        ]
        cut = [
            f"{each.unanswered} requests were not answered while {each.fault.which} was restarted"
            for each in self.interruptions
            if each.fault.kind == faults.RESTARTED and each.unanswered
        ]
        return [*cut, *self.lost, *self.faults, *judged.not_linear, *judged.undecided, *judged.faults, *slow]


def run(plan: Plan, directory: Path, say: Callable[[str], None]) -> Report:
    began = time.monotonic()
    report = Report(plan)
    with _cluster(plan, directory) as cluster:
        say(f"{plan.name}: started in {time.monotonic() - began:.0f} s")
        report.means = cluster.database.network.means
        load.publish(cluster.balancer.port)
        tormentor = faults.Tormentor(cluster.database, cluster.instances, cluster.balancer, say)
        seen, records, end = _loaded(plan, cluster, tormentor, directory / "over")
        say(f"{sum(len(client.acknowledged) for client in seen)} writes were acknowledged; reading them all")
        _judge(report, cluster, seen, records)
    times = [at for client in seen for at in client.times]
    unanswered = [at for client in seen for at in client.unanswered]
    report.interruptions = faults.interruptions(tormentor.faults, times, unanswered, end)
    report.copied = tormentor.copied
    report.seconds = time.monotonic() - began
    return report


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
        module, environment = "persistence.cli", dict[str, str]()
        if plan.weakness == UNCONDITIONAL:
            module, environment = weakened.__name__, weakened.environment(UNCONDITIONAL)
        first, second = (
            Instance(name, directory, database.uri, module=module, environment=environment)
            for name in ("first", "second")
        )
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
    """Put the load on it while it is tormented: what the clients saw, the histories, and when the load ended."""
    port, seconds = cluster.balancer.port, plan.kills * _CYCLE
    with (
        ProcessPoolExecutor(_CLIENTS, mp_context=multiprocessing.get_context("spawn")) as pool,
        ThreadPoolExecutor(1) as beside,
    ):
        clients = [pool.submit(load.run, port, number, over) for number in range(_CLIENTS)]
        history: Future[list[Record]] = beside.submit(histories.perform_all, port, plan.operations, seconds, 1)
        try:
            time.sleep(_BEFORE)
            tormentor.torment(plan.kills, plan.cuts, kills_instances=plan.kills_instances)
            records = history.result()
            time.sleep(_AFTER)
        finally:
            end = time.monotonic()
            over.touch()
        return [client.result() for client in clients], records, end


def _judge(report: Report, cluster: _Cluster, seen: list[load.Seen], records: list[Record]) -> None:
    ports = [instance.port for instance in cluster.instances]
    operations = report.plan.operations
    report.acknowledged = sum(len(client.acknowledged) for client in seen)
    report.unknown = sum(client.unknown for client in seen)
    report.statuses = sum((client.statuses for client in seen), Counter[tuple[str, str]]())
    report.lost = aftermath.lost(ports, seen)
    report.faults = [fault for client in seen for fault in client.faults] + aftermath.miscounted(ports, seen)
    last = histories.read_all(cluster.balancer.port, operations)
    report.judgement = histories.judge(records, last, operations)
