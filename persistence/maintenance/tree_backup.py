"""Saving one tree into its part of a backup while the service runs: every document whole, with its bodies.

The files of a document and its draft, and the bodies of their attachments in other directories, are opened under one
lock and copied after it. The service never changes a file that has a name, so an open file keeps its content, and
writers wait only as long as opening takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from persistence.errors import BusyError, ConfigurationError, DamagedError
from persistence.maintenance import snapshot
from persistence.maintenance.backup_files import PartFiles
from persistence.maintenance.body_check import BodiesOf
from persistence.maintenance.findings import FindingKind
from persistence.maintenance.folder_files import OlderRevision
from persistence.maintenance.snapshot import FolderSnapshot, SidecarFile
from persistence.maintenance.tree import Folder, FolderTree
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress
from persistence.model.sidecar import Sidecar, shows_stamp
from persistence.storage import stored_revision
from persistence.storage.attachment_bodies import BodiesReader
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.layout import FilePaths, unescape
from persistence.storage.split_attachments import described

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class _Body:
    """The open body of an attachment, its path, and the paths that it may have in the previous backup."""

    part: PartFiles
    path: str
    earlier: tuple[str, ...]
    file: BinaryIO
    sidecar: Sidecar

    def add(self) -> None:
        """Copy it. Raises as ``PartFiles.add``."""
        self.part.add(self.path, self.file, self.sidecar, *self.earlier)


class TreeBackup:
    """Saves a tree as ``part``; ``attachments`` are the parts of the directories of attachments, by their paths.

    ``bodies_of`` tells which of these has the bodies of a form; its views must find edited bodies, too. ``integrity``
    tells edits by hand from damage.
    """

    def __init__(
        self,
        tree: FolderTree,
        part: PartFiles,
        bodies_of: BodiesOf,
        attachments: Mapping[str, PartFiles],
        integrity: Integrity,
    ) -> None:
        self.folders = 0
        self._tree = tree
        self._part = part
        self._bodies_of = bodies_of
        self._attachments = attachments
        self._integrity = integrity

    def run(self) -> Iterator[str | None]:
        """Save the tree: yield ``None`` for a folder that is done, and a line for what is damaged or not saved.

        Raises:
            BusyError: a writer kept a document locked beyond the deadline.
            OSError: the destination refused.
        """
        for item in self._tree.walk():
            if isinstance(item, Folder):
                yield from map(self._relative, self._save(item))
                self.folders += 1
                yield None
            elif item.kind is not FindingKind.FOREIGN:
                yield self._relative(f"{item.path}: {item.what}; it is not saved")

    def _save(self, folder: Folder) -> list[str]:
        """Save a document with its draft, unless it was saved with the draft, or a version of a definition."""
        folders = [folder]
        if folder.collection is not None:
            folders = [self._tree.folder_in(collection, folder) for collection in Collection]
        if any(self._part.has(self._tree.inside(each.path)) for each in folders):
            return []
        problems, opened, bodies = list[str](), list[tuple[Folder, FolderSnapshot]](), list[_Body]()
        with ExitStack() as stack:
            with self._tree.locked(folder):
                for each in folders:
                    try:
                        found = snapshot.open_folder(each.path, stack)
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        problems.append(f"{error.filename or each.path}: {error.strerror}")
                        continue
                    opened.append((each, found))
                    problems += found.problems
                    bodies += self._current_bodies(each, found, stack, problems)
            for each, found in opened:
                self._add_folder(each, found, problems)
            for body in bodies:
                with _noting(problems):
                    body.add()
        return problems

    def _add_folder(self, folder: Folder, opened: FolderSnapshot, problems: list[str]) -> None:
        for name, said in opened.sidecars.items():
            path = self._inside(FilePaths(opened.path, name)).sidecar
            self._part.add_bytes(path, said.data, said.nanoseconds)
        for name, file in opened.contents.items():
            with _noting(problems):
                self._add_content(FilePaths(opened.path, name), file, opened.sidecar(name))
        for revision in opened.history.revisions:
            with _noting(problems):
                self._add_revision(folder, revision)
        for path in opened.history.strays:
            with _noting(problems), snapshot.opened(path) as stray:
                if stray is not None:
                    self._part.add(self._tree.inside(path), stray, None)

    def _add_revision(self, folder: Folder, revision: OlderRevision) -> None:
        """Copy an older revision; it may have been the current one in the previous backup.

        Raises:
            DamagedError: a part of it is missing or cannot be read; the rest is copied.
        """
        place, earlier = self._inside(revision.place), self._inside(FilePaths(folder.path, revision.name))
        with ExitStack() as stack:
            opened, body, problem = self._open_revision(folder, revision, stack)
            if opened is None:
                return
            said, content = opened
            self._part.add_bytes(place.sidecar, said.data, said.nanoseconds, earlier.sidecar)
            if content is not None:
                self._add_content(revision.place, content, said.sidecar, earlier.content)
            if problem:
                raise DamagedError(problem)
            if body is not None:
                body.add()

    def _add_content(self, place: FilePaths, file: BinaryIO, sidecar: Sidecar | None, *earlier: str) -> None:
        """Copy a content as it is.

        Raises:
            DamagedError: it is neither its sidecar's nor an edit by hand; or it cannot be read.
        """
        damage: DamagedError | None = None
        try:
            self._judge(place, file, sidecar)
        except DamagedError as error:
            damage = error
        self._part.add(self._inside(place).content, file, sidecar, *earlier)
        if damage is not None:
            cause = str(damage).partition(" is damaged: ")[2] or str(damage)
            raise DamagedError(f"{place.content}: damaged, and saved as it is: {cause}") from damage

    def _judge(self, place: FilePaths, file: BinaryIO, sidecar: Sidecar | None) -> None:
        status = os.fstat(file.fileno())
        if sidecar is None or sidecar.deleted:
            return
        if status.st_size != sidecar.size or not shows_stamp(status.st_mtime_ns, sidecar):
            self._integrity.judge(place, sidecar, file.fileno(), status)

    def _open_revision(
        self, folder: Folder, revision: OlderRevision, stack: ExitStack
    ) -> tuple[tuple[SidecarFile, BinaryIO | None] | None, _Body | None, str]:
        """Open an older revision and its body in another directory; the text tells why there is no body.

        No lock is held. A re-encryption replaces the body and then the record: both are opened until they agree.
        """
        for _ in range(_ATTEMPTS):
            opened = snapshot.open_revision(revision.place, stack)
            record = None if opened is None else opened[0].sidecar
            if record is None or record.body is None or record.deleted:
                return opened, None, ""
            body, problem = self._body(folder, revision.name, revision.place, record, stack)
            if not problem:
                return opened, body, ""
            now = stored_revision.read_sidecar(revision.place)
            if now is None or now.id == record.id:
                return opened, None, problem
        raise BusyError(f"{revision.place.content} is being rewritten too often to be saved")

    def _current_bodies(
        self, folder: Folder, opened: FolderSnapshot, stack: ExitStack, problems: list[str]
    ) -> Iterator[_Body]:
        """Open the bodies of a document's attachments that are in another directory; its lock is held."""
        for name, said in opened.sidecars.items():
            record = said.sidecar
            if record is None or record.deleted or record.size or name == DATA_XML:
                continue
            body, problem = self._body(folder, name, FilePaths(folder.path, name), record, stack)
            if problem:
                problems.append(problem)
            if body is not None:
                yield body

    def _body(
        self, folder: Folder, name: str, record_place: FilePaths, record: Sidecar, stack: ExitStack
    ) -> tuple[_Body | None, str]:
        """Open the body of a record until the stack ends; the text tells what is wrong with it.

        Neither is there if the directory of the body is not saved.
        """
        bodies = self._directory(folder)
        if bodies is None or folder.collection is None:
            return None, ""
        what = f"{record_place.content}: its body"
        address = DocumentAddress(folder.form, folder.collection, folder.name, unescape(name))
        try:
            found = bodies.find(address, record, content=True)
        except OSError as error:
            return None, f"{what} in {bodies.root}: {error.strerror}"
        if found is None:
            return None, "" if record.body is None else f"{what} is missing in {bodies.root}"
        file, place = stack.enter_context(found.opened), bodies.paths(address, record.version)
        part, path = self._attachments[bodies.root], os.path.relpath(place.content, bodies.root)
        if record_place.is_older:
            if found.is_edited:
                return None, f"{what} in {bodies.root} is another one"
            older = os.path.relpath(place.revision(record.modified).content, bodies.root)
            return _Body(part, older, (path,), file, described(record)), ""
        is_damaged = record.body is not None and found.is_edited and self._integrity.hand_edits is not HandEdits.ALL
        problem = f"{what} in {bodies.root} is damaged, and saved as it is" if is_damaged else ""
        return _Body(part, path, (), file, described(record)), problem

    def _directory(self, folder: Folder) -> BodiesReader | None:
        """Return the directory of the bodies of a form's attachments, if it is saved."""
        try:
            bodies = self._bodies_of(folder.form)
        except ConfigurationError:  # the form has no provider any more
            return None
        return bodies if bodies is not None and bodies.root in self._attachments else None

    def _relative(self, problem: str) -> str:
        return problem.removeprefix(f"{self._tree.root}/")

    def _inside(self, place: FilePaths) -> FilePaths:
        return FilePaths(self._tree.inside(place.directory), place.name)


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Note damage, and go on: the rest is saved all the same."""
    try:
        yield
    except DamagedError as error:
        problems.append(str(error))
