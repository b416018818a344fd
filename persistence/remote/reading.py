"""Reading what another service has: facts by HEAD, contents by GET (spec crud 11)."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from http import HTTPStatus

import msgspec

from persistence import client_request
from persistence.crypto import frames
from persistence.errors import BusyError, RemoteError, disk_errors
from persistence.forms.data_marks import MARKER_WORD
from persistence.model.addresses import Address, DefinitionAddress, DocumentAddress
from persistence.model.sidecar import Sidecar
from persistence.remote.answers import sidecar_of, strong_tag, tombstone_of
from persistence.remote.caller import Caller
from persistence.remote.client import Answer, Call
from persistence.remote.content import RemoteContent, as_file
from persistence.remote.names import Fields
from persistence.remote.ranges import asked_from, go_to, is_wanted
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision
from persistence.storage.uploads import Spool
from persistence.xml.markup import WordWatch

Query = tuple[tuple[str, str], ...]

_AT_ONCE = 1 << 16
_FOUND = (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class Reader:
    """Reads from one provider. Methods raise ``RemoteError``, ``DiskError``, and what refusals mean."""

    def __init__(self, caller: Caller, spool: Spool) -> None:
        self._caller = caller
        self._spool = spool

    def read(self, address: Address, query: Query = (), *, content: bool) -> StoredRevision | None:
        """A revision, its content open if asked for; a tombstone where it is only known that it was deleted."""
        is_part = content and not address.is_main and is_wanted() and not self._is_decrypted()
        answer = self._ask("GET" if content and not is_part else "HEAD", address, query)
        try:
            if answer.status != HTTPStatus.OK:
                return self._missing(address, answer)
            sidecar = sidecar_of(answer, self._caller.names, address)
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
                return self._missing(address, answer), None
            sidecar = sidecar_of(answer, self._caller.names, address)
        finally:
            answer.close()
        size = UNKNOWN_SIZE if answer.length is None else answer.length
        return StoredRevision(sidecar, sidecar.id, size), strong_tag(answer)

    def beginning(self, address: DocumentAddress) -> Sidecar | None:
        """The sidecar of an attachment, with a note whether it is encrypted."""
        answer = self._ask("GET", address, (), [("Range", b"bytes=0-%d" % (len(frames.MAGIC) - 1))])
        try:
            if answer.status not in _FOUND:
                is_empty = answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                found = self.read(address, content=False) if is_empty else self._missing(address, answer)
                return None if found is None else found.sidecar
            is_encrypted = next(iter(answer), b"").startswith(frames.MAGIC)
            return msgspec.structs.replace(sidecar_of(answer, self._caller.names, address), encrypted=is_encrypted)
        finally:
            answer.close()

    def _missing(self, address: Address, answer: Answer) -> StoredRevision | None:
        if answer.status not in _MISSING:
            raise answer.refused(f"{address}")
        answer.close()
        tombstone = tombstone_of(address)
        return None if answer.status == HTTPStatus.NOT_FOUND else StoredRevision(tombstone, tombstone.id, 0)

    def _opened(self, address: Address, query: Query, sidecar: Sidecar, answer: Answer) -> StoredRevision:
        """The content: a small one in memory, XML in a file without a name, attachments as they are read."""
        size, watch = answer.length, WordWatch(MARKER_WORD)
        if size is None or (address.is_main and size > _AT_ONCE):
            return _noted(address, self._spooled(address, sidecar, answer, watch), watch)
        if size > _AT_ONCE:
            ask = partial(self._part, address, query, sidecar, size)
            file = as_file(RemoteContent(size, ask, answer))
            return _noted(address, StoredRevision(sidecar, sidecar.id, size, file), watch)
        data = answer.whole(_AT_ONCE)
        self._check(address, len(data), answer)
        watch.feed(data)
        return _noted(address, StoredRevision(sidecar, sidecar.id, size, io.BytesIO(data)), watch)

    def _is_decrypted(self) -> bool:
        """Whether the client asks for what is in an encrypted file: a range of that is another one of the file."""
        return client_request.current().field_of(self._caller.names.own.header("Decrypt")) is not None

    def _in_parts(self, address: Address, query: Query, sidecar: Sidecar, size: int | None) -> StoredRevision:
        """An attachment of which the client wants a range."""
        if size is not None:
            ask = partial(self._part, address, query, sidecar, size)
            return StoredRevision(sidecar, sidecar.id, size, as_file(RemoteContent(size, ask)))
        answer = self._ask("GET", address, query)
        if answer.status != HTTPStatus.OK:
            raise answer.refused(f"{address}")
        sidecar = sidecar_of(answer, self._caller.names, address)
        return self._spooled(address, sidecar, answer, WordWatch(MARKER_WORD))

    def _spooled(self, address: Address, sidecar: Sidecar, answer: Answer, watch: WordWatch) -> StoredRevision:
        with disk_errors("receiving", address), self._spool.upload() as upload:
            for piece in answer:
                upload.write(piece)
                watch.feed(piece)
            answer.close()
            self._check(address, upload.size, answer)
            return StoredRevision(sidecar, sidecar.id, upload.size, upload.opened())

    def _check(self, address: Address, size: int, answer: Answer) -> None:
        if answer.length not in (None, size):
            raise RemoteError(f"provider {self._caller.who!r} sends {size} of {answer.length} bytes of {address}")

    def _part(self, address: Address, query: Query, sidecar: Sidecar, size: int, at: int) -> Answer:
        """The answer that has a content from an offset on, as far as the client asks for it."""
        answer = self._ask("GET", address, query, asked_from(at, size))
        if answer.status not in _FOUND:
            raise answer.refused(f"{address}")
        try:
            go_to(at, answer)
            is_same = sidecar_of(answer, self._caller.names, address).id == sidecar.id
        except RemoteError:
            answer.close()
            raise
        if not is_same:
            answer.close()
            raise BusyError(f"{address} was replaced while it was read")
        return answer

    def _ask(self, method: str, address: Address, query: Query, fields: Fields = ()) -> Answer:
        names = self._caller.names
        if isinstance(address, DefinitionAddress):
            fields = (*fields, names.field("Form-Definition-Version", str(address.version)))
        return self._caller.send(Call(method, names.path(address), fields, query))


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
