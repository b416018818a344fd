"""Reading from another service: facts by HEAD, contents by GET, or the part that a client wants (spec crud 11)."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import BinaryIO

import msgspec

from persistence import client_request, crypto
from persistence.closable import closed_after_error
from persistence.errors import (
    BadRequestError,
    BusyError,
    DamagedError,
    MalformedXmlError,
    NotSupportedError,
    RemoteError,
    disk_errors,
)
from persistence.forms.form_data import MARKER_WORD, HolderReader
from persistence.forms.messages import FoundHistory, HistoryEntry, read_history
from persistence.limits import LARGEST_ANSWER, MOST_HISTORY_CALLS, MOST_RECEIVED, REMOTE_HISTORY_PAGE
from persistence.model import texts
from persistence.model.addresses import Address, DefinitionAddress, DocumentAddress
from persistence.model.sidecar import LARGEST_VERSION, SCHEMA, ClientHash, ListedRevision, Sidecar
from persistence.model.texts import Instant
from persistence.model.versions import FormMetadata
from persistence.remote.remote_calls import Client
from persistence.storage.commit import Upload
from persistence.storage.layout import NAMES
from persistence.storage.storage import RangedFile, RevisionList
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision
from persistence.wire import Answer, Call, HeaderField, HeaderFields, OwnFields, whole_number
from persistence.xml import WordWatch

FOUND = (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)

MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)  # For what was never there, or was deleted

_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})?", re.ASCII)


def opened_remotely(size: int, ask: Callable[[int], Answer], answer: Answer | None = None) -> BinaryIO:
    """Return a content elsewhere as a file that can seek; the reader closes it.

    ``ask`` returns the answer from an offset on; ``answer`` has all of the content, where that is known already.
    """
    pieces: Iterator[bytes] = iter(answer or ())
    at = 0

    def read(begin: int, _: int) -> bytes:
        nonlocal answer, pieces, at
        piece = next(pieces, None) if begin == at else None
        if piece is None:  # nothing was requested yet, or only a part, or another one
            let_go()
            answer = ask(begin)
            pieces = iter(answer)
            piece = next(pieces, b"")
        at = begin + len(piece)
        return piece

    def let_go() -> None:
        nonlocal answer, pieces
        if answer is not None:
            answer.close()
        answer, pieces = None, iter(())

    return io.BufferedReader(RangedFile(size, read, let_go=let_go))


def range_from(at: int, size: int) -> list[HeaderField]:
    """Return the field that asks for a content from an offset on, as far as the client wants it."""
    asked = _RANGE.fullmatch((client_request.current().field_of("Range") or "").strip())
    last = size - 1
    if asked is not None and asked[2] is not None and int(asked[1]) == at:
        last = min(int(asked[2]), last)
    return [("Range", f"bytes={at}-{last}")] if (at, last) != (0, size - 1) else []


def go_to(at: int, answer: Answer) -> None:
    """Make an answer go on from an offset; ranges are optional (spec crud 11)."""
    with closed_after_error(answer):
        if at and answer.status == HTTPStatus.OK:
            answer.skip(at)
        elif at and not answer.headers.get("Content-Range", "").startswith(f"bytes {at}-"):
            raise RemoteError("a provider does not send the range that it was asked for")


_LONG_AGO = Instant("1970-01-01T00:00:00.000Z")
_TAG = re.compile(r"[0-9a-f]{40}", re.ASCII)
_ENCRYPTED = "sealed"  # Stands for the algorithm where the hash of an encrypted content was encrypted too

_NOBODY = FormMetadata(permissions="<permissions/>")


def sidecar_of(answer: Answer, client: Client, address: Address) -> Sidecar:
    own = client.own(answer)
    modified = _instant(answer, own, "Last-Modified")
    if modified is None:
        raise RemoteError(f"the answer for {address} does not say when it was modified")
    if modified == texts.LAST:
        raise RemoteError(f"the answer for {address} says that it was modified at {modified}, which nothing can follow")
    version = whole_number((own.text("Form-Definition-Version") or "").strip()) or 0
    if isinstance(address, DefinitionAddress):
        version = address.version
    elif not 1 <= version <= LARGEST_VERSION:
        raise RemoteError(f"the answer for {address} does not say its form definition version")
    algorithm, value = own.text("Hash-Algorithm"), own.text("Hash-Value")
    is_encrypted = algorithm == _ENCRYPTED
    is_definition = isinstance(address, DefinitionAddress)
    return Sidecar(
        schema=SCHEMA,
        id=tag_of(answer) or _tag(address, modified),
        version=version,
        modified=modified,
        created=_instant(answer, own, "Created") or modified,
        size=answer.length or 0,
        content_type=answer.headers.get("Content-Type"),
        valid=own.flag("Valid"),
        stage=own.text("Workflow-Stage"),
        creator=None if is_definition else own.text("Username"),
        group=None if is_definition else own.text("Group"),
        organization=() if is_definition else tuple(own.texts("Organization")),
        modifier=own.text("Last-Modified-By-Username"),
        source=own.text("Document"),
        client_hash=ClientHash(algorithm, value) if algorithm and value and not is_encrypted else None,
        sealed_hash=value if is_encrypted else None,
    )


def kept_hash(sidecar: Sidecar) -> ClientHash | None:
    """Return the hash for the provider to keep: the client's own only where the content is plain."""
    return sidecar.client_hash if sidecar.sealed_hash is None else ClientHash(_ENCRYPTED, sidecar.sealed_hash)


def tag_of(answer: Answer) -> str | None:
    """Return the entity tag as 40 hex digits, hashed if it has another form."""
    sent = answer.headers.get("ETag", "").strip()
    tag = sent.removeprefix("W/").strip('"')
    if not tag:
        return None
    return tag if _TAG.fullmatch(tag) else hashlib.sha256(sent.encode()).hexdigest()[:40]


def as_stored(answer: Answer, client: Client, address: Address, sidecar: Sidecar) -> Sidecar:
    """Return the sidecar with the tag and instant of the answer: the other side has its own."""
    modified = _instant(answer, client.own(answer), "Last-Modified")
    tag = tag_of(answer) or (sidecar.id if modified is None else _tag(address, modified))
    return msgspec.structs.replace(sidecar, id=tag, modified=modified or sidecar.modified)


def _instant(answer: Answer, own: OwnFields, name: str) -> Instant | None:
    text, common = own.text(name), answer.headers.get(name)
    try:
        if text is not None:
            return texts.from_datetime(texts.parse_time(text, name))
        return None if common is None else texts.from_datetime(parsedate_to_datetime(common).astimezone(UTC))
    except (BadRequestError, ValueError, OverflowError):
        return None


def _tag(address: Address, modified: Instant) -> str:
    return hashlib.sha256(f"{address}\n{modified}".encode()).hexdigest()[:40]


_NO_HISTORY = (
    *(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND),  # for unknown paths (spec crud 11)
    *(HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED),
)


@dataclass(frozen=True, slots=True)
class _Life:
    """The revisions from a creation to the next; ``newest`` is the last one that is known."""

    version: int
    created: Instant
    newest: Instant


def history_of(client: Client, address: DocumentAddress) -> RevisionList:
    """Return the revisions of a resource, whose pages are asked for as they are needed, and kept.

    Its methods raise ``RemoteError``, and ``BusyError`` where a revision was added meanwhile.
    """
    pages = _HistoryPages(client, address)
    return RevisionList(pages.total, pages.instant, pages.load)


class _HistoryPages:
    """The pages of a history that were asked for, and what they say of the revisions on them."""

    def __init__(self, client: Client, address: DocumentAddress) -> None:
        self._client = client
        self._address = address
        self._calls = 0
        self._pages: dict[int, FoundHistory] = {}
        self._lives: list[_Life] = []
        self.total = self._total_of(self._page_of(0))

    def instant(self, position: int) -> Instant:
        oldest = self._page_of(0).attributes.get("min-last-modified-time", "") if position == self.total - 1 else ""
        return self._instant(oldest or self._row(position).modified)

    def load(self, begin: int, end: int) -> list[ListedRevision]:
        found = list[ListedRevision]()
        for position in range(begin, end):
            row = self._row(position)
            instant = self._instant(row.modified)
            if row.is_damaged:
                found.append(ListedRevision(instant, None))
                continue
            known = (life for life in self._lives if life.created <= instant <= life.newest)
            life = next(known, None) or self._noted(self._ask(position + 1, 1), instant)
            sidecar = Sidecar(
                schema=SCHEMA,
                id=_tag(self._address, instant),
                version=life.version,
                modified=instant,
                created=life.created,
                size=0,
                stage=row.stage or None,
                creator=row.owner,
                group=row.group,
                modifier=row.modifier,
                deleted=row.is_deleted,
                restored=self._instant(row.restored) if row.restored else None,
            )
            found.append(ListedRevision(instant, sidecar))
        return found

    def _noted(self, found: FoundHistory, newest: Instant) -> _Life:
        version = whole_number(found.attributes.get("form-version", "")) or 0
        if not 1 <= version <= LARGEST_VERSION:
            raise self._not_a_history("does not say a form version")
        life = _Life(version, self._instant(found.attributes.get("created-time", "")), newest)
        self._lives.append(life)
        return life

    def _row(self, position: int) -> HistoryEntry:
        rows = self._page_of(position).revisions
        at = position % REMOTE_HISTORY_PAGE
        if at >= len(rows):
            raise self._not_a_history("has fewer revisions than it says")
        return rows[at]

    def _page_of(self, position: int) -> FoundHistory:
        number = position // REMOTE_HISTORY_PAGE
        if number not in self._pages:
            found = self._ask(number + 1, REMOTE_HISTORY_PAGE)
            if found.revisions and not found.revisions[0].is_damaged:
                self._noted(found, self._instant(found.revisions[0].modified))
            self._pages[number] = found
        return self._pages[number]

    def _ask(self, number: int, size: int) -> FoundHistory:
        self._calls += 1
        if self._calls > MOST_HISTORY_CALLS:
            raise NotSupportedError(f"the history of {self._address} needs too many requests to {self._client.who!r}")
        rest = () if self._address.is_main else (self._address.name,)
        path = self._client.names.of_form("history", self._address.form, self._address.document, *rest)
        query = (("page-number", str(number)), ("page-size", str(size)))
        answer = self._client.send(Call("GET", path, query=query))
        if answer.status in _NO_HISTORY:
            answer.close()
            raise NotSupportedError(f"provider {self._client.who!r} has no history of {self._address}")
        self._client.require(answer, f"the history of {self._address}", HTTPStatus.OK)
        try:
            found = read_history([answer.whole(LARGEST_ANSWER)])
        except MalformedXmlError as error:
            raise self._not_a_history("is not XML") from error
        if len(found.revisions) > size:
            raise self._not_a_history("has more revisions than were asked for")
        if self._pages and self._total_of(found) != self.total:
            raise BusyError(f"{self._address} was written while its history was read")
        return found

    def _total_of(self, found: FoundHistory) -> int:
        total = whole_number(found.attributes.get("total", ""))
        if total is None:
            raise self._not_a_history("does not say how many revisions there are")
        return total

    def _instant(self, text: str) -> Instant:
        try:
            return texts.from_datetime(texts.parse_time(text, "modified-time"))
        except BadRequestError as error:
            raise self._not_a_history("has a time that is not valid") from error

    def _not_a_history(self, why: str) -> RemoteError:
        return RemoteError(f"the history of {self._address} that provider {self._client.who!r} answers {why}")


Parameters = tuple[tuple[str, str], ...]

_AT_ONCE = 1 << 16


class RemoteReader:
    """Reads from one provider; large contents are received below ``root``, a directory of this service."""

    def __init__(self, client: Client, root: str) -> None:
        self._client = client
        self._root = root

    def read(self, address: Address, instant: Instant | None = None, *, content: bool) -> StoredRevision | None:
        """As the other storages; a tombstone where it is only known to be deleted."""
        query = () if instant is None else (("last-modified-time", instant),)
        # The range of a content that is decrypted here is a different one of the encrypted file.
        request, decrypt = client_request.current(), self._client.names.own.header("Decrypt")
        wants_range = request.field_of("Range") is not None and request.field_of(decrypt) is None
        is_part = not address.is_main and wants_range
        if not content or is_part:
            found, _ = self.facts(address, query)
            if not content or found is None or found.sidecar.deleted:
                return found
            if found.size != UNKNOWN_SIZE:
                file = opened_remotely(found.size, partial(self._part, address, query, found.sidecar, found.size))
                return replace(found, file=file)
        answer = self._ask("GET", address, query)
        with closed_after_error(answer):
            if answer.status != HTTPStatus.OK:
                return _missing(self._client, address, answer)
            return self._opened(address, query, sidecar_of(answer, self._client, address), answer)

    def facts(self, address: Address, query: Parameters = ()) -> tuple[StoredRevision | None, bytes | None]:
        """Return a revision without its content, and its entity tag, for an ``If-Match``; ``None`` without one."""
        with self._ask("HEAD", address, query) as answer:
            if answer.status != HTTPStatus.OK:
                return _missing(self._client, address, answer), None
            sidecar = sidecar_of(answer, self._client, address)
        size = UNKNOWN_SIZE if answer.length is None else answer.length
        # As it was sent: the form runtime compares text (spec crud 4.6). A weak one never matches (RFC 9110 13.1.1).
        sent = answer.headers.get("ETag", "").strip()
        tag = sent.encode() if sent and sent.isascii() and not sent.startswith("W/") else None
        return StoredRevision(sidecar, sidecar.id, size), tag

    def beginning(self, address: DocumentAddress) -> Sidecar | None:
        """Return the sidecar of an attachment, which says whether it is encrypted."""
        with self._ask("GET", address, (), [("Range", f"bytes=0-{len(crypto.MAGIC) - 1}")]) as answer:
            if answer.status not in FOUND:
                is_empty = answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                found = self.read(address, content=False) if is_empty else _missing(self._client, address, answer)
                return None if found is None else found.sidecar
            is_encrypted = answer.beginning().startswith(crypto.MAGIC)
            return msgspec.structs.replace(sidecar_of(answer, self._client, address), encrypted=is_encrypted)

    def _opened(self, address: Address, query: Parameters, sidecar: Sidecar, answer: Answer) -> StoredRevision:
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

    def _spooled(self, address: Address, sidecar: Sidecar, answer: Answer, watch: WordWatch) -> StoredRevision:
        with disk_errors("receiving", address), Upload(self._root) as upload:
            for piece in answer:
                if upload.size + len(piece) > MOST_RECEIVED:
                    raise RemoteError(f"{self._client.label} sends more than {MOST_RECEIVED} bytes of {address}")
                upload.write(piece)
                watch.feed(piece)
            answer.close()
            self._check(address, upload.size, answer)
            return StoredRevision(sidecar, sidecar.id, upload.size, upload.opened())

    def _check(self, address: Address, size: int, answer: Answer) -> None:
        if answer.length not in (None, size):
            raise RemoteError(f"provider {self._client.who!r} sends {size} of {answer.length} bytes of {address}")

    def _part(self, address: Address, query: Parameters, sidecar: Sidecar, size: int, at: int) -> Answer:
        answer = self._ask("GET", address, query, range_from(at, size))
        self._client.require(answer, f"{address}", *FOUND)
        with closed_after_error(answer):
            go_to(at, answer)
            if sidecar_of(answer, self._client, address).id != sidecar.id:
                raise BusyError(f"{address} was replaced while it was read")
        return answer

    def _ask(self, method: str, address: Address, query: Parameters, fields: HeaderFields = ()) -> Answer:
        NAMES.paths(address)
        names = self._client.names
        if isinstance(address, DefinitionAddress):
            fields = (*fields, names.version(address.version))
        return self._client.send(Call(method, names.path(address), fields, query))


def _missing(client: Client, address: Address, answer: Answer) -> StoredRevision | None:
    client.require(answer, f"{address}", *MISSING)
    answer.close()
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    tombstone = Sidecar(  # of what is only known to be deleted; a definition permits nothing
        schema=SCHEMA,
        id=_tag(address, _LONG_AGO),
        version=address.version if isinstance(address, DefinitionAddress) else 1,
        modified=_LONG_AGO,
        created=_LONG_AGO,
        size=0,
        metadata=_NOBODY if isinstance(address, DefinitionAddress) else None,
        deleted=True,
    )
    return StoredRevision(tombstone, tombstone.id, 0)


def _noted(address: Address, found: StoredRevision, watch: WordWatch) -> StoredRevision:
    """Note whether a content is encrypted, which a provider does not; ``watch`` has read all of form data."""
    if not isinstance(address, DocumentAddress):
        return found
    if address.is_main:
        encrypted = None if watch.may_be_there else False
    else:
        encrypted = found.opened.read(len(crypto.MAGIC)) == crypto.MAGIC
        found.opened.seek(0)
    return replace(found, sidecar=msgspec.structs.replace(found.sidecar, encrypted=encrypted))


def named_in(main: Address, file: BinaryIO) -> set[str]:
    """Return the names of the attachments beside a definition or data that its open content, closed here, names."""
    place = (main.form, main.collection, main.document) if isinstance(main, DocumentAddress) else (main.form, None, "")
    reader = HolderReader(lambda held: (held.form, held.collection, held.document) == place)
    try:
        with file, disk_errors("reading", main):
            return {holder.held.name for holder in reader.read(iter(partial(file.read, _AT_ONCE), b"")).holders}
    except MalformedXmlError as error:
        raise DamagedError(f"{main} cannot be read: {error}") from error
