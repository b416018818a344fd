"""Runs of clients that remove for good, in a tree, with attachments in a directory of their own, and in a database."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.rigs.modelled.removing import RETENTION, Remover
from tests.rigs.server import Server, Variant

TREE, SPLIT, DATABASE = "tree", "attachments apart", "database"
_APART = '"svc.persistence.provider.*.*.data.attachments" = "big"\n"svc.persistence.big.base-path" = "{}"\n'
_PAUSES = 0.4, 1.5
_CLIENTS = 2


@dataclass(slots=True)
class Removals:
    done: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def row(self) -> tuple[object, ...]:
        return (
            *(self.done[name] for name in REMOVAL_HEADINGS[1:7]),
            *(self.kills["worker"], self.kills["command"], len(self.violations)),
        )


REMOVAL_HEADINGS = (
    *("run", "save", "revert", "purge_revisions", "purge_tombstones", "retain", "erase"),
    *("workers killed", "commands killed", "violations"),
)


def remove(
    kind: str, directory: Path, seconds: float, *, seed: int = 1, uri: str = "", variant: Variant | None = None
) -> Removals:
    """Let clients work for some seconds, while workers are killed; a database is at ``uri``."""
    home = directory / "service"
    big, settings = home / "big", [directory / f"{name}.toml" for name in ("service", "commands")]
    big.mkdir(parents=True)
    for file, own in zip(settings, ("", RETENTION), strict=True):
        file.write_text(own + (_APART.format(big) if kind == SPLIT else ""))
    place = uri if kind == DATABASE else str(home / "data")
    roots = () if kind == DATABASE else (home / "data", big)
    options = "--data", place, "--config"
    weak = variant or Variant()
    started = replace(weak, options=(*options, str(settings[0])))
    outcome, over, rng = Removals(), threading.Event(), random.Random(seed)
    server = Server(home, started)
    try:
        removers = [Remover(server, (*options, str(settings[1])), roots, number, seed) for number in range(_CLIENTS)]

        def work(remover: Remover) -> None:
            while not over.is_set():
                remover.act()

        with ThreadPoolExecutor(_CLIENTS) as threads:
            running = [threads.submit(work, remover) for remover in removers]
            timer = threading.Timer(seconds, over.set)
            timer.start()
            while not over.wait(rng.uniform(*_PAUSES)):
                server.kill_worker(rng)
            timer.cancel()
            for each in running:
                each.result()
        for remover in removers:
            remover.look_back()
            outcome.violations += remover.violations
            outcome.done += remover.done
            outcome.kills["command"] += remover.kills
        outcome.kills["worker"] = server.kills["worker"]
    finally:
        over.set()
        server.close()
    return outcome
