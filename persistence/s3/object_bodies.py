"""Bodies of attachments in an object store: stored before their records are committed, removed after that.

No lock is needed, because each revision has an object of its own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType

import msgspec

from persistence.errors import DamagedError, DiskError, PersistenceError
from persistence.limits import FIRST_PIECE
from persistence.model.addresses import DATA_XML, Address, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.network_addresses import Bucket
from persistence.model.sidecar import Sidecar, described
from persistence.s3.body_references import BodyNote, BodyNotes, BodyReference, require_short
from persistence.s3.objects import DocumentObjects, Objects
from persistence.storage.commit import Upload
from persistence.storage.on_demand import RangedFile
from persistence.storage.storage import Bodies, BodyChanges, KeepsHistory, keeps_all
from persistence.storage.stored_revision import StoredRevision


class ObjectBodies(Bodies):
    """The bodies of a place in an object store. Methods raise ``OSError`` too.

    Bodies are received below ``root``, a directory of this machine, which has the notes, too.
    """

    def __init__(self, objects: Objects, root: str, keeps_history: KeepsHistory = keeps_all) -> None:
        self.objects = objects
        self.notes = BodyNotes(root)
        self.root = str(objects.place)  # the place as it is shown
        self._directory = root
        self._keeps_history = keeps_history

    @property
    def place(self) -> Bucket:
        return self.objects.place

    def upload(self, address: DocumentAddress) -> Upload:
        return _ObjectUpload(self._directory, self, address)

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        if record.body is None:
            return None
        sidecar, key = described(record), require_short(self.place, BodyReference(address, record.id))
        if content and 0 < sidecar.size <= FIRST_PIECE:
            whole = self.objects.read(key, 0, sidecar.size)
            size = None if whole is None else sidecar.size
        else:
            whole, size = None, self.objects.size(key)
        if size is None:
            return None
        if size != sidecar.size:
            raise DamagedError(f"the body of {address} in {self.place} has {size} bytes, and not {sidecar.size}")

        def read(start: int, end: int) -> memoryview:
            piece = self.objects.read(key, start, end) if whole is None else whole[start:end]
            if piece is None:
                raise DamagedError(f"the body of {address} is missing in {self.place}")
            return piece

        file = io.BufferedReader(RangedFile(size, read, sidecar.digest)) if content else None
        return StoredRevision(sidecar, sidecar.etag, size, file)

    @contextmanager
    def changing(self) -> Iterator[ObjectChanges]:
        changes = ObjectChanges(self, self._keeps_history)
        try:
            yield changes
        except BaseException:
            changes.leave()  # it may be committed all the same: the sweep looks
            raise
        changes.finish()

    def document_files(self, form: Form, document: str) -> DocumentObjects:
        return DocumentObjects(self.objects, _folders(form, document))

    def held(self, form: Form, document: str) -> dict[tuple[Address, str], int]:
        listed = (each for folder in _folders(form, document) for each in self.objects.listed(folder))
        found = ((BodyReference.of_key(each.key), each.size) for each in listed)
        return {(each.address, each.id): size for each, size in found if each is not None}


def _folders(form: Form, document: str) -> tuple[str, ...]:
    mains = (DocumentAddress(form, each, document, DATA_XML) for each in Collection)
    return tuple(BodyReference(main, "").key.rsplit("/", 2)[0] for main in mains)


class _ObjectUpload(Upload):
    """A body that becomes an object, which is removed again where no change takes it."""

    def __init__(self, root: str, bodies: ObjectBodies, address: DocumentAddress) -> None:
        super().__init__(root)
        self._bodies = bodies
        self._reference = BodyReference(address, self.id)
        self.note: BodyNote | None = None
        self._is_stored = False

    def flush(self) -> None:
        if self._is_stored:
            return
        if self.note is not None:
            raise DiskError("storing a body: it failed before")
        objects = self._bodies.objects
        key = require_short(objects.place, self._reference)
        self.note = self._bodies.notes.note()
        self.note.add(objects.place, self._reference)
        with self.opened() as file:
            objects.put(key, file, self.size)
        self._is_stored = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.note is not None:
                with suppress(PersistenceError):  # the sweep removes it
                    self._bodies.objects.remove([self._reference.key])
                    self.note.remove()
                self.note.close()
        finally:
            super().__exit__(kind, error, trace)


class ObjectChanges(BodyChanges):
    """The changes of one block of the main storage, whose commit they await."""

    def __init__(self, bodies: ObjectBodies, keeps_history: KeepsHistory) -> None:
        self._bodies = bodies
        self._keeps_history = keeps_history
        self._stored: list[BodyNote] = []
        self._freed: list[BodyReference] = []
        self._note: BodyNote | None = None
        self._must_be_removed = False

    @contextmanager
    def placing(
        self, address: DocumentAddress, sidecar: Sidecar, upload: Upload, over: Sidecar | None
    ) -> Iterator[Sidecar]:
        self._take(upload)
        if sidecar.id != upload.id:  # it comes from elsewhere
            sidecar = msgspec.structs.replace(sidecar, id=upload.id, tag=sidecar.etag)
        if over is not None and not (address.keeps_history and self._keeps_history(address.form)):
            self._free([BodyReference(address, over.id)])
        yield sidecar

    @contextmanager
    def replacing(
        self,
        address: DocumentAddress,
        instant: Instant | None,  # noqa: ARG002 - its content id says which one it is
        over: Sidecar,
        rewritten: Sidecar,  # noqa: ARG002
        upload: Upload,
    ) -> Iterator[None]:
        self._take(upload)
        self._free([BodyReference(address, over.id)])
        yield

    @contextmanager
    def removing(self, address: DocumentAddress, over: Sidecar) -> Iterator[None]:
        if not address.keeps_history:
            self._free([BodyReference(address, over.id)])
        yield

    @contextmanager
    def dropping(self, address: DocumentAddress, records: Sequence[Sidecar], *, are_older: bool) -> Iterator[None]:  # noqa: ARG002
        self._free([BodyReference(address, each.id) for each in records])
        self._must_be_removed = True
        yield

    @contextmanager
    def discarding_draft(
        self,
        form: Form,
        document: str,
        version: int | None,  # noqa: ARG002 - keys are without it
        records: Sequence[tuple[str, Sidecar]],
    ) -> Iterator[None]:
        self._free(
            [BodyReference(DocumentAddress(form, Collection.DRAFT, document, name), each.id) for name, each in records]
        )
        yield

    def finish(self) -> None:
        """Remove the objects without a record: the block is committed."""
        for note in self._stored:
            note.remove()
        if self._note is None:
            return
        try:
            self._bodies.objects.remove([each.key for each in self._freed])
            self._note.remove()
        except PersistenceError:
            if self._must_be_removed:
                raise
        finally:
            self._note.close()

    def leave(self) -> None:
        """Leave everything to the sweep."""
        for note in (*self._stored, *filter(None, [self._note])):
            note.close()

    def _take(self, upload: Upload) -> None:
        if not isinstance(upload, _ObjectUpload):
            raise TypeError("an upload of another storage")
        upload.flush()
        note, upload.note = upload.note, None
        if note is not None:
            self._stored.append(note)

    def _free(self, references: Sequence[BodyReference]) -> None:
        if not references:
            return
        if self._note is None:
            self._note = self._bodies.notes.note()
        for each in references:
            self._note.add(self._bodies.place, each)
            self._freed.append(each)
