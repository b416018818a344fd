"""The encodings that a document may name: those in which two readers read the same.

expat asks Python for what it does not know itself, and Python knows codecs that are no encodings of characters:
``unicode_escape``, in which a document says one thing to expat and another to everybody else, ``utf-7``, ``idna``.
"""

from __future__ import annotations

import codecs

from persistence.errors import MalformedXmlError, one_line

_UNICODE = ("utf-8", "utf-16", "utf-16be", "utf-16le")
_SINGLE_BYTES = (
    "us-ascii",
    "ascii",
    *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),  # noqa: PLR2004 - there is none
    *(f"windows-{page}" for page in range(1250, 1259)),
    "koi8-r",
    "koi8-u",
)
ENCODINGS = frozenset((*_UNICODE, *_SINGLE_BYTES))
"""Names and aliases of the IANA registry, in small letters; outside of UTF-16, bytes below 128 are ASCII in all."""


def check_declared(encoding: str, begin: bytes) -> None:
    """Refuse what an XML declaration says of the encoding, by the first three bytes of the document.

    Raises:
        MalformedXmlError: the encoding is not known here, or is not that of the byte order mark: expat believes the
            declaration then, and other parsers the mark.
    """
    name = encoding.lower()
    if name not in ENCODINGS:
        raise MalformedXmlError(one_line(f"the XML is in the encoding {encoding!r}, which is not known: use UTF-8"))
    if begin.startswith(codecs.BOM_UTF8) and name != "utf-8":
        raise MalformedXmlError(f"the XML begins with the mark of UTF-8, and says that it is in {encoding}")


def codec_of(begin: bytes, declared: str | None) -> str:
    """The name of Python's codec for a document; UTF-16 says in its first bytes which of the two it is.

    ``begin`` are the first bytes: a mark, or a character of ASCII with a zero (XML 1.0, appendix F). ``declared`` is
    what the XML declaration says.
    """
    if begin.startswith(codecs.BOM_UTF16_BE) or begin[:1] == b"\0":
        return "utf-16-be"
    if begin.startswith(codecs.BOM_UTF16_LE) or begin[1:2] == b"\0":
        return "utf-16-le"
    return declared or "utf-8"


def markup_codec_of(begin: bytes) -> str:
    """The codec by which the markup can be read, and every byte written back: Latin-1, unless it is UTF-16."""
    codec = codec_of(begin, None)
    return "latin-1" if codec == "utf-8" else codec
