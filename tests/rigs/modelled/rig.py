"""A run: clients, what disturbs them, and everything read back now and then and from the newest backup."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.rigs.clients import Client
from tests.rigs.clock.skewed import Clock
from tests.rigs.judging import judge
from tests.rigs.ledger import Cut, Ledger
from tests.rigs.modelled.keeping import Keeper
from tests.rigs.report import Tally, prefixed
from tests.rigs.server import Server, Variant
from tests.rigs.working import working
from tests.rigs.world import SHARED, XHTML, Plain, url

HEADINGS = (
    *("requests", "writes", "outcomes unknown at first", "workers killed", "services killed", "commands killed"),
    *("commands", "clock jumps", "states read back", "older revisions", "backups restored"),
)
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


def run(plan: Plan, directory: Path) -> Tally:
    directory.mkdir(parents=True, exist_ok=True)
    tally, ledger, rng = Tally(plan.name, HEADINGS), Ledger(), random.Random(plan.seed)
    clock = Clock(directory / "clock") if plan.clock_jumps else None
    shifted = clock.environment if clock is not None else {}
    variant = replace(plan.variant, environment={**plan.variant.environment, **shifted})

    def jump() -> None:
        clock.set(rng.uniform(-_FURTHEST, _FURTHEST))
        tally["clock jumps"] += 1

    with closing(Server(directory / "service", variant)) as server:
        clients = [Client(lambda: server.service, ledger, number, plan.seed) for number in range(plan.clients)]
        keeper = Keeper(server, ledger, directory, random.Random(plan.seed))
        _prepare(server, keeper, clients)
        disturbing = (
            (lambda: server.kill_worker(rng), plan.worker_kills),
            (server.kill, plan.service_kills),
            (keeper.run_next, plan.commands),
            (jump, plan.clock_jumps),
        )
        for left in reversed(range(plan.stretches)):
            with working([client.act for client in clients], disturbing, plan.seed) as over:
                over.wait(plan.seconds / plan.stretches)
            if clock is not None:
                clock.set(0)
            _look_back(server, keeper, ledger, tally, is_last=left == 0)
    for source in (*clients, keeper):
        tally.violations += source.violations
    tally["requests"] = sum(client.line.asked.total() for client in clients)
    tally["outcomes unknown at first"] = sum(client.line.unknown for client in clients)
    tally["writes"], tally["commands"] = ledger.writes, keeper.done.total()
    tally.counts += server.kills + keeper.kills
    return tally.ended()


def _prepare(server: Server, keeper: Keeper, clients: list[Client]) -> None:
    """Make an encryption key, and publish the forms."""
    keeper.run("encryption-key", "new")
    for form, body in SHARED.items():
        headers = {"Content-Type": XHTML, "Svc-Form-Definition-Version": "1"}
        answer = server.service.raw("PUT", url(f"{form}/form/form.xhtml"), headers, body)
        assert answer.status == 201, answer.cause
    for client in clients:
        client.begin()


def _look_back(server: Server, keeper: Keeper, ledger: Ledger, tally: Tally, *, is_last: bool) -> None:
    """Compare everything with the model while nothing else is under way: the service, the tree, a backup.

    What kills have left is repaired first; damage is none of it. After the last stretch the judge also writes, and
    the newest backup is one that nothing disturbed.
    """
    keeper.settle()
    if is_last:
        keeper.back_up()
    now = ledger.tick()
    verdict = judge(Plain(server.service), server.data, ledger.at(Cut(now, now)), is_written=is_last)
    tally.violations += verdict.violations
    restored = keeper.restored()
    tally["backups restored"] += restored is not None
    for each in filter(None, (verdict, restored)):
        tally["states read back"] += each.states
        tally["older revisions"] += each.older
    tally.violations += prefixed("restored", restored.violations) if restored else []
