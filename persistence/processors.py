"""The processors that the service may use: how many workers they are for, and on which one each of these stays.

Only one thread of a worker runs Python at a time. Left to the system, its threads move from processor to processor, and
each takes the memory of the interpreter along (docs/performance.md has what that costs).
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

_ALL = frozenset(os.sched_getaffinity(0))
"""The processors of this process at its start, before it was kept on one of them."""

_LEAST_WORKERS, _MOST_WORKERS = 2, 4
_CPU_MAX = "/sys/fs/cgroup/cpu.max"


def count() -> int:
    """Return how many processes can run at a time."""
    return len(_ALL)


def workers(wanted: int) -> int:
    """Return the number of worker processes; 0 is one for each processor, but two at least and four at most."""
    return wanted or min(max(min(count(), _quota()), _LEAST_WORKERS), _MOST_WORKERS)


def _quota() -> int:
    try:
        with open(_CPU_MAX, encoding="ascii") as file:
            quota, period = file.read().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # there is none, or it is max
        return sys.maxsize


def one_for(size: int, taken: Iterable[int | None]) -> int | None:
    """Return one of the processors that the fewest workers have; ``None`` (all) if there are more than workers."""
    if count() > size:
        return None
    running = list(taken)
    return min(sorted(_ALL), key=running.count)


def stay_on(processor: int) -> None:
    """Keep this thread, and those that it starts, on one processor; on all where the system does not allow it."""
    with suppress(OSError):
        os.sched_setaffinity(0, {processor})


@contextmanager
def all_of_them() -> Iterator[None]:
    """Let processes that this thread starts in a block use all processors again."""
    own = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, _ALL)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, own)
