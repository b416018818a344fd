"""Ownership of open resources: threads, descriptors, connections and processes have one owner each, which closes them.

The owner is a ``Closable``. The code that opens one closes it, with a ``with`` block or an ``ExitStack``, in the
opposite order. Closing twice does nothing the second time. A method that would have to open something again after
``close`` raises ``BusyError``: the service is stopping, and the client may come back.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

from persistence.errors import BusyError


class Closable(ABC):
    """An owner of open resources. It is closed at the end of a ``with`` block, or by ``close``."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close everything this object has opened; raise nothing, and do nothing the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PeriodicThread(Closable):
    """A thread that does some work every so many ``seconds``, one after the other; ``failed`` hears of errors."""

    def __init__(
        self, seconds: float, work: Sequence[Callable[[], object]], failed: Callable[[Exception], None]
    ) -> None:
        self._seconds = seconds
        self._work = work
        self._failed = failed
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeps", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after what it is doing."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._seconds):
            for each in self._work:
                try:
                    each()
                except Exception as error:  # noqa: BLE001 - the next round tries again
                    self._failed(error)


def closed(what: str) -> BusyError:
    """Return the error for the use of something that was closed."""
    return BusyError(f"{what} is closed: the service is stopping")
