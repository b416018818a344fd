"""Ownership of open resources: threads, descriptors, connections and processes have one owner each, which closes them.

The owner is a ``Closable``. The code that opens one closes it, with a ``with`` block or an ``ExitStack``, in the
opposite order. Closing twice does nothing the second time. A method that would have to open something again after
``close`` raises ``BusyError``: the service is stopping, and the client may come back.

Long work has its owners here, too: a thread that does some again and again, one that does what it is given, and turns.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, Self, TypeVar

from persistence.errors import BusyError, PersistenceError


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


class _Opened(Protocol):
    def close(self) -> None: ...


@contextmanager
def closed_after_error(opened: _Opened) -> Iterator[None]:
    """Close what was opened if the block fails; else it has another owner then."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


class PeriodicThread(Closable):
    """A thread that does some work every so many ``seconds``, one after the other; ``failed`` hears of errors."""

    def __init__(
        self, name: str, seconds: float, work: Sequence[Callable[[], object]], failed: Callable[[Exception], None]
    ) -> None:
        self._seconds = seconds
        self._work = work
        self._failed = failed
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
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


K = TypeVar("K")

_LONGEST_END = 10.0  # Seconds for which ``close`` waits for the job that is being done


class Jobs(Closable, Generic[K]):
    """Long work of a process: jobs, one after the other, in a thread that ends with the last of them."""

    # Each is about something (a ``K``), and ``failed`` is called with its error. A job asks now and then whether the
    # end has come (``is_ending``), and stops with a ``PersistenceError``, which is not passed on.
    def __init__(self, name: str, failed: Callable[[K, Exception], None]) -> None:
        self._name = name
        self._failed = failed
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_ending = threading.Event()
        self._known: deque[tuple[K, Callable[[], object]]] = deque()  # The one that is being done is the first

    def __len__(self) -> int:
        return len(self._known)

    def has(self, about: K) -> bool:
        with self._lock:
            return any(each == about for each, _ in self._known)

    def is_ending(self) -> bool:
        return self._is_ending.is_set()

    def begin(self, about: K, work: Callable[[], object]) -> None:
        """Do some work after that which was begun before. Raises ``BusyError`` after ``close``."""
        with self._lock:
            if self.is_ending():
                raise closed(self._name)
            self._known.append((about, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the job that is being done; the others are not begun."""
        with self._lock:
            self._is_ending.set()
            thread = self._thread
        if thread is not None:
            thread.join(_LONGEST_END)

    def _run(self) -> None:
        while True:
            about, work = self._known[0]
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the thread goes on with the next job
                if not (self.is_ending() and isinstance(error, PersistenceError)):
                    self._failed(about, error)
            with self._lock:
                self._known.popleft()
                if self.is_ending() or not self._known:
                    self._thread = None
                    return


@contextmanager
def taking(turns: threading.Lock | threading.Semaphore, refusal: BusyError, *, timeout: float = 0.0) -> Iterator[None]:
    """Take one of some turns for a block, within ``timeout`` seconds; raise the ``refusal`` where there is none."""
    if not turns.acquire(timeout=timeout):
        raise refusal
    try:
        yield
    finally:
        turns.release()


def closed(what: str) -> BusyError:
    return BusyError(f"{what} is closed: the service is stopping")
