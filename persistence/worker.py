"""Worker processes of any server: each keeps to a processor, returns memory, and is replaced if it grows too far."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakSet

from gunicorn.workers.base import Worker as ServerWorker

from persistence import processors
from persistence.limits import ARENAS, FREE_AT_END, LARGE_BLOCK, LONGEST_GROWN, TRIMMED_FROM, WORKER_MEMORY

_INTERVAL = 1.0
"""Seconds between two checks. The main thread makes them, so that no request waits for one."""

_LONGEST_BUSY = 10.0
"""Seconds after which a worker that is never idle returns memory all the same."""

_QUERY = re.compile(r"\?[^?\s\"']*")

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1  # of mallopt(3)


class WatchedWorker(ServerWorker, ABC):  # type: ignore[misc]  # gunicorn ships no annotations
    """A worker that watches its memory, calls ``tick`` of the service, and logs no queries.

    ``processor`` is the one that it stays on; ``None`` if it may use all.
    """

    _running: ClassVar[WeakSet[WatchedWorker]] = WeakSet()
    """In the first process, the workers that it has made and that have not ended."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.processor: int | None = processors.one_for(self.cfg.workers, (each.processor for each in self._running))
        self._running.add(self)

    def init_process(self) -> None:
        """Set up the processor and the memory of the process, then serve."""
        if self.processor is not None:
            processors.stay_on(self.processor)
        tune()
        for log in (self.log.error_log, self.log.access_log):
            log.addFilter(without_queries)
        self._memory = MemoryWatch(resident, trim)
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
        if is_alive and self._memory.is_past(limit, self.nr, is_busy=self.is_busy()):
            self.log.info("replacing a worker that has grown to %d MiB", self._memory.last >> 20)
            self.alive = False  # as max_requests does: it completes its requests first

    @abstractmethod
    def is_busy(self) -> bool:
        """Return whether requests are being answered."""


def _nothing() -> None: ...


def without_queries(record: logging.LogRecord) -> bool:
    """Cut the query out of each address in a line of gunicorn's: it may have an access token (spec crud 6.6)."""
    record.msg, record.args = _QUERY.sub("?…", record.getMessage()), ()
    return True


class MemoryWatch:
    """Checks the memory of a process from time to time, on one thread.

    ``resident`` returns its bytes in memory, and ``trim`` returns unused memory to the system.
    """

    def __init__(self, resident: Callable[[], int], trim: Callable[[], None]) -> None:
        self._resident = resident
        self._trim = trim
        self._least = self.last = resident()
        self._checked = self._trimmed = time.monotonic()
        self._requests = 0
        self._is_untidy = False
        self._grown: float | None = None

    def is_past(self, limit: int, requests: int, *, is_busy: bool) -> bool:
        """Return whether the process has more than the limit and cannot return any of it; 0 is no limit.

        The memory of a request is free when it is answered, so a worker that is busy is given some time. ``requests``
        is the number of requests so far.
        """
        now = time.monotonic()
        if now < self._checked + _INTERVAL:
            return False
        self._checked = now
        self.last = self._resident()
        self._least = min(self._least, self.last)
        self._is_untidy |= is_busy or requests != self._requests
        self._requests = requests
        may_trim = not is_busy or now > self._trimmed + _LONGEST_BUSY
        if self._is_untidy and may_trim and self.last > self._least + TRIMMED_FROM:
            self._trim()
            self.last = self._resident()
            self._trimmed = now
            self._is_untidy = is_busy
        if not limit or self.last <= limit:
            self._grown = None
            return False
        self._grown = now if self._grown is None else self._grown
        return not is_busy or now > self._grown + LONGEST_GROWN


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


def tune() -> None:
    """Let glibc keep few heaps, and return large blocks at once; other C libraries stay as they are.

    By default it has up to eight heaps for each processor, each of which keeps its largest size so far. With a size of
    its own for large blocks, it returns the end of a heap as soon as 128 KiB are free, and takes it again for the next
    piece of a body, page by page: two thirds of the processor time of a large PUT.
    """
    mallopt = getattr(_library(), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, ARENAS)
        mallopt(_MMAP_THRESHOLD, LARGE_BLOCK)
        mallopt(_TRIM_THRESHOLD, FREE_AT_END)


def trim() -> None:
    """Return unused memory of the C library to the system; other threads go on meanwhile."""
    malloc_trim = getattr(_library(), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
