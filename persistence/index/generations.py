"""The files of one form's index: one is in use, and another one can take its place while it is.

A small file beside them names the one in use. A file is never replaced by another of the same name: whoever has it open
goes on reading it, until it is not the one in use any more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from persistence.errors import BusyError
from persistence.model.addresses import Form
from persistence.model.sidecar import fresh_id
from persistence.storage import directories, files, nofollow
from persistence.storage.layout import Layout
from persistence.storage.locks import LockFile
from persistence.storage.nofollow import NotOpenedError

_SUFFIX = ".sqlite"
_NAME = re.compile(rf"[0-9a-f]{{40}}{re.escape(_SUFFIX)}")
_UNFINISHED = re.compile(r"current\.\d+")
"""What ``files.write_durably`` leaves of the small file, if it is killed."""
_BUSY = "the index of the form is being made"


class Generations:
    """The index files of a form. Methods raise ``OSError``."""

    def __init__(self, layout: Layout, form: Form) -> None:
        self._directory = layout.index(form)
        self._pointer = layout.current_index(form)
        self._lock = f"{self._directory}/lock"

    def current(self) -> str | None:
        """The path of the file in use; ``None`` where there is none, as far as is said."""
        try:
            descriptor = nofollow.open_to_read(self._pointer)
        except (FileNotFoundError, NotADirectoryError, NotOpenedError):  # a link is replaced by that of the next index
            return None
        try:
            name = nofollow.read_small(descriptor).decode(errors="replace")
        finally:
            os.close(descriptor)
        return f"{self._directory}/{name}" if _NAME.fullmatch(name) else None

    def fresh(self) -> str:
        """A path for a new file."""
        return f"{self._directory}/{fresh_id()}{_SUFFIX}"

    def use(self, path: str) -> None:
        """Let a file be the one in use from now on."""
        files.write_durably(self._pointer, os.path.basename(path).encode())

    def forget(self, path: str) -> None:
        """Let a file not be the one in use, if it is."""
        if self.current() == path:
            files.remove(self._pointer)

    def sweep(self) -> None:
        """Remove the files that are not in use; only while nobody else makes one."""
        for path in self._others():
            with suppress(OSError):
                files.remove(path)

    def left(self) -> list[str]:
        """The files beside the one in use that nobody is making: who was killed while he made one has left them.

        Where none is in use, whoever makes the next one removes the others.
        """
        try:
            with LockFile(self._lock).exclusive(_BUSY):
                return self._others() if self.current() else []
        except (FileNotFoundError, BusyError):
            return []

    def _others(self) -> list[str]:
        current = os.path.basename(self.current() or "")
        return [f"{self._directory}/{name}" for name in os.listdir(self._directory) if _is_left(name, current)]

    @contextmanager
    def making(self, *, timeout: float) -> Iterator[None]:
        """Keep others from making an index of the form for a block; ``timeout`` in seconds is how long to wait.

        Raises:
            BusyError: somebody else makes one.
        """
        directories.ensure(self._directory)
        files.ensure_file(self._lock)
        with LockFile(self._lock).exclusive(_BUSY, timeout=timeout):
            yield


def _is_left(name: str, current: str) -> bool:
    """Whether a file is neither the one in use, nor beside it, nor what others have in the directory."""
    base = name.partition(_SUFFIX)[0] + _SUFFIX
    return (_NAME.fullmatch(base) is not None and base != current) or _UNFINISHED.fullmatch(name) is not None
