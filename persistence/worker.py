"""The worker process: gunicorn's, which gives memory back, and is replaced where it has grown past a limit."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

from gunicorn.workers.gthread import ThreadWorker

from persistence.limits import ARENAS, LARGE_BLOCK, LONGEST_GROWN, TRIMMED_FROM, WORKER_MEMORY

_LOOK = 1.0
"""Seconds between two looks: the main thread comes by that often, and none is on the way of a request."""

_LONGEST_BUSY = 10.0
"""Seconds after which a worker that always has a request to answer gives memory back all the same."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ARENA_MAX, _MMAP_THRESHOLD = -8, -3  # of mallopt(3)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn's worker with threads."""

    def init_process(self) -> None:
        """Begin."""
        tune()
        self._memory = Memory(resident, trim)
        super().init_process()

    def notify(self) -> None:
        """Tell the master that it is alive; ``run`` comes here at least once a second."""
        super().notify()
        limit = getattr(getattr(self, "wsgi", None), "worker_memory", WORKER_MEMORY)
        is_busy = self.nr_conns > len(self.keepalived_conns)
        is_alive: bool = self.alive  # type: ignore[has-type]
        if is_alive and self._memory.is_past(limit, self.nr, is_busy=is_busy):
            self.log.info("replacing a worker that has grown to %d MiB", self._memory.last >> 20)
            self.alive = False  # as max_requests does: what it is answering is answered first


class Memory:
    """The memory of a process, as it is seen from time to time. For one thread.

    ``resident`` gives its bytes in memory, and ``trim`` gives back what nobody uses.
    """

    def __init__(self, resident: Callable[[], int], trim: Callable[[], None]) -> None:
        self._resident = resident
        self._trim = trim
        self._least = self.last = resident()
        self._looked = self._trimmed = time.monotonic()
        self._requests = 0
        self._is_untidy = False
        self._grown: float | None = None

    def is_past(self, limit: int, requests: int, *, is_busy: bool) -> bool:
        """Whether it has more than the limit and none of it to give back; a limit of 0 is none.

        What a request takes goes when it is answered: a worker that is busy is given some time. ``requests`` is their
        number so far.
        """
        now = time.monotonic()
        if now < self._looked + _LOOK:
            return False
        self._looked = now
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
    """The bytes of this process that are in memory."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


def tune() -> None:
    """Let the C library keep few heaps, and give large blocks back at once. Other libraries than glibc do as they do.

    By itself it has up to eight heaps for each processor, each of which keeps what was once needed at the same time.
    """
    mallopt = getattr(_library(), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, ARENAS)
        mallopt(_MMAP_THRESHOLD, LARGE_BLOCK)


def trim() -> None:
    """Give back to the system what the C library keeps and nobody uses; other threads go on meanwhile."""
    malloc_trim = getattr(_library(), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
