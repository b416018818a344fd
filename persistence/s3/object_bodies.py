"""Bodies of attachments in an object store: stored before their records are committed, removed after that.

No lock is needed, because each revision has an object of its own.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

import msgspec

from persistence.errors import BadAddressError, DamagedError, DiskError, PersistenceError
from persistence.limits import ABANDONED_OBJECT_AFTER, FIRST_PIECE, LONGEST_KEY
from persistence.model.addresses import DATA_XML, Address, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.network_addresses import Bucket
from persistence.model.sidecar import Sidecar, described, fresh_id
from persistence.s3.objects import DocumentObjects, Objects
from persistence.storage import files
from persistence.storage.commit import Upload, abandoned
from persistence.storage.layout import BODIES, NAMES, Layout, unescape
from persistence.storage.locks import try_lock
from persistence.storage.on_demand import RangedFile
from persistence.storage.storage import Bodies, BodyChanges, KeepsHistory, Revisions, keeps_all
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


# References to bodies in an object store: the names of an attachment with a content id, and the key of both.
#
# ::
#
# <prefix>/<app>/<form>/(data|draft)/<document>/<attachment>/<content id>
#
# So a person finds the bodies of a document, and each revision has an object of its own, which never changes.


_ID = re.compile(r"[0-9a-f]{40}")
_LEVELS = 6


class _Noted(msgspec.Struct, array_like=True):
    place: str
    key: str


@dataclass(frozen=True, slots=True)
class BodyReference:
    """The revision of an attachment that has the content id ``id``."""

    address: DocumentAddress
    id: str

    @property
    def key(self) -> str:
        """The key of the body, below the prefix."""
        paths = NAMES.paths(self.address)
        return f"{paths.directory}/{paths.name}/{self.id}".lstrip("/")

    @classmethod
    def of_key(cls, key: str) -> Self | None:
        """Return the reference with a key; ``None`` where it is not such a key."""
        names = key.split("/")
        if len(names) != _LEVELS or not _ID.fullmatch(names[-1]) or names[2] not in {each.value for each in Collection}:
            return None
        app, form, collection, document, name = map(unescape, names[:-1])
        found = cls(DocumentAddress(Form(app, form), Collection(collection), document, name), names[-1])
        try:
            return found if found.key == key else None
        except BadAddressError:
            return None

    def is_named(self, main: Revisions) -> bool:
        """Return whether a revision in the main storage has this body, or cannot be read."""
        try:
            current = main.sidecar(self.address)
            if current is not None and current.id == self.id:
                return True
            history = main.history(self.address)
        except DamagedError:
            return True
        found = () if history is None else history.page(0, history.total)
        return any(each.sidecar is None or each.sidecar.id == self.id for each in found)


def require_short(place: Bucket, reference: BodyReference) -> str:
    """Return the key of a reference below the prefix of a place."""
    key = reference.key
    if len(place.prefix.encode()) + 1 + len(key.encode()) > LONGEST_KEY:
        raise BadAddressError(f"too long together for a key in {place}: {reference.address}")
    return key


# Notes of bodies in an object store whose records are being changed, in files of this machine.
#
# A note is written before an object is stored, or before a change leaves it without a record, and removed after the
# commit. A killed process leaves it: the sweep then looks whether a record names the object, and need not list objects.


class BodyNotes:
    """The notes of a machine, below a root. Methods raise ``OSError``."""

    def __init__(self, root: str) -> None:
        self._directory = Layout(root).own(BODIES)

    def note(self) -> BodyNote:
        path = f"{self._directory}/{fresh_id()}"
        try:
            descriptor = files.open_new(path)
        except FileNotFoundError:
            files.ensure(self._directory)
            descriptor = files.open_new(path)
        try_lock(descriptor)  # tells ``left`` that its process lives
        return BodyNote(path, descriptor)

    def left(self, age: float) -> Iterator[str]:
        """Yield the paths of the notes of dead processes that are older than so many seconds."""
        with suppress(FileNotFoundError):
            yield from abandoned(self._directory, age)


class BodyNote:
    """One note. It stays when it is only closed."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def add(self, place: Bucket, reference: BodyReference) -> None:
        """Note a body. Raises ``OSError``."""
        files.write_all(self._descriptor, msgspec.json.encode(_Noted(str(place), reference.key)) + b"\n")

    def remove(self) -> None:
        """Remove the note: what it says is done."""
        files.remove_quietly(self._path)
        self.close()

    def close(self) -> None:
        """Leave the note to the sweep; do nothing if it is closed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


MainOf = Callable[[Form], Revisions | None]
"""Returns the main storage of a form's data, if its attachments are in the place."""


def settle_notes(bodies: ObjectBodies, main_of: MainOf, age: float = ABANDONED_OBJECT_AFTER) -> int:
    """Remove the objects that notes name and no record does; return how many. Raises ``OSError`` too.

    A note whose records or objects cannot be looked at stays.
    """
    count, place = 0, str(bodies.place)
    for path in bodies.notes.left(age):
        with suppress(PersistenceError, FileNotFoundError):
            lines = files.read_file(path)
            references = list[BodyReference]()
            for line in lines.splitlines():  # the last one may break off
                with suppress(msgspec.DecodeError):
                    noted = msgspec.json.decode(line, type=_Noted)
                    reference = BodyReference.of_key(noted.key)
                    if noted.place == place and reference is not None:
                        references.append(reference)
            if lines.strip() and not references:
                continue  # of another place
            unnamed = [each for each in references if _is_unnamed(each, main_of)]
            bodies.objects.remove([each.key for each in unnamed])
            files.remove_quietly(path)
            count += len(unnamed)
    return count


def _is_unnamed(reference: BodyReference, main_of: MainOf) -> bool:
    main = main_of(reference.address.form)
    return main is not None and not reference.is_named(main)


def stray_objects(
    bodies: ObjectBodies, main_of: MainOf, below: str = "", age: float = ABANDONED_OBJECT_AFTER
) -> Iterator[tuple[str, BodyReference | None] | None]:
    """Yield key and reference of the objects below the names of a key that no record names, ``None`` for all others.

    A key that is not one that the service gives has no reference. An object younger than ``age`` seconds is in order:
    its record may be about to be committed.
    """
    limit = datetime.now(UTC) - timedelta(seconds=age)
    for found in bodies.objects.listed(below):
        reference = BodyReference.of_key(found.key)
        is_stray = found.stored < limit and (reference is None or _is_unnamed(reference, main_of))
        yield (found.key, reference) if is_stray else None
