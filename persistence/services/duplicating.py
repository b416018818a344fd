"""Duplicating a document: the same data and attachments under a new id, owned by who asks (spec runtime 8)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial

from persistence.errors import BadRequestError, DeletedError, NotFoundError, PersistenceError, disk_errors
from persistence.forms.editing import as_content
from persistence.forms.encryption import LeafEditor, OpenElement
from persistence.forms.form_data import AttachmentHolder, HolderReader
from persistence.forms.messages import element, text
from persistence.limits import CHUNK, LONGEST_NAME, LONGEST_PATH, MOST_QUERY_ELEMENTS
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
    """Duplicates saved documents. Methods raise the domain errors of ``persistence.errors``."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def duplicate(self, form: Form, body: Iterable[bytes], user: User) -> tuple[str, bytes]:
        """Return the id of the new document, and the answer in XML.

        The user must be allowed to read the document and to create one. Attachments are stored first and ``data.xml``
        last, so that nobody sees a part; if something fails, what was stored is removed again. Values and attachments
        that are encrypted are encrypted anew. Attachments that are missing stay missing.
        """
        source = DocumentAddress(form, Collection.DATA, _read_id(body), DATA_XML)
        require_plain(source.document)
        new = replace(source, document=secrets.token_hex(_ID_BYTES))
        read = self._documents.read(source, Get(user=user))
        try:
            with closing(transformed(read, only_relevant=False)) as content:
                self._copy(source, new, read, content, user)
        except Exception:
            self._forget(new)
            raise
        return new.document, element(_ID, content=text(new.document)).encode()

    def _copy(
        self, source: DocumentAddress, new: DocumentAddress, read: Read, content: TransformedContent, user: User
    ) -> None:
        with parsing(content.size), HolderReader(partial(_is_own, source)) as reader, disk_errors(f"reading {source}"):
            holders = {each.held.name: each for each in reader.read(content.pieces()).holders}
        sidecar = read.found.sidecar
        version = VersionRequest(number=sidecar.version)
        for holder in holders.values():
            with suppress(NotFoundError, DeletedError):
                self._copy_attachment(source, new, holder, Put(version=version, user=user))
        put = Put(
            version=version, user=user, content_type=sidecar.content_type, valid=sidecar.valid, stage=sidecar.stage
        )
        with _HolderMover(partial(_moved, source, new)) as editor:
            self._documents.write(new, put, editor.edited(content.pieces()))

    def _copy_attachment(
        self, source: DocumentAddress, new: DocumentAddress, holder: AttachmentHolder, put: Put
    ) -> None:
        name = holder.held.name
        read = self._documents.read(source.moved(Collection.DATA, name), Get(user=put.user, decrypt=True))
        sidecar, own = read.found.sidecar, "/".join(holder.path)
        put = Put(put.version, user=put.user, content_type=sidecar.content_type, holder=own)
        self._documents.write(new.moved(Collection.DATA, name), put, _pieces(read))

    def _forget(self, new: DocumentAddress) -> None:
        with suppress(PersistenceError, OSError), self._documents.router.of(new.form).storage.writing(new) as writer:
            writer.discard_document(new.form, new.document)


def _is_own(source: DocumentAddress, held: AttachmentRef) -> bool:
    return (held.form, held.collection, held.document) == (source.form, source.collection, source.document)


def _moved(source: DocumentAddress, new: DocumentAddress, held: AttachmentRef) -> str | None:
    return document_holder_path(new.moved(Collection.DATA, held.name)) if _is_own(source, held) else None


def _pieces(read: Read) -> Iterator[bytes]:
    with read.found.opened as file, disk_errors(f"reading {read.address}"):
        yield from iter(partial(file.read, CHUNK), b"")


class _HolderMover(LeafEditor):
    """An editor that puts other paths in the place of those of attachments; ``moved`` returns one, or ``None``."""

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
    """Collects the text of the root element."""

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
