"""A storage whose attachments of data have their bodies elsewhere (spec crud 11, forms 5.5).

The main storage keeps of each attachment a record without body, which is committed when its body is durable. A
record with a body is served as it is: so attachments may have been stored before they were to be elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import BinaryIO, TypeGuard

import msgspec

from persistence.errors import BusyError, DamagedError, disk_errors
from persistence.model.addresses import DATA_XML, Address, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Body, Sidecar
from persistence.storage.integrity import digest_text
from persistence.storage.storage import Bodies, Storage, Writing, require_same
from persistence.storage.stored_revision import Fingerprint, StoredRevision
from persistence.storage.uploads import Upload

_ATTEMPTS = 20
_NO_BYTES = digest_text(hashlib.sha256().hexdigest())


def described(record: Sidecar) -> Sidecar:
    """Return a record with the size and digest of its body."""
    body = record.body
    return record if body is None else msgspec.structs.replace(record, size=body.size, digest=body.digest, body=None)


def recorded(sidecar: Sidecar) -> Sidecar:
    """Return the record of a revision whose body is elsewhere; ``described`` undoes it."""
    body = Body(sidecar.size, sidecar.digest)
    return msgspec.structs.replace(sidecar, size=0, digest=_NO_BYTES, body=body)


class SplitStorage(Storage):
    """A main storage that knows everything, and a second place, which has the bodies of attachments of data."""

    def __init__(self, main: Storage, bodies: Bodies) -> None:
        self._main = main
        self._bodies = bodies

    def sidecar(self, address: Address) -> Sidecar | None:
        """See ``Readable``; for an attachment, it is its record."""
        return self._main.sidecar(address)

    def content(self, address: Address) -> BinaryIO | None:
        """See ``Readable``; without a record, nothing leads to the body of an attachment."""
        if not _is_attachment(address):
            return self._main.content(address)
        found = self.read(address, content=True)
        return None if found is None else found.file

    def fingerprint(self, address: Address) -> Fingerprint:
        """See ``Readable``: every body has a record of its own."""
        return self._main.fingerprint(address)

    def fingerprints(self, form: Form) -> Iterator[tuple[int, Fingerprint]]:
        """See ``Readable``."""
        return self._main.fingerprints(form)

    def forms(self, app: str | None = None) -> Iterator[Form]:
        """See ``Readable``."""
        return self._main.forms(app)

    def versions(self, form: Form) -> Iterator[int]:
        """See ``Readable``."""
        return self._main.versions(form)

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        """See ``Readable``."""
        return self._main.documents(form, collection)

    def creating(self, form: Form) -> AbstractContextManager[None]:
        """See ``Storage``."""
        return self._main.creating(form)

    def read(self, address: Address, *, content: bool) -> StoredRevision | None:
        """See ``Readable``."""
        return self._whole(address, lambda: self._main.read(address, content=content), content=content)

    def read_revision(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        """See ``Readable``."""

        def read() -> StoredRevision | None:
            return self._main.read_revision(address, instant, content=content)

        return self._whole(address, read, content=content)

    def upload(self, address: Address) -> Upload:
        """See ``Storage``."""
        if not _is_attachment(address):
            return self._main.upload(address)
        with disk_errors("receiving a body"):
            return self._bodies.upload()

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writing]:
        """See ``Storage``."""
        with self._main.writing(address) as writer:
            yield _SplitWriter(self._main, writer, self._bodies)

    def _body(self, address: DocumentAddress, record: StoredRevision, *, content: bool) -> StoredRevision | None:
        """Find the body of a record, which is closed where that fails."""
        try:
            with disk_errors("reading", address):
                return self._bodies.find(address, record.sidecar, content=content)
        except BaseException:
            record.close()
            raise

    def _whole(
        self, address: Address, read: Callable[[], StoredRevision | None], *, content: bool
    ) -> StoredRevision | None:
        """Return the revision in the main storage, with its body from elsewhere where it has none."""
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

    def _with_body(
        self,
        address: DocumentAddress,
        record: StoredRevision,
        read: Callable[[], StoredRevision | None],
        *,
        content: bool,
    ) -> StoredRevision | None:
        """Return the revision of a record with its body; ``None`` where another one has taken its place meanwhile."""
        try:
            found = self._body(address, record, content=content)
        except DamagedError:
            if _is_still_stored(read, record):
                raise
            return None
        if record.sidecar.body is None:  # not ours: all that it says of its body is that it has none
            return record if found is None else _of_record(record, found)
        record.close()
        if found is not None and not found.is_edited:
            return found
        is_still_stored = _is_still_stored(read, record)
        if found is not None and is_still_stored:
            current = self._main.sidecar(address)
            if current is not None and current.id == record.sidecar.id:
                return found  # replaced by hand
        if found is not None:
            found.close()  # the body of another revision
        if is_still_stored:
            raise DamagedError(f"the body of {address} is missing where its attachments are kept")
        return None


class _SplitWriter(Writing):
    def __init__(self, main: Storage, writer: Writing, bodies: Bodies) -> None:
        self._main = main
        self._writer = writer
        self._bodies = bodies

    def current(self, address: Address) -> StoredRevision | None:
        record = self._writer.current(address)
        if not _is_attachment(address) or record is None or record.sidecar.deleted or record.size:
            return record
        return self._bodies.find(address, record.sidecar, content=False) or record

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        if not _is_attachment(address):
            return self._writer.commit(address, sidecar, upload, over=over)
        self._require(address, over)
        kept = None if over is None or over.sidecar.deleted else over.sidecar
        with self._bodies.placing(address, sidecar, upload, kept), self._main.upload(address) as nothing:
            return described(self._writer.commit(address, recorded(sidecar), nothing, over=over))

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        if not _is_attachment(address) or over is None:
            return self._writer.delete(address, tombstone, over=over)
        self._require(address, over)
        with self._bodies.removing(address, over.sidecar):
            return self._writer.delete(address, tombstone, over=over)

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        if not _is_attachment(address):
            self._writer.purge(address, tombstone, over=over)
            return
        self._require(address, over)
        with self._bodies.removing(address, over.sidecar):
            self._writer.purge(address, tombstone, over=over)

    def _require(self, address: DocumentAddress, over: StoredRevision | None) -> None:
        """Make sure that a revision is the stored one before its body is touched: the main storage looks later."""
        require_same(address, self._writer.current(address), over)

    def discard_draft(self, form: Form, document: str) -> None:
        version = self._version(form, document)
        self._writer.discard_draft(form, document)
        self._bodies.discard_draft(form, document, version)

    def _version(self, form: Form, document: str) -> int | None:
        """Return the version of a draft, which is its document's (seed, rule 1)."""
        draft = DocumentAddress(form, Collection.DRAFT, document, DATA_XML)
        known = self._main.sidecar(draft) or self._main.sidecar(draft.moved(Collection.DATA))
        return None if known is None else known.version


def _is_attachment(address: Address) -> TypeGuard[DocumentAddress]:
    return isinstance(address, DocumentAddress) and not address.is_main


def _of_record(record: StoredRevision, found: StoredRevision) -> StoredRevision:
    record.close()
    return replace(found, etag=record.etag)


def _is_still_stored(read: Callable[[], StoredRevision | None], record: StoredRevision) -> bool:
    """Read again, and return whether the same revision is there."""
    again = read()
    if again is None:
        return False
    again.close()
    return again.sidecar.id == record.sidecar.id
