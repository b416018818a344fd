"""Receiving a body: its media type, and its content streamed to disk, hashed, and checked if it must be XML."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from persistence.errors import BadRequestError, disk_errors
from persistence.forms.form_data import MARKER_WORD
from persistence.forms.metadata import MetadataReader
from persistence.limits import LONGEST_TEXT
from persistence.model.addresses import Address, DefinitionAddress, DocumentAddress
from persistence.model.form_versions import FormMetadata
from persistence.services.rules import Received
from persistence.storage.storage import Storage
from persistence.storage.uploads import Upload
from persistence.xml.markup import WordWatch
from persistence.xml.streaming import Streaming, XmlCheck

XML = "application/xml"
XHTML = "application/xhtml+xml"
UNKNOWN = "application/octet-stream"

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"({_WORD}/{_WORD})[ \t]*(?:;[\x20-\x7e\t]*)?", re.ASCII)

Checking = AbstractContextManager[Streaming | None]
"""The parser that checks a content while it streams by, if any."""


@contextmanager
def receiving(
    store: Storage,
    address: Address,
    content_type: str | None,
    chunks: Iterable[bytes],
    checking: Checking | None = None,
) -> Iterator[tuple[Upload, Received]]:
    """Receive the whole body as an upload, for the length of a block; what is not committed by then is gone.

    ``checking`` checks it while it streams by; without one, ``check_for`` says what does.

    Raises:
        BadRequestError: the content type is no media type.
        MalformedXmlError: the address holds XML and the body is not.
        BadRequestError: a definition has permissions or marks of encryption that this service does not know.
        DiskError: the disk refused.
        PersistenceError: whatever ``chunks`` raises about the client.
    """
    kind = _type_to_keep(address, content_type)
    doing = f"receiving {address}"
    watch = WordWatch(MARKER_WORD) if isinstance(address, DocumentAddress) and address.is_main else None
    with store.upload(address) as upload, checking or check_for(address) as check:
        for chunk in chunks:
            with disk_errors(doing):
                upload.write(chunk)
            if watch is not None:
                watch.feed(chunk)
            if check is not None:
                check.feed(chunk)
        if check is not None:
            check.finish()
            check.keep(upload.id)
        metadata = metadata_of(check)
        with disk_errors(doing):
            upload.flush()
        is_plain = watch is not None and not watch.may_be_there
        yield upload, Received(upload.id, upload.size, upload.digest, kind, metadata, is_plain)


def check_for(address: Address) -> Checking:
    """Return the parser that checks a content while it streams by; none for an attachment."""
    if not address.is_main:
        return nullcontext()
    return MetadataReader(is_checked=True) if isinstance(address, DefinitionAddress) else XmlCheck()


def metadata_of(check: Streaming | None) -> FormMetadata | None:
    """Return what a checked content says of its form; ``None`` where it is no definition."""
    return check.metadata if isinstance(check, MetadataReader) else None


def type_by_name(address: Address) -> str:
    """Return the media type of a content that came without one, by what kind of resource it is and by its name."""
    if address.is_main:
        return XHTML if isinstance(address, DefinitionAddress) else XML
    return mimetypes.guess_type(address.name)[0] or UNKNOWN


def _type_to_keep(address: Address, sent: str | None) -> str:
    """Return the media type to keep: XML resources are XML whatever was said (seed, Resource kinds; spec crud 4.5).

    Raises:
        BadRequestError: an attachment's type is no media type.
    """
    if address.is_main:
        is_xhtml = isinstance(address, DefinitionAddress) and (sent or "").partition(";")[0].strip().lower() == XHTML
        return XHTML if is_xhtml else XML
    if sent is None or not sent.strip():
        return UNKNOWN
    if len(sent) > LONGEST_TEXT or not _MEDIA_TYPE.fullmatch(sent.strip()):
        raise BadRequestError(f"the content type is not a media type: {sent!r}")
    return sent.strip()
