"""Bodies of attachments in a directory of their own, without sidecars (spec forms 5.5).

::

    <base>/<app>/<form>/(data|draft)/<document>/<version>/<attachment>     the body of the current revision
                                                          .history/...     those of older ones
    <base>/.spool/<id>, <base>/.trash/<id>                                 as in a tree

The record of an attachment is its sidecar in a tree, and the record decides: a body bears the stamp of its
revision, and is called ``.<attachment>.<id>`` until that is committed. So a reader of a sidecar finds its body, and
the next writer finishes or removes the remains of a crash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Self

from persistence.errors import DamagedError, StartupError, disk_errors
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar, described, fresh_id, stamp
from persistence.storage import (
    copies,
    directories,
    file_system,
    files,
    nofollow,
    owner,
    removal,
    stored_revision,
    uploads,
)
from persistence.storage.directories import DurableDirectories
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.layout import HISTORY, SPOOL, TRASH, FilePaths, Layout, revision_of, unescape, unfinished_of
from persistence.storage.managed import ManagedBodies, ManagedChanges, RecordOf
from persistence.storage.storage import KeepsHistory, keeps_all
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.traces import DocumentTraces
from persistence.storage.uploads import Upload

_ANYTHING = Integrity(HandEdits.ALL)
_FORM_DEPTH = 3
"""Directories that stay, even if nothing is in them: of an application, a form and a collection."""


class BodiesReader:
    """Bodies below a base directory, to be read; nothing is made there. Methods raise ``OSError``."""

    def __init__(self, base: str, integrity: Integrity | None = None) -> None:
        self.root = os.path.realpath(base)
        self._layout = Layout(self.root)
        self._integrity = (integrity or Integrity()).of_attachments()

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """Return the body of a revision, open if asked for: at its place, or where older ones are kept.

        A record that does not describe its body was stored by another service, and the file there is its body.
        """
        paths, sidecar = self.paths(address, record.version), described(record)
        integrity = _ANYTHING if record.body is None else self._integrity
        damage: DamagedError | None = None
        found: StoredRevision | None = None
        try:
            found = stored_revision.beside(paths, integrity, sidecar, content=content)
        except DamagedError as error:
            damage = error
        # A body that was replaced has a name of its own revision. It is looked for even if one lies at the place of the
        # current one: where times are whole seconds, that of another revision may look like it.
        older = stored_revision.beside(paths.revision(sidecar.modified), integrity, sidecar, content=content)
        if older is not None and (found is None or found.is_edited or not older.is_edited):
            if found is not None:
                found.close()
            return stored_revision.verified(paths, integrity, older)
        if older is not None:
            older.close()
        if found is not None and not found.is_edited:
            return stored_revision.verified(paths, integrity, found)
        if damage is not None:
            raise damage
        return found

    def paths(self, address: DocumentAddress, version: int) -> FilePaths:
        """Return the paths of the body of an attachment's current revision; older ones lie beside it."""
        paths = self._layout.paths(address)
        return FilePaths(f"{paths.directory}/{version}", paths.name)


class FileBodies(BodiesReader, ManagedBodies, ManagedChanges):
    """The ``Bodies`` of attachments below a base directory. Methods raise ``OSError``."""

    def __init__(self, base: str, integrity: Integrity | None = None, keeps_history: KeepsHistory = keeps_all) -> None:
        """Open the directory, which must be there; ``integrity`` judges bodies that are not what records say.

        ``keeps_history`` says which forms keep older revisions.
        """
        super().__init__(base, integrity)
        if not os.path.isdir(self.root):
            raise StartupError(f"there is no directory {self.root} for attachments")
        owner.require_closed(self.root)
        with disk_errors(f"directory of attachments {self.root}"):
            for name in (SPOOL, TRASH):
                if not directories.make(f"{self.root}/{name}"):
                    directories.require(f"{self.root}/{name}")
            uploads.sweep(self.root)
            directories.empty(f"{self.root}/{TRASH}")
        self._directories = DurableDirectories(self.root)
        self._keeps_history = keeps_history

    def free_bytes(self) -> int:
        """Space that the service may still use there."""
        with disk_errors(f"directory of attachments {self.root}"):
            return file_system.free_in(self.root)

    def upload(self, address: DocumentAddress) -> Upload:  # noqa: ARG002 - an object has its key from it
        """Begin to receive a body."""
        return Upload(self.root)

    def changing(self) -> AbstractContextManager[Self]:
        """Change bodies in a block. Each change is whole when its record is, which a tree commits at once."""
        return nullcontext(self)

    @contextmanager
    def placing(
        self, address: DocumentAddress, sidecar: Sidecar, upload: Upload, over: Sidecar | None
    ) -> Iterator[Sidecar]:
        """Have a body durable where only its sidecar leads; give it its name when that is committed.

        After an error nothing is cleaned up: the sidecar may be committed all the same.
        """
        paths = self.paths(address, sidecar.version)
        self._directories.make(paths.directory)
        self._recover(paths, over)
        if over is not None and address.keeps_history and self._keeps_history(address.form):
            _keep(paths, over)
        arrived = paths.next_content(sidecar.id)
        self._place(upload, arrived, stamp(sidecar))
        self._directories.settle(paths.directory)
        yield sidecar
        with suppress(OSError):  # the next writer finishes it
            files.rename(arrived, paths.content)

    @contextmanager
    def replacing(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> Iterator[None]:
        """Have another body of the same revision durable as ``placing`` does; the one before goes when it is committed.

        It is the current revision, or with an ``instant`` an older one.
        """
        paths = self.paths(address, over.version)
        if instant is not None:
            paths = paths.revision(instant)
            directories.make(paths.directory)
        self._recover(paths, over)
        arrived = paths.next_content(rewritten.id)
        self._place(upload, arrived, stamp(rewritten))
        yield
        files.rename(arrived, paths.content)

    def has_unfinished(self, main: DocumentAddress) -> bool:
        """Return whether writes of a document's attachments are under way, or a crash has left something of one."""
        return any(True for _ in self._unfinished(main))

    def finish(self, main: DocumentAddress, record_of: RecordOf) -> None:
        """Finish or remove the remains of crashes of a document's attachments."""
        for version, paths in list(self._unfinished(main)):
            revision = revision_of(paths.name) if paths.directory.endswith(f"/{HISTORY}") else None
            instant, name = (None, paths.name) if revision is None else revision
            record = record_of(main.moved(main.collection, unescape(name)), instant)
            self._recover(paths, record if record is not None and record.version == version else None)
            self._tidy(paths.directory)

    def _unfinished(self, main: DocumentAddress) -> Iterator[tuple[int, FilePaths]]:
        document = self._layout.paths(main).directory
        with suppress(FileNotFoundError, NotADirectoryError):
            for version in os.listdir(document):
                if version.isascii() and version.isdigit():
                    for paths in stored_revision.incomplete_writes(FilePaths(f"{document}/{version}", main.name)):
                        yield int(version), paths

    @contextmanager
    def removing(self, address: DocumentAddress, over: Sidecar) -> Iterator[None]:
        """Remove a body when its tombstone is committed; what has a history stays there."""
        paths = self.paths(address, over.version)
        if os.path.isdir(paths.directory):
            self._recover(paths, over)
            if address.keeps_history:
                _keep(paths, over)
                directories.sync(paths.directory)
        yield
        with suppress(OSError):
            files.remove(paths.content)
            for directory in (paths.directory, os.path.dirname(paths.directory)):
                directories.remove_if_empty(directory)

    @contextmanager
    def dropping(self, address: DocumentAddress, records: Sequence[Sidecar], *, are_older: bool) -> Iterator[None]:
        """Hide bodies, and remove them after the block, which removes their records.

        After a crash they are what an interrupted write leaves; before the records are gone, it is undone.
        """
        places = list[tuple[FilePaths, str]]()
        for record in records:
            paths = self.paths(address, record.version)
            places.append((paths.revision(record.modified) if are_older else paths, record.id))
        above = dict.fromkeys(place.directory for place, _ in places)
        for directory in above:
            removal.hide(directory, [each for each in places if each[0].directory == directory])
        yield
        for place, content_id in places:
            files.remove(place.next_content(content_id))
        for directory in above:
            self._tidy(directory)

    def traces(self, form: Form, document: str) -> DocumentTraces:
        return DocumentTraces(self.root, form, document)

    def _tidy(self, directory: str) -> None:
        with suppress(FileNotFoundError):
            directories.sync(directory)
        if os.path.basename(directory) != HISTORY:
            directories.remove_if_empty(FilePaths(directory, "").history)
        while directory.count("/") > self.root.count("/") + _FORM_DEPTH:
            directories.remove_if_empty(directory)
            directory = os.path.dirname(directory)

    @contextmanager
    def discarding_draft(
        self,
        form: Form,
        document: str,
        version: int | None,  # noqa: ARG002 - those of all versions are removed
        records: Sequence[tuple[str, Sidecar]],  # noqa: ARG002
    ) -> Iterator[None]:
        """Remove the bodies of all attachments of a draft after the block."""
        yield
        draft = self._layout.document(form, Collection.DRAFT, document)
        if files.exists(draft):
            for directory in (os.path.dirname(draft), f"{self.root}/{TRASH}"):
                directories.require(directory)  # and no link to one
            files.rename(draft, f"{self.root}/{TRASH}/{fresh_id()}")
            directories.empty(f"{self.root}/{TRASH}")

    def _place(self, upload: Upload, path: str, nanoseconds: int) -> None:
        directory = nofollow.open_directory(os.path.dirname(path))
        try:
            upload.place_at(path, nanoseconds)
            upload.sync()
            directories.sync_open(directory)
        finally:
            os.close(directory)

    def _recover(self, paths: FilePaths, over: Sidecar | None) -> None:
        """Finish an interrupted commit of the stored revision, and remove files that were never committed."""
        if over is not None and files.exists(paths.next_content(over.id)):
            files.rename(paths.next_content(over.id), paths.content)
        for name in os.listdir(paths.directory):
            if unfinished_of(name) == paths.name:
                files.remove(f"{paths.directory}/{name}")


def _keep(paths: FilePaths, over: Sidecar) -> None:
    if files.exists(paths.content):
        directories.make(paths.history)
        history = nofollow.open_directory(paths.history)  # and no link to one
        try:
            copies.keep_as(paths.content, paths.revision(over.modified).content)
            directories.sync_open(history)
        finally:
            os.close(history)
