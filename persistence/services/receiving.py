"""Receiving a body: its media type, and its content streamed to disk, hashed, and checked if it must be XML."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

from persistence.errors import BadRequestError, as_disk_error
from persistence.forms.form_data import MARKER_WORD
from persistence.forms.marks import UnusableMark, unusable_marks
from persistence.forms.metadata import MetadataReader
from persistence.limits import LARGEST_TREE, LONGEST_TEXT
from persistence.model.addresses import Address, DefinitionAddress
from persistence.services.rules import Received
from persistence.storage.storage import RevisionStorage
from persistence.storage.uploads import Upload
from persistence.xml.markup import WordWatch
from persistence.xml.streaming import Streaming, XmlCheck

XML = "application/xml"
XHTML = "application/xhtml+xml"
UNKNOWN = "application/octet-stream"

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"({_WORD}/{_WORD})[ \t]*(?:;[\x20-\x7e\t]*)?", re.ASCII)


@contextmanager
def receiving(
    store: RevisionStorage,
    address: Address,
    content_type: str | None,
    chunks: Iterable[bytes],
    checking: Streaming | None = None,
) -> Iterator[tuple[Upload, Received]]:
    """Receive the whole body as an upload, for the length of a block; without a commit it is gone at the end.

    ``checking`` is the parser for form data, which also reads the values that an index needs.
    """
    kind = _type_to_keep(address, content_type)
    is_main = address.is_main
    reader = definition_reader(address)
    check = reader or checking or (XmlCheck() if is_main else None)
    watch = WordWatch(MARKER_WORD) if is_main and reader is None else None
    with store.upload(address) as upload, check or nullcontext():
        for chunk in chunks:
            try:
                upload.write(chunk)
            except OSError as error:
                raise as_disk_error(error, "receiving", address) from error
            if watch is not None:
                watch.feed(chunk)
            if check is not None:
                check.feed(chunk)
        if check is not None:
            check.finish()
            check.keep(upload.id)
        metadata = None if reader is None else reader.metadata
        try:
            upload.flush()
        except OSError as error:
            raise as_disk_error(error, "receiving", address) from error
        is_plain = watch is not None and not watch.may_be_there
        has_marks = reader is not None and reader.has_marks
        yield upload, Received(upload.id, upload.size, upload.digest, kind, metadata, is_plain, has_marks)


def marks_without_effect(upload: Upload, received: Received) -> tuple[UnusableMark, ...]:
    """Return the marks of a received definition that have no effect; none of other contents."""
    if not received.has_marks:
        return ()
    try:
        with upload.opened() as file:
            return unusable_marks(file.read(LARGEST_TREE + 1))
    except OSError as error:
        raise as_disk_error(error, "receiving") from error


def definition_reader(address: Address) -> MetadataReader | None:
    """Return the parser that checks a ``form.xhtml`` and reads its metadata; ``None`` for other resources."""
    return MetadataReader(is_checked=True) if isinstance(address, DefinitionAddress) and address.is_main else None


def type_by_name(address: Address) -> str:
    """Return the media type of a content that came without one, by the kind of resource and its name."""
    if address.is_main:
        return XHTML if isinstance(address, DefinitionAddress) else XML
    return mimetypes.guess_type(address.name)[0] or UNKNOWN


def _type_to_keep(address: Address, sent: str | None) -> str:
    """Return the media type to keep: XML resources are XML, even if another one is sent (spec crud 4.5)."""
    if address.is_main:
        is_xhtml = isinstance(address, DefinitionAddress) and (sent or "").partition(";")[0].strip().lower() == XHTML
        return XHTML if is_xhtml else XML
    if sent is None or not sent.strip():
        return UNKNOWN
    if len(sent) > LONGEST_TEXT or not _MEDIA_TYPE.fullmatch(sent.strip()):
        raise BadRequestError(f"the content type is not a media type: {sent!r}")
    return sent.strip()
