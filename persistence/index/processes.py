"""The processes that make indexes and flat views: begun by a service, and ended with it."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress

from persistence.closable import Closable, closed
from persistence.index.work import Work

_LONGEST_END = 10.0
"""Seconds a process that was told to end may take to remove its unfinished files."""


class Processes(Closable):
    """Begins processes and owns them. For all threads.

    An index that a process has not finished when it is ended is made anew by the next search.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    def begin(self, work: Work) -> subprocess.Popen[bytes]:
        """Begin a process that does the work.

        Raises:
            BusyError: this was closed.
            OSError: the process cannot be started.
        """
        with self._lock:
            if self._is_closed:
                raise closed("the maker of indexes")
            self._running = [each for each in self._running if each.poll() is None]
            process = work.begin()
            self._running.append(process)
            return process

    def run(self, work: Work) -> bool:
        """Do the work in a process and wait for its end; return whether it succeeded. Raises as ``begin`` does."""
        return self.begin(work).wait() == 0

    def close(self) -> None:
        """End the processes that are still running, and wait for them."""
        with self._lock:
            self._is_closed = True
            running, self._running = self._running, []
        for process in running:
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LONGEST_END)
                continue
            process.kill()
            process.wait()
