"""Processes that lease a few documents for a few users, and are killed; and the judge of what they saw.

The state of a document is its holder. A request is to take effect at one moment between its start and its end; one that
was killed at some moment after its start, or never.
"""

from __future__ import annotations

import json
import math
import os
import random
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from persistence.errors import LockedError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.write_conditions import LeaseHolder
from persistence.storage.document_leases import DocumentLeases
from persistence.storage.locks import Locks

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
    end: float = math.inf
    holder: str | None = None

    def after(self, state: str | None) -> tuple[bool, str | None]:
        """Whether the outcome fits a state, and the state after it."""
        if self.holder is not None:
            return state == self.holder != self.user, state
        if state not in (None, self.user):
            return self.end == math.inf, state
        return True, self.user if self.locks else None


def is_linear(history: Sequence[Leased]) -> bool:
    """Whether the history of one document, which nobody holds at first, has an order that fits."""
    ordered = sorted(history, key=lambda each: each.start)
    needed = sum(1 << number for number, each in enumerate(ordered) if each.end < math.inf)
    waiting: list[tuple[int, str | None]] = [(0, None)]
    known = set(waiting)
    while waiting:
        taken, state = waiting.pop()
        if taken & needed == needed:
            return True
        for number in _next(ordered, taken):
            fits, following = ordered[number].after(state)
            reached = taken | 1 << number, following
            if fits and reached not in known:
                known.add(reached)
                waiting.append(reached)
    return False


def _next(ordered: Sequence[Leased], taken: int) -> Iterator[int]:
    """Those that began before any other that is still to be taken had ended; the first to end comes last."""
    earliest, found = math.inf, list[int]()
    for number, each in enumerate(ordered):
        if each.start > earliest:
            break
        if not taken >> number & 1:
            found.append(number)
            earliest = min(earliest, each.end)
    return iter(sorted(found, key=lambda number: -ordered[number].end))


def read(lines: Sequence[str]) -> dict[str, list[Leased]]:
    """The histories of documents, from what the processes wrote."""
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
    """Run, and print what the processes wrote."""
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
