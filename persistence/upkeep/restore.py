"""Restoring a backup into an empty root: every file is compared with its digest on the way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO

from persistence.errors import DamagedError, StartupError, disk_errors
from persistence.model.instants import next_after
from persistence.model.sidecar import fresh_id
from persistence.store import copying, digests, files, formats, locks, owner, root
from persistence.store.formats import FORMAT, LayoutFile
from persistence.store.layout import INDEX, LAYOUT, QUARANTINE, SERVICE, TRASH, file_name
from persistence.upkeep import sums
from persistence.upkeep.backup import complete
from persistence.upkeep.copies import chunks
from persistence.upkeep.sums import SUMS
from persistence.upkeep.tree import OWN

_BUSY = "the data directory is in use: stop the service first"


@dataclass(slots=True)
class Restored:
    """How many files and bytes were restored, and how many were there already from an interrupted restore."""

    files: int = 0
    bytes: int = 0
    known: int = 0


def chosen(source: str) -> str:
    """The backup that a path means: itself, or the newest complete one in it.

    Raises:
        StartupError: there is none.
        OSError: it cannot be listed.
    """
    path = os.path.abspath(source)
    if os.path.exists(f"{path}/{SUMS}"):
        return path
    found = complete(path) if os.path.isdir(path) else []
    if not found:
        raise StartupError(
            f"{path} is no backup and holds none (no {SUMS}): copy a tree back with cp -a or rsync -a, "
            "then 'persistence check --repair --adopt'"
        )
    return found[-1]


class Restore:
    """One restore of a backup into a root, which must be empty, or hold this restore, interrupted."""

    def __init__(self, source: str, path: str) -> None:
        """Raises ``StartupError`` and ``DiskError`` as ``chosen``."""
        self.count = Restored()
        self._root = os.path.abspath(path)
        self._quarantine = f"{self._root}/{QUARANTINE}/{file_name(next_after(None))}"
        with disk_errors(f"backup {source}"):
            self.source = chosen(source)

    def total(self) -> int:
        """How many files there are to restore."""
        with open(f"{self.source}/{SUMS}", "rb") as file:
            return sum(1 for _ in file)

    def run(self) -> Iterator[str | None]:
        """Restore: ``None`` for a file that is done, a line for one that is missing or not what it was.

        Such a file goes to the quarantine, so that nothing is served that is known to be wrong.

        Raises:
            StartupError: the root holds something, or the backup's format is not known.
            BusyError: a service uses the root.
            DamagedError: the list of digests cannot be read.
            DiskFullError, DiskError: the disk refused; restoring again goes on from there.
        """
        with disk_errors(f"restoring {self.source} to {self._root}"):
            layout = self._layout()
            with open(f"{self.source}/{SUMS}", "rb") as file:
                for _ in sums.read(file):  # all of it can be read: known before anything is changed
                    pass
                self._prepare()
                with locks.alone(f"{self._root}/{SERVICE}", _BUSY):
                    self._begin(layout)
                    file.seek(0)
                    with copying.synced(self._root):
                        yield from self._fill(file)
                    formats.write(f"{self._root}/{LAYOUT}", layout)

    def _fill(self, listed: BinaryIO) -> Iterator[str | None]:
        for digest, path in sums.read(listed):
            problem = self._one(path, digest) if path != LAYOUT else None
            if problem is not None:
                yield problem
            yield None
        yield from self._unlisted()

    def _layout(self) -> LayoutFile:
        layout = formats.read(f"{self.source}/{LAYOUT}")
        if layout is None:
            raise StartupError(f"{self.source} has no {LAYOUT}")
        if layout.format > FORMAT:
            formats.check(f"{self.source}/{LAYOUT}", layout)
        return layout

    def _unlisted(self) -> Iterator[str]:
        """What lies in the backup and is not in its list, which may have lost its end."""
        for directory, _, names in os.walk(self.source):
            for name in names:
                path = os.path.relpath(f"{directory}/{name}", self.source)
                is_there = any(os.path.lexists(f"{base}/{path}") for base in (self._root, self._quarantine))
                if path not in {SUMS, LAYOUT} and not is_there:
                    yield f"{path}: not in {SUMS}, and not restored"

    def _prepare(self) -> None:
        """Make the root and its locks, if it may be restored to."""
        files.ensure_directory(self._root)
        self._check()
        owner.require(self._root)
        root.make_own(self._root)

    def _begin(self, layout: LayoutFile) -> None:
        """Say in the root that it is being restored; what is there is looked at again under the lock."""
        self._check()
        files.rename(f"{self._root}/{INDEX}", f"{self._root}/{TRASH}/{fresh_id()}")  # of a tree that was here before
        files.empty(f"{self._root}/{TRASH}")
        root.make_own(self._root)
        formats.write(f"{self._root}/{LAYOUT}", LayoutFile(max(layout.format, FORMAT), restoring=self.source))

    def _check(self) -> None:
        there = formats.read(f"{self._root}/{LAYOUT}")
        if there is None and set(os.listdir(self._root)) - {"lost+found"} - OWN:
            raise StartupError(f"{self._root} is not empty")
        if there is not None and there.restoring and there.restoring != self.source:
            raise StartupError(f"{self._root} holds half of {there.restoring}: restore that again, or empty it")
        if there is not None and not there.restoring and set(os.listdir(self._root)) - {"lost+found"} - OWN:
            raise StartupError(f"{self._root} holds a tree already")

    def _one(self, path: str, digest: str) -> str | None:
        target = f"{self._root}/{path}"
        if os.path.exists(target) and digests.of_file(target) == digests.text(digest):
            self.count.known += 1
            return None
        files.remove(target)  # half of it, from a restore that was interrupted
        copying.make_directories(os.path.dirname(target))
        hashing = hashlib.sha256()
        try:
            with FileIO(files.open_to_read(f"{self.source}/{path}")) as file:
                status = os.fstat(file.fileno())
                copying.write_new(target, chunks(file, path, hashing.update), status.st_mtime_ns)
        except FileNotFoundError:
            return f"{path}: missing from the backup"
        except DamagedError as error:
            files.move_away(target, f"{self._quarantine}/{path}")
            return f"{error}; what there is of it is in {QUARANTINE}"
        if hashing.hexdigest() != digest:
            files.move_away(target, f"{self._quarantine}/{path}")
            return f"{path}: not what it was when it was saved; it is in {QUARANTINE}"
        self.count.files += 1
        self.count.bytes += status.st_size
        return None
