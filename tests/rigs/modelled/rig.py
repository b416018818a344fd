"""A run: clients, what disturbs them, and everything read back now and then and from the newest backup."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.rigs.clients import Client
from tests.rigs.clock.skewed import Clock
from tests.rigs.judging import judge
from tests.rigs.ledger import Cut, Ledger
from tests.rigs.modelled.keeping import Keeper
from tests.rigs.server import Server, Variant
from tests.rigs.world import SHARED, XHTML, Plain, url

_FURTHEST = 3 * 3600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long clients work, in so many stretches with everything read back after each, and what happens meanwhile.

    Pauses are the shortest and the longest in seconds; ``None`` where it does not happen.
    """

    name: str
    seconds: float
    stretches: int = 1
    clients: int = 4
    seed: int = 1
    variant: Variant = field(default_factory=Variant)
    worker_kills: tuple[float, float] | None = (0.4, 1.5)
    service_kills: tuple[float, float] | None = (6.0, 12.0)
    commands: tuple[float, float] | None = (0.1, 1.0)
    clock_jumps: tuple[float, float] | None = None


@dataclass(slots=True)
class Outcome:
    plan: Plan
    requests: int = 0
    writes: int = 0
    unknown: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    jumps: int = 0
    states: int = 0
    older: int = 0
    restored: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def row(self) -> tuple[object, ...]:
        kills = (self.kills["worker"], self.kills["service"], self.kills["command"])
        return (
            *(self.plan.name, self.requests, self.writes, self.unknown, *kills, self.commands.total(), self.jumps),
            *(self.states, self.older, self.restored, len(self.violations), f"{self.seconds:.0f}"),
        )


HEADINGS = (
    *("run", "requests", "writes", "outcomes unknown at first", "workers killed", "services killed"),
    *("commands killed", "commands", "clock jumps", "states read back", "older revisions", "backups restored"),
    *("violations", "seconds"),
)


def run(plan: Plan, directory: Path, say: Callable[[str], None] = lambda _: None) -> Outcome:
    began, rig = time.monotonic(), _Rig(plan, directory)
    try:
        rig.prepare()
        for number in range(1, plan.stretches + 1):
            rig.stretch(plan.seconds / plan.stretches)
            rig.look_back(is_last=number == plan.stretches)
            say(f"  {plan.name}: {number} of {plan.stretches}, {len(rig.outcome.violations)} violations")
    finally:
        rig.close()
    outcome = rig.outcome
    outcome.seconds = time.monotonic() - began
    return outcome


class _Rig:
    def __init__(self, plan: Plan, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.outcome = Outcome(plan)
        self._plan = plan
        self._clock = Clock(directory / "clock") if plan.clock_jumps else None
        clock = self._clock.environment if self._clock is not None else {}
        variant = replace(plan.variant, environment={**plan.variant.environment, **clock})
        self._ledger = Ledger()
        self._rng = random.Random(plan.seed)
        self._over = threading.Event()
        self._server = Server(directory / "service", variant)
        self._clients = [
            Client(lambda: self._server.service, self._ledger, number, plan.seed) for number in range(plan.clients)
        ]
        self._keeper = Keeper(self._server, self._ledger, directory, random.Random(plan.seed))

    def close(self) -> None:
        self._over.set()
        self._server.close()

    def prepare(self) -> None:
        """Make an encryption key, and publish the forms."""
        self._keeper.run("encryption-key", "new")
        for form, body in SHARED.items():
            headers = {"Content-Type": XHTML, "Svc-Form-Definition-Version": "1"}
            answer = self._server.service.raw("PUT", url(f"{form}/form/form.xhtml"), headers, body)
            assert answer.status == 201, answer.cause
        for client in self._clients:
            client.begin()

    def stretch(self, seconds: float) -> None:
        """Let clients work for so long, with everything that disturbs them."""
        self._over.clear()
        plan = self._plan
        disturbing: tuple[tuple[Callable[[], None], tuple[float, float] | None], ...] = (
            (lambda: self._server.kill_worker(self._rng), plan.worker_kills),
            (self._server.kill, plan.service_kills),
            (self._keeper.run_next, plan.commands),
            (self._jump, plan.clock_jumps),
        )
        with ThreadPoolExecutor(len(self._clients) + len(disturbing)) as threads:
            running = [threads.submit(self._work, client) for client in self._clients]
            running += [
                threads.submit(self._now_and_then, act, pauses, random.Random(f"{plan.seed} {number}"))
                for number, (act, pauses) in enumerate(disturbing)
                if pauses is not None
            ]
            self._over.wait(seconds)
            self._over.set()
            for each in running:
                each.result()

    def look_back(self, *, is_last: bool) -> None:
        """Compare everything with the model while nothing else is under way: the service, the tree, a backup.

        What kills have left is repaired first; damage is none of it. After the last stretch the judge also writes, and
        the newest backup is one that nothing disturbed.
        """
        if self._clock is not None:
            self._clock.set(0)
        self._keeper.settle()
        if is_last:
            self._keeper.back_up()
        now = self._ledger.tick()
        expected = self._ledger.at(Cut(now, now))
        verdicts = [("", judge(Plain(self._server.service), self._server.data, expected, is_written=is_last))]
        restored = self._keeper.restored()
        self.outcome.restored += restored is not None
        verdicts += [("restored: ", restored)] if restored is not None else []
        for prefix, verdict in verdicts:
            self.outcome.states += verdict.states
            self.outcome.older += verdict.older
            self.outcome.violations += [f"{prefix}{each}" for each in verdict.violations]
        self._collect()

    def _collect(self) -> None:
        outcome = self.outcome
        for source in (*self._clients, self._keeper):
            outcome.violations += source.violations
            source.violations.clear()
        outcome.requests = sum(client.line.asked.total() for client in self._clients)
        outcome.unknown = sum(client.line.unknown for client in self._clients)
        outcome.writes = self._ledger.writes
        outcome.commands = self._keeper.done
        outcome.kills = self._server.kills + self._keeper.kills

    def _work(self, client: Client) -> None:
        while not self._over.is_set():
            client.act()

    def _now_and_then(self, act: Callable[[], None], pauses: tuple[float, float], rng: random.Random) -> None:
        while not self._over.wait(rng.uniform(*pauses)):
            act()

    def _jump(self) -> None:
        self._clock.set(self._rng.uniform(-_FURTHEST, _FURTHEST))
        self.outcome.jumps += 1
