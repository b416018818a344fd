"""Media types: what is kept at PUT, and what a GET answers (seed, Resource kinds; spec crud 4.5)."""

from __future__ import annotations

import mimetypes
import re

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_TEXT
from persistence.model.addresses import Address, DefinitionAddress

XML = "application/xml"
XHTML = "application/xhtml+xml"
UNKNOWN = "application/octet-stream"

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"({_WORD}/{_WORD})[ \t]*(?:;[\x20-\x7e\t]*)?", re.ASCII)


def to_store(address: Address, sent: str | None) -> str:
    """The type to keep: XML resources are XML whatever was said; an attachment's is the one sent.

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


def by_name(address: Address) -> str:
    """The type of a content that came without one: XML resources are XML, an attachment's name may tell."""
    if address.is_main:
        return XHTML if isinstance(address, DefinitionAddress) else XML
    return mimetypes.guess_type(address.name)[0] or UNKNOWN
