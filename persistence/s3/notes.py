"""Notes of bodies in an object store whose records are being changed, in files of this machine.

A note is written before an object is stored, or before a change leaves it without a record, and removed after the
commit. A killed process leaves it: the sweep then looks whether a record names the object, and need not list objects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO

from persistence.limits import ABANDONED_OBJECT_AFTER
from persistence.model.sidecar import fresh_id
from persistence.storage import directories, files, nofollow
from persistence.storage.layout import BODIES, Layout
from persistence.storage.locks import try_lock
from persistence.storage.uploads import abandoned


class BodyNotes:
    """The notes of a machine, below a root. Methods raise ``OSError``."""

    def __init__(self, root: str) -> None:
        self._directory = Layout(root).own(BODIES)

    def note(self) -> BodyNote:
        """Begin an empty note."""
        path = f"{self._directory}/{fresh_id()}"
        try:
            descriptor = files.open_new(path)
        except FileNotFoundError:
            directories.ensure(self._directory)
            descriptor = files.open_new(path)
        try_lock(descriptor)  # tells ``left`` that its process lives
        return BodyNote(path, descriptor)

    def left(self, age: float = ABANDONED_OBJECT_AFTER) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of the notes of dead processes that are older than so many seconds."""
        with suppress(FileNotFoundError):
            for path in abandoned(self._directory, age):
                with FileIO(nofollow.open_file(path)) as file:
                    yield path, nofollow.read_small(file.fileno())


class BodyNote:
    """One note. It stays when it is only closed."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def add(self, line: bytes) -> None:
        """Note something. Raises ``OSError``."""
        files.write_all(self._descriptor, line)

    def remove(self) -> None:
        """Remove the note: what it says is done."""
        files.remove_quietly(self._path)
        self.close()

    def close(self) -> None:
        """Leave the note to the sweep; do nothing if it is closed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
