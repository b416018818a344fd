"""Reading what another service has: facts by HEAD, contents by GET (spec crud 11), of a content what a client wants."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import BinaryIO, Self, cast

import msgspec

from persistence import client_request
from persistence.crypto import frames
from persistence.errors import BusyError, RemoteError, disk_errors
from persistence.forms.form_data import MARKER_WORD
from persistence.model.addresses import Address, DefinitionAddress, DocumentAddress
from persistence.model.sidecar import Sidecar
from persistence.remote.answers import sidecar_of, strong_tag, tombstone_of
from persistence.remote.client import Client, RemoteAnswer, RemoteCall
from persistence.remote.provider_names import HeaderField, HeaderFields
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision
from persistence.storage.uploads import Spool
from persistence.xml.markup import WordWatch

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
        """Return the facts of the current revision, and its entity tag: of a tombstone there is none."""
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
        answer.require(f"{address}", HTTPStatus.OK)
        sidecar = sidecar_of(answer, self._client.names, address)
        return self._spooled(address, sidecar, answer, WordWatch(MARKER_WORD))

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
    """Note whether what was found is encrypted, because a provider keeps no such note.

    The beginning of an attachment tells whether it is an encrypted file. ``watch`` has seen all of form data.
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


class RemoteContent:
    """A content of ``size`` bytes that is read from another service as it is needed, as if it were a file here.

    ``ask`` returns the answer that has it from an offset on. It is called when something is read, and again where that
    is not what follows. Reading raises ``RemoteError``.
    """

    def __init__(self, size: int, ask: Callable[[int], RemoteAnswer], answer: RemoteAnswer | None = None) -> None:
        """``answer`` is one that has all of it, where that is known already."""
        self._size = size
        self._ask = ask
        self._answer = answer
        self._pieces: Iterator[bytes] = iter(()) if answer is None else iter(answer)
        self._held = b""
        self._begin = self._at = 0

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer only at the end; all that are left without ``size``."""
        wanted = self._size - self._at if size < 0 else size
        data = bytearray()
        while len(data) < wanted and self._holds_more():
            begin = self._at - self._begin
            piece = self._held[begin : begin + wanted - len(data)]
            data += piece
            self._at += len(piece)
        return bytes(data)

    def _holds_more(self) -> bool:
        """Return whether the piece that is held has anything from here on; hold the next one if need be."""
        if self._at < self._begin + len(self._held):
            return True
        if self._at >= self._size:
            return False
        piece = next(self._pieces, None)
        if piece is None:  # nothing was asked for yet, or only a part of what is wanted
            self.close()
            self._answer = self._ask(self._at)
            self._pieces = iter(self._answer)
            piece = next(self._pieces, b"")
        self._begin, self._held = self._at, piece
        return bool(piece)

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._at

    def seek(self, offset: int) -> int:
        """Go to an offset from the beginning, without asking again where the piece that is held has it."""
        if not self._begin <= offset <= self._begin + len(self._held):
            self.close()
            self._begin, self._held = offset, b""
        self._at = offset
        return offset

    def fileno(self) -> int:
        """Raise ``io.UnsupportedOperation``, as files without a descriptor do."""
        raise io.UnsupportedOperation("a content of another service is no file")

    def close(self) -> None:
        """Release the answer that is being read."""
        if self._answer is not None:
            self._answer.close()
        self._answer, self._pieces = None, iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened_remotely(size: int, ask: Callable[[int], RemoteAnswer], answer: RemoteAnswer | None = None) -> BinaryIO:
    """Return a ``RemoteContent`` for whoever reads a file, seeks in it from its beginning, and closes it."""
    return cast("BinaryIO", RemoteContent(size, ask, answer))
