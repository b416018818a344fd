"""The only module that locks: striped lock files, exclusive between threads and processes, with a deadline.

A scope (a document, or a form's definitions) maps to one of 256 files. No code holds two at a time, so there is
nothing to deadlock. Readers never come here. The files are never deleted: a lock on a deleted file excludes nobody.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from persistence.errors import BusyError
from persistence.storage import files, nofollow

STRIPES = 256
_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.01


def stripe(scope: tuple[str, ...]) -> int:
    """Which of the lock files serves a scope."""
    return zlib.crc32("\0".join(scope).encode()) % STRIPES


def try_lock(descriptor: int) -> bool:
    """Lock an open file for as long as it is open; ``False`` where another descriptor holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share(path: str) -> int:
    """Take part in the use of something that nobody may have alone meanwhile, until the descriptor is closed.

    Raises:
        BusyError: somebody has it alone.
        OSError: the lock file cannot be opened.
    """
    descriptor = nofollow.open_file(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BusyError("the data directory is being restored or upgraded") from None
    return descriptor


def wait_for(descriptor: int, deadline: float, is_ending: Callable[[], bool] = lambda: False) -> bool:
    """Lock an open file as ``try_lock`` does.

    Return ``False`` if another still holds it at ``deadline`` (monotonic clock), or when the caller ``is_ending``.
    """
    pause = _FIRST_PAUSE
    while not try_lock(descriptor):
        if time.monotonic() >= deadline or is_ending():
            return False
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return True


@contextmanager
def alone(
    path: str, otherwise: str, *, timeout: float = 0.0, is_ending: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Have something alone for a block: nobody shares it meanwhile. ``timeout`` in seconds is how long to wait.

    A caller that ``is_ending`` does not wait any longer.

    Raises:
        BusyError: somebody uses it; its text is what to say ``otherwise``.
        OSError: the lock file cannot be opened.
    """
    descriptor = nofollow.open_file(path)
    try:
        if not wait_for(descriptor, time.monotonic() + timeout, is_ending):
            raise BusyError(otherwise)
        yield
    finally:
        os.close(descriptor)


class Locks:
    """The locks of one store; ``timeout`` in seconds is how long a writer waits.

    ``create`` says whether a lock file that is missing is made: anybody but the service would make it his own.
    ``missing`` is called where their directory is gone, as after a ``git clean``, and makes it again.
    """

    def __init__(
        self, directory: str, timeout: float, *, create: bool = True, missing: Callable[[], None] | None = None
    ) -> None:
        self._directory = directory
        self._timeout = timeout
        self._missing = missing
        self._create = create
        self._threads = tuple(threading.Lock() for _ in range(STRIPES))

    @contextmanager
    def holding(self, scope: tuple[str, ...]) -> Iterator[None]:
        """Hold the lock of a scope for a block.

        Raises:
            BusyError: it was not to be had before the deadline.
            OSError: the lock file cannot be opened.
        """
        deadline = time.monotonic() + self._timeout
        number = stripe(scope)
        if not self._threads[number].acquire(timeout=self._timeout):
            raise self._busy()
        try:
            # Opened anew each time: a descriptor inherited by a forked worker would share its lock with the parent.
            descriptor = self._opened(f"{self._directory}/{number:02x}")
            try:
                if not wait_for(descriptor, deadline):
                    raise self._busy()
                yield
            finally:
                os.close(descriptor)
        finally:
            self._threads[number].release()

    def _opened(self, path: str) -> int:
        try:
            return nofollow.open_to_read(path)
        except FileNotFoundError:
            if not self._create:
                raise
            if self._missing is not None:
                self._missing()
        files.ensure_file(path)
        return nofollow.open_to_read(path)

    def _busy(self) -> BusyError:
        return BusyError(f"another request has been writing here for {self._timeout:g} seconds")
