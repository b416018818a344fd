"""A cluster, its load, its torment, and the judgement of what is left.

With ``CLUSTER_OPTIONS=--short`` in the environment the primary is killed twice and cut off once, in some minutes.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click

from tests.orders import definition
from tests.rigs import judging
from tests.rigs.cluster.database import Database, enter, missing
from tests.rigs.cluster.instances import BalancedClient, Balancer, Instance, service_at
from tests.rigs.ledger import FORM, Cut, Ledger
from tests.rigs.linear import runs as linear
from tests.rigs.linear.checker import Operation
from tests.rigs.linear.runs import JUDGED, NOT_LINEAR, Record, count, judge, performed
from tests.rigs.report import Report, Tally
from tests.rigs.server import Variant, weak, working
from tests.rigs.weakened import UNCONDITIONAL
from tests.table import table

# Primaries and instances are killed, and a node is cut off, one after the other.

PRIMARY, INSTANCE, CUT = "primary killed", "instance killed", "primary cut off"
RESTARTED = "instance restarted"
KINDS = (PRIMARY, INSTANCE, CUT, RESTARTED)
MOST_SECONDS = 30.0
"""Without an acknowledged write, after each."""

_WHOLE = 240.0
_ELECTED = 90.0
_CUT_SECONDS = 30.0
_LAG = 1.0
_QUIET = 3.0


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    which: str
    at: float


@dataclass(frozen=True, slots=True)
class Interruption:
    """The longest time without an acknowledged write from a fault until the next one, and the requests not answered.

    These are cut connections, and answers that do not say what happened: 502, 503 and 504.
    """

    fault: Fault
    seconds: float
    unanswered: int


class Tormentor:
    def __init__(self, database: Database, instances: Sequence[Instance], balancer: Balancer) -> None:
        self.faults: list[Fault] = []
        self.copied = 0
        self._database = database
        self._instances = instances
        self._balancer = balancer
        self._chance = random.Random(1)

    def torment(self, kills: int, cuts: int, *, kills_instances: bool) -> None:
        """Kill the primary so often, each time followed by an instance, and cut it off in between.

        At the end each instance is restarted, as for an upgrade.
        """
        cut_after = {round((number + 1) * kills / (cuts + 1)) for number in range(cuts)}
        for number in range(1, kills + 1):
            self.kill_primary(number)
            if kills_instances:
                self.kill_instance(number)
            if number in cut_after:
                self.cut_primary()
        self._await_whole()
        for instance in self._instances if kills_instances else ():
            self.restart_instance(instance)

    def _await_whole(self) -> None:
        for name in self._database.await_whole(_WHOLE):
            click.echo(f"{name} did not follow of itself, and was copied again")
            self.copied += 1

    def kill_primary(self, number: int) -> None:
        """Kill the primary, every other time after a moment in which it sent nothing; start it as a follower."""
        leader = self._primary()
        if number % 2:
            self._database.hold_back(leader)
            time.sleep(_LAG)
        self._note(PRIMARY, f"node{leader}{', its followers a second behind' if number % 2 else ''}")
        self._database.kill(leader)
        self._await_other(leader)
        self._database.restart(leader)

    def kill_instance(self, number: int) -> None:
        instance = self._instances[number % len(self._instances)]
        for each in self._instances:
            each.await_ready()
        time.sleep(self._chance.uniform(1, 3))
        self._note(INSTANCE, instance.name)
        instance.kill()
        time.sleep(self._chance.uniform(0, 2))
        instance.start()
        instance.await_ready()

    def restart_instance(self, instance: Instance) -> None:
        """Stop an instance as an administrator does, and start it again, while the other one goes on."""
        for each in self._instances:
            each.await_ready()
        time.sleep(_QUIET)
        self._note(RESTARTED, instance.name)
        self._balancer.take_out(instance)
        instance.kill(signal.SIGTERM)
        instance.start()
        instance.await_ready()
        self._balancer.put_back(instance)
        time.sleep(_QUIET)

    def cut_primary(self) -> None:
        """Cut the primary off for a while that is long enough for another one; it must then give way."""
        leader = self._primary()
        self._note(CUT, f"node{leader}")
        began = time.monotonic()
        self._database.network.cut(leader)
        self._await_other(leader)
        time.sleep(max(0.0, began + _CUT_SECONDS - time.monotonic()))
        self._database.network.heal(leader)

    def _primary(self) -> int:
        self._await_whole()
        time.sleep(self._chance.uniform(1, 4))
        leader = self._database.leader()
        if leader is None:
            raise TimeoutError("there is no primary, and nobody has killed it")
        return leader

    def _await_other(self, former: int) -> None:
        deadline = time.monotonic() + _ELECTED
        while self._database.leader() in (None, former):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no primary {_ELECTED:g} s after node{former}: {self._database.members()}")
            time.sleep(0.5)

    def _note(self, kind: str, which: str) -> None:
        click.echo(f"{kind}: {which}")
        self.faults.append(Fault(kind, which, time.monotonic()))


def interruptions(
    faults: Sequence[Fault], acknowledged: Sequence[float], unanswered: Sequence[float], end: float
) -> list[Interruption]:
    """Return the interruption by each fault: the longest time without an acknowledgement, and unanswered requests."""
    times = sorted(acknowledged)
    ends = [*(fault.at for fault in faults[1:]), end]
    return [
        Interruption(fault, _longest(times, fault.at, until), sum(fault.at < at <= until for at in unanswered))
        for fault, until in zip(faults, ends, strict=True)
    ]


def too_long(found: Sequence[Interruption]) -> Iterator[str]:
    for each in found:
        if each.seconds > MOST_SECONDS:
            yield f"{each.seconds:.1f} s without an acknowledged write after: {each.fault.kind}, {each.fault.which}"
        if each.fault.kind == RESTARTED and each.unanswered:
            yield f"{each.unanswered} requests were not answered while {each.fault.which} was restarted"


def _longest(times: Sequence[float], began: float, end: float) -> float:
    first, last = bisect_right(times, began), bisect_right(times, end)
    return max(later - earlier for earlier, later in pairwise([began, *times[first:last], end]))


def summary(found: Sequence[Interruption]) -> Iterator[tuple[object, ...]]:
    """A row for each kind: how often, the shortest, median and longest interruption in seconds, and the unanswered."""
    for kind in KINDS:
        those = [each for each in found if each.fault.kind == kind]
        if those:
            seconds = [each.seconds for each in those]
            three = (min(seconds), statistics.median(seconds), max(seconds))
            yield kind, len(those), *(f"{each:.1f}" for each in three), sum(each.unanswered for each in those)


# A cluster, its load, its torment, and the judgement of what is left.

ASYNCHRONOUS = "asynchronous replication"
"""A protection that the database lacks, not the service."""

LOST = "lost"
"""Violations by what is read back at the end: an acknowledged write that is not there, or not as it was written."""

_WRITES = "acknowledged writes"
_COPIED = "nodes copied again"
"""Those that did not follow of themselves."""

_HEADINGS = (PRIMARY, INSTANCE, CUT, _COPIED, _WRITES, LOST, *JUDGED)
_INTERRUPTIONS = ("fault", "times", "shortest, s", "median, s", "longest, s", "requests cut, 502 or 503")
_EACH = ("fault", "which", "seconds without an acknowledged write", "requests cut, 502 or 503")
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


_LONG, _SHORT = Plan("long", 20, 2, 20_000), Plan("short", 2, 1, 2_000)
_WEAK = {
    Plan(UNCONDITIONAL, 0, 0, 1_000, weakness=UNCONDITIONAL): NOT_LINEAR,
    Plan(ASYNCHRONOUS, 3, 0, 1_000, weakness=ASYNCHRONOUS, kills_instances=False): LOST,
}
"""Runs without a protection, and the heading under which that shows."""


def refusals(_directory: Path) -> list[str]:
    """Return why it is not possible here; where it is, go on in namespaces of its own."""
    if lacking := missing():
        return [f"these packages are missing: {' '.join(lacking)}"]
    return [reason] if (reason := enter()) else []


def long_run(report: Report, directory: Path) -> None:
    is_short = "--short" in os.environ.get("CLUSTER_OPTIONS", "")
    directory.chmod(0o755)
    plan = _SHORT if is_short else _LONG
    report.add(run(plan, directory / plan.name))
    for each, found_as in () if is_short else _WEAK.items():
        report.add(run(each, directory / each.name.replace(" ", "-")), is_planted=True, found_as=found_as)


def run(plan: Plan, directory: Path) -> Tally:
    """Start a cluster, load and torment it, judge what is left of it, and show what each fault did."""
    tally, ledger = Tally(plan.name, _HEADINGS), Ledger()
    with _cluster(plan, directory) as cluster:
        click.echo(f"{plan.name}: started in {tally.seconds + time.monotonic():.0f} s")
        port = cluster.balancer.port
        clients = [BalancedClient(port, ledger, number) for number in range(_CLIENTS)]
        service_at(port).publish(FORM, definition(), Form_Definition_Version="1")
        for client in clients:
            client.begin()
        tormentor = Tormentor(cluster.database, cluster.instances, cluster.balancer)
        records, end = _loaded(plan, clients, tormentor, port)
        click.echo(f"{ledger.writes} writes were acknowledged; reading them all")
        now = ledger.tick()
        # Older definitions are not served: the judge looks for them in a tree, and there is none.
        expected = [each for each in ledger.at(Cut(now, now)) if not each.resource.is_published]
        verdict = judging.judge(service_at(port), directory, expected)
        judge_all(tally, records, read_all(port, plan.operations), plan.operations)
    lines = [client.line for client in clients]
    written, unanswered = (
        [at for line in lines for at in line.written],
        [at for line in lines for at in line.unanswered],
    )
    found = interruptions(tormentor.faults, written, unanswered, end)
    tally.counts += Counter(each.kind for each in tormentor.faults)
    tally.counts += Counter({_COPIED: tormentor.copied, _WRITES: ledger.writes, LOST: len(verdict.violations)})
    tally["unknown outcomes"] += sum(line.unknown for line in lines)
    tally.violations += [*verdict.violations, *(fault for client in clients for fault in client.violations)]
    tally.violations += too_long(found)
    _show(plan, found, sum((line.statuses for line in lines), Counter[tuple[str, str]]()))
    if plan.weakness:
        click.echo("\n".join(tally.violations[:3]))
    return tally.ended()


def _show(plan: Plan, found: list[Interruption], answers: Counter[tuple[str, str]]) -> None:
    click.echo(f"\n## {plan.name}\n")
    if found:
        rows = [(each.fault.kind, each.fault.which, f"{each.seconds:.1f}", each.unanswered) for each in found]
        click.echo(f"{table(_EACH, rows)}\n\n{table(_INTERRUPTIONS, summary(found))}\n")
    statuses, kinds = sorted({status for _, status in answers}), sorted({what for what, _ in answers})
    click.echo(table(("request", *statuses), [(what, *(answers[what, each] for each in statuses)) for what in kinds]))


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
    plan: Plan, clients: Sequence[BalancedClient], tormentor: Tormentor, port: int
) -> tuple[list[Record], float]:
    """Let the clients work while the cluster is tormented; what was recorded besides, and when the work ended."""
    with ThreadPoolExecutor(1) as beside, working([client.act for client in clients]):
        history = beside.submit(perform_all, port, plan.operations, plan.kills * _CYCLE, 1)
        time.sleep(_BEFORE)
        tormentor.torment(plan.kills, plan.cuts, kills_instances=plan.kills_instances)
        records = history.result()
        time.sleep(_AFTER)
        return records, time.monotonic()


# Histories of concurrent requests to few documents through both instances, for ``tests.rigs.linear``.

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
        [linear.Plan(port, number, named, _OF_A_ROUND, seed * 1000 + number, **own) for number in range(_HISTORIANS)]
    )


def read_all(port: int, operations: int) -> Record:
    """Read each document once more, long after: what a later failure has taken back is found out."""
    documents = list(dict.fromkeys(rounds(operations)))
    (record,) = performed([linear.Plan(port, 0, documents, 0, 0, outage=_OUTAGE)])
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
