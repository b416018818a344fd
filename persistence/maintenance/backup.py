"""Backups while the service runs: every document whole, what has not changed as a hard link to the last backup.

::

    <destination>/2026-03-04T05-06-07.089Z/            trees, which can be checked, read and copied back
                                           SHA256SUMS  the digest of every file in it
                                           .backup/    what is in it, and the settings (``manifest``)
    <destination>/2026-03-04T05-06-07.089Z.partial/    one that was interrupted; the next one removes it

A backup is named after the moment, or one millisecond past the last one where the clock was set back: the name that
sorts last is always the newest backup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from persistence.errors import PersistenceError, StartupError, disk_errors
from persistence.maintenance import manifest, sums
from persistence.maintenance.bodies import BodiesOf
from persistence.maintenance.copies import Copied, Copies, Last, NewBackup, linkable
from persistence.maintenance.manifest import FORMAT, MANIFEST, WRONG, Manifest, Part
from persistence.maintenance.saving import Saving
from persistence.maintenance.sums import SUMS, Recorded
from persistence.maintenance.tree import Tree
from persistence.model.instants import Instant, next_after
from persistence.storage import directories, files, formats, locks, owner
from persistence.storage.integrity import Integrity
from persistence.storage.layout import LAYOUT, SERVICE, file_name
from persistence.storage.root import missing

PARTIAL = ".partial"
_BACKUP = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z")
_LOCK = ".lock"


def complete(destination: str) -> list[str]:
    """The paths of the complete backups in a destination, oldest first; raises ``OSError``."""
    names = sorted(name for name in os.listdir(destination) if _BACKUP.fullmatch(name))
    return [f"{destination}/{name}" for name in names]


def instant_of(backup: str) -> Instant:
    """The instant that a backup is named after."""
    day, _, clock = os.path.basename(backup).partition("T")
    return Instant(f"{day}T{clock.replace('-', ':')}")


@dataclass(frozen=True, slots=True)
class Sources:
    """What is to be saved: trees and directories of attachments by the names of their parts, and files of the backup.

    ``bodies_of`` says which directory has the bodies of a form; it must find edited bodies, too. ``integrity`` tells
    edits by hand from damage. ``own`` are path in the backup, content and mode.
    """

    trees: Mapping[str, Tree]
    bases: Mapping[str, str]
    bodies_of: BodiesOf
    integrity: Integrity
    own: Sequence[tuple[str, bytes, int]] = ()

    @property
    def paths(self) -> Iterator[str]:
        """The directories that are saved."""
        yield from (tree.root for tree in self.trees.values())
        yield from self.bases.values()


class Backup:
    """One backup into a destination directory, which is made where it is missing.

    ``path`` is that of the backup, empty until it has a name. ``missing`` says of each part that could not be saved
    why.
    """

    def __init__(self, sources: Sources, destination: str) -> None:
        """Look at the destination.

        Raises:
            StartupError: it is a backup itself, or it and a directory that is to be saved lie inside each other; or
                others may write to it, and this is root.
        """
        self.path = ""
        self.folders = 0
        self.count = Copied()
        self.missing: dict[str, str] = {}
        self._destination = os.path.realpath(destination)
        self._sources = sources
        # Root reads a tree as its owner, and writes the backup as the destination's: neither leads it anywhere else.
        self._keeper = owner.identity_of(self._destination, trusting=os.geteuid() != 0)
        self._owners = {name: owner.identity_of(tree.root) for name, tree in sources.trees.items()}
        if os.path.lexists(f"{self._destination}/{SUMS}"):
            raise StartupError(f"{self._destination} is a backup itself: name the directory that it is in")
        target = os.path.realpath(destination)
        for path in sources.paths:
            if os.path.commonpath((os.path.realpath(path), target)) in {os.path.realpath(path), target}:
                raise StartupError(f"backup and data directory must not lie inside each other: {target}")

    def run(self) -> Iterator[str | None]:
        """Make the backup: ``None`` for a folder that is done, a line for what cannot be saved as it should be.

        A tree that cannot be used does not keep the others from being saved.

        Raises:
            StartupError: there is no tree that can be saved.
            BusyError: all are being restored or upgraded, another backup is being made there, or a writer kept a
                document locked beyond the deadline.
            DiskFullError, DiskError: the destination refused; earlier backups are as they were.
        """
        yield from owner.each_as(self._keeper, self._run())

    def _run(self) -> Iterator[str | None]:
        """As ``run``, by the user to whom the destination belongs."""
        with disk_errors(f"backup to {self._destination}"), ExitStack() as stack:
            layouts = self._layouts(stack)
            stack.enter_context(self._exclusively())
            newest = next(reversed(complete(self._destination)), None)
            path = f"{self._destination}/{file_name(_instant(newest))}"
            with files.synced(self._destination):
                yield from self._fill(f"{path}{PARTIAL}", newest, layouts)
            files.rename(f"{path}{PARTIAL}", path)
            directories.sync(self._destination)
            self.path = path

    def total(self) -> int:
        """How many files there are to verify; raises ``OSError``."""
        with owner.being(self._keeper):
            return sums.count(self.path)

    def verify(self) -> Iterator[str | None]:
        """Read the finished backup from the disk: ``None`` for a file that is done, a line for one that is wrong.

        The next backup links nothing to a backup in which something was wrong.

        Raises:
            DamagedError: its list cannot be read.
            DiskError: the disk refuses.
        """
        with disk_errors(f"verifying {self.path}"):
            for problem in owner.each_as(self._keeper, sums.compare(self.path)):
                if problem is not None:
                    with owner.being(self._keeper):
                        files.append(f"{self.path}/{WRONG}", os.fsencode(problem) + b"\n")
                yield problem

    def _layouts(self, stack: ExitStack) -> dict[str, tuple[formats.LayoutFile, int]]:
        """The layouts of the trees that can be saved, each with its time; nobody restores or upgrades these meanwhile.

        Raises:
            PersistenceError: there is none; the error is that of the first.
        """
        found, errors = dict[str, tuple[formats.LayoutFile, int]](), list[PersistenceError]()
        for name, tree in self._sources.trees.items():
            try:
                with owner.being(self._owners[name]), disk_errors(f"data directory {tree.root}"):
                    found[name] = _layout(tree, stack)
            except PersistenceError as error:
                errors.append(error)
                self.missing[name] = str(error)
        if errors and not found:
            raise errors[0]
        for name, base in self._sources.bases.items():
            if not os.path.isdir(base):
                self.missing[name] = f"there is no directory {base} for attachments"
        return found

    def _fill(
        self, directory: str, newest: str | None, layouts: Mapping[str, tuple[formats.LayoutFile, int]]
    ) -> Iterator[str | None]:
        with ExitStack() as stack:
            known = linkable(newest)
            last = None
            if newest is not None and known is not None:
                last = Last(newest, known, stack.enter_context(Recorded(newest)))
            backup = NewBackup(directory, last, self._keeper)
            self.count = backup.count
            parts = self._parts()
            copies = {part.name: Copies(backup, part) for part in parts if not part.missing}
            bodies = {base: copies[name] for name, base in self._sources.bases.items() if name in copies}
            for name, (layout, nanoseconds) in layouts.items():
                copies[name].add_bytes(LAYOUT, formats.encode(layout), nanoseconds)
                sources = self._sources
                saving = Saving(sources.trees[name], copies[name], sources.bodies_of, bodies, sources.integrity)
                for problem in owner.each_as(self._owners[name], saving.run()):
                    yield problem if problem is None or len(parts) == 1 else f"{name}: {problem}"
                self.folders += saving.folders
            for path, data, mode in self._sources.own:
                backup.write(path, data, mode)
            backup.write(MANIFEST, manifest.encode(Manifest(FORMAT, parts)))
            backup.finish()

    def _parts(self) -> tuple[Part, ...]:
        """One tree lies in the backup itself; several, or one with directories of attachments, in directories."""
        sources = self._sources
        is_alone = len(sources.trees) == 1 and not sources.bases
        if is_alone:
            (tree,) = sources.trees.values()
            is_alone = not files.exists(f"{tree.root}/{SUMS}")  # an application of that name
        return (
            *(
                Part("tree", name, "" if is_alone else manifest.directory_of(name), tree.root, self._why(name))
                for name, tree in sources.trees.items()
            ),
            *(
                Part("attachments", name, manifest.directory_of(name), base, self._why(name))
                for name, base in sources.bases.items()
            ),
        )

    def _why(self, name: str) -> str:
        return self.missing.get(name, "")

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        directories.ensure(self._destination)
        lock = f"{self._destination}/{_LOCK}"
        files.ensure_file(lock)
        with locks.alone(lock, "another backup is being made there"):
            for name in os.listdir(self._destination):
                if name.endswith(PARTIAL) and _BACKUP.fullmatch(name.removesuffix(PARTIAL)):
                    directories.remove_tree(f"{self._destination}/{name}")
            yield


def _instant(newest: str | None) -> Instant:
    """The instant of a backup that is made now, after the newest one there is."""
    try:
        return next_after(None if newest is None else instant_of(newest))
    except (ValueError, OverflowError) as error:  # no day of the calendar, or its last
        raise StartupError(f"no backup can come after {newest}: remove or rename it") from error


def _layout(tree: Tree, stack: ExitStack) -> tuple[formats.LayoutFile, int]:
    """The layout of a tree that can be saved, and its time; for the stack nobody restores or upgrades the tree."""
    if not os.path.isdir(tree.root):
        raise missing(tree.root)
    if files.exists(tree.layout.own(SERVICE)):  # a link or a pipe there is an error
        stack.callback(os.close, locks.share(tree.layout.own(SERVICE)))
    path = tree.layout.own(LAYOUT)
    layout = formats.read(path)
    if layout is None:
        raise missing(tree.root)
    formats.check(path, layout)
    return layout, os.lstat(path).st_mtime_ns
