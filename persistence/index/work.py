"""Making indexes, one form after another, in this process or in one of its own."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum

import msgspec

from persistence.errors import disk_errors
from persistence.index import connections
from persistence.index.building import Progress
from persistence.index.damage import UnusableError
from persistence.index.flat.file import FlatFile
from persistence.index.flat.making import FlatMaker
from persistence.index.generations import Generations
from persistence.index.making import Maker
from persistence.index.sources import Source
from persistence.model.addresses import Form
from persistence.model.flat_views import FlatNaming
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.layout import Layout
from persistence.storage.reader import StoreReader
from persistence.storage.routed import apart

_LONGEST_WAIT = 24 * 3600.0
"""Seconds for which one waits for another who makes an index: that comes to an end."""


class Aim(Enum):
    """What an index is to be afterwards."""

    READY = "ready to be asked"
    VERIFIED = "compared with the tree"
    ANEW = "made anew"


class Task(msgspec.Struct, frozen=True):
    """The index of one form, and what is to be done about it.

    ``only`` is as in ``Maker.rebuild``; ``data_format`` and ``is_designer`` as in ``Source``. ``definitions`` is the
    root of the tree that has its definition, empty where it is the same. ``hand_edits`` is a value of ``HandEdits``.
    """

    app: str
    form: str
    data_format: str
    is_designer: bool
    aim: Aim = Aim.READY
    only: int | None = None
    definitions: str = ""
    hand_edits: str = HandEdits.XML.value


class FlatTask(msgspec.Struct, frozen=True):
    """The flat views of one form, called as ``naming`` says, or of one version; but not what is of the tree ``but``.

    Of those of a version that ``is_new``, the columns are to be made by its definition too. ``definitions`` and
    ``hand_edits`` are as in ``Task``.
    """

    app: str
    form: str
    naming: FlatNaming
    version: int | None = None
    but: str = ""
    is_new: bool = False
    definitions: str = ""
    hand_edits: str = HandEdits.XML.value


class Work(msgspec.Struct, frozen=True):
    """The indexes to be made in the tree of a root, and then the flat views."""

    root: str
    tasks: tuple[Task, ...] = ()
    flat: tuple[FlatTask, ...] = ()

    def run(self, *, processes: int, progress: Progress) -> None:
        """Make them now, each after whoever makes it already.

        Raises:
            DiskError: the tree cannot be read, or an index not be written.
            BusyError: somebody else made one for very long.
        """
        for task in self.tasks:
            form = Form(task.app, task.form)
            try:
                with disk_errors("making the index of", form):
                    self._make(task, processes, progress)
            except sqlite3.Error as error:
                raise connections.as_told(error, f"the index of {form}") from error

    def make_flat_views(self) -> Iterator[str]:
        """Make the flat views now; yields why some of them cannot be made where not one version alone is asked for.

        Raises:
            PersistenceError: those of one version cannot be made, or their file cannot be looked at.
        """
        view, file = StoreReader(self.root), FlatFile(self.root)
        with disk_errors("looking at the tables of flat views"):
            found = file.identity
        for task in self.flat:
            seen = apart(self.root, task.definitions, Integrity(HandEdits(task.hand_edits)))
            maker = FlatMaker(seen, self.root, Form(task.app, task.form), task.naming)
            if task.version is None:
                yield from maker.refill_all(but=task.but)
            elif task.is_new:
                maker.create(task.version)
            else:
                maker.refill(task.version)
        if {Form(task.app, task.form) for task in self.flat if task.version is None}.issuperset(view.forms()):
            with suppress(sqlite3.Error, UnusableError):  # otherwise it is done once more
                file.settle(found)

    def _make(self, task: Task, processes: int, progress: Progress) -> None:
        maker = self._maker(task)
        match task.aim:
            case Aim.READY:
                maker.make(processes=processes, timeout=_LONGEST_WAIT, progress=progress)
            case Aim.VERIFIED:
                maker.verify(processes=processes, timeout=_LONGEST_WAIT, progress=progress)
            case Aim.ANEW:
                maker.rebuild(processes=processes, timeout=_LONGEST_WAIT, progress=progress, only=task.only)

    def count(self) -> int:
        """How many documents and drafts that are, roughly. Raises ``DiskError``."""
        return sum(1 for task in self.tasks for _ in self._maker(task).source.documents())

    def begin(self) -> subprocess.Popen[bytes]:
        """Let a process of its own make them: it has all processors. Raises ``OSError``."""
        with tempfile.TemporaryFile() as told:  # not an argument: there may be thousands of forms
            told.write(msgspec.json.encode(self))
            told.seek(0)
            command = [sys.executable, "-m", "persistence.index"]
            return subprocess.Popen(command, stdin=told, stdout=subprocess.DEVNULL)  # noqa: S603 - our own

    def _maker(self, task: Task) -> Maker:
        form = Form(task.app, task.form)
        view = apart(self.root, task.definitions, Integrity(HandEdits(task.hand_edits)))
        source = Source(view, form, task.data_format, is_designer=task.is_designer)
        return Maker(self.root, Generations(Layout(self.root), form), source)
