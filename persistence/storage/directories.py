"""Making and removing directories, so that they are sure to survive a power cut.

A file is only as durable as the names above it. A new directory's name is made durable in its parent before
anything below it is acknowledged, also when another process made it and was killed before it could do so.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress

from persistence.metrics.observations import FSYNCS
from persistence.storage import nofollow

DIRECTORY_MODE = 0o750
_REMEMBERED = 4096


def sync(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = nofollow.open_directory(path)
    try:
        sync_open(descriptor)
    finally:
        os.close(descriptor)


def sync_open(descriptor: int) -> None:
    """Make the names in an open directory durable, or the content of an open file."""
    began = time.perf_counter()
    os.fsync(descriptor)
    FSYNCS.append(time.perf_counter() - began)


def make(path: str) -> bool:
    """Make one directory; ``False`` where it exists already."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        return False
    return True


def ensure(path: str) -> None:
    """Make a directory and all above it, where they are missing, with durable names.

    Raises ``OSError`` where something else has one of the names, a link too.
    """
    try:
        require(path)
    except FileNotFoundError:
        pass
    else:
        return
    parent = os.path.dirname(path)
    ensure(parent)
    make(path)
    sync(parent)


def require(path: str) -> None:
    """Make sure that there is a directory at an absolute path without links; raises ``OSError``."""
    os.close(nofollow.open_directory(path))


def remove_tree(path: str) -> None:
    """Remove a directory with everything in it, as far as that goes: it is garbage either way."""
    with suppress(OSError):  # it does not ignore all of them
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def empty(path: str) -> None:
    """Remove everything in a directory, as far as that goes; what others are removing just now is theirs as well.

    The caller knows that it is no link.
    """
    with suppress(OSError):
        for name in os.listdir(path):
            remove_tree(f"{path}/{name}")


def remove_if_empty(path: str) -> None:
    """Remove a directory that nothing was put into."""
    with suppress(OSError):
        os.rmdir(path)


def make_all(path: str) -> None:
    """Make a directory and all above it, where they are missing: for copies of many files, synced together.

    Each has the mode, which ``os.makedirs`` gives to the last one only.
    """
    try:
        make(path)
    except FileNotFoundError:
        make_all(os.path.dirname(path))
        make(path)


class DurableDirectories:
    """Makes directories below a root and remembers which of them are durable already."""

    def __init__(self, root: str) -> None:
        self._durable = {root}

    def make(self, path: str) -> None:
        """Make a directory and its missing parents; to be called under the lock of the files that go into it."""
        try:
            make(path)
        except FileNotFoundError:
            parent = os.path.dirname(path)
            self._durable.discard(parent)
            self.make(parent)
            make(path)

    def settle(self, path: str) -> None:
        """Make the name of a directory durable, and the names of those above it."""
        parent = os.path.dirname(path)
        sync(parent)
        if parent not in self._durable:
            self.settle(parent)
            if len(self._durable) < _REMEMBERED:
                self._durable.add(parent)
