"""Copies of many files at once, which are made durable together at the end: for backups and restores.

Functions raise ``OSError``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from persistence.storage import files

_BLOCK = 1 << 12
_libc = ctypes.CDLL(None, use_errno=True)


def make_directories(path: str) -> None:
    """Make a directory and all above it, where they are missing: for copies of many files, synced together."""
    os.makedirs(path, files.DIRECTORY_MODE, exist_ok=True)


def write_new(path: str, chunks: Iterable[bytes], nanoseconds: int) -> None:
    """A new file with a modification time, not synced: one of many of a copy.

    Chunks of nothing but zeros take no room: a file in a backup may say that it is larger than any disk.
    """
    descriptor = files.open_new(path)
    size = 0
    try:
        for chunk in chunks:
            if len(chunk) >= _BLOCK and not chunk.strip(b"\0"):
                files.set_size(descriptor, size + len(chunk))
                os.lseek(descriptor, 0, os.SEEK_END)
            else:
                files.write_all(descriptor, chunk)
            size += len(chunk)
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
