"""Observations that a process makes wherever it does its work, for the metrics of the service.

Whoever works appends, which costs a fraction of a microsecond, and knows no more of metrics. In a service,
``metrics`` takes the observations out once a second. In a command nobody does: then the oldest ones go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from persistence.limits import OBSERVATIONS_KEPT

T = TypeVar("T")


def _bounded() -> deque[float]:
    return deque(maxlen=OBSERVATIONS_KEPT)


FSYNCS = _bounded()  # Seconds of each fsync
LOCK_WAITS = _bounded()  # Seconds for which a writer has waited for the lock of a document, until it had it
LOCK_TIMEOUTS = _bounded()  # Seconds for which a writer has waited for such a lock in vain
POOL_WAITS = _bounded()  # Seconds for which a connection to a database was waited for, until there was one
POOL_TIMEOUTS = _bounded()  # Seconds for which one was waited for in vain
POOL_WAITING = _bounded()  # 1 for each request that begins to wait for a connection, and -1 when it ends to
POOL_IN_USE = _bounded()  # 1 for each connection that is taken, and -1 when it is put back
AUDIT_FAULTS = _bounded()  # A number for each line of the audit that could not be written; what it is does not count


def taken(observations: deque[T]) -> Iterator[T]:
    """Take all observations out that are there now; others may append and take meanwhile."""
    for _ in range(len(observations)):
        try:
            yield observations.popleft()
        except IndexError:
            return
