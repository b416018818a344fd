"""Making indexes, one form after another, in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from persistence.index.building import Progress
from persistence.index.generations import Generations
from persistence.index.making import Maker
from persistence.index.sources import Source
from persistence.model.addresses import Form
from persistence.store.layout import Layout
from persistence.store.view import View

_LONGEST_WAIT = 24 * 3600.0
"""Seconds for which one waits for another who makes an index: that comes to an end."""


class Task(msgspec.Struct, frozen=True):
    """The index of one form, to be made anew with ``rebuild``, else where it is not ready.

    ``only`` is as in ``Maker.rebuild``; ``data_format`` and ``is_designer`` as in ``Source``.
    """

    app: str
    form: str
    data_format: str
    is_designer: bool
    rebuild: bool = False
    only: int | None = None


class Work(msgspec.Struct, frozen=True):
    """The indexes to be made in the tree of a root."""

    root: str
    tasks: tuple[Task, ...]

    def run(self, *, processes: int, progress: Progress) -> None:
        """Make them now, each after whoever makes it already.

        Raises:
            DiskError: the tree cannot be read.
            sqlite3.Error, OSError: an index cannot be written.
        """
        for task in self.tasks:
            maker = self._maker(task)
            if task.rebuild:
                maker.rebuild(processes=processes, timeout=_LONGEST_WAIT, progress=progress, only=task.only)
            else:
                maker.make(processes=processes, timeout=_LONGEST_WAIT, progress=progress)

    def count(self) -> int:
        """How many documents and drafts that are, roughly. Raises ``DiskError``."""
        return sum(1 for task in self.tasks for _ in self._maker(task).source.documents())

    def begin(self) -> subprocess.Popen[bytes]:
        """Let a process of its own make them: it has all processors. Raises ``OSError``."""
        command = [sys.executable, "-m", "persistence.index", msgspec.json.encode(self).decode()]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # noqa: S603 - our own

    def _maker(self, task: Task) -> Maker:
        form = Form(task.app, task.form)
        source = Source(View(self.root), form, task.data_format, is_designer=task.is_designer)
        return Maker(self.root, Generations(Layout(self.root), form), source)
