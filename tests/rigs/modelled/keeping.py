"""The commands beside the clients: run, killed now and then, and their backups restored and compared."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from tests.rigs.judging import Verdict, judge
from tests.rigs.ledger import Cut, Ledger
from tests.rigs.server import Server, kill_early
from tests.rigs.world import Plain
from tests.service import alone

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
        """Run a command to its end, judge what it said, and return that."""
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
