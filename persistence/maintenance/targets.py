"""Where parts of a backup are restored to: empty directories, which say that they are not whole until all is there."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from persistence.errors import StartupError
from persistence.maintenance.manifest import Part
from persistence.maintenance.tree import OWN
from persistence.model.instants import next_after
from persistence.model.sidecar import fresh_id
from persistence.storage import directories, files, formats, locks, nofollow, owner, root
from persistence.storage.formats import FORMAT, LayoutFile
from persistence.storage.layout import INDEX, LAYOUT, QUARANTINE, SERVICE, SPOOL, TRASH, file_name

_BUSY = "the data directory is in use: stop the service first"
_RESTORING = ".restoring"
_OTHERS = {"lost+found"}


class Target(Protocol):
    """The directory that a part is restored to. Methods raise ``OSError``."""

    part: Part
    root: str
    quarantine: str

    def is_half(self) -> bool:
        """Whether it says that restoring this backup was begun and has not finished."""

    def check(self) -> None:
        """Make sure that it is empty, or half of this backup. Raises ``StartupError``."""

    def prepare(self) -> None:
        """Make the directory and what ``alone`` needs."""

    def alone(self) -> AbstractContextManager[None]:
        """Have it alone for a block. Raises ``BusyError`` where a service uses it."""

    def begin(self) -> None:
        """Say that it is being restored."""

    def finish(self) -> None:
        """Say that it is whole."""


def target(part: Part, path: str, backup: str) -> Target:
    """The directory at ``path``, for a part of a backup.

    Raises:
        StartupError: the part is no tree, or one of a newer format.
        OSError: it cannot be read.
    """
    return _Tree(part, path, backup) if part.kind == "tree" else _Attachments(part, path, backup)


class _Directory:
    def __init__(self, part: Part, path: str, backup: str) -> None:
        self.part = part
        self.root = os.path.realpath(path)
        self.quarantine = f"{self.root}/{QUARANTINE}/{file_name(next_after(None))}"
        self._backup = backup

    def _refuse_half_of(self, other: str) -> None:
        if other and other != self._backup:
            raise StartupError(f"{self.root} holds half of {other}: restore that again, or empty it")


class _Tree(_Directory):
    """The root of a tree; its layout.json says whether it is whole."""

    def __init__(self, part: Part, path: str, backup: str) -> None:
        super().__init__(part, path, backup)
        said = f"{backup}/{part.path(LAYOUT)}"
        layout = formats.read(said)
        if layout is None:
            raise StartupError(f"{os.path.dirname(said)} has no {LAYOUT}")
        if layout.format > FORMAT:
            formats.check(said, layout)
        self._layout = layout

    def is_half(self) -> bool:
        there = formats.read(f"{self.root}/{LAYOUT}")
        return there is not None and there.restoring == self._backup

    def check(self) -> None:
        if not os.path.isdir(self.root):
            return
        there = formats.read(f"{self.root}/{LAYOUT}")
        self._refuse_half_of(there.restoring if there is not None else "")
        is_half = there is not None and there.restoring
        if not is_half and set(os.listdir(self.root)) - _OTHERS - OWN:
            said = "is not empty" if there is None else "holds a tree already"
            raise StartupError(f"{self.root} {said}")

    def prepare(self) -> None:
        directories.ensure(self.root)
        owner.require(self.root)
        root.make_own(self.root)

    def alone(self) -> AbstractContextManager[None]:
        return locks.alone(f"{self.root}/{SERVICE}", _BUSY)

    def begin(self) -> None:
        files.rename(f"{self.root}/{INDEX}", f"{self.root}/{TRASH}/{fresh_id()}")  # of a tree that was here before
        directories.empty(f"{self.root}/{TRASH}")
        root.make_own(self.root)
        restoring = LayoutFile(max(self._layout.format, FORMAT), restoring=self._backup)
        formats.write(f"{self.root}/{LAYOUT}", restoring)

    def finish(self) -> None:
        formats.write(f"{self.root}/{LAYOUT}", self._layout)


class _Attachments(_Directory):
    """A directory of attachments; a file in it says that it is not whole. Services do not lock it, but their trees."""

    def is_half(self) -> bool:
        return self._restoring() == self._backup

    def check(self) -> None:
        if not os.path.isdir(self.root):
            return
        restoring = self._restoring()
        self._refuse_half_of(restoring)
        if not restoring and set(os.listdir(self.root)) - _OTHERS - {SPOOL, TRASH, QUARANTINE}:
            raise StartupError(f"{self.root} is not empty")

    def prepare(self) -> None:
        directories.ensure(self.root)

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self) -> None:
        files.write_durably(f"{self.root}/{_RESTORING}", os.fsencode(self._backup))

    def finish(self) -> None:
        files.remove(f"{self.root}/{_RESTORING}")
        directories.sync(self.root)

    def _restoring(self) -> str:
        try:
            descriptor = nofollow.open_to_read(f"{self.root}/{_RESTORING}")
        except FileNotFoundError:
            return ""
        try:
            return os.fsdecode(files.read_small(descriptor))
        finally:
            os.close(descriptor)
