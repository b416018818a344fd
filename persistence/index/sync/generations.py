"""The index files of a form, and whether the one in use can be trusted.

A small file names the index in use. An index file is never replaced by another of the same name: whoever has it open
goes on reading it until another one is in use. ``staleness`` says what the identity of the tree and the number of
changes are for.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum

from persistence.errors import BusyError
from persistence.index.sqlite.state import IndexState
from persistence.model.addresses import Form
from persistence.model.sidecar import fresh_id
from persistence.storage import directories, files, nofollow
from persistence.storage.layout import Layout
from persistence.storage.locks import LockFile
from persistence.storage.nofollow import NotOpenedError

_SUFFIX = ".sqlite"
_NAME = re.compile(rf"[0-9a-f]{{40}}{re.escape(_SUFFIX)}")
_UNFINISHED = re.compile(r"current\.\d+")
"""The remains that ``files.write_durably`` leaves of the small file, if it is killed."""
_BUSY = "the index of the form is being made"

CHANGES = "-changes"
"""The end of the name of the file that has the number of changes to an index."""


class Generations:
    """The index files of a form. Methods raise ``OSError``."""

    def __init__(self, layout: Layout, form: Form) -> None:
        self._directory = layout.index(form)
        self._pointer = layout.current_index(form)
        self._lock = f"{self._directory}/lock"

    def current(self) -> str | None:
        """Return the path of the file in use; ``None`` where none is named."""
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
        """Return a path for a new file."""
        return f"{self._directory}/{fresh_id()}{_SUFFIX}"

    def use(self, path: str) -> None:
        """Make a file the one in use."""
        files.write_durably(self._pointer, os.path.basename(path).encode())

    def invalidate(self, path: str) -> None:
        """Use a file no longer, if it is the one in use."""
        if self.current() == path:
            files.remove(self._pointer)

    def sweep(self) -> None:
        """Remove the files that are not in use; only while nobody else makes one."""
        for path in self._others():
            with suppress(OSError):
                files.remove(path)

    def leftovers(self) -> list[str]:
        """Return the files beside the one in use that a killed rebuild left.

        Where no file is in use, whoever makes the next one removes the others.
        """
        try:
            with LockFile(self._lock).exclusive(_BUSY):
                return self._others() if self.current() else []
        except (FileNotFoundError, BusyError):
            return []

    def _others(self) -> list[str]:
        current = os.path.basename(self.current() or "")
        return [f"{self._directory}/{name}" for name in os.listdir(self._directory) if _is_leftover(name, current)]

    @contextmanager
    def rebuilding(self, *, timeout: float) -> Iterator[None]:
        """Keep others from making an index of the form for a block; wait for them up to ``timeout`` seconds.

        Raises:
            BusyError: somebody else makes one.
        """
        directories.ensure(self._directory)
        files.ensure_file(self._lock)
        with LockFile(self._lock).exclusive(_BUSY, timeout=timeout):
            yield


def _is_leftover(name: str, current: str) -> bool:
    """Return whether a file is neither the one in use, nor beside it, nor another file of the directory."""
    base = name.partition(_SUFFIX)[0] + _SUFFIX
    return (_NAME.fullmatch(base) is not None and base != current) or _UNFINISHED.fullmatch(name) is not None


class IndexCondition(Enum):
    """How far an index file can be trusted."""

    READY = "ready"
    EARLIER = "perhaps of an earlier time"
    NONE = "none that can be used"


def condition_of(state: IndexState, tree: str, changes: int) -> IndexCondition:
    """Return how far an index can be trusted, by what it says of itself.

    ``tree`` is the identity of the tree that it should be of. ``changes`` is the number beside it, read before.
    """
    if not state.is_complete:
        return IndexCondition.NONE
    said = state.tree
    if said == tree:
        return IndexCondition.READY if state.changes >= changes else IndexCondition.NONE
    return IndexCondition.EARLIER if _place(said) == _place(tree) else IndexCondition.NONE


def tree_identity(root: str) -> str:
    """Return what names a tree and the start of the machine; raises ``OSError``."""
    status = os.stat(root)
    return f"{_boot()} {status.st_dev:x} {status.st_ino:x}"


def _place(identity: str) -> str:
    return identity.partition(" ")[2]


def _boot() -> str:
    """Return the start of the machine, as Linux names it; empty where it does not."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def changes_beside(path: str) -> int:
    """Return the number of changes in the file beside an index; 0 without a file, the largest where it is damaged."""
    try:
        descriptor = nofollow.open_to_read(path + CHANGES)
    except FileNotFoundError:
        return 0
    try:
        said = nofollow.read_small(descriptor)
    finally:
        os.close(descriptor)
    return int(said) if said.isdigit() else sys.maxsize


def count_change(state: IndexState, path: str) -> None:
    """Count a change, before the transaction that makes it is committed. Raises ``OSError``."""
    changes = state.changes + 1
    state.changes = changes
    if changes > changes_beside(path):  # else some are missing, which is still to be noticed
        _write(path, changes)


def reconcile_changes(state: IndexState, path: str) -> None:
    """Make both numbers agree, within a transaction: the index has been compared with the tree. Raises ``OSError``."""
    beside = changes_beside(path)
    if beside == sys.maxsize:
        _write(path, state.changes)
    elif beside > state.changes:
        state.changes = beside


def _write(path: str, changes: int) -> None:
    if not os.path.exists(path):  # another index is in its place: its files are removed, and nothing counts any more
        return
    files.overwrite(path + CHANGES, str(changes).encode())  # in place: without the file nothing would be missing
