"""The faults of the cluster: primaries and instances are killed, and a node is cut off, one after the other."""

from __future__ import annotations

import random
import signal
import statistics
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import click

from tests.rigs.cluster.database import Database
from tests.rigs.cluster.instances import Balancer, Instance

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
