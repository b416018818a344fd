"""JSON lines: a document, draft or version of a definition a line; ``docs/import.md`` has the fields."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from functools import partial
from typing import Annotated, BinaryIO

import msgspec

from persistence.errors import BadRequestError, PersistenceError
from persistence.limits import CHUNK, LONGEST_LINE
from persistence.model import instants
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.instants import Instant
from persistence.model.sidecar import LARGEST_VERSION
from persistence.model.texts import without_encoding
from persistence.services.imports.revisions import (
    Content,
    ImportedRevision,
    ImportFacts,
    ImportOutcome,
    ImportUnit,
    refused,
)

_Version = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_VERSION)]
_Tag = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")]
_DEFINITION = b'"definition"'


class JsonAttachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attachment in a line; ``content`` is Base64, ``holder`` the path of an element."""

    name: str
    content: bytes
    content_type: str | None = None
    holder: str | None = None


class JsonDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line: a document with its ``data``, or a version with its ``definition``; both are XML as text."""

    app: str
    form: str
    version: _Version | None = None
    document: str | None = None
    draft: bool = False
    data: str | None = None
    definition: str | None = None
    deleted: bool = False
    attachments: tuple[JsonAttachment, ...] = ()
    created: str | None = None
    modified: str | None = None
    creator: str | None = None
    group: str | None = None
    organization: tuple[str, ...] = ()
    modifier: str | None = None
    stage: str | None = None
    valid: bool | None = None
    source: str | None = None
    etag: _Tag | None = None


_decode = msgspec.json.Decoder(JsonDocument).decode


class JsonLines:
    """The ``ImportSource`` of an open, seekable file. It is read twice: definitions come first."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def count(self) -> int:
        return sum(1 for _ in self._lines())

    def definitions(self) -> Iterator[ImportUnit | ImportOutcome]:
        return self._units(wants_definitions=True)

    def documents(self) -> Iterator[ImportUnit | ImportOutcome]:
        return self._units(wants_definitions=False)

    def _units(self, *, wants_definitions: bool) -> Iterator[ImportUnit | ImportOutcome]:
        for number, line in self._lines():
            name, may_define = f"line {number}", line is None or _DEFINITION in line
            if wants_definitions and not may_define:
                continue
            try:
                unit = _unit_of(name, _decoded(line))
            except PersistenceError as error:
                if wants_definitions or not may_define:
                    yield refused(name, error)
                continue
            if not may_define or unit.is_definition is wants_definitions:
                yield unit

    def _lines(self) -> Iterator[tuple[int, bytes | None]]:
        self._file.seek(0)
        number = 0
        while line := self._read():
            number += 1
            line = line.removeprefix(BOM_UTF8) if number == 1 else line
            is_long = len(line) > LONGEST_LINE
            end = line
            while is_long and not end.endswith(b"\n") and (end := self._read(CHUNK)):
                continue
            if line.strip():
                yield number, None if is_long else line

    def _read(self, most: int = LONGEST_LINE + 1) -> bytes:
        try:
            return self._file.readline(most)
        except OSError as error:
            raise BadRequestError(f"the file cannot be read: {error.strerror}") from error


def _decoded(line: bytes | None) -> JsonDocument:
    if line is None:
        raise BadRequestError(f"it is longer than {LONGEST_LINE} bytes: import it from a folder or a ZIP file")
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadRequestError(f"it is not a valid line (docs/import.md): {error}") from error
    if found.document is None and (found.definition is None or found.data is not None or found.draft):
        raise BadRequestError("it needs a document with data, or a definition with its version")
    if found.document is not None and (found.definition is not None or (found.data is None) is not found.deleted):
        raise BadRequestError("a document needs data, unless it is deleted, and must not have a definition")
    if found.document is None and (found.version is None or found.deleted):
        raise BadRequestError("a definition needs its version, and must not be deleted")
    if found.deleted and (found.draft or found.attachments):
        raise BadRequestError("a deleted document must not have a draft or attachments")
    return found


def _unit_of(name: str, found: JsonDocument) -> ImportUnit:
    main = _address(found, DATA_XML if found.document is not None else FORM_XHTML)
    text = found.data if found.document is not None else found.definition
    facts = ImportFacts(
        created=_instant(found.created),
        modified=_instant(found.modified),
        creator=found.creator,
        group=found.group,
        organization=found.organization,
        modifier=found.modifier,
        stage=found.stage,
        valid=found.valid,
        source=found.source,
        tag=found.etag,
    )
    content = None if text is None else _content(without_encoding(text).encode("utf-8", "surrogatepass"))
    revisions = [ImportedRevision(name, main, found.version, facts, content)]
    for attachment in found.attachments:
        of_attachment = ImportFacts(
            modified=facts.modified,
            has_own_time=False,
            creator=found.creator,
            group=found.group,
            organization=found.organization,
            modifier=found.modifier,
            content_type=attachment.content_type,
            holder=attachment.holder,
        )
        address = _address(found, attachment.name)
        if any(each.address == address for each in revisions):
            raise BadRequestError(f"two files have the name {attachment.name!r}")
        revisions.append(ImportedRevision(name, address, found.version, of_attachment, _content(attachment.content)))
    return ImportUnit(name, tuple(revisions))


def _address(found: JsonDocument, name: str) -> Address:
    form = Form(found.app, found.form)
    if found.document is None:
        return DefinitionAddress(form, found.version or 1, name)
    return DocumentAddress(form, Collection.DRAFT if found.draft else Collection.DATA, found.document, name)


def _content(data: bytes) -> Content:
    return partial(iter, (data,))


def _instant(text: str | None) -> Instant | None:
    if text is None:
        return None
    try:
        return instants.first_from(instants.parse_time(text, "a time"))
    except OverflowError as error:
        raise BadRequestError(f"{text!r} is after the year 9999") from error
