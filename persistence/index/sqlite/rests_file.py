"""The texts of a new index that belong to no control, indexed by a thread of their own in a file of their own.

That is more than half of the work of writing an index, and SQLite gives up Python's lock meanwhile, so that the rest
goes on. At the end the tables of this index of texts are moved into the index as they are (SQLite FTS5, 9).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from persistence.closable import Closable
from persistence.index.sqlite import connections
from persistence.index.sqlite.state import (
    ADD_REST,
    REST_TEXTS,
    RESTS_TABLE,
    optimize,
    tune_for_changes,
    tune_for_filling,
)
from persistence.storage import files

RESTS = "-rests"
"""The end of the name of the file."""

_MOVED = ("rests_config", "rests_content", "rests_data", "rests_idx")
_AHEAD = 4
"""Batches that wait for the thread."""


class RestsFile(Closable):
    """The file. The thread starts with the first texts, after any forks. Methods raise ``sqlite3.Error``."""

    def __init__(self, path: str) -> None:
        files.ensure_file(path)
        self._path = path
        self._connection = connections.connected(path)
        self._thread = ThreadPoolExecutor(1, "index-of-texts")
        self._running: deque[Future[None]] = deque()
        try:
            for pragma in connections.UNSAFE:
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.execute(RESTS_TABLE)
            tune_for_filling(self._connection, REST_TEXTS)
            self._connection.execute("BEGIN")
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file; texts that wait are dropped."""
        self._thread.shutdown(cancel_futures=True)
        self._connection.close()

    def add(self, rests: list[tuple[int, str]]) -> None:
        """Add texts by the numbers of their rows."""
        self._begin(lambda: self._add(rests))

    def finish(self) -> None:
        """Begin to complete the tables."""
        self._begin(self._complete)

    def move_into(self, connection: sqlite3.Connection) -> None:
        """Move the tables, once they are complete, into an index in which they are empty, and remove the file."""
        while self._running:
            self._running.popleft().result()
        self.close()
        connection.execute("ATTACH ? AS of_rests", (self._path,))
        for table in _MOVED:
            connection.execute(f"DELETE FROM main.{table}")
            connection.execute(f"INSERT INTO main.{table} SELECT * FROM of_rests.{table}")
        connection.execute("DETACH of_rests")
        files.remove(self._path)

    def _begin(self, work: Callable[[], None]) -> None:
        self._running.append(self._thread.submit(work))
        if len(self._running) > _AHEAD:
            self._running.popleft().result()

    def _add(self, rests: list[tuple[int, str]]) -> None:
        self._connection.executemany(ADD_REST, rests)

    def _complete(self) -> None:
        optimize(self._connection, REST_TEXTS)
        self._connection.execute("COMMIT")
        tune_for_changes(self._connection, REST_TEXTS)
