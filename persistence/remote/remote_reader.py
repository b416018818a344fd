"""Reading from another service: facts by HEAD, contents by GET, or the part that a client wants (spec crud 11)."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import BinaryIO

import msgspec

from persistence import client_request
from persistence.crypto import frames
from persistence.errors import (
    BusyError,
    DamagedError,
    MalformedXmlError,
    RemoteError,
    disk_errors,
)
from persistence.forms.form_data import MARKER_WORD, HolderReader
from persistence.limits import MOST_RECEIVED
from persistence.model.addresses import Address, AttachmentRef, DefinitionAddress, DocumentAddress
from persistence.model.sidecar import Sidecar
from persistence.remote.answers import RemoteAnswer
from persistence.remote.client import Client, RemoteCall
from persistence.remote.headers import HeaderFields
from persistence.remote.remote_content import FOUND, MISSING, go_to, opened_remotely, range_from
from persistence.remote.remote_sidecars import sidecar_of, strong_tag, tombstone_of
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision
from persistence.storage.uploads import Upload
from persistence.xml.markup import WordWatch

Parameters = tuple[tuple[str, str], ...]

_AT_ONCE = 1 << 16


class RemoteReader:
    """Reads from one provider; large contents are received below ``root``, a directory of this service."""

    def __init__(self, client: Client, root: str) -> None:
        self._client = client
        self._root = root

    def read(self, address: Address, query: Parameters = (), *, content: bool) -> StoredRevision | None:
        """Return a revision, its content open if asked for; a tombstone where it is only known to be deleted."""
        # The range of a content that is decrypted here is a different one of the encrypted file.
        request, decrypt = client_request.current(), self._client.names.own.header("Decrypt")
        wants_range = request.field_of("Range") is not None and request.field_of(decrypt) is None
        is_part = content and not address.is_main and wants_range
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
        """Return the facts of the current revision, and its entity tag, which a tombstone has not."""
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
            if answer.status not in FOUND:
                is_empty = answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                found = self.read(address, content=False) if is_empty else _missing(address, answer)
                return None if found is None else found.sidecar
            is_encrypted = answer.beginning().startswith(frames.MAGIC)
            return msgspec.structs.replace(sidecar_of(answer, self._client.names, address), encrypted=is_encrypted)
        finally:
            answer.close()

    def _opened(self, address: Address, query: Parameters, sidecar: Sidecar, answer: RemoteAnswer) -> StoredRevision:
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
        with disk_errors("receiving", address), Upload(self._root) as upload:
            for piece in answer:
                if upload.size + len(piece) > MOST_RECEIVED:
                    raise RemoteError(f"{self._client.label} sends more than {MOST_RECEIVED} bytes of {address}")
                upload.write(piece)
                watch.feed(piece)
            answer.close()
            self._check(address, upload.size, answer)
            return StoredRevision(sidecar, sidecar.id, upload.size, upload.opened())

    def _check(self, address: Address, size: int, answer: RemoteAnswer) -> None:
        if answer.length not in (None, size):
            raise RemoteError(f"provider {self._client.who!r} sends {size} of {answer.length} bytes of {address}")

    def _part(self, address: Address, query: Parameters, sidecar: Sidecar, size: int, at: int) -> RemoteAnswer:
        answer = self._ask("GET", address, query, range_from(at, size))
        answer.require(f"{address}", *FOUND)
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
    answer.require(f"{address}", *MISSING)
    answer.close()
    tombstone = tombstone_of(address)
    return None if answer.status == HTTPStatus.NOT_FOUND else StoredRevision(tombstone, tombstone.id, 0)


def _noted(address: Address, found: StoredRevision, watch: WordWatch) -> StoredRevision:
    """Note whether a content is encrypted, which a provider does not; ``watch`` has read all of form data."""
    if not isinstance(address, DocumentAddress):
        return found
    if address.is_main:
        encrypted = None if watch.may_be_there else False
    else:
        encrypted = found.opened.read(len(frames.MAGIC)) == frames.MAGIC
        found.opened.seek(0)
    return replace(found, sidecar=msgspec.structs.replace(found.sidecar, encrypted=encrypted))


def named_in(main: Address, file: BinaryIO) -> set[str]:
    """Return the names of the attachments beside a definition or data that its open content, closed here, names."""
    place = (main.form, main.collection, main.document) if isinstance(main, DocumentAddress) else (main.form, None, "")

    def is_beside(held: AttachmentRef) -> bool:
        return (held.form, held.collection, held.document) == place

    try:
        with file, HolderReader(is_beside) as reader, disk_errors("reading", main):
            return {holder.held.name for holder in reader.read(iter(partial(file.read, _AT_ONCE), b"")).holders}
    except MalformedXmlError as error:
        raise DamagedError(f"{main} cannot be read: {error}") from error
