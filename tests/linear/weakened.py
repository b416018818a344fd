"""The service without one of its protections, to show that the load and its judge would notice.

``python -m tests.linear.weakened serve …`` takes what ``persistence`` takes; ``WEAKENED`` in the environment names the
protection to do without.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, nullcontext

from persistence.cli import main
from persistence.metrics import service as shared
from persistence.model.addresses import Address
from persistence.model.instants import Instant
from persistence.storage import locks
from persistence.storage.commit import Committed
from persistence.storage.layout import LOCKS
from persistence.storage.locks import Locks
from persistence.storage.store import Store
from persistence.storage.stored_revision import StoredRevision

WEAKENED = "WEAKENED"
REMEMBERED = 0.05
"""Seconds that a worker goes on showing what it showed last, without fresh reads."""


def _without_locks() -> None:
    """Every writer goes on at once."""
    real = Locks.holding

    def holding(self: Locks, kind: str, number: int) -> AbstractContextManager[None]:
        return nullcontext() if kind == LOCKS else real(self, kind, number)

    Locks.holding = holding  # type: ignore[method-assign,assignment]
    _without_conditions()


def _without_locks_between_processes() -> None:
    """Writers of one process queue; those of different processes do not know of each other.

    Only of the tree: by its lock, the directory of metrics of each other service is known to be in use.
    """
    assert shared.try_lock is locks.try_lock
    locks.try_lock = lambda _descriptor: True  # type: ignore[assignment]
    _without_conditions()


def _without_conditions() -> None:
    """Every writer overwrites what is there, whatever that is."""
    Committed.require = lambda _self, _over: None  # type: ignore[method-assign]
    Committed.require_before = lambda _self, _prepared: None  # type: ignore[method-assign]


def _without_fresh_reads() -> None:
    """Each worker goes on showing for a moment the revision that it showed last, from the history."""
    read = Store.read
    shown: dict[Address, tuple[float, Instant]] = {}

    def remembering(self: Store, address: Address, *, content: bool) -> StoredRevision | None:
        found = read(self, address, content=content)
        if found is None or found.file is None:
            return found
        until, instant = shown.get(address, (0.0, found.sidecar.modified))
        if instant != found.sidecar.modified and time.monotonic() < until:
            return self.read_revision(address, instant, content=True) or found
        shown[address] = (time.monotonic() + REMEMBERED, found.sidecar.modified)
        return found

    Store.read = remembering  # type: ignore[method-assign]


WEAKNESSES = {
    "no locks": _without_locks,
    "no locks between processes": _without_locks_between_processes,
    "no fresh reads": _without_fresh_reads,
}

if __name__ == "__main__":
    WEAKNESSES[os.environ[WEAKENED]]()
    main()
