"""Backups while the service runs: every document whole, unchanged files as hard links to the previous backup.

::

    <destination>/2026-03-04T05-06-07.089Z/            trees, which can be checked, read and copied back
                                           SHA256SUMS  the digest of every file in it
                                           .backup/    the manifest, and the settings (``manifest``)
    <destination>/2026-03-04T05-06-07.089Z.partial/    an interrupted backup; the next one removes it

A backup is named after its instant, or one millisecond past the previous one if the clock was set back: the name that
sorts last is always the newest backup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from persistence.errors import PersistenceError, StartupError, disk_errors
from persistence.maintenance import backup_files
from persistence.maintenance.storage_check import BodiesOf
from persistence.maintenance.tree_backup import StorageBackup, TreeBackup
from persistence.maintenance.tree_walk import FolderTree
from persistence.model.addresses import Collection, Form
from persistence.model.texts import Instant, next_after
from persistence.storage import files, owner, root
from persistence.storage.layout import LAYOUT, SERVICE, Layout, file_name
from persistence.storage.locks import LockFile
from persistence.storage.root import missing
from persistence.storage.storage import DocumentFile, MaintainedDatabase
from persistence.storage.store import files_below, remove_wholly
from persistence.storage.stored_revision import Integrity

PARTIAL = ".partial"
_BACKUP = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z")
_LOCK = ".lock"


def complete(destination: str) -> list[str]:
    """Return the paths of the complete backups in a destination, oldest first. Raises ``OSError``."""
    names = sorted(name for name in os.listdir(destination) if _BACKUP.fullmatch(name))
    return [f"{destination}/{name}" for name in names]


@dataclass(eq=False)
class Backup:
    """One backup into a destination; ``path`` is empty until it is complete, ``missing`` has parts with the reasons."""

    # ``trees`` and ``bases``, directories of attachments, are saved by the names of their parts. ``bodies_of`` returns
    # the directory with the bodies of a form; its views must find edited bodies, too. ``integrity`` distinguishes edits
    # by hand from damage. ``extra`` are further files, which may open data: contents by paths in the backup.
    # ``databases`` are saved as trees. ``needed_keys`` and ``saved_keys`` are those of the manifest.
    destination: str
    trees: Mapping[str, FolderTree]
    bases: Mapping[str, str]
    bodies_of: BodiesOf
    integrity: Integrity
    extra: Mapping[str, bytes] = field(default_factory=dict)
    databases: Mapping[str, MaintainedDatabase] = field(default_factory=dict)
    needed_keys: tuple[str, ...] = ()
    saved_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.path = ""
        self.folders = 0
        self.count = backup_files.BackupCount()
        self.missing: dict[str, str] = {}
        self._destination = os.path.realpath(self.destination)
        owner.refuse_root(self._destination)
        for tree in self.trees.values():
            owner.require_closed(tree.root)
        if os.path.lexists(f"{self._destination}/{backup_files.SUMS}"):
            raise StartupError(f"{self._destination} is a backup itself: name the directory that it is in")
        for path in (*(tree.root for tree in self.trees.values()), *self.bases.values()):
            both = {os.path.realpath(path), self._destination}
            if os.path.commonpath(both) in both:
                raise StartupError(f"backup and data directory must not lie inside each other: {self._destination}")

    def run(self) -> Iterator[str | None]:
        """Make the backup: yield ``None`` for a folder that is done, and a line for each problem."""
        with disk_errors(f"backup to {self._destination}"), ExitStack() as stack:
            layouts = self._layouts(stack)
            stack.enter_context(exclusively(self._destination))
            newest, before = next(reversed(complete(self._destination)), None), None
            if newest is not None:
                day, _, clock = os.path.basename(newest).partition("T")
                before = Instant(f"{day}T{clock.replace('-', ':')}")
            try:
                path = f"{self._destination}/{file_name(next_after(before))}"
            except (ValueError, OverflowError) as error:  # no day of the calendar, or its last
                raise StartupError(f"no backup can come after {newest}: remove or rename it") from error
            with files.synced(self._destination):
                yield from self._fill(f"{path}{PARTIAL}", newest, layouts)
            files.rename(f"{path}{PARTIAL}", path)
            files.sync_directory(self._destination)
            self.path = path

    def total(self) -> int:
        return backup_files.count(self.path)

    def verify(self) -> Iterator[str | None]:
        """Read the backup from the disk: yield ``None`` for a file that is done, a line for a wrong one."""
        with disk_errors(f"verifying {self.path}"):
            for problem in backup_files.verify(self.path):
                if problem is not None:
                    files.append(f"{self.path}/{backup_files.WRONG}", os.fsencode(problem) + b"\n")
                yield problem

    def _layouts(self, stack: ExitStack) -> dict[str, tuple[root.LayoutFile, int]]:
        found, errors = dict[str, tuple[root.LayoutFile, int]](), list[PersistenceError]()
        for name in (*self.trees, *self.databases):
            try:
                if (tree := self.trees.get(name)) is None:
                    next(iter(self.databases[name].storage.forms()), None)
                else:
                    with disk_errors(f"data directory {tree.root}"):
                        found[name] = _layout(tree, stack)
            except PersistenceError as error:
                errors.append(error)
                self.missing[name] = str(error)
        if errors and len(self.missing) == len(self.trees) + len(self.databases):
            raise errors[0]
        for name, base in self.bases.items():
            if not os.path.isdir(base):
                self.missing[name] = f"there is no directory {base} for attachments"
        return found

    def _fill(
        self, directory: str, newest: str | None, layouts: Mapping[str, tuple[root.LayoutFile, int]]
    ) -> Iterator[str | None]:
        with backup_files.previous_backup(newest) as previous:
            backup = backup_files.NewBackup(directory, previous)
            self.count = backup.count
            parts = self._parts()
            saved = {part.name: backup_files.PartFiles(backup, part) for part in parts if not part.missing}
            attachments = {base: saved[name] for name, base in self.bases.items() if name in saved}
            runs = dict[str, TreeBackup | StorageBackup]()
            for name, (layout, nanoseconds) in layouts.items():
                saved[name].add_bytes(LAYOUT, root.encode_layout(layout), nanoseconds)
                tree = self.trees[name]
                runs[name] = TreeBackup(tree, saved[name], self.bodies_of, attachments, self.integrity)
            for name, database in self.databases.items():
                if name in saved:
                    runs[name] = StorageBackup(database, saved[name], self.bodies_of)
            for name, run in runs.items():
                for problem in run.run():
                    self.folders += problem is None
                    yield problem if problem is None or len(parts) == 1 else f"{name}: {problem}"
            for path, data in self.extra.items():
                backup.write(path, data, backup_files.SECRET_MODE)
            manifest = backup_files.Manifest(backup_files.FORMAT, parts, self.needed_keys, self.saved_keys)
            backup.write(backup_files.MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
            backup.checksums.write()

    def _parts(self) -> tuple[backup_files.BackupPart, ...]:
        roots, bases = {name: tree.root for name, tree in self.trees.items()}, self.bases
        has_that_name = any(files.exists(f"{path}/{backup_files.SUMS}") for path in roots.values())  # an application
        is_alone = len(roots) == 1 and not (bases or has_that_name or self.databases)
        roots |= {name: saved.name for name, saved in self.databases.items()}

        def part(kind: Literal["tree", "attachments"], name: str, path: str) -> backup_files.BackupPart:
            directory = "" if is_alone else backup_files.directory_of(name)
            return backup_files.BackupPart(kind, name, directory, path, self.missing.get(name, ""))

        return (
            *(part("tree", *each) for each in roots.items()),
            *(part("attachments", *each) for each in bases.items()),
        )


@contextmanager
def exclusively(destination: str) -> Iterator[None]:
    """Keep others from making or changing backups in a destination for a block. Raises ``BusyError``, ``OSError``."""
    files.ensure(destination)
    lock = f"{destination}/{_LOCK}"
    files.ensure_file(lock)
    with LockFile(lock).exclusive("another backup is being made there"):
        for name in os.listdir(destination):
            if name.endswith(PARTIAL) and _BACKUP.fullmatch(name.removesuffix(PARTIAL)):
                files.remove_tree(f"{destination}/{name}")
        yield


def _layout(tree: FolderTree, stack: ExitStack) -> tuple[root.LayoutFile, int]:
    if not os.path.isdir(tree.root):
        raise missing(tree.root)
    if files.exists(tree.layout.own(SERVICE)):  # a link or a pipe there is an error
        stack.enter_context(LockFile(tree.layout.own(SERVICE)).shared())
    path = tree.layout.own(LAYOUT)
    layout = root.read_layout(path)
    if layout is None:
        raise missing(tree.root)
    root.check_layout(path, layout)
    return layout, os.lstat(path).st_mtime_ns


# Files of erased documents in backups: found, and removed from them and from their lists of digests.
#
# The list is replaced first, and the files go after it. So a run that is killed leaves files that no list has, which
# the next run finds and removes, and a backup that can be verified and restored.


def backups_in(destination: str) -> list[str]:
    path = os.path.realpath(destination)
    with disk_errors(f"backups in {destination}"):
        if os.path.lexists(f"{path}/{backup_files.SUMS}"):
            return [path]
        found = complete(path) if os.path.isdir(path) else []
    if not found:
        raise StartupError(f"{path} is not a backup, and has none in it (no {backup_files.SUMS})")
    return found


def copies(backup: str, documents: Sequence[tuple[Form, str]]) -> list[DocumentFile]:
    """Return the files that a backup has of documents, in any part; their paths are in the backup."""
    with disk_errors(f"backup {backup}"):
        return [each for folder in _folders(backup, documents) for each in files_below(f"{backup}/{folder}", backup)]


def remove_copies(backup: str, documents: Sequence[tuple[Form, str]]) -> None:
    """Remove the files of documents from a backup, and from its list. Raises as ``copies``."""
    above = os.path.dirname(backup)
    with exclusively(above), disk_errors(f"backup {backup}"):  # backups beside this one would link to its files
        folders = list(_folders(backup, documents))
        backup_files.leave_out(backup, folders)
        for folder in folders:
            remove_wholly(f"{backup}/{folder}")


def _folders(backup: str, documents: Sequence[tuple[Form, str]]) -> Iterator[str]:
    names = Layout("")
    for part in backup_files.read(backup).parts:
        for form, document in documents:
            for collection in Collection:
                yield part.path(names.document(form, collection, document).lstrip("/"))
