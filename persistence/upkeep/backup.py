"""Backups while the service runs: every document whole, what has not changed as a hard link to the last backup.

::

    <destination>/2026-03-04T05-06-07.089Z/            a whole tree, which can be checked, read and copied back
                                           SHA256SUMS  the digest of every file in it
    <destination>/2026-03-04T05-06-07.089Z.partial/    one that was interrupted; the next one removes it

The files of a document and its draft are opened under their lock and copied after it: the service never changes a file
that has a name, so what an open file holds stays as it was, and writers wait no longer than opening takes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from persistence.errors import DamagedError, StartupError, disk_errors
from persistence.model.addresses import Collection
from persistence.model.instants import next_after
from persistence.store import copying, files, formats, locks
from persistence.store.layout import LAYOUT, SERVICE, Place, file_name
from persistence.upkeep import opening
from persistence.upkeep.copies import Copied, Copies
from persistence.upkeep.findings import Kind
from persistence.upkeep.listing import Revision
from persistence.upkeep.opening import Opened
from persistence.upkeep.sums import SUMS
from persistence.upkeep.tree import Folder, Tree

PARTIAL = ".partial"
_BACKUP = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z")
_LOCK = ".lock"


def complete(destination: str) -> list[str]:
    """The paths of the complete backups in a destination, oldest first; raises ``OSError``."""
    names = sorted(name for name in os.listdir(destination) if _BACKUP.fullmatch(name))
    return [f"{destination}/{name}" for name in names]


class Backup:
    """One backup of a tree into a destination directory, which is made where it is missing."""

    def __init__(self, tree: Tree, destination: str) -> None:
        """Choose the name; raises ``StartupError`` where destination and data directory lie inside each other."""
        self.path = f"{os.path.abspath(destination)}/{file_name(next_after(None))}"
        self.folders = 0
        self.count = Copied()
        self._destination = os.path.abspath(destination)
        self._tree = tree
        if not os.path.isdir(tree.root):
            raise StartupError(f"there is no data directory {tree.root}")
        if os.path.exists(f"{self._destination}/{SUMS}"):
            raise StartupError(f"{self._destination} is a backup itself: name the directory that it is in")
        root, target = os.path.realpath(tree.root), os.path.realpath(destination)
        if os.path.commonpath((root, target)) in {root, target}:
            raise StartupError(f"backup and data directory must not lie inside each other: {target}")

    def run(self) -> Iterator[str | None]:
        """Make the backup: ``None`` for a folder that is done, a line for what cannot be saved as it should be.

        Raises:
            StartupError: the tree has another format, or is not whole.
            BusyError: it is being restored or upgraded, another backup is being made there, or a writer kept a
                document locked beyond the deadline.
            DiskFullError, DiskError: the destination refused; earlier backups are as they were.
        """
        with disk_errors(f"backup to {self._destination}"), self._exclusively():
            unfinished = f"{self.path}{PARTIAL}"
            with copying.synced(self._destination):
                yield from self._fill(unfinished)
            files.rename(unfinished, self.path)
            files.sync_directory(self._destination)

    def _fill(self, directory: str) -> Iterator[str | None]:
        copies = Copies(directory, next(reversed(complete(self._destination)), None))
        self.count = copies.count
        self._save_layout(copies)
        for item in self._tree.walk():
            if isinstance(item, Folder):
                yield from map(self._shown, self._save(item, copies))
                self.folders += 1
                yield None
            elif item.kind is not Kind.FOREIGN:
                yield self._shown(f"{item.path}: {item.what}; it is not saved")
        copies.finish()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        files.ensure_directory(self._destination)
        lock = f"{self._destination}/{_LOCK}"
        files.ensure_file(lock)
        with ExitStack() as stack:
            if files.exists(self._tree.layout.own(SERVICE)):
                stack.callback(os.close, locks.share(self._tree.layout.own(SERVICE)))
            stack.enter_context(locks.alone(lock, "another backup is being made there"))
            for name in os.listdir(self._destination):
                if name.endswith(PARTIAL) and _BACKUP.fullmatch(name.removesuffix(PARTIAL)):
                    files.remove_tree(f"{self._destination}/{name}")
            yield

    def _save_layout(self, copies: Copies) -> None:
        path = self._tree.layout.own(LAYOUT)
        layout = formats.read(path)
        if layout is None:
            raise StartupError(f"there is no {path}: no data directory, or damaged: see 'persistence check'")
        formats.check(path, layout)
        copies.add_bytes(LAYOUT, formats.encode(layout), os.stat(path).st_mtime_ns)

    def _save(self, folder: Folder, copies: Copies) -> Iterator[str]:
        """Save a document with its draft, or a version of a definition; the document may have been, with its draft."""
        paths = [folder.path]
        if folder.collection is not None:
            paths = [self._tree.main(folder, collection).directory for collection in Collection]
        if any(copies.has(self._tree.inside(path)) for path in paths):
            return
        problems, opened = list[str](), list[Opened]()
        with ExitStack() as stack:
            with self._tree.holding(folder):
                for path in paths:
                    try:
                        opened.append(opening.open_all(path, stack))
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        problems.append(f"{error.filename or path}: {error.strerror}")
            for each in opened:
                problems += each.problems
                for add in self._additions(each, copies):
                    try:
                        add()
                    except DamagedError as error:
                        problems.append(str(error))
        yield from problems

    def _additions(self, opened: Opened, copies: Copies) -> Iterator[Callable[[], None]]:
        """Everything to be done for one folder: each raises ``DamagedError`` for what is no obstacle to the rest."""
        for name, data in opened.sidecars.items():
            yield partial(copies.add_bytes, self._inside(opened.path, name).sidecar, *data)
        for name, file in opened.contents.items():
            yield partial(copies.add, self._inside(opened.path, name).content, file, opened.sidecar(name))
        for revision in opened.history.revisions:
            yield partial(self._add_revision, opened.path, revision, copies)
        for path in opened.history.strays:
            yield partial(self._add_stray, path, copies)

    def _add_revision(self, folder: str, revision: Revision, copies: Copies) -> None:
        """Copy an older revision; the last backup may have had it as the current one."""
        place, earlier = (
            self._inside(revision.place.directory, revision.place.name),
            self._inside(folder, revision.name),
        )
        with ExitStack() as stack:
            opened = opening.revision(revision.place, stack)
            if opened is None:
                return
            (data, nanoseconds), content = opened
            copies.add_bytes(place.sidecar, data, nanoseconds, earlier.sidecar)
            if content is not None:
                copies.add(place.content, content, opening.decoded(data, revision.place), earlier.content)

    def _add_stray(self, path: str, copies: Copies) -> None:
        with opening.opened(path) as file:
            if file is not None:
                copies.add(self._tree.inside(path), file, None)

    def _shown(self, problem: str) -> str:
        """A line about a path, as people want it: relative to the root."""
        return problem.removeprefix(f"{self._tree.root}/")

    def _inside(self, directory: str, name: str) -> Place:
        return Place(self._tree.inside(directory), name)
