"""Saving one tree, database or bucket into its part of a backup while the service runs: every document whole.

The files of a document and its draft, and the bodies of their attachments in other directories, are opened under one
lock and copied after it. The service never changes a file that has a name, so an open file keeps its content, and
writers wait only as long as opening takes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, BinaryIO

from persistence.errors import BusyError, ConfigurationError, DamagedError, DiskError, DiskFullError
from persistence.limits import LARGEST_SMALL_FILE
from persistence.maintenance.backup_files import PartFiles
from persistence.maintenance.storage_check import BodiesOf
from persistence.maintenance.tree_walk import Folder, FolderTree, History, OlderRevision, list_folder, list_history
from persistence.model.addresses import DATA_XML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import Sidecar, described, shows_stamp
from persistence.model.texts import Instant, epoch_nanoseconds
from persistence.services.transfers import mains_of
from persistence.storage import files, root, stored_revision
from persistence.storage.attachments import BodiesReader
from persistence.storage.findings import FindingKind
from persistence.storage.layout import LAYOUT, FilePaths, Layout, unescape
from persistence.storage.root import FORMAT, LayoutFile
from persistence.storage.storage import MaintainedDatabase
from persistence.storage.stored_revision import HandEdits, Integrity, StoredRevision

if TYPE_CHECKING:
    from persistence.maintenance.storage_check import FoundBodies


def _bodies(bodies_of: BodiesOf, form: Form) -> FoundBodies:
    with suppress(ConfigurationError):  # the form has no provider any more
        return bodies_of(form)
    return None


_ATTEMPTS = 20

_Addition = Callable[[], None]
"""Adds the body of an attachment, which is open, to the part of its directory."""


@dataclass(frozen=True, slots=True)
class _SidecarFile:
    """The bytes of a sidecar, as far as they can be decoded, and its modification time in nanoseconds."""

    data: bytes
    nanoseconds: int
    sidecar: Sidecar | None


@dataclass(slots=True)
class _Snapshot:
    """A folder as it was under its lock; contents are open. Nobody removes older revisions, which are not."""

    folder: Folder
    sidecars: dict[str, _SidecarFile] = field(default_factory=dict)
    contents: dict[str, BinaryIO] = field(default_factory=dict)
    history: History = field(default_factory=History)

    def sidecar(self, name: str) -> Sidecar | None:
        return self.sidecars[name].sidecar if name in self.sidecars else None


@dataclass(slots=True)
class TreeBackup:
    """Saves a tree as ``part``; ``attachments`` are the parts of the directories of attachments, by their paths."""

    # ``bodies_of`` tells which of these has the bodies of a form; its views must find edited bodies, too. ``integrity``
    # distinguishes edits by hand from damage.
    tree: FolderTree
    part: PartFiles
    bodies_of: BodiesOf
    attachments: Mapping[str, PartFiles]
    integrity: Integrity

    def run(self) -> Iterator[str | None]:
        """Save the tree: yield ``None`` for a folder that is done, and a line for each problem."""
        above = f"{self.tree.root}/"
        for item in self.tree.walk():
            if isinstance(item, Folder):
                yield from (problem.removeprefix(above) for problem in self._save(item))
                yield None
            elif item.kind is not FindingKind.FOREIGN:
                yield f"{item.path.removeprefix(above)}: {item.what}; it is not saved"

    def _save(self, folder: Folder) -> list[str]:
        folders = [folder]
        if folder.collection is not None:
            folders = [self.tree.folder_in(collection, folder) for collection in Collection]
        if any(self.part.has(self.tree.inside(each.path)) for each in folders):
            return []
        problems, opened, bodies = list[str](), list[_Snapshot](), list[_Addition]()
        with ExitStack() as stack:
            with self.tree.locked(folder):
                for each in folders:
                    try:
                        opened.append(_open_folder(each, stack, problems))
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        problems.append(f"{error.filename or each.path}: {error.strerror}")
                        continue
                    bodies += self._current_bodies(opened[-1], stack, problems)
            for snapshot in opened:
                self._add_folder(snapshot, problems)
            for add_body in bodies:
                with _collecting(problems):
                    add_body()
        return problems

    def _add_folder(self, opened: _Snapshot, problems: list[str]) -> None:
        folder, elsewhere = opened.folder, set[str]()
        for name, sidecar_file in opened.sidecars.items():
            place, record = self._inside(folder.paths(name)), sidecar_file.sidecar
            if record is not None and self._add_object(folder, name, record, problems, place):
                elsewhere.add(name)
            else:
                self.part.add_bytes(place.sidecar, sidecar_file.data, sidecar_file.nanoseconds)
        for name, file in opened.contents.items():
            if name in elsewhere:
                continue
            with _collecting(problems):
                self._add_content(folder.paths(name), file, opened.sidecar(name))
        for revision in opened.history.revisions:
            with _collecting(problems):
                self._add_revision(folder, revision, problems)
        for path in opened.history.strays:
            with _collecting(problems), _opened(path) as stray:
                if stray is not None:
                    self.part.add(self.tree.inside(path), stray, None)

    def _add_revision(self, folder: Folder, revision: OlderRevision, problems: list[str]) -> None:
        place, earlier = self._inside(revision.place), self._inside(folder.paths(revision.name))
        with ExitStack() as stack:
            opened, add_body, problem = self._open_revision(folder, revision, stack)
            if opened is None:
                return
            sidecar_file, content = opened
            record = sidecar_file.sidecar
            if record is not None and self._add_object(folder, revision.name, record, problems, place, earlier):
                return
            self.part.add_bytes(place.sidecar, sidecar_file.data, sidecar_file.nanoseconds, earlier.sidecar)
            if content is not None:
                self._add_content(revision.place, content, record, earlier.content)
            if problem:
                raise DamagedError(problem)
            if add_body is not None:
                add_body()

    def _add_object(
        self, folder: Folder, name: str, record: Sidecar, problems: list[str], inside: FilePaths, *earlier: FilePaths
    ) -> bool:
        """Copy a revision whose body is an object; return whether it is saved, be it with a problem."""
        # So a backup needs no bucket, and neither does a restore: the tree serves such attachments until they are saved
        # again. Objects never change, so what the previous backup has is linked, and not read.
        address = folder.address(name)
        if record.body is None or record.deleted or isinstance(address, DefinitionAddress):
            return False
        bodies = _bodies(self.bodies_of, folder.form)
        if bodies is None or isinstance(bodies, BodiesReader):
            return False
        sidecar = described(record)
        read = partial(bodies.find, address, record, content=True)
        with _collecting(problems):
            problem = self.part.add_stored(inside.content, sidecar, read, *(each.content for each in earlier))
            if problem is None:
                raise DamagedError(f"{folder.paths(name).content}: its body is missing in {bodies.root}")
            problems += filter(None, [problem])
            data = stored_revision.encode(sidecar, folder.paths(name).address)
            self.part.add_bytes(
                inside.sidecar, data, epoch_nanoseconds(sidecar.modified), *(each.sidecar for each in earlier)
            )
            return True
        return False

    def _add_content(self, place: FilePaths, file: BinaryIO, sidecar: Sidecar | None, *earlier: str) -> None:
        damage, status = None, os.fstat(file.fileno())
        if sidecar is not None and not sidecar.deleted:
            is_it = status.st_size == sidecar.size and shows_stamp(status.st_mtime_ns, sidecar)
            try:
                is_it or self.integrity.judge(place, sidecar, file.fileno(), status)
            except DamagedError as error:
                damage = error
        self.part.add(self._inside(place).content, file, sidecar, *earlier)
        if damage is not None:
            cause = str(damage).partition(" is damaged: ")[2] or str(damage)
            raise DamagedError(f"{place.content}: damaged, and saved as it is: {cause}") from damage

    def _open_revision(
        self, folder: Folder, revision: OlderRevision, stack: ExitStack
    ) -> tuple[tuple[_SidecarFile, BinaryIO | None] | None, _Addition | None, str]:
        # No lock is held. A re-encryption replaces the body and then the record: both are opened until they agree.
        for _ in range(_ATTEMPTS):
            opened = _open_older(revision.place, stack)
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

    def _current_bodies(self, opened: _Snapshot, stack: ExitStack, problems: list[str]) -> Iterator[_Addition]:
        for name in opened.sidecars:
            record = opened.sidecar(name)
            if record is None or record.deleted or record.size or name == DATA_XML:
                continue
            body, problem = self._body(opened.folder, name, FilePaths(opened.folder.path, name), record, stack)
            if problem:
                problems.append(problem)
            if body is not None:
                yield body

    def _body(
        self, folder: Folder, name: str, record_place: FilePaths, record: Sidecar, stack: ExitStack
    ) -> tuple[_Addition | None, str]:
        """Open the body of a record, if its directory is saved; the text tells what is wrong with it."""
        bodies = _bodies(self.bodies_of, folder.form)
        if not isinstance(bodies, BodiesReader) or bodies.root not in self.attachments or folder.collection is None:
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
        part, path = self.attachments[bodies.root], os.path.relpath(place.content, bodies.root)
        if record_place.is_older:
            if found.is_edited:
                return None, f"{what} in {bodies.root} is another one"
            older = os.path.relpath(place.revision(record.modified).content, bodies.root)
            return partial(part.add, older, file, described(record), path), ""
        is_damaged = record.body is not None and found.is_edited and self.integrity.hand_edits is not HandEdits.ALL
        problem = f"{what} in {bodies.root} is damaged, and saved as it is" if is_damaged else ""
        return partial(part.add, path, file, described(record)), problem

    def _inside(self, place: FilePaths) -> FilePaths:
        return FilePaths(self.tree.inside(place.directory), place.name)


def _open_folder(folder: Folder, stack: ExitStack, problems: list[str]) -> _Snapshot:
    found, snapshot = list_folder(folder.path), _Snapshot(folder)
    if found.has_history:
        snapshot.history = list_history(folder.path)
    for name in found.sidecars | found.contents | set(found.next_contents):
        place = folder.paths(name)
        if name in found.sidecars:
            with _collecting(problems, place.sidecar), FileIO(files.open_file(place.sidecar)) as file:
                snapshot.sidecars[name] = _read(file, place)
        sidecar = snapshot.sidecar(name)
        if sidecar is None and name in snapshot.sidecars:
            problems.append(f"{place.sidecar}: it cannot be read as a sidecar; it is saved as it is")
        with _collecting(problems, place.content):
            if sidecar is not None and sidecar.id in found.next_contents.get(name, ()):
                path = place.next_content(sidecar.id)
            elif name in found.contents:
                path = place.content
            elif sidecar is not None and not sidecar.deleted:
                raise FileNotFoundError(errno.ENOENT, "its content is missing, or no file")
            else:
                continue
            snapshot.contents[name] = stack.enter_context(FileIO(files.open_file(path)))
    return snapshot


def _open_older(place: FilePaths, stack: ExitStack) -> tuple[_SidecarFile, BinaryIO | None] | None:
    # No lock is held. If the revision is rewritten meanwhile, it is opened again; `None` if it is gone.
    while True:
        with _opened(place.sidecar) as file:
            if file is None:
                return None
            sidecar_file, content = _read(file, place), None
            if sidecar_file.sidecar is not None:
                content = stack.enter_context(_opened(place.next_content(sidecar_file.sidecar.id)))
            if content is None:
                content = stack.enter_context(_opened(place.content))
            if stored_revision.is_still_at(file.fileno(), place.sidecar) or not os.path.lexists(place.sidecar):
                return sidecar_file, content


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO | None]:
    try:
        file = FileIO(files.open_file(path))
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from error
    with file:
        yield file


def _read(file: BinaryIO, place: FilePaths) -> _SidecarFile:
    status = os.fstat(file.fileno())
    data = b"" if status.st_size > LARGEST_SMALL_FILE else file.read()
    if len(data) < status.st_size:
        raise DamagedError(f"{place.sidecar}: {status.st_size} bytes are not a sidecar; it is not saved")
    try:
        sidecar = stored_revision.decode(data, place.sidecar, place.address)
    except DamagedError:
        sidecar = None
    return _SidecarFile(data, status.st_mtime_ns, sidecar)


@contextmanager
def _collecting(problems: list[str], path: str = "") -> Iterator[None]:
    try:
        yield
    except DamagedError as error:
        problems.append(str(error))
    except OSError as error:
        if not path or error.errno in {errno.EMFILE, errno.ENFILE}:
            raise
        problems.append(f"{path}: {error.strerror}")


_LAYOUT = Layout("")


# Saving a storage that is no tree into its part of a backup, which is a tree: the files that a tree would have of it.
#
# The storage is read as it was at one moment. What has the digest and the size that the last backup has recorded is
# linked to that, and is not read. Attachments whose bodies are objects in a bucket are saved as if the storage had
# them.


@dataclass(slots=True)
class StorageBackup:
    """Saves a database as ``part``."""

    # ``bodies_of`` tells where the bodies of a form's attachments are, if they are not in the database.
    database: MaintainedDatabase
    part: PartFiles
    bodies_of: BodiesOf

    def run(self) -> Iterator[str | None]:
        """Save the storage: yield ``None`` for a document, draft or version that is done, a line for each problem."""
        self.part.add_bytes(LAYOUT, root.encode_layout(LayoutFile(FORMAT)), 0)  # which has no time in the storage
        with self.database.snapshot():
            for form in self.database.storage.forms():
                for main in mains_of(self.database.storage, form):
                    yield from self._save(main)
                    yield None

    def _save(self, main: Address) -> Iterator[str]:
        revisions = self.database.storage
        for name in revisions.names(main):
            address = replace(main, name=name)
            try:
                instants = revisions.history(address).instants()
            except DamagedError as error:
                yield f"{error}; it is not saved"
                continue
            for position, instant in enumerate(instants):
                try:
                    self._save_revision(address, instant, is_current=position == 0)
                except DiskFullError:
                    raise
                except (DamagedError, DiskError) as error:
                    yield str(error)

    def _save_revision(self, address: Address, instant: Instant, *, is_current: bool) -> None:
        current = _LAYOUT.paths(address)
        current = FilePaths(current.directory.removeprefix("/"), current.name)
        place, earlier = (current, []) if is_current else (current.revision(instant), [current])
        found = self.database.storage.read(address, instant, content=False)
        if found is None:
            raise DamagedError(f"{address} of {instant} is not there")
        record, sidecar = found.sidecar, described(found.sidecar)
        data = stored_revision.encode(sidecar, _LAYOUT.paths(address).address)
        self.part.add_bytes(
            place.sidecar, data, epoch_nanoseconds(sidecar.modified), *(each.sidecar for each in earlier)
        )
        if sidecar.deleted and record.body is None:
            return
        read = partial(self._content, address, record)
        problem = self.part.add_stored(place.content, sidecar, read, *(each.content for each in earlier))
        if problem is None:
            raise DamagedError(f"the content of {address} of {sidecar.modified} is not there")
        if problem:
            raise DamagedError(problem)

    def _content(self, address: Address, record: Sidecar) -> StoredRevision | None:
        if record.body is None:
            return self.database.storage.read(address, record.modified, content=True)
        bodies = _bodies(self.bodies_of, address.form)
        if bodies is None or isinstance(address, DefinitionAddress):
            raise DamagedError(f"the body of {address} of {record.modified} is elsewhere, and no property leads to it")
        found = bodies.find(address, record, content=True)
        if found is None:
            raise DamagedError(f"the body of {address} of {record.modified} is missing in {bodies.root}")
        return found
