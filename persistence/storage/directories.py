"""Directories that are sure to survive a power cut.

A file is only as durable as the names above it. A new directory's name is made durable in its parent before
anything below it is acknowledged, also when another process made it and was killed before it could do so.
"""

from __future__ import annotations

import os

from persistence.storage import files

_REMEMBERED = 4096


class Directories:
    """Makes directories below a root and remembers which of them are durable already."""

    def __init__(self, root: str) -> None:
        self._durable = {root}

    def make(self, path: str) -> None:
        """Make a directory and whatever is missing above it; call it under the lock of what goes inside."""
        try:
            files.make_directory(path)
        except FileNotFoundError:
            parent = os.path.dirname(path)
            self._durable.discard(parent)
            self.make(parent)
            files.make_directory(path)

    def settle(self, path: str) -> None:
        """Make the name of a directory durable, and the names of those above it."""
        parent = os.path.dirname(path)
        files.sync_directory(parent)
        if parent not in self._durable:
            self.settle(parent)
            if len(self._durable) < _REMEMBERED:
                self._durable.add(parent)
