"""The record of a long work in a file tree: a lock, and a file with a small text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from persistence.errors import BusyError, disk_errors
from persistence.storage import files, nofollow
from persistence.storage.locks import LockFile
from persistence.storage.managed import JobRecord


class JobFile(JobRecord):
    """The record of ``doing`` something, by the paths of the lock and of the text."""

    def __init__(self, doing: str, lock: str, path: str) -> None:
        self._doing = doing
        self._lock = lock
        self._path = path

    @contextmanager
    def turn(self, refusal: str, timeout: float, is_ending: Callable[[], bool]) -> Iterator[None]:
        with ExitStack() as stack:
            with disk_errors(f"waiting for another {self._doing}"):
                files.ensure_file(self._lock)
                stack.enter_context(LockFile(self._lock).exclusive(refusal, timeout=timeout, is_ending=is_ending))
            yield

    def is_taken(self) -> bool:
        with disk_errors(f"looking for a running {self._doing}"):
            try:
                LockFile(self._lock).shared().close()
            except BusyError:
                return True
            except FileNotFoundError:
                return False
            return False

    def read(self) -> bytes:
        with disk_errors(f"looking at the progress of the {self._doing}"):
            try:
                descriptor = nofollow.open_to_read(self._path)
            except FileNotFoundError:
                return b""
            try:
                return nofollow.read_small(descriptor)
            finally:
                os.close(descriptor)

    def write(self, text: bytes) -> None:
        with disk_errors(f"recording the progress of the {self._doing}"):
            files.write_durably(self._path, text)
