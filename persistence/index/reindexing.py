"""Making indexes anew on request: one after the other, and everybody can see how far that is (spec search 5)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from persistence.index.building import Progress
from persistence.index.work import Work
from persistence.storage import files, locks, nofollow
from persistence.storage.layout import REINDEXING
from persistence.storage.locks import LockFile

_LONGEST_WAIT = 24 * 3600.0
"""Seconds for which one waits for another: that comes to an end."""

_PAUSE = 0.2
"""Seconds between two reports."""


class Reported(msgspec.Struct, frozen=True):
    """How far it is: how many documents have been read, of how many."""

    current: int = 0
    total: int = 0


@contextmanager
def reported(work: Work) -> Iterator[Progress]:
    """Wait for one's turn, and report how far the work is for the length of a block. Raises ``OSError``."""
    path = f"{work.root}/{REINDEXING}"
    files.ensure_file(path)
    with LockFile(path).exclusive("another index is being made", timeout=_LONGEST_WAIT):
        yield _Report(path, work.count()).add


def progress_in(root: str) -> Reported | None:
    """How far an index is that is being made anew; ``None`` where none is."""
    try:
        descriptor = nofollow.open_to_read(f"{root}/{REINDEXING}")
    except FileNotFoundError:
        return None
    try:
        if locks.try_lock(descriptor):
            return None
        data = nofollow.read_small(descriptor)
    finally:
        os.close(descriptor)
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(data, type=Reported)
    return Reported()


class _Report:
    """Writes how far it is, now and then."""

    def __init__(self, path: str, total: int) -> None:
        self._path = path
        self._total = total
        self._current = 0
        self._written = 0.0
        self.add(0)

    def add(self, documents: int) -> None:
        """So many more have been read."""
        self._current += documents
        if time.monotonic() > self._written + _PAUSE:
            self._written = time.monotonic()
            said = Reported(min(self._current, self._total), self._total)
            files.overwrite(self._path, msgspec.json.encode(said))  # in place: it is locked
