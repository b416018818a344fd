"""Worker processes: each keeps to a processor, and is replaced if it grows too far."""

from __future__ import annotations

import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar
from weakref import WeakSet

from gunicorn.workers.base import Worker as ServerWorker

from persistence import processors
from persistence.limits import LONGEST_GROWN, WORKER_MEMORY
from persistence.metrics.service import count_as, forget_worker

_INTERVAL = 1.0
"""Seconds between two checks. The main thread makes them, so that no request waits for one."""

_QUERY = re.compile(r"\?[^?\s\"']*")

_PAGE = os.sysconf("SC_PAGE_SIZE")


class WatchedWorker(ServerWorker, ABC):  # type: ignore[misc]  # gunicorn ships no annotations
    """A worker that watches its memory, calls ``tick`` of the service, and logs no queries.

    ``processor`` is the one that it stays on; ``None`` if it may use all. ``number`` is the smallest that no other
    worker of the first process has.
    """

    _running: ClassVar[WeakSet[WatchedWorker]] = WeakSet()
    """In the first process, the workers that it has made and that have not ended."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.processor: int | None = processors.one_for(self.cfg.workers, (each.processor for each in self._running))
        numbers = {each.number for each in self._running}
        self.number: int = next(number for number in count() if number not in numbers)
        self._running.add(self)

    def init_process(self) -> None:
        """Set up the processor of the process and the watch of its memory, then serve."""
        if self.processor is not None:
            processors.stay_on(self.processor)
        for log in (self.log.error_log, self.log.access_log):
            log.addFilter(without_queries)
        count_as(self.number)
        self._memory = MemoryWatch(resident)
        super().init_process()

    def init_signals(self) -> None:
        """Handle signals; then open the log again, in case that this worker was too young to notice SIGUSR1."""
        super().init_signals()
        self.log.reopen_files()

    def notify(self) -> None:
        """Tell the master that this worker is alive; ``run`` calls it at least once a second."""
        super().notify()
        service = getattr(self, "wsgi", None)
        limit = getattr(service, "worker_memory", WORKER_MEMORY)
        getattr(service, "tick", _nothing)()
        is_alive: bool = self.alive  # type: ignore[has-type]
        if is_alive and self._memory.is_past(limit, is_busy=self.is_busy()):
            self.log.info("replacing a worker that has grown to %d MiB", self._memory.last >> 20)
            self.alive = False  # as max_requests does: it completes its requests first

    @abstractmethod
    def is_busy(self) -> bool:
        """Return whether requests are being answered."""


def forget(_master: object, worker: WatchedWorker) -> None:
    """Remove the gauges of a worker that has ended: gunicorn's hook ``child_exit``."""
    forget_worker(worker.number)


def _nothing() -> None: ...


def without_queries(record: logging.LogRecord) -> bool:
    """Cut the query out of each address in a line of gunicorn's: it may have an access token (spec crud 6.6)."""
    record.msg, record.args = _QUERY.sub("?…", record.getMessage()), ()
    return True


class MemoryWatch:
    """Checks the memory of a process from time to time, on one thread; ``resident`` returns its bytes in memory."""

    def __init__(self, resident: Callable[[], int]) -> None:
        self._resident = resident
        self.last = 0
        self._checked = time.monotonic()
        self._grown: float | None = None

    def is_past(self, limit: int, *, is_busy: bool) -> bool:
        """Return whether the process has more than the limit; 0 is no limit.

        The memory of a request is free when it is answered, so a worker that is busy is given some time.
        """
        now = time.monotonic()
        if not limit or now < self._checked + _INTERVAL:
            return False
        self._checked, self.last = now, self._resident()
        if self.last <= limit:
            self._grown = None
            return False
        self._grown = now if self._grown is None else self._grown
        return not is_busy or now > self._grown + LONGEST_GROWN


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE
