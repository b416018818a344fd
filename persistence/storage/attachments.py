"""Attachments elsewhere: bodies in a directory of their own, and the storage over them (spec forms 5.5).

::

    <base>/<app>/<form>/(data|draft)/<document>/<version>/<attachment>     the body of the current revision
                                                          .history/...     those of older ones
    <base>/.spool/<id>, <base>/.trash/<id>                                 as in a tree

The record of an attachment is its sidecar in a tree, and the record decides: a body bears the stamp of its revision,
and is called ``.<attachment>.<id>`` until that is committed. So a reader of a sidecar finds its body, and the next
writer finishes or removes the remains of a crash.

The main storage keeps of each attachment a record without body, which is committed when its body is durable. A
record with a body is served as it is: so attachments may have been stored before they were to be elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Self, TypeGuard

from persistence.closable import closed_after_error
from persistence.errors import BusyError, ConfigurationError, DamagedError, StartupError, disk_errors
from persistence.model.addresses import Address, Collection, DocumentAddress, Form
from persistence.model.sidecar import ListedRevision, Sidecar, described, fresh_id, recorded, stamp
from persistence.model.texts import Instant
from persistence.storage import commit, files, owner, root, stored_revision
from persistence.storage.commit import Upload
from persistence.storage.files import DurableDirectories
from persistence.storage.layout import HISTORY, SPOOL, TRASH, FilePaths, Layout, revision_of, unescape, unfinished_of
from persistence.storage.storage import (
    Bodies,
    BodiesOf,
    BodyChanges,
    KeepsHistory,
    RecordOf,
    RevisionList,
    RevisionStorage,
    Storage,
    Writing,
    keeps_all,
    require_same,
    unsupported,
)
from persistence.storage.store import TreeDocumentFiles
from persistence.storage.stored_revision import HandEdits, Integrity, StoredRevision

_ANYTHING = Integrity(HandEdits.ALL)


class BodiesReader:
    """Bodies below a base directory, to be read; nothing is made there. Methods raise ``OSError``."""

    def __init__(self, base: str, integrity: Integrity | None = None) -> None:
        self.root = os.path.realpath(base)
        self._layout = Layout(self.root)
        policy = integrity or Integrity()
        hand_edits = HandEdits.ALL if policy.hand_edits is HandEdits.ALL else HandEdits.NONE  # none is of its own XML
        self._integrity = Integrity(hand_edits, verify_up_to=policy.verify_up_to)

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """Return the body of a revision, open if asked for: at its place, or where older ones are kept."""
        # A record that does not describe its body was stored by another service, and the file there is its body.
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
        if damage is not None:
            raise damage
        return None if found is None else stored_revision.verified(paths, integrity, found)

    def paths(self, address: DocumentAddress, version: int) -> FilePaths:
        """Return the paths of the body of an attachment's current revision; older ones lie beside it."""
        paths = self._layout.paths(address)
        return FilePaths(f"{paths.directory}/{version}", paths.name)


class FileBodies(BodiesReader, Bodies, BodyChanges):
    """The ``Bodies`` of attachments below a base directory. Methods raise ``OSError``."""

    held = unsupported

    def __init__(self, base: str, integrity: Integrity | None = None, keeps_history: KeepsHistory = keeps_all) -> None:
        """Open the directory, which must be there; ``integrity`` judges bodies that are not what records say."""
        super().__init__(base, integrity)
        if not os.path.isdir(self.root):
            raise StartupError(f"there is no directory {self.root} for attachments")
        owner.require_closed(self.root)
        with disk_errors(f"directory of attachments {self.root}"):
            for name in (SPOOL, TRASH):
                if not files.make(f"{self.root}/{name}"):
                    files.require(f"{self.root}/{name}")
            commit.sweep(self.root)
            files.empty(f"{self.root}/{TRASH}")
        self._directories = DurableDirectories(self.root)
        self._keeps_history = keeps_history

    def free_bytes(self) -> int:
        with disk_errors(f"directory of attachments {self.root}"):
            return root.free_in(self.root)

    def upload(self, address: DocumentAddress) -> Upload:  # noqa: ARG002 - an object has its key from it
        return Upload(self.root)

    def changing(self) -> AbstractContextManager[Self]:
        """Change bodies in a block. Each change is whole when its record is, which a tree commits at once."""
        return nullcontext(self)

    @contextmanager
    def placing(
        self, address: DocumentAddress, sidecar: Sidecar, upload: Upload, over: Sidecar | None
    ) -> Iterator[Sidecar]:
        """Have a body durable where only its sidecar leads; give it its name when that is committed."""
        # After an error nothing is cleaned up: the sidecar may be committed all the same.
        paths = self.paths(address, sidecar.version)
        keeps = address.keeps_history and self._keeps_history(address.form)
        arrived = self._place(upload, paths, sidecar, over, kept=over if keeps else None)
        yield sidecar
        with suppress(OSError):  # the next writer finishes it
            files.rename(arrived, paths.content)

    @contextmanager
    def replacing(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> Iterator[None]:
        """Have another body of the same revision durable as ``placing`` does; the one before goes at the commit."""
        paths = self.paths(address, over.version)
        if instant is not None:
            paths = paths.revision(instant)
        arrived = self._place(upload, paths, rewritten, over)
        yield
        files.rename(arrived, paths.content)

    def has_unfinished(self, main: DocumentAddress) -> bool:
        return next(self._unfinished(main), None) is not None

    def finish(self, main: DocumentAddress, record_of: RecordOf) -> None:
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
        paths = self.paths(address, over.version)
        if os.path.isdir(paths.directory):
            self._recover(paths, over)
            if address.keeps_history:
                _keep(paths, over)
                files.sync_directory(paths.directory)
        yield
        with suppress(OSError):
            files.remove(paths.content)
            for directory in (paths.directory, os.path.dirname(paths.directory)):
                files.remove_if_empty(directory)

    @contextmanager
    def dropping(self, address: DocumentAddress, records: Sequence[Sidecar], *, are_older: bool) -> Iterator[None]:
        """Hide bodies, and remove them after the block, which removes their records; before, it can be undone."""
        places = list[tuple[FilePaths, str]]()
        for record in records:
            paths = self.paths(address, record.version)
            places.append((paths.revision(record.modified) if are_older else paths, record.id))
        above = dict.fromkeys(place.directory for place, _ in places)
        for directory in above:
            commit.hide(directory, [each for each in places if each[0].directory == directory])
        yield
        for place, content_id in places:
            files.remove(place.next_content(content_id))
        for directory in above:
            self._tidy(directory)

    def document_files(self, form: Form, document: str) -> TreeDocumentFiles:
        return TreeDocumentFiles(self.root, form, document)

    def _tidy(self, directory: str) -> None:
        with suppress(FileNotFoundError):
            files.sync_directory(directory)
        if os.path.basename(directory) != HISTORY:
            files.remove_if_empty(FilePaths(directory, "").history)
        # Those of an application, a form and a collection stay, even if nothing is in them.
        while directory.count("/") > self.root.count("/") + 3:
            files.remove_if_empty(directory)
            directory = os.path.dirname(directory)

    @contextmanager
    def discarding_draft(self, draft: DocumentAddress, *_: object) -> Iterator[None]:
        yield
        folder = self._layout.paths(draft).directory
        if files.exists(folder):
            for directory in (os.path.dirname(folder), f"{self.root}/{TRASH}"):
                files.require(directory)  # and no link to one
            files.rename(folder, f"{self.root}/{TRASH}/{fresh_id()}")
            files.empty(f"{self.root}/{TRASH}")

    def _place(
        self, upload: Upload, paths: FilePaths, sidecar: Sidecar, over: Sidecar | None, kept: Sidecar | None = None
    ) -> str:
        self._directories.make(paths.directory)
        self._recover(paths, over)
        if kept is not None:
            _keep(paths, kept)
        arrived = paths.next_content(sidecar.id)
        with files.closing(files.open_directory(paths.directory)) as directory:
            upload.place_at(arrived, stamp(sidecar))
            upload.sync()
            files.sync_open(directory)
        self._directories.settle(paths.directory)
        return arrived

    def _recover(self, paths: FilePaths, over: Sidecar | None) -> None:
        """Finish an interrupted commit of the stored revision, and remove files that were never committed."""
        if over is not None and files.exists(paths.next_content(over.id)):
            files.rename(paths.next_content(over.id), paths.content)
        for name in os.listdir(paths.directory):
            if unfinished_of(name) == paths.name:
                files.remove(f"{paths.directory}/{name}")


def _keep(paths: FilePaths, over: Sidecar) -> None:
    if files.exists(paths.content):
        files.make(paths.history)
        with files.closing(files.open_directory(paths.history)) as history:  # and no link to one
            files.keep_as(paths.content, paths.revision(over.modified).content)
            files.sync_open(history)


_ATTEMPTS = 20


class SplitStorage(RevisionStorage):
    """A main storage that knows everything, and a second place, which has the bodies of attachments of data."""

    def __init__(self, main: Storage, bodies: Bodies) -> None:
        self._main = main
        self._bodies = bodies

    def sidecar(self, address: Address) -> Sidecar | None:
        return self._main.sidecar(address)

    def read(self, address: Address, instant: Instant | None = None, *, content: bool) -> StoredRevision | None:
        read = partial(self._main.read, address, instant, content=content)
        if not _is_attachment(address):
            return read()
        for _ in range(_ATTEMPTS):
            record = read()
            if record is None or record.sidecar.deleted or record.size:
                return record
            found = self._with_body(address, record, read, content=content)
            if found is not None:
                return found
        raise BusyError(f"{address} is being written too often to be read")

    def history(self, address: Address) -> RevisionList:
        return self._main.history(address)

    def names(self, main: Address) -> list[str]:
        return self._main.names(main)

    def upload(self, address: Address) -> Upload:
        if not _is_attachment(address):
            return self._main.upload(address)
        with disk_errors("receiving a body"):
            return self._bodies.upload(address)

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writing]:
        with self._bodies.changing() as changes, self._main.writing(address) as writer:
            yield _SplitWriter(self._main, writer, self._bodies, changes)

    def _with_body(
        self,
        address: DocumentAddress,
        record: StoredRevision,
        read: Callable[[], StoredRevision | None],
        *,
        content: bool,
    ) -> StoredRevision | None:
        find = partial(self._bodies.find, address, record.sidecar, content=content)
        if record.sidecar.body is None:  # not ours: all that it says of its body is that it has none
            with closed_after_error(record), disk_errors("reading", address):
                found = find()
            if found is None:
                return record
            record.close()
            return replace(found, etag=record.etag)
        record.close()

        def is_still_stored() -> bool:
            again = read()
            if again is not None:
                again.close()
            return again is not None and again.sidecar.id == record.sidecar.id

        found = _body_of(address, find, is_still_stored)
        if found is None or not found.is_edited:
            return found
        current = self._main.sidecar(address)
        if current is None or current.id != record.sidecar.id:
            found.close()  # that of another revision
            raise _missing(address)
        return found  # replaced by hand


class _SplitWriter(Writing):
    finish = rewrite = unsupported  # ``RevisionRewriter`` does

    def __init__(self, main: Storage, writer: Writing, bodies: Bodies, changes: BodyChanges) -> None:
        self._main = main
        self._writer = writer
        self._bodies = bodies
        self._changes = changes

    def current(self, address: Address) -> StoredRevision | None:
        record = self._writer.current(address)
        if not _is_attachment(address) or record is None or record.sidecar.deleted or record.size:
            return record
        return self._bodies.find(address, record.sidecar, content=False) or record

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        if not _is_attachment(address):
            return self._writer.commit(address, sidecar, upload, over=over)
        require_same(address, self._writer.current(address), over)
        kept = None if over is None or over.sidecar.deleted else over.sidecar
        with self._changes.placing(address, sidecar, upload, kept) as placed, self._main.upload(address) as nothing:
            return described(self._writer.commit(address, recorded(placed), nothing, over=over))

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        with self._removing(address, over):
            return self._writer.delete(address, tombstone, over=over)

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        with self._removing(address, over):
            self._writer.purge(address, tombstone, over=over)

    def _removing(self, address: Address, over: StoredRevision | None) -> AbstractContextManager[None]:
        if not _is_attachment(address) or over is None:
            return nullcontext()
        require_same(address, self._writer.current(address), over)
        return self._changes.removing(address, over.sidecar)

    def discard_draft(self, form: Form, document: str) -> None:
        draft = DocumentAddress(form, Collection.DRAFT, document)
        known = self._main.sidecar(draft) or self._main.sidecar(draft.moved(Collection.DATA))
        records = list[tuple[DocumentAddress, Sidecar]]()
        for name in self._main.names(draft):
            with suppress(DamagedError):
                address = draft.moved(Collection.DRAFT, name)
                record = self._main.sidecar(address)
                if record is not None and record.body is not None:
                    records.append((address, record))
        with self._changes.discarding_draft(draft, None if known is None else known.version, records):
            self._writer.discard_draft(form, document)

    def remove_older(self, address: Address, instants: Sequence[Instant]) -> int:
        if not _is_attachment(address):
            return self._writer.remove_older(address, instants)
        found = [self._main.read(address, instant, content=False) for instant in instants]
        records = [each.sidecar for each in found if each is not None and each.sidecar.body is not None]
        with self._changes.dropping(address, records, are_older=True):
            return self._writer.remove_older(address, instants)

    def remove_current(self, address: Address, *, over: StoredRevision) -> None:
        with ExitStack() as dropped:
            record = self._main.sidecar(address) if _is_attachment(address) else None
            if _is_attachment(address) and record is not None and record.body is not None:
                dropped.enter_context(self._changes.dropping(address, [record], are_older=False))
            self._writer.remove_current(address, over=over)

    def discard_document(self, form: Form, document: str) -> None:
        main = DocumentAddress(form, Collection.DATA, document)
        with ExitStack() as dropped:
            for name in self._main.names(main):
                address = main.moved(Collection.DATA, name)
                found = list[ListedRevision]()
                with suppress(DamagedError):
                    found = self._main.history(address).every()
                for part, are_older in ((found[1:], True), (found[:1], False)):
                    records = [each.sidecar for each in part if each.sidecar is not None and each.sidecar.body]
                    if records:
                        dropped.enter_context(self._changes.dropping(address, records, are_older=are_older))
            self._writer.discard_document(form, document)


class RevisionRewriter:
    """Reads and rewrites revisions of one storage; without an ``instant`` the current one."""

    def __init__(self, store: Storage, bodies_of: BodiesOf) -> None:
        self.store = store
        self._bodies_of = bodies_of

    def record(self, address: DocumentAddress, instant: Instant | None) -> Sidecar | None:
        """Return what the storage knows of a revision, wherever its body is; ``None`` where there is none."""
        found = self._read(address, instant, content=False)
        return None if found is None else found.sidecar

    def read(self, address: DocumentAddress, instant: Instant | None) -> StoredRevision | None:
        """Return a revision with its record as sidecar, its content open; ``None`` where it is not there any more."""
        found = self._read(address, instant, content=True)
        if found is None or address.is_main or found.sidecar.deleted or found.size:
            return found
        record = found.sidecar
        if record.body is None:
            bodies = self._bodies_of(address.form)
            with disk_errors("reading", address):
                if bodies is None or bodies.find(address, record, content=False) is None:
                    return found
            found.close()
            raise DamagedError(f"the body of {address} was not stored by this service")
        found.close()
        find = partial(self._bodies(address).find, address, record, content=True)
        body = _body_of(address, find, lambda: self._is_stored(address, instant, record))
        return None if body is None else replace(body, sidecar=record)

    def upload(self, address: DocumentAddress, over: Sidecar) -> Upload:
        return self.store.upload(address) if over.body is None else self.upload_apart(address)

    def upload_apart(self, address: DocumentAddress) -> Upload:
        """Begin to receive a body where the attachments of the form are kept."""
        bodies = self._bodies(address)
        with disk_errors("receiving a body"):
            return bodies.upload(address)

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        if over.body is not None:
            return self.place_apart(address, instant, over, rewritten, upload)
        with self.store.writing(address) as writer:
            return writer.rewrite(address, instant, over, rewritten, upload)

    def place_apart(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        """Give a revision a body where those of the form are kept; its record takes the place of a content here."""
        with self._bodies(address).changing() as changes, self.store.writing(address) as writer:
            if not self._is_stored(address, instant, over):
                return False
            record = recorded(rewritten)
            with (
                changes.replacing(address, instant, described(over), rewritten, upload),
                self.store.upload(address) as nothing,
            ):
                if not writer.rewrite(address, instant, over, record, nothing):
                    raise BusyError(f"{address} was written meanwhile")
            return True

    def finish(self, main: DocumentAddress) -> None:
        """Finish or discard whatever crashes have left of a document, its attachments and its older revisions."""
        bodies = self._bodies_of(main.form)
        with disk_errors("listing", main):
            is_unfinished = bodies is not None and bodies.has_unfinished(main)
        if is_unfinished or self.store.has_unfinished(main):
            with self.store.writing(main) as writer:
                writer.finish(main)
                if bodies is not None:
                    bodies.finish(main, self.record)

    def _is_stored(self, address: DocumentAddress, instant: Instant | None, record: Sidecar) -> bool:
        now = self.record(address, instant)
        return now is not None and now.id == record.id

    def _bodies(self, address: DocumentAddress) -> Bodies:
        bodies = self._bodies_of(address.form)
        if bodies is None:
            raise ConfigurationError(f"the body of {address} is with another provider, which has no place here")
        return bodies

    def _read(self, address: DocumentAddress, instant: Instant | None, *, content: bool) -> StoredRevision | None:
        if instant is None:
            return self.store.read(address, content=content)
        return self.store.read_older(address, instant, content=content)


def _is_attachment(address: Address) -> TypeGuard[DocumentAddress]:
    return isinstance(address, DocumentAddress) and not address.is_main


def _body_of(
    address: DocumentAddress, find: Callable[[], StoredRevision | None], is_still_stored: Callable[[], bool]
) -> StoredRevision | None:
    found, damage = None, _missing(address)
    try:
        with disk_errors("reading", address):
            found = find()
    except DamagedError as error:
        damage = error
    if found is not None and not found.is_edited:
        return found
    if is_still_stored():
        if found is None:
            raise damage
        return found
    if found is not None:
        found.close()
    return None


def _missing(address: DocumentAddress) -> DamagedError:
    return DamagedError(f"the body of {address} is missing where its attachments are kept")
