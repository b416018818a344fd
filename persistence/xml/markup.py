"""The bytes of XML: their encoding, their start tags, and the words in them. Nothing here validates XML."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

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
"""Encodings that a document may name, in small letters. In all but UTF-16, bytes below 128 are ASCII.

expat asks Python for others, and Python has codecs such as ``unicode_escape``, ``utf-7`` and ``idna``, in which a
document could mean something else to other parsers.
"""

_ASCII_COMPATIBLE = (b"<", codecs.BOM_UTF8, b" ", b"\t", b"\r", b"\n")

_S = r"[ \t\r\n]"
# Matching takes time that is linear in the length of a tag: nothing in the patterns can match in two ways (``++`` and
# ``*+`` give nothing back), and each pattern is tried only where the one before has ended.
_BEGIN = re.compile(r"<[^ \t\r\n<>/=\"'!?]++")
_ATTRIBUTE = re.compile(rf"{_S}*+([^ \t\r\n<>/=\"']++){_S}*+={_S}*+(?:\"[^\"]*+\"|'[^']*+')")
_END = re.compile(rf"{_S}*+/?+>")


class Attribute(NamedTuple):
    """An attribute, with the blanks before it: its name as it is written, and where it begins and ends in the text."""

    name: str
    begin: int
    end: int


class WordWatch:
    """Look for an ASCII word in the names of elements and attributes of XML that streams by, without parsing it.

    ``may_be_there`` is exact when it is ``False``. It is ``True`` also where text or a comment has the word, and for an
    encoding in which ASCII characters are not single bytes. Names have no character references (XML 1.0, 2.3).
    """

    def __init__(self, word: bytes) -> None:
        self.may_be_there = False
        self._word = word
        self._end: bytes | None = None

    def feed(self, piece: bytes) -> None:
        if self.may_be_there or not piece:
            return
        if self._end is None:
            self._end = b""
            self.may_be_there = not piece.startswith(_ASCII_COMPATIBLE)
        joined = self._end + piece
        # UTF-16 writes ASCII with zeros, which no other encoding has in XML.
        self.may_be_there = self.may_be_there or self._word in joined or b"\0" in piece
        self._end = joined[1 - len(self._word) :]


def may_mention(pieces: Iterable[bytes], word: bytes) -> bool:
    """Return whether a name in XML may contain an ASCII word (``WordWatch``)."""
    watch = WordWatch(word)
    for piece in pieces:
        watch.feed(piece)
        if watch.may_be_there:
            return True
    return False


def check_declared(encoding: str, begin: bytes) -> None:
    """Check the encoding of an XML declaration against the first three bytes of the document."""
    name = encoding.lower()
    if name not in ENCODINGS:
        raise MalformedXmlError(one_line(f"the XML is in the encoding {encoding!r}, which is not known: use UTF-8"))
    if begin.startswith(codecs.BOM_UTF8) and name != "utf-8":
        raise MalformedXmlError(f"the XML begins with the mark of UTF-8, and says that it is in {encoding}")


def codec_of(begin: bytes, declared: str | None) -> str:
    """Return the name of Python's codec for a document.

    ``begin`` are the first bytes: a byte order mark, or a character of ASCII with a zero, distinguishes the two kinds
    of UTF-16 (XML 1.0, appendix F). ``declared`` is the encoding in the XML declaration.
    """
    if begin.startswith(codecs.BOM_UTF16_BE) or begin[:1] == b"\0":
        return "utf-16-be"
    if begin.startswith(codecs.BOM_UTF16_LE) or begin[1:2] == b"\0":
        return "utf-16-le"
    return declared or "utf-8"


def markup_codec_of(begin: bytes) -> str:
    """Return the codec by which markup can be read and every byte written back: Latin-1, unless it is UTF-16."""
    codec = codec_of(begin, None)
    return "latin-1" if codec == "utf-8" else codec


def attributes(text: str) -> Iterator[Attribute]:
    """Yield the whole attributes of the start tag with which a text begins; none where it begins with no start tag."""
    match = _BEGIN.match(text)
    while match is not None:
        at = match.end()
        match = _ATTRIBUTE.match(text, at)
        if match is not None:
            yield Attribute(match[1], at, match.end())


def end_of_tag(text: str) -> int | None:
    """Return the length of the start tag with which a text begins; ``None`` where it is not whole."""
    begin = _BEGIN.match(text)
    if begin is None:
        return None
    at = begin.end()
    for attribute in attributes(text):
        at = attribute.end
    end = _END.match(text, at)
    return None if end is None else end.end()
