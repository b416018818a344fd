"""Runs: clients, what disturbs them, and everything read back now and then and from the newest backup."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tests.postgresql import server as postgresql
from tests.rigs.clients import SHARED, XHTML, Client, Plain, url
from tests.rigs.clock import skewed
from tests.rigs.disks import WHOLE_SECONDS, mounted, refusal
from tests.rigs.judging import Verdict, judge
from tests.rigs.ledger import Cut, Ledger
from tests.rigs.modelled.removing import DATABASE, SPLIT, TREE, remove
from tests.rigs.report import Report, Tally, prefixed
from tests.rigs.server import Server, Variant, kill_early, weak, working
from tests.rigs.weakened import OF_ANSWERS, OF_REMOVALS, TRUSTING
from tests.service import Service, alone

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
    beside: Callable[[Service], Callable[[], object]] | None = None
    """What is done over and over, without a pause."""
    client: type[Client] = Client
    documents: int = 0
    """Of the form of all, and changed by nobody."""


_WHOLE = Plan("everything", 40.0, stretches=2)
_WEAK = Plan("weakened", 6.0, worker_kills=None, service_kills=None, commands=None)


def long_run(report: Report, directory: Path) -> None:
    """Compare all answers with the model: also with whole seconds, a clock that jumps, and without a protection.

    At last clients remove for good and bring back, in trees and a database.
    """
    report.add(run(_WHOLE, directory / "whole"))
    if reason := skewed.refusal():
        report.leave_out(f"clock jumps: {reason}")
    else:
        report.add(run(replace(_WHOLE, name="clock jumps", clock_jumps=(0.5, 3.0), seed=2), directory / "jumping"))
    _with_whole_seconds(report, directory, partial(run, replace(_WHOLE, name="whole seconds", seed=3)))
    for name in OF_ANSWERS:
        if name != TRUSTING or skewed.refusal() is None:
            jumps = (0.2, 0.6) if name == TRUSTING else None
            weakened = replace(_WEAK, name=f"weakened: {name}", variant=weak(name), clock_jumps=jumps)
            report.add(run(weakened, directory / name.replace(" ", "-")), is_planted=True)
    seconds = _WHOLE.seconds / 2
    for kind in (TREE, SPLIT):
        report.add(remove(kind, directory / kind, seconds))
    if postgresql.MISSING:
        report.leave_out(f"{DATABASE}: {postgresql.MISSING}")
    else:
        server = postgresql.start(postgresql.new_place())
        try:
            postgresql.make_database(server)
            uri = postgresql.prepared(server.uri(postgresql.fresh_schema()))
            report.add(remove(DATABASE, directory / DATABASE, seconds, uri=uri))
        finally:
            server.stop()
    _with_whole_seconds(report, directory, partial(remove, SPLIT, seconds=seconds))
    for name in OF_REMOVALS:
        for trial in (1, 2, 3):  # a slow machine makes so few requests in a round that none may need the protection
            removed = remove(TREE, directory / f"{name} {trial}", seconds, seed=trial, variant=weak(name))
            if removed.violations:
                break
        removed.name = f"weakened: {name}"
        report.add(removed, is_planted=True)


def _with_whole_seconds(report: Report, directory: Path, tried: Callable[[Path], Tally]) -> None:
    with tempfile.TemporaryDirectory(dir=directory) as name:
        if reason := refusal(WHOLE_SECONDS, Path(name)):
            report.leave_out(f"whole seconds: {reason}")
            return
        with mounted(WHOLE_SECONDS, Path(name)) as made:
            report.add(tried(made / "run"))


def run(plan: Plan, directory: Path) -> Tally:
    directory.mkdir(parents=True, exist_ok=True)
    tally, ledger, rng = Tally(plan.name, HEADINGS), Ledger(), random.Random(plan.seed)
    clock = skewed.Clock(directory / "clock") if plan.clock_jumps else None
    shifted = clock.environment if clock is not None else {}
    variant = replace(plan.variant, environment={**plan.variant.environment, **shifted})

    def jump() -> None:
        clock.set(rng.uniform(-_FURTHEST, _FURTHEST))
        tally["clock jumps"] += 1

    with closing(Server(directory / "service", variant)) as server:
        clients = [plan.client(lambda: server.service, ledger, number, plan.seed) for number in range(plan.clients)]
        keeper = Keeper(server, ledger, directory, random.Random(plan.seed))
        _prepare(server, keeper, clients)
        if plan.documents:
            Client(lambda: server.service, ledger, plan.clients).store(plan.documents)
        disturbing = (
            (lambda: server.kill_worker(rng), plan.worker_kills),
            (server.kill, plan.service_kills),
            (keeper.run_next, plan.commands),
            (jump, plan.clock_jumps),
            *([(plan.beside(server.service), (0.0, 0.0))] if plan.beside else []),
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


# The commands beside the clients: run, killed now and then, and their backups restored and compared.

_BESIDE = (
    ("check", "--json"),
    ("backup",),
    ("check", "--repair", "--json"),
    ("encryption-key", "new"),
    ("reencrypt",),
    ("backup",),
    ("reindex",),
)
"""In turn; one of so many is killed, and none of two in a row."""
_KILL_EVERY = 4
_LONGEST = 300.0
_LATEST_KILL = 1.5
_DONE, _ALL_REPAIRED, _FINDINGS_LEFT = 0, 3, 4
_STATUSES = {"check": {_DONE, _ALL_REPAIRED, _FINDINGS_LEFT}}
_BACKUPS = "backups"


class Keeper:
    def __init__(self, server: Server, ledger: Ledger, directory: Path, rng: random.Random) -> None:
        self.violations: list[str] = []
        self.done: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self._server = server
        self._ledger = ledger
        self._directory = directory
        self._rng = rng
        self._turn = 0
        self._last: Cut | None = None

    def run_next(self) -> None:
        command = _BESIDE[self._turn % len(_BESIDE)]
        self._turn += 1
        if self._turn % _KILL_EVERY == 0:
            if command == ("backup",):
                command = ("backup", str(self._directory / _BACKUPS))
            self.kills["commands killed"] += kill_early(self._started(command), self._rng, _LATEST_KILL)
        elif command == ("backup",):
            self.back_up()
        else:
            self.run(*command)

    def run(self, *command: str) -> str:
        process = self._started(command)
        try:
            said, errors = process.communicate(timeout=_LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.violations.append(f"{' '.join(command)} does not end in {_LONGEST:g} seconds")
            return ""
        self.done[command[0]] += 1
        name = " ".join(command)
        if process.returncode not in _STATUSES.get(command[0], {_DONE}):
            self.violations.append(f"{name} ends with {process.returncode}: {' '.join((said + errors).split())[-600:]}")
        if "--json" in command:
            self.violations += [
                f"{name}: {each['path']}: {each['kind']}: {each['what']} ({each['outcome']})"
                for each in _findings(said)
                if each["severity"] == "damage" or each["outcome"] == "failed"
            ]
        return said + errors

    def settle(self) -> None:
        """Repair what kills have left; nothing is found afterwards, whatever is read."""
        self.run("check", "--repair", "--json")
        for each in _findings(self.run("check", "--deep", "--json")):
            if each["severity"] != "notice":
                self.violations.append(f"after its repair: {each['path']}: {each['kind']}: {each['what']}")

    def back_up(self) -> None:
        began = self._ledger.tick()
        self.run("backup", str(self._directory / _BACKUPS))
        self._last = Cut(began, self._ledger.tick())

    def restored(self) -> Verdict | None:
        """The newest backup restored into an empty directory, served, and compared; ``None`` where there is none.

        Restored from the directory of all backups: which one is the newest is for the command to know.
        """
        if self._last is None:
            return None
        home = self._directory / "restored"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        if (keys := self._server.directory / "var").is_dir():
            shutil.copytree(keys, home / "var")
        command = ("restore", str(self._directory / _BACKUPS))
        variant = self._server.variant
        done = variant.start(*command, "--data", str(home / "data"), directory=home)
        _, errors = done.communicate()
        self.done["restore"] += 1
        if done.returncode != _DONE:
            return Verdict([f"restore ends with {done.returncode}: {' '.join(errors.split())[-600:]}"])
        with alone(home, workers=1, module=variant.module, env=variant.environment) as service:
            return judge(Plain(service), service.data, self._ledger.at(self._last))

    def _started(self, command: tuple[str, ...]) -> subprocess.Popen[str]:
        server = self._server
        return server.variant.start(*command, "--data", str(server.data), directory=server.directory)


def _findings(said: str) -> list[dict[str, str]]:
    lines = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    return [line for line in lines if "severity" in line]
