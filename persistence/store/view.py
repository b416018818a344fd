"""A look at a tree that changes nothing, not even what is missing in it."""

from __future__ import annotations

import os

from persistence.errors import StartupError, disk_errors
from persistence.store import formats
from persistence.store.layout import LAYOUT, Layout
from persistence.store.store import Store


class View(Store):
    """The reading half of a store: it makes no directory, takes no lock and cannot write; nobody waits for it."""

    def __init__(self, path: str) -> None:
        """Open the root as it is. What ``Store`` begins with is not done: it makes what is missing.

        Raises:
            StartupError: there is none, the tree has another format, or it is not whole.
            DiskError: the root cannot be looked at.
        """
        self.root = os.path.abspath(path)
        if not os.path.isdir(self.root):
            raise StartupError(f"there is no data directory {self.root}")
        with disk_errors(f"data directory {self.root}"):
            file = f"{self.root}/{LAYOUT}"
            layout = formats.read(file)
            if layout is not None:
                formats.check(file, layout)
        self._layout = Layout(self.root)
