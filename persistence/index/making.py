"""Making an index that can be used: where there is none, where it is damaged, where it may be of another tree."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from persistence.index import connections, facts, identity, tally
from persistence.index.building import Build, Progress
from persistence.index.damage import UnusableError
from persistence.index.generations import Generations
from persistence.index.sources import Source
from persistence.index.taking import Taking

SMALL = 1_000
"""Documents up to which an index is made at once, by whoever needs it."""

_SMALL_BYTES = 16 << 20
"""Bytes of all documents of a small form."""


class State(Enum):
    """What there is of an index."""

    READY = "ready"
    EARLIER = "perhaps of an earlier time"
    NONE = "none that can be used"


def state_of(connection: sqlite3.Connection, tree: str, changes: int) -> State:
    """What an index is worth, by what it says of itself.

    ``tree`` is the identity of the one it is to be of, and ``changes`` their count beside it, taken before.
    """
    if not facts.read(connection, facts.COMPLETE):
        return State.NONE
    said = str(facts.read(connection, facts.TREE))
    if said == tree:
        return State.READY if tally.inside(connection) >= changes else State.NONE
    return State.EARLIER if identity.is_same_place(said, tree) else State.NONE


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the index of one form ready. Methods raise ``DiskError``, ``sqlite3.Error`` and ``OSError``."""

    root: str
    generations: Generations
    source: Source

    @property
    def is_small(self) -> bool:
        """Whether it is made at once, by whoever needs it: of few documents, and none of them large."""
        first = islice(self.source.documents(), SMALL + 1)
        sizes = [self.source.size(document, is_draft=is_draft) for document, is_draft in first]
        return len(sizes) <= SMALL and sum(sizes) <= _SMALL_BYTES

    def make(self, *, processes: int, timeout: float, progress: Progress) -> None:
        """Make it ready now, unless it is when nobody else makes it any more.

        Raises:
            BusyError: somebody else made it for longer than ``timeout``, in seconds.
        """
        with self.generations.making(timeout=timeout):
            state = self.state()
            if state is State.EARLIER:
                self._verify(progress)
            elif state is State.NONE:
                Build(self.root, self.generations, self.source, processes).run(progress)

    def verify(self, *, processes: int, timeout: float, progress: Progress) -> None:
        """Compare it with the tree and take in what differs; where there is none that can be used, make it.

        Raises:
            BusyError: somebody else made it for longer than ``timeout``, in seconds.
        """
        with self.generations.making(timeout=timeout):
            if self.state() is State.NONE:
                Build(self.root, self.generations, self.source, processes).run(progress)
            else:
                self._verify(progress)

    def rebuild(self, *, processes: int, timeout: float, progress: Progress, only: int | None = None) -> None:
        """Make it anew, however ready it is; ``only`` is a version whose cleared documents come back, ``None`` all.

        Raises:
            BusyError: somebody else made it for longer than ``timeout``, in seconds.
        """
        with self.generations.making(timeout=timeout):
            Build(self.root, self.generations, self.source, processes).run(progress, only=only)

    def state(self) -> State:
        """What there is of it now."""
        path = self.generations.current()
        if path is None:
            return State.NONE
        try:
            connections.check(path)
            changes = tally.beside(path)
            with closing(connections.connected(path)) as connection:
                return state_of(connection, identity.of(self.root), changes)
        except (UnusableError, sqlite3.DatabaseError):
            return State.NONE

    def _verify(self, progress: Progress) -> None:
        tree = identity.of(self.root)
        path = self.generations.current()
        if path is None:
            return
        with closing(connections.opened_to_write(path)) as connection:
            before = 0
            for done in Taking(connection, self.source).verify():
                progress(done - before)
                before = done
            connection.execute("BEGIN IMMEDIATE")
            facts.write(connection, facts.TREE, tree)
            tally.settle(connection, path)
            connection.execute("COMMIT")


def processors() -> int:
    """How many processes can run at a time."""
    return len(os.sched_getaffinity(0))
