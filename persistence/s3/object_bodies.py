"""Bodies of attachments in an object store: stored before their records are committed, removed after that.

No lock is needed, because each revision has an object of its own.

Texts of the library and of the store are never shown: they have keys, addresses and whatever a store puts into its
answers. A line of our own names the place, and the store's code of the error.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from persistence.closable import taking
from persistence.errors import BadRequestError, BusyError, DamagedError, DiskError, DiskFullError, PersistenceError
from persistence.limits import AT_ONCE, FIRST_PIECE, KEYS_AT_ONCE, LARGEST_PIECE, LARGEST_SINGLE, MOST_PARTS, PART
from persistence.model.addresses import Address, Collection, DocumentAddress, Form
from persistence.model.network_addresses import Bucket, object_endpoint
from persistence.model.sidecar import Sidecar, described, digest_text
from persistence.model.texts import Instant
from persistence.s3.body_references import BodyNote, BodyNotes, BodyReference, require_short
from persistence.storage.commit import Upload
from persistence.storage.storage import (
    Bodies,
    BodyChanges,
    DocumentFile,
    DocumentFiles,
    KeepsHistory,
    RangedFile,
    keeps_all,
)
from persistence.storage.stored_revision import StoredRevision

if TYPE_CHECKING:
    from obstore.store import S3Config


_RETRY_AFTER = 5
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_MISSING = re.compile(r"Missing (?:AccessKeyId|SecretAccessKey)")
_STATUS = re.compile(r"status code: (\d{3})")
_FULL = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "EntityTooLarge"}


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    """Seconds to connect and for an answer, and how many calls of a process may be under way."""

    connect: float
    timeout: float
    calls: int


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object in a list: its key below the prefix, its size in bytes, and its instant, by the store's clock."""

    key: str
    size: int
    stored: datetime


class Objects:
    """The objects below the prefix of a place. Methods raise ``BusyError``, or ``DiskFullError`` of a full store."""

    def __init__(self, place: Bucket, limits: ObjectLimits) -> None:
        """Connect to nothing yet: a process must have forked before the first call."""
        self.place = place
        self._limits = limits
        self._turns = threading.BoundedSemaphore(limits.calls)

    @cached_property
    def _store(self) -> S3Store:
        place, limits = self.place, self._limits
        config: S3Config = {"disable_bulk_delete": True}  # not every store has it
        if place.endpoint:
            config["endpoint"] = place.endpoint
        if place.region:
            config["region"] = place.region
        with self._translated("opening"):
            store = S3Store(
                place.name,
                prefix=place.prefix or None,
                config=config,
                client_options={
                    "allow_http": True,  # of an endpoint that is named so
                    "connect_timeout": timedelta(seconds=limits.connect),
                    "timeout": timedelta(seconds=limits.timeout),
                },
                retry_config={
                    "max_retries": 2,
                    "retry_timeout": timedelta(seconds=limits.timeout),
                    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
                },
            )
            for name in ("endpoint", "aws_endpoint_url_s3"):
                try:
                    object_endpoint(str(store.config.get(name) or ""))  # else the library would panic
                except BadRequestError as error:
                    raise BusyError(
                        f"the endpoint of the environment (AWS_ENDPOINT_URL) {error}", _RETRY_AFTER
                    ) from None
            return store

    def size(self, key: str) -> int | None:
        with self._calling("looking at a body"):
            try:
                size: int = obstore.head(self._store, key)["size"]
            except FileNotFoundError:
                next(obstore.list(self._store, chunk_size=1), None)  # raises without the bucket
                return None
            return size

    def read(self, key: str, start: int, end: int) -> memoryview | None:
        with self._calling("reading a body"):
            try:
                found = memoryview(obstore.get_range(self._store, key, start=start, end=end))
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None
            except BaseError as error:
                if _status_of(error) == "416":
                    raise DamagedError(f"a body in {self.place} ends before byte {start}") from None
                raise
        if len(found) != end - start:
            raise DamagedError(f"a body in {self.place} ends {end - start - len(found)} bytes early")
        return found

    def put(self, key: str, file: BinaryIO, size: int) -> None:
        """Store an object wholly or not at all, and never over another one: a large one, in parts, has a random key."""
        with self._calling("storing a body"):
            try:
                if size <= LARGEST_SINGLE:
                    obstore.put(self._store, key, file.read(size), mode="create", use_multipart=False)
                else:
                    part = max(PART, -(-size // MOST_PARTS))
                    path = Path(f"/proc/self/fd/{file.fileno()}")  # which the library reads without a copy of each part
                    obstore.put(self._store, key, path, use_multipart=True, chunk_size=part, max_concurrency=AT_ONCE)
            except AlreadyExistsError:  # the answer of the first attempt was lost
                if obstore.head(self._store, key)["size"] != size:
                    raise DamagedError(f"{self.place} has another object under the key of a new body") from None

    def remove(self, keys: list[str]) -> None:
        for begin in range(0, len(keys), KEYS_AT_ONCE):
            with self._calling("removing bodies"):
                obstore.delete(self._store, keys[begin : begin + KEYS_AT_ONCE])

    def listed(self, below: str = "") -> Iterator[ListedObject]:
        with self._translated("listing bodies"):
            pages = obstore.list(self._store, below or None, chunk_size=KEYS_AT_ONCE)
        while True:
            with self._calling("listing bodies"):
                page = next(pages, None)
            if page is None:
                return
            yield from (ListedObject(each["path"], each["size"], each["last_modified"]) for each in page)

    @contextmanager
    def _calling(self, action: str) -> Iterator[None]:
        refusal = BusyError(f"{self.place}: {self._limits.calls} calls are under way already", _RETRY_AFTER)
        with taking(self._turns, refusal, timeout=self._limits.connect), self._translated(action):
            yield

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        try:
            yield
        except PersistenceError:
            raise
        except (BaseError, OSError) as error:
            raise self._unusable(action, error) from None

    def _unusable(self, action: str, error: Exception) -> PersistenceError:
        text, place, status = str(error), self.place, _status_of(error)
        found = _CODE.search(text)
        code = found[1] if found else ""
        answer = f"{status} {code}".strip()
        if code in _FULL or status == "507":
            return DiskFullError(f"{action}: {place} is full ({answer})")
        if "NoSuchBucket" in text:
            cause = f"the bucket {place.name} does not exist"
        elif "/latest/" in text or "CredentialsError" in text or _MISSING.search(text):
            cause = "credentials are missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        elif isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in {"401", "403"}:
            cause = f"the store refuses the credentials, or the action ({answer})"
        elif answer:
            cause = f"the store answers {answer}"
        elif "TimedOut" in text or "kind: Timeout" in text:
            cause = f"no answer within {self._limits.timeout:g} seconds"
        else:
            cause = "the store cannot be reached, or the connection broke"
        return BusyError(f"{action} in {place}: {cause}", _RETRY_AFTER)


def _status_of(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class DocumentObjects(DocumentFiles):
    """The objects of a document below ``folders``. Older versions that a store keeps are for its administrators."""

    objects: Objects
    folders: tuple[str, ...]

    def listed(self) -> Iterator[DocumentFile]:
        for each in self._objects():
            hashing = hashlib.sha256()
            for start in range(0, each.size, LARGEST_PIECE):
                hashing.update(self.objects.read(each.key, start, min(start + LARGEST_PIECE, each.size)) or b"")
            yield DocumentFile(f"{self.objects.place}/{each.key}", each.size, digest_text(hashing.hexdigest()))

    def remove(self, links: list[str]) -> None:  # noqa: ARG002 - a directory has some
        """Remove all objects. Raises ``OSError`` for one that stays without an error."""
        self.objects.remove([each.key for each in self._objects()])
        for each in self._objects():
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), f"{self.objects.place}/{each.key}")

    def _objects(self) -> Iterator[ListedObject]:
        for folder in self.folders:
            yield from self.objects.listed(folder)


class ObjectBodies(Bodies):
    """The bodies of a place; ``root`` has those that are being received, and notes. Methods raise ``OSError``, too."""

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
    mains = (DocumentAddress(form, each, document) for each in Collection)
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
        draft: DocumentAddress,  # noqa: ARG002 - keys are of attachments
        version: int | None,  # noqa: ARG002
        records: Sequence[tuple[DocumentAddress, Sidecar]],
    ) -> Iterator[None]:
        self._free([BodyReference(address, record.id) for address, record in records])
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
