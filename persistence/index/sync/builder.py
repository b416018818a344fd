"""Making an index that can be used: where there is none, where it is damaged, where it may be of another tree.

An index is built beside the one in use, from the whole tree, while that one goes on being used and changed
(``staleness``, 8).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice

from persistence.index.sources import Source
from persistence.index.sqlite import connections
from persistence.index.sqlite.connections import opened_to_write
from persistence.index.sqlite.faults import EngineError, UnusableError
from persistence.index.sqlite.rows import STAGED, BulkRows, DocumentName
from persistence.index.sqlite.state import Connection, IndexedVersion, IndexState
from persistence.index.sync.generations import (
    CHANGES,
    Generations,
    IndexCondition,
    changes_beside,
    condition_of,
    reconcile_changes,
    tree_identity,
)
from persistence.index.sync.parallel_reader import DocumentReader, read_all
from persistence.index.sync.staleness import Change, Refresh
from persistence.storage import files

SMALL = 1_000
"""Documents up to which an index is made at once, by whoever needs it."""

_SMALL_BYTES = 16 << 20
"""Bytes of all documents of a small form."""

Progress = Callable[[int], None]
"""Hears how many more documents have been read."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Makes the index of one form usable. Methods raise ``DiskError``, ``EngineError`` and ``OSError``.

    They raise ``BusyError`` where somebody else made the index for longer than ``timeout``, in seconds. ``processes``
    read the tree; if these are several, they are forks.
    """

    root: str
    generations: Generations
    source: Source

    @property
    def is_small(self) -> bool:
        """Return whether the form has few documents, and none of them is large."""
        first = islice(self.source.documents(), SMALL + 1)
        sizes = [self.source.size(document, is_draft=is_draft) for document, is_draft in first]
        return len(sizes) <= SMALL and sum(sizes) <= _SMALL_BYTES

    def make_ready(self, *, processes: int, timeout: float, progress: Progress) -> None:
        """Make the index usable now, unless it is so when nobody else makes it any more."""
        with self.generations.rebuilding(timeout=timeout):
            condition = self.condition()
            if condition is IndexCondition.EARLIER:
                self._verify(progress)
            elif condition is IndexCondition.NONE:
                self._build(processes, progress)

    def verify(self, *, processes: int, timeout: float, progress: Progress) -> None:
        """Compare the index with the tree and replace what differs; build it where there is none that can be used."""
        with self.generations.rebuilding(timeout=timeout):
            if self.condition() is IndexCondition.NONE:
                self._build(processes, progress)
            else:
                self._verify(progress)

    def run(self, *, processes: int, timeout: float, progress: Progress, only: int | None = None) -> None:
        """Build the index, however ready it is.

        Documents that are hidden because their definition was deleted (spec search 2.5) come back, all or those of the
        version ``only``.
        """
        with self.generations.rebuilding(timeout=timeout):
            self._build(processes, progress, only)

    def condition(self) -> IndexCondition:
        """Return how far the index in use can be trusted."""
        path = self.generations.current()
        if path is None:
            return IndexCondition.NONE
        try:
            connections.check(path)
            changes = changes_beside(path)
            with closing(connections.connected(path)) as connection:
                return condition_of(IndexState(connection), tree_identity(self.root), changes)
        except (UnusableError, connections.DatabaseError):
            return IndexCondition.NONE

    def _verify(self, progress: Progress) -> None:
        tree = tree_identity(self.root)
        path = self.generations.current()
        if path is None:
            return
        with closing(opened_to_write(path)) as connection:
            for compared in Refresh(connection, path, self.source).everything():
                progress(compared)
            with connections.transaction(connection):
                state = IndexState(connection)
                state.tree = tree
                reconcile_changes(state, path)

    def _build(self, processes: int, progress: Progress, only: int | None = None) -> None:
        path = self.generations.fresh()
        try:
            with self._in_use() as old:
                state = IndexState(old)
                self._fill(path, frozenset() if only is None else state.hidden(but=only), processes, progress)
                self._replace(old, path)
        except BaseException:
            if self.generations.current() != path:
                for suffix in ("", "-wal", "-shm", "-journal", STAGED, CHANGES):
                    files.remove(path + suffix)
            raise
        self.generations.sweep()

    @contextmanager
    def _in_use(self) -> Iterator[Connection]:
        """Open the index in use, which lists what changes; where none can be used, make one without rows."""
        path = self.generations.current()
        try:
            if path is None:
                raise UnusableError  # noqa: TRY301 - the one way on from here
            connections.check(path)
            connection = opened_to_write(path)
            IndexState(connection).begin_rebuild()
        except (UnusableError, connections.DatabaseError):
            path = self.generations.fresh()
            connections.make_empty(path)
            self.generations.use(path)
            connection = opened_to_write(path)
        with closing(connection):
            try:
                yield connection
            finally:
                with suppress(EngineError):
                    IndexState(connection).end_rebuild()

    def _fill(self, path: str, hidden: frozenset[DocumentName], processes: int, progress: Progress) -> None:
        files.ensure_file(path)
        with closing(connections.connected(path)) as connection:
            rows, state = BulkRows(path, connection, hidden), IndexState(connection)
            change = Change(connection, self.source)
            known = {version: change.keys(version) for version in self.source.versions()}
            keys = {version: each for version, (each, _) in known.items()}
            definitions = {version: each for version, (_, each) in known.items()}
            seen = set(known)
            with closing(read_all(DocumentReader(self.source, keys, definitions), processes)) as batches:
                for looked_at, batch in batches:
                    for version in {each.version for each in batch} - seen:
                        # Read as not published: looked at again by whoever searches first.
                        state.add_version(version, IndexedVersion("", None, 1))
                        seen.add(version)
                    rows.add(batch)
                    progress(looked_at)
            rows.finish(tree_identity(self.root))
        connections.sync(path)

    def _replace(self, old: Connection, path: str) -> None:
        with closing(opened_to_write(path)) as connection:
            new, state = Refresh(connection, path, self.source), IndexState(old)
            new.documents(state.missed())  # most of it while others can go on
            old.execute("BEGIN IMMEDIATE")
            try:
                new.documents(state.missed())
                self.generations.use(path)
            finally:
                old.execute("ROLLBACK")


def processors() -> int:
    """Return how many processes can run at a time."""
    return len(os.sched_getaffinity(0))
