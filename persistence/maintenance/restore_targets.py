"""The directories that parts of a backup are restored to: empty, and marked as incomplete until all is there."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext

from persistence.errors import StartupError
from persistence.maintenance.manifest import BackupPart
from persistence.maintenance.tree import OWN
from persistence.model.instants import next_after
from persistence.model.sidecar import fresh_id
from persistence.storage import directories, files, formats, nofollow, owner, root
from persistence.storage.formats import FORMAT, LayoutFile
from persistence.storage.layout import INDEX, LAYOUT, QUARANTINE, SERVICE, SPOOL, TRASH, Layout, file_name
from persistence.storage.locks import LockFile

_BUSY = "the data directory is in use: stop the service first"
_RESTORING = ".restoring"
_OF_THE_FILE_SYSTEM = "lost+found"


def target_of(part: BackupPart, path: str, backup: str) -> RestoreTarget:
    """Return the target at a path for a part of a backup.

    Raises:
        StartupError: the part is no tree, or has a newer format.
        OSError: it cannot be read.
    """
    return (_Tree if part.kind == "tree" else _Attachments)(part, path, backup)


class RestoreTarget(ABC):
    """The directory that a part is restored to. Methods raise ``OSError``."""

    own: frozenset[str]
    """The names that an empty directory may have."""

    def __init__(self, part: BackupPart, path: str, backup: str) -> None:
        self.part = part
        self.root = os.path.realpath(path)
        self._layout = Layout(self.root)
        self.quarantine = f"{self._layout.own(QUARANTINE)}/{file_name(next_after(None))}"
        self._backup = backup

    @abstractmethod
    def restoring(self) -> str | None:
        """Return the backup whose restore is incomplete, empty if none is; ``None`` without any mark."""

    def is_half(self) -> bool:
        """Return whether restoring this backup was begun and has not finished."""
        return self.restoring() == self._backup

    def check(self) -> None:
        """Check that it is empty, or half of this backup. Raises ``StartupError``."""
        if not os.path.isdir(self.root):
            return
        restoring = self.restoring()
        if restoring and restoring != self._backup:
            raise StartupError(f"{self.root} holds half of {restoring}: restore that again, or empty it")
        if not restoring and set(os.listdir(self.root)) - {_OF_THE_FILE_SYSTEM} - self.own:
            raise StartupError(f"{self.root} {'is not empty' if restoring is None else 'holds a tree already'}")

    def prepare(self) -> None:
        """Make the directory, and what ``locked`` needs."""
        directories.ensure(self.root)

    @abstractmethod
    def locked(self) -> AbstractContextManager[None]:
        """Keep services out for a block. Raises ``BusyError`` if one uses the directory."""

    @abstractmethod
    def begin(self) -> None:
        """Mark it as incomplete."""

    @abstractmethod
    def finish(self) -> None:
        """Remove the mark."""


class _Tree(RestoreTarget):
    """The root of a tree, in which ``layout.json`` is the mark."""

    own = frozenset(OWN)

    def __init__(self, part: BackupPart, path: str, backup: str) -> None:
        super().__init__(part, path, backup)
        saved = f"{backup}/{part.path(LAYOUT)}"
        layout = formats.read(saved)
        if layout is None:
            raise StartupError(f"{os.path.dirname(saved)} has no {LAYOUT}")
        if layout.format > FORMAT:
            formats.check(saved, layout)
        self._saved = layout
        self._file = self._layout.own(LAYOUT)

    def restoring(self) -> str | None:
        there = formats.read(self._file)
        return None if there is None else there.restoring

    def prepare(self) -> None:
        super().prepare()
        owner.require(self.root)
        root.make_own(self.root)

    def locked(self) -> AbstractContextManager[None]:
        return LockFile(self._layout.own(SERVICE)).exclusive(_BUSY)

    def begin(self) -> None:
        trash = self._layout.own(TRASH)
        files.rename(self._layout.own(INDEX), f"{trash}/{fresh_id()}")  # of a tree that was here before
        directories.empty(trash)
        root.make_own(self.root)
        formats.write(self._file, LayoutFile(max(self._saved.format, FORMAT), restoring=self._backup))

    def finish(self) -> None:
        formats.write(self._file, self._saved)


class _Attachments(RestoreTarget):
    """A directory of attachments, in which a file of its own is the mark. Services lock their trees, and not this."""

    own = frozenset({SPOOL, TRASH, QUARANTINE})

    def restoring(self) -> str | None:
        try:
            descriptor = nofollow.open_to_read(self._layout.own(_RESTORING))
        except FileNotFoundError:
            return None
        try:
            return os.fsdecode(nofollow.read_small(descriptor)) or None
        finally:
            os.close(descriptor)

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self) -> None:
        files.write_durably(self._layout.own(_RESTORING), os.fsencode(self._backup))

    def finish(self) -> None:
        files.remove(self._layout.own(_RESTORING))
        directories.sync(self.root)
