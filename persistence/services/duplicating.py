"""Duplicating a document: the same data and attachments under a new id, owned by the caller (spec runtime 8)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial

from persistence.errors import BadRequestError, DeletedError, NotFoundError, PersistenceError, disk_errors
from persistence.forms.editing import as_content
from persistence.forms.encryption import LeafEditor, OpenElement
from persistence.forms.form_data import HolderReader
from persistence.forms.messages import element, text
from persistence.limits import LONGEST_NAME, LONGEST_PATH, MOST_QUERY_ELEMENTS
from persistence.model.addresses import (
    DATA_XML,
    AttachmentRef,
    Collection,
    DocumentAddress,
    Form,
    document_holder_path,
    parse_holder_path,
)
from persistence.model.texts import require_plain
from persistence.model.users import User
from persistence.model.versions import VersionRequest
from persistence.services.documents import Documents
from persistence.services.rules import Get, Put, Read
from persistence.services.transforms import TransformedContent, parsing, transformed
from persistence.xml.streaming import Streaming

_ID = "document-id"
_ID_BYTES = 20
"""The runtime's own ids are 40 hex digits, too."""


class Duplicating:
    """Duplicates saved documents."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def duplicate(self, form: Form, body: Iterable[bytes], user: User) -> tuple[str, bytes]:
        """Return the id of the new document, and the answer in XML.

        ``data.xml`` is stored last, so that nobody sees a part, and a failure removes all of it. Encrypted values and
        attachments are encrypted anew; missing attachments stay missing.
        """
        source = DocumentAddress(form, Collection.DATA, _read_id(body), DATA_XML)
        require_plain(source.document)
        new = replace(source, document=secrets.token_hex(_ID_BYTES))
        read = self._documents.read(source, Get(user=user))
        try:
            with closing(transformed(read, only_relevant=False)) as content:
                self._copy(source, new, read, content, user)
        except Exception:
            storage = self._documents.router.of(new.form).storage
            with suppress(PersistenceError, OSError), storage.writing(new) as writer:
                writer.discard_document(new.form, new.document)
            raise
        return new.document, element(_ID, content=text(new.document)).encode()

    def _copy(
        self, source: DocumentAddress, new: DocumentAddress, read: Read, content: TransformedContent, user: User
    ) -> None:
        with parsing(content.size), HolderReader(partial(_is_own, source)) as reader, disk_errors(f"reading {source}"):
            holders = {each.held.name: each for each in reader.read(content.pieces()).holders}
        sidecar = read.found.sidecar
        version = VersionRequest(number=sidecar.version)
        for name, holder in holders.items():
            with suppress(NotFoundError, DeletedError):
                found = self._documents.read(source.moved(Collection.DATA, name), Get(user=user, decrypt=True))
                kind, own = found.found.sidecar.content_type, "/".join(holder.path)
                put = Put(version, user=user, content_type=kind, holder=own)
                self._documents.write(new.moved(Collection.DATA, name), put, found.pieces())
        put = Put(
            version=version, user=user, content_type=sidecar.content_type, valid=sidecar.valid, stage=sidecar.stage
        )
        with _HolderMover(partial(_moved, source, new)) as editor:
            self._documents.write(new, put, editor.edited(content.pieces()))


def _is_own(source: DocumentAddress, held: AttachmentRef) -> bool:
    return (held.form, held.collection, held.document) == (source.form, source.collection, source.document)


def _moved(source: DocumentAddress, new: DocumentAddress, held: AttachmentRef) -> str | None:
    return document_holder_path(new.moved(Collection.DATA, held.name)) if _is_own(source, held) else None


class _HolderMover(LeafEditor):
    """Replaces the paths of attachments by those that ``moved`` returns, unless that is ``None``."""

    def __init__(self, moved: Callable[[AttachmentRef], str | None]) -> None:
        super().__init__()
        self._moved = moved

    def looks_at(self, attributes: Mapping[str, str], *, is_wanted: bool) -> int:
        del attributes, is_wanted
        return LONGEST_PATH

    def leaf(self, begun: OpenElement, text: str, end: int) -> None:
        held = parse_holder_path(text)
        path = None if held is None else self._moved(held)
        if path is not None:
            self.replace(self.tag_of(begun.at).after, end, self.encoded(as_content(path)))

    def long(self, begun: OpenElement) -> None: ...


class _IdReader(Streaming):
    most_elements = MOST_QUERY_ELEMENTS

    def __init__(self) -> None:
        super().__init__()
        self.root, self.text = "", ""
        self.parser.CharacterDataHandler = self._characters

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self.root = self.root or name

    def _characters(self, data: str) -> None:
        if len(self.text) <= LONGEST_NAME:
            self.text += data


def _read_id(body: Iterable[bytes]) -> str:
    with _IdReader() as reader:
        reader.read(body)
    found = reader.text.strip()
    if reader.root != _ID or not found or len(found) > LONGEST_NAME:
        raise BadRequestError(f"the body must be <{_ID}> with the id of the document to duplicate")
    return found
