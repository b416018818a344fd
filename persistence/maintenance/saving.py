"""Saving one tree into its part of a backup, while the service runs: every document whole, with its bodies.

The files of a document and its draft, and the bodies of their attachments in other directories, are opened under one
lock and copied after it: the service never changes a file that has a name, so what an open file holds stays as it was,
and writers wait no longer than opening takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from persistence.errors import BusyError, ConfigurationError, DamagedError
from persistence.maintenance import opening
from persistence.maintenance.bodies import BodiesOf
from persistence.maintenance.copies import Copies
from persistence.maintenance.findings import Kind
from persistence.maintenance.listing import Revision
from persistence.maintenance.opening import Opened
from persistence.maintenance.tree import Folder, Tree
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress
from persistence.model.sidecar import Sidecar, shows_stamp
from persistence.storage import stored_revision
from persistence.storage.attachment_bodies import BodiesReader
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.layout import Place, unescape
from persistence.storage.split_attachments import described

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class _Body:
    """The body of an attachment, open: where it goes, and the paths that the last backup may have it under."""

    copies: Copies
    path: str
    earlier: tuple[str, ...]
    file: BinaryIO
    sidecar: Sidecar


class Saving:
    """Saves a tree as ``copies``; ``bodies`` are the parts of the directories of attachments, by their paths.

    ``bodies_of`` says which of these has the bodies of a form; it must find edited bodies, too. ``integrity`` tells
    edits by hand from damage.
    """

    def __init__(
        self, tree: Tree, copies: Copies, bodies_of: BodiesOf, bodies: Mapping[str, Copies], integrity: Integrity
    ) -> None:
        self.folders = 0
        self._tree = tree
        self._copies = copies
        self._bodies_of = bodies_of
        self._bodies = bodies
        self._integrity = integrity

    def run(self) -> Iterator[str | None]:
        """Save: ``None`` for a folder that is done, a line for what cannot be saved as it should be.

        Raises:
            BusyError: a writer kept a document locked beyond the deadline.
            OSError: the destination refused.
        """
        for item in self._tree.walk():
            if isinstance(item, Folder):
                yield from map(self._shown, self._save(item))
                self.folders += 1
                yield None
            elif item.kind is not Kind.FOREIGN:
                yield self._shown(f"{item.path}: {item.what}; it is not saved")

    def _save(self, folder: Folder) -> Iterator[str]:
        """Save a document with its draft, or a version of a definition; the document may have been, with its draft."""
        folders = [folder]
        if folder.collection is not None:
            folders = [self._in(folder, collection) for collection in Collection]
        if any(self._copies.has(self._tree.inside(each.path)) for each in folders):
            return
        problems, opened, bodies = list[str](), list[tuple[Folder, Opened]](), list[_Body]()
        with ExitStack() as stack:
            with self._tree.holding(folder):
                for each in folders:
                    try:
                        found = opening.open_all(each.path, stack)
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        problems.append(f"{error.filename or each.path}: {error.strerror}")
                        continue
                    opened.append((each, found))
                    problems += found.problems
                    bodies += self._current_bodies(each, found, stack, problems)
            for each, found in opened:
                for add in self._additions(each, found):
                    problems += _tried(add)
            for body in bodies:
                problems += _tried(partial(_add_body, body))
        yield from problems

    def _in(self, folder: Folder, collection: Collection) -> Folder:
        """The folder of a document in another collection."""
        path = self._tree.main(folder, collection).directory
        return Folder(path, folder.form, collection, folder.name)

    def _additions(self, folder: Folder, opened: Opened) -> Iterator[Callable[[], None]]:
        """Everything to be done for one folder: each raises ``DamagedError`` for what is no obstacle to the rest."""
        copies = self._copies
        for name, data in opened.sidecars.items():
            yield partial(copies.add_bytes, self._inside(opened.path, name).sidecar, *data)
        for name, file in opened.contents.items():
            yield partial(self._add_content, Place(opened.path, name), file, opened.sidecar(name))
        for revision in opened.history.revisions:
            yield partial(self._add_revision, folder, revision)
        for path in opened.history.strays:
            yield partial(self._add_stray, path)

    def _add_revision(self, folder: Folder, revision: Revision) -> None:
        """Copy an older revision; the last backup may have had it as the current one.

        Raises:
            DamagedError: something of it is missing or cannot be read; the rest is copied.
        """
        place = self._inside(revision.place.directory, revision.place.name)
        earlier = self._inside(folder.path, revision.name)
        with ExitStack() as stack:
            opened, body = self._opened(folder, revision, stack)
            if opened is None:
                return
            (data, nanoseconds), content = opened
            self._copies.add_bytes(place.sidecar, data, nanoseconds, earlier.sidecar)
            if content is not None:
                sidecar = opening.decoded(data, revision.place)
                self._add_content(revision.place, content, sidecar, earlier.content)
            if isinstance(body, DamagedError):
                raise body
            if body is not None:
                _add_body(body)

    def _add_content(self, place: Place, file: BinaryIO, sidecar: Sidecar | None, *earlier: str) -> None:
        """Copy a content as it is.

        Raises:
            DamagedError: it is not its sidecar's, and no edit by hand; or it cannot be read.
        """
        damage: DamagedError | None = None
        try:
            self._judge(place, file, sidecar)
        except DamagedError as error:
            damage = error
        self._copies.add(self._inside(place.directory, place.name).content, file, sidecar, *earlier)
        if damage is not None:
            cause = str(damage).partition(" is damaged: ")[2] or str(damage)
            raise DamagedError(f"{place.content}: damaged, and saved as it is: {cause}") from damage

    def _judge(self, place: Place, file: BinaryIO, sidecar: Sidecar | None) -> None:
        status = os.fstat(file.fileno())
        if sidecar is None or sidecar.deleted:
            return
        if status.st_size != sidecar.size or not shows_stamp(status.st_mtime_ns, sidecar):
            self._integrity.judge(place, sidecar, file.fileno(), status)

    def _opened(
        self, folder: Folder, revision: Revision, stack: ExitStack
    ) -> tuple[tuple[tuple[bytes, int], BinaryIO | None] | None, _Body | DamagedError | None]:
        """An older revision, open, with its body where that is in another directory, or why there is none.

        No lock is held. Encrypting it anew replaces the body and then the record: both are opened until they agree.
        """
        for attempt in range(_ATTEMPTS):
            opened = opening.revision(revision.place, stack)
            record = None if opened is None else opening.decoded(opened[0][0], revision.place)
            if record is None or record.body is None or record.deleted:
                return opened, None
            body = self._older_body(folder, revision, record, stack)
            now = stored_revision.read_sidecar(revision.place)
            if isinstance(body, _Body) or body is None or now is None or now.id == record.id:
                break
            if attempt == _ATTEMPTS - 1:
                raise BusyError(f"{revision.place.content} is being rewritten too often to be saved")
        return opened, body

    def _add_stray(self, path: str) -> None:
        with opening.opened(path) as file:
            if file is not None:
                self._copies.add(self._tree.inside(path), file, None)

    def _current_bodies(self, folder: Folder, opened: Opened, stack: ExitStack, problems: list[str]) -> Iterator[_Body]:
        """Open the bodies of a document's attachments that are in another directory; its lock is held."""
        bodies = self._directory(folder)
        if bodies is None or folder.collection is None:
            return
        for name in opened.sidecars:
            record = opened.sidecar(name)
            if record is None or record.deleted or record.size or name == DATA_XML:
                continue
            address = DocumentAddress(folder.form, folder.collection, folder.name, unescape(name))
            path = Place(folder.path, name).content
            try:
                found = bodies.find(address, record, content=True)
            except OSError as error:
                problems.append(f"{path}: its body in {bodies.root}: {error.strerror}")
                continue
            if found is not None:
                if record.body is not None and found.is_edited and self._integrity.hand_edits is not HandEdits.ALL:
                    problems.append(f"{path}: its body in {bodies.root} is damaged, and saved as it is")
                file = stack.enter_context(found.opened)
                target = os.path.relpath(bodies.place(address, record.version).content, bodies.root)
                yield _Body(self._bodies[bodies.root], target, (), file, described(record))
            elif record.body is not None:
                problems.append(f"{path}: its body is missing in {bodies.root}")

    def _older_body(
        self, folder: Folder, revision: Revision, record: Sidecar, stack: ExitStack
    ) -> _Body | DamagedError | None:
        """The body of an older revision, or why it cannot be had; ``None`` where its directory is not saved."""
        bodies = self._directory(folder)
        if bodies is None or folder.collection is None:
            return None
        address = DocumentAddress(folder.form, folder.collection, folder.name, unescape(revision.name))
        try:
            found = bodies.find(address, record, content=True)
        except OSError as error:
            return DamagedError(f"{revision.place.content}: its body in {bodies.root}: {error.strerror}")
        if found is None:
            return DamagedError(f"{revision.place.content}: its body is missing in {bodies.root}")
        file = stack.enter_context(found.opened)
        if found.is_edited:
            return DamagedError(f"{revision.place.content}: its body in {bodies.root} is another one")
        place = bodies.place(address, record.version)
        target = os.path.relpath(place.revision(record.modified).content, bodies.root)
        earlier = os.path.relpath(place.content, bodies.root)
        return _Body(self._bodies[bodies.root], target, (earlier,), file, described(record))

    def _directory(self, folder: Folder) -> BodiesReader | None:
        """Where the bodies of a form's attachments are, if that is saved."""
        try:
            bodies = self._bodies_of(folder.form)
        except ConfigurationError:  # no provider has the form any more
            return None
        return bodies if bodies is not None and bodies.root in self._bodies else None

    def _shown(self, problem: str) -> str:
        """A line about a path, as people want it: relative to the root."""
        return problem.removeprefix(f"{self._tree.root}/")

    def _inside(self, directory: str, name: str) -> Place:
        return Place(self._tree.inside(directory), name)


def _tried(add: Callable[[], None]) -> Iterator[str]:
    try:
        add()
    except DamagedError as error:
        yield str(error)


def _add_body(body: _Body) -> None:
    body.copies.add(body.path, body.file, body.sidecar, *body.earlier)
