"""Receiving a body: streamed to disk, counted and hashed, and checked on the way if it must be XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from persistence.errors import disk_errors
from persistence.forms.definition_check import DefinitionCheck
from persistence.forms.metadata import MetadataReader
from persistence.index.extraction import CachingExtraction
from persistence.model.addresses import Address, DefinitionAddress
from persistence.model.metadata import FormMetadata
from persistence.services import content_types
from persistence.services.rules import Received
from persistence.storage.storage import Incoming, Storage
from persistence.xml.streaming import Streaming

Checking = AbstractContextManager[Streaming | None]
"""What checks a content while it streams by."""


@contextmanager
def receiving(
    store: Storage,
    address: Address,
    content_type: str | None,
    chunks: Iterable[bytes],
    checking: Checking | None = None,
) -> Iterator[tuple[Incoming, Received]]:
    """The whole body as an upload, for the length of a block; what is not committed by then is gone.

    ``checking`` checks it while it streams by; without one, ``check_for`` says what does.

    Raises:
        BadRequestError: the content type is no media type.
        MalformedXmlError: the address holds XML and the body is not.
        BadRequestError: a definition has permissions or marks of encryption that this service does not know.
        DiskError: the disk refused.
        PersistenceError: whatever ``chunks`` raises about the client.
    """
    kind = content_types.to_store(address, content_type)
    doing = f"receiving {address}"
    with store.upload(address) as upload, checking or check_for(address) as check:
        for chunk in chunks:
            with disk_errors(doing):
                upload.write(chunk)
            if check is not None:
                check.feed(chunk)
        if check is not None:
            check.finish()
        if isinstance(check, CachingExtraction):
            check.keep(upload.id)
        metadata = metadata_of(check)
        with disk_errors(doing):
            upload.flush()
        yield upload, Received(upload.id, upload.size, upload.digest, kind, metadata)


def check_for(address: Address) -> Checking:
    """What checks a content while it streams by; nothing for an attachment."""
    if not address.is_main:
        return nullcontext()
    return DefinitionCheck() if isinstance(address, DefinitionAddress) else Streaming()


def metadata_of(check: Streaming | None) -> FormMetadata | None:
    """What a checked content says of its form; ``None`` where it is no definition."""
    return check.metadata if isinstance(check, MetadataReader) else None
