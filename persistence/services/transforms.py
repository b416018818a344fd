"""Transforms of a content on its way out, form data as JSON, the list of attachments, and duplicates of documents."""

from __future__ import annotations

import errno
import secrets
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

from persistence import errors, limits
from persistence.closable import closed_after_error, taking
from persistence.crypto import PlainFile
from persistence.dialect import Dialect
from persistence.forms.controls import NO_OUTLINE, Outline, read_outline
from persistence.forms.encryption import LeafEditor, OpenElement, as_content
from persistence.forms.form_data import ITEM, AttachmentHolder, HolderReader, nonrelevant_edges, write_attachment_list
from persistence.forms.json_data import as_json, structure_as_json, written_over
from persistence.forms.messages import element, text
from persistence.forms.migration import migrate
from persistence.model.addresses import Collection, DocumentAddress, Form, document_holder_path, parse_holder_path
from persistence.model.permissions import User
from persistence.model.texts import require_plain
from persistence.model.versions import DATA_FORMATS, Tags, VersionRequest
from persistence.services.documents import Documents
from persistence.services.rules import Get, Put, Read, Written, living
from persistence.xml import Streaming

_AT_ONCE = 1 << 16  # Bytes of form data that are transformed as a whole


# Form data is read twice and never held: the first time finds the length of the answer, and whether it can be sent. The
# list of a document's attachments is made from its data, too (spec crud 8.2, forms 6.7).


@dataclass(frozen=True, slots=True)
class TransformedContent:
    """The ``size`` bytes to send of an open content: iterate once, which closes it; ``pieces`` reads them any time."""

    file: BinaryIO
    size: int
    pieces: Callable[[], Iterator[bytes]]

    def __iter__(self) -> Iterator[bytes]:
        left = self.size
        with self.file:
            for piece in self.pieces():
                left -= len(piece)
                yield piece
        if left:
            raise OSError(errno.EIO, f"the content ends {left} bytes early")

    def close(self) -> None:
        self.file.close()


_turns = threading.BoundedSemaphore(limits.MOST_PARSED)


@contextmanager
def parsing(size: int) -> Iterator[None]:
    """Wait for a turn to parse a stored document, for a block; a small one needs none."""
    if size <= limits.SMALL:
        yield
    else:
        refusal = errors.BusyError(f"{limits.MOST_PARSED} other large documents are being read: try again")
        with taking(_turns, refusal, timeout=limits.PARSING_PATIENCE):
            yield


def removes_nonrelevant(word: str | None, address: DocumentAddress, dialect: Dialect) -> bool:
    """Return whether the parameter ``nonrelevant`` leaves elements of this resource out (spec forms 3.1)."""
    if not address.is_main or address.form == dialect.designer:
        return False
    if word == "empty":
        raise errors.BadRequestError("nonrelevant=empty is not supported; use remove or keep")
    return word == "remove"


def transformed(read: Read, *, only_relevant: bool) -> TransformedContent:
    """Return form data with its values decrypted, without non-relevant elements if asked for (spec forms 3.2)."""
    # Values are decrypted first: they are bound to their places among all others. The content is closed by the result.
    file, size = read.found.opened, read.found.size
    with closed_after_error(file), parsing(size), errors.disk_errors("reading form data"):
        content = TransformedContent(file, size, lambda: from_start(file))
        decryption = read.decryption
        if decryption is not None and size <= _AT_ONCE:
            data = b"".join(decryption(content.pieces()))
            content = TransformedContent(file, len(data), lambda: iter((data,)))
        elif decryption is not None:
            size = sum(map(len, decryption(content.pieces())))
            content = TransformedContent(file, size, lambda: decryption(from_start(file)))
        if not only_relevant:
            return content
        edges = nonrelevant_edges(content.pieces())
        kept = content.size - sum(edges[1::2]) + sum(edges[::2])
        return TransformedContent(file, kept, lambda: _outside(content.pieces(), edges))


def _outside(pieces: Iterable[bytes], edges: array[int]) -> Iterator[bytes]:
    at, turn = 0, 0
    for piece in pieces:
        begin, end = at, at + len(piece)
        while at < end:
            edge = min(edges[turn], end) if turn < len(edges) else end
            if turn % 2 == 0 and at < edge:
                yield piece[at - begin : edge - begin]
            at = edge
            turn += at < end


def from_start(file: BinaryIO | PlainFile) -> Iterator[bytes]:
    file.seek(0)
    yield from iter(partial(file.read, limits.CHUNK), b"")


def migration_target(word: str | None) -> str | None:
    """Return the data format that ``form-definition-format-version`` asks for, ``None`` for the stored one."""
    if not word:
        return None
    if word not in DATA_FORMATS:
        raise errors.BadRequestError(
            f"form-definition-format-version must be one of {', '.join(DATA_FORMATS)}, not {word!r}"
        )
    return word


def migrated(read: Read, target: str) -> bytes:
    """Return the definition of an open content, which is closed, in another data format (spec forms 1)."""
    with read.found.opened as file, errors.disk_errors(f"reading {read.address}"):
        data = file.read(limits.LARGEST_TREE + 1)
    with parsing(len(data)):
        return migrate(data, target, is_unpublished=isinstance(read.address, DocumentAddress))


@dataclass(frozen=True, slots=True)
class Attachments:
    """Lists attachments."""

    documents: Documents

    def of_document(self, form: Form, document: str, user: User) -> bytes:
        """Return the XML of the list of a document's own attachments that its data names in controls of its version."""
        address = DocumentAddress(form, Collection.DATA, document)
        read = self.documents.read(address, Get(user=user))
        holders = holders_in(address, read.found.opened, read.found.size)
        version = read.found.sidecar.version
        route = self.documents.router.of(form)
        controls = route.catalog.of(form, version).controls
        if controls is None:
            raise errors.NotFoundError(f"version {version} of {form}, with which {address} was made, is not published")
        names = {control.path(route.properties.data_format): control.name for control in controls}
        named = list[tuple[str, AttachmentHolder]]()
        for holder in holders:
            path = holder.path[:-1] if holder.path[-1:] == (ITEM,) and holder.path not in names else holder.path
            if path in names:
                named.append((names[path], holder))
        return write_attachment_list(named)


def holders_in(address: DocumentAddress, file: BinaryIO, size: int) -> list[AttachmentHolder]:
    """Return the holders of a document's own attachments in its open ``data.xml``, which is closed."""
    reader = HolderReader(lambda held: held.is_of(address))
    try:
        with file, parsing(size), errors.disk_errors(f"reading {address}"):
            return reader.read(iter(partial(file.read, limits.CHUNK), b"")).holders
    except errors.MalformedXmlError as error:
        raise errors.DamagedError(f"{address} cannot be read: {error}") from error


_ID = "document-id"


@dataclass(frozen=True, slots=True)
class Duplicating:
    """Duplicates saved documents."""

    documents: Documents

    def duplicate(self, form: Form, body: Iterable[bytes], user: User) -> tuple[str, bytes]:
        """Return the id of the new document, and the answer in XML."""
        # ``data.xml`` is stored last, so that nobody sees a part, and a failure removes all of it. Encrypted values and
        # attachments are encrypted anew; missing attachments stay missing.
        reader = _IdReader().read(body)
        found = reader.text.strip()
        if reader.root != _ID or not found or len(found) > limits.LONGEST_NAME:
            raise errors.BadRequestError(f"the body must be <{_ID}> with the id of the document to duplicate")
        source = DocumentAddress(form, Collection.DATA, found)
        require_plain(source.document)
        new = replace(source, document=secrets.token_hex(20))  # as the runtime's own ids
        read = self.documents.read(source, Get(user=user))
        try:
            with closing(transformed(read, only_relevant=False)) as content:
                self._copy(source, new, read, content, user)
        except Exception:
            storage = self.documents.router.of(new.form).storage
            with suppress(errors.PersistenceError, OSError), storage.writing(new) as writer:
                writer.discard_document(new.form, new.document)
            raise
        return new.document, element(_ID, content=text(new.document)).encode()

    def _copy(
        self, source: DocumentAddress, new: DocumentAddress, read: Read, content: TransformedContent, user: User
    ) -> None:
        reader = HolderReader(lambda held: held.is_of(source))
        with parsing(content.size), reader, errors.disk_errors(f"reading {source}"):
            holders = {each.held.name: each for each in reader.read(content.pieces()).holders}
        sidecar = read.found.sidecar
        version = VersionRequest(number=sidecar.version)
        for name, holder in holders.items():
            with suppress(errors.NotFoundError, errors.DeletedError):
                found = self.documents.read(source.moved(Collection.DATA, name), Get(user=user, decrypt=True))
                kind, own = found.found.sidecar.content_type, "/".join(holder.path)
                put = Put(user, version=version, content_type=kind, holder=own)
                self.documents.write(new.moved(Collection.DATA, name), put, found.pieces())
        put = Put(
            version=version, user=user, content_type=sidecar.content_type, valid=sidecar.valid, stage=sidecar.stage
        )
        with _HolderMover(source, new) as editor:
            self.documents.write(new, put, editor.edited(content.pieces()))


class _HolderMover(LeafEditor):
    """Replaces the paths of the attachments of one document by those of another one."""

    def __init__(self, source: DocumentAddress, new: DocumentAddress) -> None:
        super().__init__()
        self._source, self._new = source, new

    def looks_at(self, attributes: Mapping[str, str], *, is_wanted: bool) -> int:
        del attributes, is_wanted
        return limits.LONGEST_PATH

    def leaf(self, begun: OpenElement, text: str, end: int) -> None:
        held = parse_holder_path(text)
        if held is not None and held.is_of(self._source):
            path = document_holder_path(self._new.moved(Collection.DATA, held.name))
            after = begun.at + len(self.markup_at(begun.at))
            self.replace(after, end, self.encoded(as_content(path)))

    def long(self, begun: OpenElement) -> None: ...


class _IdReader(Streaming):
    most_elements = limits.MOST_QUERY_ELEMENTS

    def __init__(self) -> None:
        super().__init__()
        self.root, self.text = "", ""
        self.parser.CharacterDataHandler = self._characters

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self.root = self.root or name

    def _characters(self, data: str) -> None:
        if len(self.text) <= limits.LONGEST_NAME:
            self.text += data


_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class JsonDocuments:
    """``data.xml`` of documents and drafts as JSON, and the structure of definitions."""

    documents: Documents

    def content(self, read: Read, *, only_relevant: bool) -> bytes:
        """Return an open content as JSON, and close it."""
        form, version = read.address.form, read.found.sidecar.version
        if isinstance(read.address, DocumentAddress):
            outline = self._outline(form, version) or NO_OUTLINE
            return as_json(_plain(read, only_relevant=only_relevant), outline)
        with read.found.opened as file, errors.disk_errors(f"reading {read.address}"):
            stored = file.read(limits.LARGEST_TREE + 1)
        return structure_as_json(read_outline(stored, self.documents.router.of(form).properties.data_format))

    def write(self, address: DocumentAddress, put: Put, body: Iterable[bytes]) -> Written:
        """Store the values of a body over what is stored, or as new data."""
        # Only what was read is replaced: where somebody saves meanwhile, the values are written over that instead,
        # unless the request has a precondition that this breaks.
        sent, route = b"".join(body), self.documents.router.of(address.form)
        put = replace(put, content_type=None, client_hash=None)
        for _ in range(_ATTEMPTS):
            decision = self.documents.decided_early(route, address, put)
            outline = self._outline(address.form, decision.definition.version)
            if outline is None:
                raise errors.NotFoundError(
                    f"version {decision.definition.version} of {address.form} is not published: without it, its data is"
                    " stored as XML only"
                )
            stored, expected = None, replace(put.precondition, excluded=Tags(None))
            if living(decision.over) is not None:
                get = Get(version=put.version, user=put.user, token=put.token)
                read = self.documents.read(address, get)
                stored = _plain(read, only_relevant=False)
                tags = Tags(frozenset({read.found.etag}))
                expected = replace(put.precondition, expected=tags, must_exist=True)
            data = written_over(stored, outline, sent)
            try:
                return self.documents.write(address, replace(put, precondition=expected), [data])
            except errors.PreconditionError:  # somebody has saved: the precondition of the request is looked at again
                continue
        raise errors.BusyError(f"{address} is being saved too often by others: try again")

    def _outline(self, form: Form, version: int) -> Outline | None:
        route = self.documents.router.of(form)
        try:
            return route.catalog.of(form, version).outline(route.properties.data_format)
        except errors.DamagedError:
            return None


def _plain(read: Read, *, only_relevant: bool) -> bytes:
    with closing(transformed(read, only_relevant=only_relevant)) as content:
        return b"".join(content.pieces())
