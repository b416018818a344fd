"""Copies of many files at once, which are made durable together at the end: for backups and restores.

Functions raise ``OSError``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from persistence.store import files

_libc = ctypes.CDLL(None, use_errno=True)


def make_directories(path: str) -> None:
    """Make a directory and all above it, where they are missing: for copies of many files, synced together."""
    os.makedirs(path, files.DIRECTORY_MODE, exist_ok=True)


def write_new(path: str, chunks: Iterable[bytes], nanoseconds: int) -> None:
    """A new file with a modification time, not synced: one of many of a copy."""
    descriptor = files.open_new(path)
    try:
        for chunk in chunks:
            files.write_all(descriptor, chunk)
        files.stamp(descriptor, nanoseconds)
    finally:
        os.close(descriptor)


def link(source: str, target: str) -> None:
    """Give a file a second name."""
    os.link(source, target)


@contextmanager
def synced(directory: str) -> Iterator[None]:
    """Make everything durable that a block writes to the file system of a directory: for copies of many files.

    What could not be written since the block began is an ``OSError``, which ``os.sync`` would keep to itself.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
