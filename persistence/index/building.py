"""Building an index aside, from the whole tree, while the one in use goes on being used and changed.

What changes meanwhile is taken down in the one in use. At the end that is taken in, while nobody can change the one in
use, and the new one takes its place. Whoever was about to change the old one sees so, and changes the new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from persistence.index import connections, facts, identity
from persistence.index.bulk import Bulk
from persistence.index.connections import Connections, UnusableError
from persistence.index.feeding import Feed
from persistence.index.generations import Generations
from persistence.index.sources import Source
from persistence.index.taking import Taking
from persistence.store import files

Progress = Callable[[int, int], None]
"""Hears how many documents of how many have been read, roughly."""


class Build:
    """Builds the index of one form; ``processes`` read the tree."""

    def __init__(self, root: str, generations: Generations, source: Source, *, processes: int) -> None:
        self._root = root
        self._generations = generations
        self._source = source
        self._processes = processes

    def run(self, progress: Progress, *, only: int | None = None, timeout: float) -> None:
        """Build it. What was cleared stays so (spec search 2.5), but for the version ``only`` or, without it, for all.

        Raises:
            BusyError: somebody else was building it for longer than ``timeout``, in seconds.
            DiskError: the tree cannot be read.
            sqlite3.Error, OSError: the index cannot be written.
        """
        with self._generations.making(timeout=timeout):
            self._generations.sweep()
            before = self._in_use()
            path = self._generations.fresh()
            try:
                with closing(connections.opened_to_write(before)) as old:
                    self._announce(old)
                    with suppress_unfinished(old):
                        self._fill(path, old, progress, only)
                        self._replace(old, path)
            except BaseException:
                if self._generations.current() != path:
                    for suffix in ("", "-wal", "-shm", connections.STAGED):
                        files.remove(path + suffix)
                raise
            self._generations.sweep()
