"""Processes that lease a few documents for a few users, and are killed; and the judge of what they saw.

The state of a document is its holder. A request is to take effect at one moment between its start and its end; one that
was killed at some moment after its start, or never.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from persistence.errors import LockedError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.versions import LeaseHolder
from persistence.storage.document_leases import DocumentLeases
from persistence.storage.locks import Locks
from tests.rigs.linear.checker import MOST_TRIED, Search, Verdict

PROCESSES = 8
USERS = ("ann", "bob", "cat")
_LONG = 10_000
_KILLED_EVERY = 0.08
_ROUND = 0.25


@dataclass(frozen=True, slots=True)
class Leased:
    """A LOCK or UNLOCK of a user; ``holder`` is that of a refusal. Without an ``end`` its outcome is unknown."""

    document: str
    user: str
    locks: bool
    start: int
    end: int | None = None
    holder: str | None = None

    @staticmethod
    def after(state: str, request: Leased) -> str | None:
        """The holder after it, empty where there is none; ``None`` where its outcome does not fit."""
        if request.holder is not None:
            return state if state == request.holder != request.user else None
        if state not in ("", request.user):
            return state if request.end is None else None
        return request.user if request.locks else ""


def is_linear(history: Sequence[Leased]) -> bool:
    """Whether the history of one document, which nobody holds at first, has an order that fits."""
    return Search(history, Leased.after, effects_vary=True).run("", MOST_TRIED).verdict is Verdict.LINEAR


def read_leases(lines: Sequence[str]) -> dict[str, list[Leased]]:
    begun: dict[str, Leased] = {}
    for line in lines:
        id_, *values = json.loads(line)
        if id_ in begun:
            end, holder = values
            old = begun[id_]
            begun[id_] = Leased(old.document, old.user, old.locks, old.start, end, holder)
        else:
            begun[id_] = Leased(*values)
    found: dict[str, list[Leased]] = {}
    for each in begun.values():
        found.setdefault(each.document, []).append(each)
    return found


def _work(root: str, seed: int, pipe: int, *, is_weak: bool) -> None:
    chance, locks = random.Random(seed), Locks(root, 30.0)
    if is_weak:
        locks.holding = lambda *_: nullcontext()  # type: ignore[method-assign]
    leases, number = DocumentLeases(root, locks, lambda: None), 0
    while True:
        number += 1
        document = f"{int(time.monotonic() / _ROUND)}-{chance.choice('12')}"  # whose history stays short
        user = chance.choice(USERS)
        address = DocumentAddress(Form("a", "b"), Collection.DATA, document, "data.xml")
        is_lock, id_, holder = chance.random() < 0.5, f"{seed}-{number}", None
        os.write(pipe, f"{json.dumps([id_, document, user, is_lock, time.monotonic_ns()])}\n".encode())
        try:
            if is_lock:
                leases.lock(address, LeaseHolder(user), _LONG)
            else:
                leases.unlock(address, LeaseHolder(user))
        except LockedError as refused:
            holder = refused.user
        os.write(pipe, f"{json.dumps([id_, time.monotonic_ns(), holder])}\n".encode())


def _started(root: str, seed: int, pipe: int, *, is_weak: bool) -> int:
    process = os.fork()
    if process == 0:
        try:
            _work(root, seed, pipe, is_weak=is_weak)
        except BaseException as error:  # noqa: BLE001 - a line that no judge can read
            os.write(pipe, f"fault: {error!r}\n".encode())
        os._exit(1)
    return process


def main(root: str, seconds: float, *, is_weak: bool) -> None:
    receiver, pipe = os.pipe()
    seeds = iter(range(10_000))
    running = [_started(root, next(seeds), pipe, is_weak=is_weak) for _ in range(PROCESSES)]
    end, kill, data = time.monotonic() + seconds, time.monotonic() + _KILLED_EVERY, bytearray()
    while time.monotonic() < end:
        if select.select([receiver], [], [], 0.01)[0]:
            data += os.read(receiver, 1 << 16)
        if time.monotonic() > kill and not is_weak:
            kill = time.monotonic() + _KILLED_EVERY
            victim = running.pop(0)
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            running.append(_started(root, next(seeds), pipe, is_weak=is_weak))
    for each in running:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)
    os.close(pipe)
    while piece := os.read(receiver, 1 << 16):
        data += piece
    sys.stdout.write(data.decode())


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), is_weak=sys.argv[3:] == ["weak"])
