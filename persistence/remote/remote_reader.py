"""Reading from another service: facts by HEAD, contents by GET, or the part that a client wants (spec crud 11).

Bodies of attachments that another service keeps, without their records, are here too (spec forms 5.5).
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from persistence import client_request
from persistence.crypto import frames
from persistence.errors import (
    BusyError,
    DamagedError,
    MalformedXmlError,
    NotSupportedError,
    PersistenceError,
    RemoteError,
    disk_errors,
)
from persistence.forms.form_data import MARKER_WORD, HolderReader
from persistence.model.addresses import Address, AttachmentRef, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import Sidecar, described
from persistence.remote.client import DONE, Client, RemoteAnswer, RemoteCall, body_of
from persistence.remote.headers import HeaderField, HeaderFields
from persistence.remote.remote_sidecars import sidecar_of, strong_tag, tombstone_of
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision
from persistence.storage.uploads import Spool, Upload
from persistence.xml.markup import WordWatch

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Parameters = tuple[tuple[str, str], ...]

_AT_ONCE = 1 << 16
_FOUND = (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})?", re.ASCII)


class RemoteReader:
    """Reads from one provider. Methods raise ``RemoteError``, ``DiskError``, and what refusals mean."""

    def __init__(self, client: Client, spool: Spool) -> None:
        self._client = client
        self._spool = spool

    def read(self, address: Address, query: Parameters = (), *, content: bool) -> StoredRevision | None:
        """Return a revision, its content open if asked for; a tombstone where it is only known to be deleted."""
        is_part = content and not address.is_main and self._is_range_wanted()
        answer = self._ask("GET" if content and not is_part else "HEAD", address, query)
        try:
            if answer.status != HTTPStatus.OK:
                return _missing(address, answer)
            sidecar = sidecar_of(answer, self._client.names, address)
            if not content:
                answer.close()
                return StoredRevision(sidecar, sidecar.id, UNKNOWN_SIZE if answer.length is None else answer.length)
            if is_part:
                answer.close()
                return self._in_parts(address, query, sidecar, answer.length)
            return self._opened(address, query, sidecar, answer)
        except Exception:
            answer.close()
            raise

    def current(self, address: Address) -> tuple[StoredRevision | None, bytes | None]:
        """Return the facts of the current revision, and its entity tag: a tombstone has none."""
        answer = self._ask("HEAD", address, ())
        try:
            if answer.status != HTTPStatus.OK:
                return _missing(address, answer), None
            sidecar = sidecar_of(answer, self._client.names, address)
        finally:
            answer.close()
        size = UNKNOWN_SIZE if answer.length is None else answer.length
        return StoredRevision(sidecar, sidecar.id, size), strong_tag(answer)

    def beginning(self, address: DocumentAddress) -> Sidecar | None:
        """Return the sidecar of an attachment, which says whether it is encrypted."""
        answer = self._ask("GET", address, (), [("Range", b"bytes=0-%d" % (len(frames.MAGIC) - 1))])
        try:
            if answer.status not in _FOUND:
                is_empty = answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                found = self.read(address, content=False) if is_empty else _missing(address, answer)
                return None if found is None else found.sidecar
            is_encrypted = next(iter(answer), b"").startswith(frames.MAGIC)
            return msgspec.structs.replace(sidecar_of(answer, self._client.names, address), encrypted=is_encrypted)
        finally:
            answer.close()

    def _is_range_wanted(self) -> bool:
        """Return whether the client asks for a range of the bytes that the provider has.

        The range of a content that is decrypted here is another one of the encrypted file.
        """
        request = client_request.current()
        decrypt = self._client.names.own.header("Decrypt")
        return request.field_of("Range") is not None and request.field_of(decrypt) is None

    def _opened(self, address: Address, query: Parameters, sidecar: Sidecar, answer: RemoteAnswer) -> StoredRevision:
        """Open the content: a small one in memory, XML in a file without a name, attachments as they are read."""
        size, watch = answer.length, WordWatch(MARKER_WORD)
        if size is None or (address.is_main and size > _AT_ONCE):
            return _noted(address, self._spooled(address, sidecar, answer, watch), watch)
        if size > _AT_ONCE:
            file = opened_remotely(size, partial(self._part, address, query, sidecar, size), answer)
            return _noted(address, StoredRevision(sidecar, sidecar.id, size, file), watch)
        data = answer.whole(_AT_ONCE)
        self._check(address, len(data), answer)
        watch.feed(data)
        return _noted(address, StoredRevision(sidecar, sidecar.id, size, io.BytesIO(data)), watch)

    def _in_parts(self, address: Address, query: Parameters, sidecar: Sidecar, size: int | None) -> StoredRevision:
        """Open an attachment of which the client wants a range."""
        if size is not None:
            file = opened_remotely(size, partial(self._part, address, query, sidecar, size))
            return StoredRevision(sidecar, sidecar.id, size, file)
        answer = self._ask("GET", address, query)
        try:
            answer.require(f"{address}", HTTPStatus.OK)
            sidecar = sidecar_of(answer, self._client.names, address)
            return self._spooled(address, sidecar, answer, WordWatch(MARKER_WORD))
        except Exception:
            answer.close()
            raise

    def _spooled(self, address: Address, sidecar: Sidecar, answer: RemoteAnswer, watch: WordWatch) -> StoredRevision:
        with disk_errors("receiving", address), self._spool.upload() as upload:
            for piece in answer:
                upload.write(piece)
                watch.feed(piece)
            answer.close()
            self._check(address, upload.size, answer)
            return StoredRevision(sidecar, sidecar.id, upload.size, upload.opened())

    def _check(self, address: Address, size: int, answer: RemoteAnswer) -> None:
        if answer.length not in (None, size):
            raise RemoteError(f"provider {self._client.who!r} sends {size} of {answer.length} bytes of {address}")

    def _part(self, address: Address, query: Parameters, sidecar: Sidecar, size: int, at: int) -> RemoteAnswer:
        """Return the answer that has a content from an offset on, as far as the client asks for it."""
        answer = self._ask("GET", address, query, range_from(at, size))
        answer.require(f"{address}", *_FOUND)
        try:
            go_to(at, answer)
            is_same = sidecar_of(answer, self._client.names, address).id == sidecar.id
        except RemoteError:
            answer.close()
            raise
        if not is_same:
            answer.close()
            raise BusyError(f"{address} was replaced while it was read")
        return answer

    def _ask(self, method: str, address: Address, query: Parameters, fields: HeaderFields = ()) -> RemoteAnswer:
        names = self._client.names
        if isinstance(address, DefinitionAddress):
            fields = (*fields, names.version(address.version))
        return self._client.send(RemoteCall(method, names.path(address), fields, query))


def _missing(address: Address, answer: RemoteAnswer) -> StoredRevision | None:
    answer.require(f"{address}", *_MISSING)
    answer.close()
    tombstone = tombstone_of(address)
    return None if answer.status == HTTPStatus.NOT_FOUND else StoredRevision(tombstone, tombstone.id, 0)


def _noted(address: Address, found: StoredRevision, watch: WordWatch) -> StoredRevision:
    """Note whether a content is encrypted, because a provider keeps no such note.

    The beginning of an attachment shows whether it is an encrypted file. ``watch`` has read all of form data.
    """
    if not isinstance(address, DocumentAddress):
        return found
    if address.is_main:
        encrypted = None if watch.may_be_there else False
    else:
        encrypted = found.opened.read(len(frames.MAGIC)) == frames.MAGIC
        found.opened.seek(0)
    return replace(found, sidecar=msgspec.structs.replace(found.sidecar, encrypted=encrypted))


def range_from(at: int, size: int) -> list[HeaderField]:
    """Return the field that asks for a content of ``size`` bytes from an offset on, as far as the client wants it."""
    asked = _RANGE.fullmatch((client_request.current().field_of("Range") or "").strip())
    last = size - 1
    if asked is not None and asked[2] is not None and int(asked[1]) == at:
        last = min(int(asked[2]), last)
    return [("Range", f"bytes={at}-{last}".encode())] if (at, last) != (0, size - 1) else []


def go_to(at: int, answer: RemoteAnswer) -> None:
    """Make an answer go on from an offset; ranges are optional (spec crud 11).

    Raises:
        RemoteError: it cannot; it is closed.
    """
    try:
        if at and answer.status == HTTPStatus.OK:
            answer.skip(at)
        elif at and not (answer.field("Content-Range") or "").startswith(f"bytes {at}-"):
            raise RemoteError("a provider does not send the range that it was asked for")  # noqa: TRY301
    except RemoteError:
        answer.close()
        raise


def named_in(main: Address, file: BinaryIO) -> set[str]:
    """Return the names of the attachments beside a definition or data that its open content, closed here, names.

    Raises:
        DamagedError: it is not well-formed.
        BadRequestError: it names too many.
    """
    place = (main.form, main.collection, main.document) if isinstance(main, DocumentAddress) else (main.form, None, "")

    def is_beside(held: AttachmentRef) -> bool:
        return (held.form, held.collection, held.document) == place

    try:
        with file, HolderReader(is_beside) as reader, disk_errors("reading", main):
            return {holder.held.name for holder in reader.read(iter(partial(file.read, _AT_ONCE), b"")).holders}
    except MalformedXmlError as error:
        raise DamagedError(f"{main} cannot be read: {error}") from error


class _RemoteContent(io.RawIOBase):
    """A content of ``size`` bytes that is read from another service as it is needed. Reading raises ``RemoteError``.

    ``ask`` returns the answer that has it from an offset on. It is called when something is read, and again where that
    is not what follows. ``answer`` is one that has all of it, where that is known already.
    """

    def __init__(self, size: int, ask: Callable[[int], RemoteAnswer], answer: RemoteAnswer | None) -> None:
        super().__init__()
        self._size = size
        self._ask = ask
        self._answer = answer
        self._pieces: Iterator[bytes] = iter(()) if answer is None else iter(answer)
        self._held = memoryview(b"")
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: an answer from elsewhere on is asked for."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Take what follows from the piece that is held, else from the next one."""
        if self._at < self._size and not self._held:
            piece = next(self._pieces, None)
            if piece is None:  # nothing was requested yet, or only a part
                self._release()
                self._answer = self._ask(self._at)
                self._pieces = iter(self._answer)
                piece = next(self._pieces, b"")
            self._held = memoryview(piece)
        room = memoryview(buffer)
        taken, self._held = self._held[: len(room)], self._held[len(room) :]
        room[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to an offset from the beginning, or from here."""
        target = self._at + offset if whence == io.SEEK_CUR else offset
        if target != self._at:
            self._release()
            self._at, self._held = target, memoryview(b"")
        return target

    def close(self) -> None:
        """Release the answer that is being read."""
        self._release()
        super().close()

    def _release(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._answer, self._pieces = None, iter(())


def opened_remotely(size: int, ask: Callable[[int], RemoteAnswer], answer: RemoteAnswer | None = None) -> BinaryIO:
    """Return a content elsewhere as a file, for whoever reads it, seeks in it from its beginning, and closes it."""
    return io.BufferedReader(_RemoteContent(size, ask, answer))


class RemoteBodies:
    """The ``Bodies`` of another service, which has one body of each attachment: the current revision's.

    ``current`` returns the sidecar that is stored of an attachment.
    """

    def __init__(self, client: Client, spool: Spool, current: Callable[[DocumentAddress], Sidecar | None]) -> None:
        self._client = client
        self._spool = spool
        self._current = current

    def upload(self) -> Upload:
        """See ``Bodies``."""
        return self._spool.upload()

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """See ``Bodies``; a body whose length differs from its record may be of another revision.

        Raises:
            NotSupportedError: the revision is an older one.
        """
        sidecar, stored = described(record), self._current(address)
        if stored is not None and stored.modified != sidecar.modified:
            raise NotSupportedError(f"provider {self._client.who!r} keeps no older revisions of attachments")
        answer = self._ask("HEAD", address, sidecar.version)
        answer.close()
        if answer.status in _MISSING:
            return None
        answer.require(f"HEAD {address}", HTTPStatus.OK)
        size = sidecar.size if answer.length is None else answer.length
        etag = sidecar.id if size == sidecar.size else hashlib.sha256(f"{sidecar.id}:{size}".encode()).hexdigest()[:40]
        if not content:
            return StoredRevision(sidecar, etag, UNKNOWN_SIZE if answer.length is None else size)
        ask = partial(self._from, address, sidecar.version, size)
        return StoredRevision(sidecar, etag, size, opened_remotely(size, ask))

    @contextmanager
    def placing(
        self,
        address: DocumentAddress,
        sidecar: Sidecar,
        upload: Upload,
        over: Sidecar | None,  # noqa: ARG002
    ) -> Iterator[None]:
        """See ``Bodies``; the body before is gone then, also where the record cannot be stored."""
        kind = (sidecar.content_type or "application/octet-stream").encode("latin-1", "replace")
        with body_of(upload) as (body, length):
            fields = [self._version(sidecar.version), ("Content-Type", kind), length]
            self._done(RemoteCall("PUT", self._client.names.path(address), fields, body=body))
        yield

    @contextmanager
    def removing(self, address: DocumentAddress, over: Sidecar) -> Iterator[None]:
        """See ``Bodies``."""
        yield
        with suppress(PersistenceError):  # what counts is the record, which is gone
            self._done(RemoteCall("DELETE", self._client.names.path(address), [self._version(over.version)]))

    @contextmanager
    def dropping(self, address: DocumentAddress, records: Sequence[Sidecar], *, are_older: bool) -> Iterator[None]:
        """See ``Bodies``; bodies of older revisions are not kept there."""
        yield
        for record in () if are_older else records:
            with self.removing(address, record):
                pass

    def discard_draft(self, form: Form, document: str, version: int | None) -> None:
        """See ``Bodies``; a failure is reported (spec forms 5.5)."""
        draft = self._client.names.of_form("crud", form, Collection.DRAFT.value, document)
        self._done(RemoteCall("DELETE", draft, [] if version is None else [self._version(version)]))

    def _done(self, call: RemoteCall) -> None:
        answer = self._client.send(call)
        answer.require(call.what, *DONE, *(_MISSING if call.method == "DELETE" else ()))
        answer.close()

    def _from(self, address: DocumentAddress, version: int, size: int, at: int) -> RemoteAnswer:
        answer = self._ask("GET", address, version, range_from(at, size))
        answer.require(f"GET {address}", HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)
        go_to(at, answer)
        return answer

    def _ask(
        self, method: str, address: DocumentAddress, version: int, wanted: list[HeaderField] | None = None
    ) -> RemoteAnswer:
        fields = [self._version(version), *(wanted or ())]
        return self._client.send(RemoteCall(method, self._client.names.path(address), fields))

    def _version(self, version: int) -> HeaderField:
        return self._client.names.version(version)
