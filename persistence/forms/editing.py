"""Changing an XML document while it streams by: bytes in, bytes out.

What is not changed comes out as it came in: declarations of namespaces, CDATA, comments, the encoding. Only a piece of
it is in memory at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from xml.sax.saxutils import escape

from persistence.errors import MalformedXmlError
from persistence.xml.streaming import Streaming

_WINDOW = 1 << 10
_S = r"[ \t\r\n]"
_VALUE = r"""(?:"[^"]*"|'[^']*')"""
_NAME = r"""[^ \t\r\n=<>"'/]+"""
_TAG = re.compile(rf"<{_NAME}(?:{_S}+{_NAME}{_S}*={_S}*{_VALUE})*{_S}*/?>")
_ATTRIBUTE = re.compile(rf"{_S}+({_NAME}){_S}*={_S}*{_VALUE}")


class Editing(Streaming):
    """Parses a document, notes what is to be changed, and gives out what is settled.

    ``namespace`` is that of the attributes that are added: a prefix that is declared for it is used, else one is
    declared. Subclasses call ``replace`` and ``tag_of`` for bytes that ``settled`` says are not given out yet.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.parser.EndNamespaceDeclHandler = self._undeclare
        self._namespace = namespace
        self._bound: dict[str, list[str | None]] = {}
        self._fitting: dict[str, None] = {}
        self._bytes = bytearray()
        self._from = 0
        self._begin = b""
        self._encoding: str | None = None
        self._replacements: list[tuple[int, int, bytes]] = []

    def edited(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The changed document.

        Raises:
            MalformedXmlError: as ``Streaming``.
        """
        for piece in pieces:
            self._begin = (self._begin + piece[:2])[:2]
            self._bytes += piece
            self.feed(piece)
            if settled := self._settled(min(self.settled, self._from + len(self._bytes))):
                yield settled
        self.finish()
        if settled := self._settled(self._from + len(self._bytes)):
            yield settled

    @property
    def settled(self) -> int:
        """The bytes of the document that will not be changed any more."""
        return max(self._from, self.parser.CurrentByteIndex)

    def replace(self, begin: int, end: int, text: str) -> None:
        """Put text, which may be markup, in the place of some bytes; in ascending order."""
        self._replacements.append((begin, end, text.encode(self._codec, "xmlcharrefreplace")))

    def tag_of(self, at: int) -> tuple[str, int]:
        """The start tag at a byte that has been parsed, and the byte after it."""
        begin, size, codec = at - self._from, _WINDOW, self._codec
        while True:
            data = bytes(self._bytes[begin : begin + size])
            match = _TAG.match(data.decode(codec, "ignore"))
            if match is not None:
                return match[0], at + len(match[0].encode(codec))
            if len(data) < size:
                raise MalformedXmlError("the XML has a tag that cannot be read")
            size *= 2

    def without(self, tag: str, is_dropped: Callable[[str, str], bool]) -> str:
        """A start tag without some attributes, told by prefix and local name; to be asked while the element begins."""

        def kept(match: re.Match[str]) -> str:
            prefix, _, local = match[1].rpartition(":")
            return "" if is_dropped(prefix, local) else match[0]

        return _ATTRIBUTE.sub(kept, tag)

    def is_fitting(self, prefix: str) -> bool:
        """Whether a prefix stands for the namespace here."""
        return prefix in self._fitting

    @property
    def prefix(self) -> str | None:
        """A prefix that stands for the namespace here; ``None`` where there is none."""
        return next(iter(self._fitting), None)

    def with_attribute(self, tag: str, prefix: str | None, name: str) -> str:
        """A start tag with an attribute that is true; without a ``prefix``, one is declared."""
        declared = ""
        if prefix is None:
            prefix = next(each for each in _prefixes() if not self._bound.get(each))
            declared = f' xmlns:{prefix}="{self._namespace}"'
        end = len(tag) - (2 if tag.endswith("/>") else 1)
        return f'{tag[:end].rstrip()}{declared} {prefix}:{name}="true"{tag[end:]}'

    def declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        """The XML declaration names the encoding."""
        super().declaration(version, encoding, standalone)
        self._encoding = encoding

    def declare(self, prefix: str | None, namespace: str | None) -> None:
        """A prefix stands for a namespace, or for none, until ``_undeclare``."""
        super().declare(prefix, namespace)
        if prefix is not None:
            self._bound.setdefault(prefix, []).append(namespace)
            self._fit(prefix)

    def _undeclare(self, prefix: str | None) -> None:
        if prefix is not None:
            self._bound[prefix].pop()
            self._fit(prefix)

    def _fit(self, prefix: str) -> None:
        if self._bound[prefix][-1:] == [self._namespace]:
            self._fitting[prefix] = None
        else:
            self._fitting.pop(prefix, None)
        if not self._bound[prefix]:
            del self._bound[prefix]

    @property
    def _codec(self) -> str:
        """What decodes the document; UTF-16 says in its first bytes which of the two it is (XML 1.0, appendix F)."""
        if self._begin in (b"\xfe\xff", b"\0<"):
            return "utf-16-be"
        if self._begin in (b"\xff\xfe", b"<\0"):
            return "utf-16-le"
        return self._encoding or "utf-8"

    def _settled(self, end: int) -> bytes:
        """The bytes from the last ones on to ``end``, changed."""
        out, at = bytearray(), 0
        for begin, after, text in self._replacements:
            out += self._bytes[at : begin - self._from]
            out += text
            at = after - self._from
        out += self._bytes[at : end - self._from]
        self._replacements.clear()
        del self._bytes[: end - self._from]
        self._from = end
        return bytes(out)


def as_content(text: str) -> str:
    """A text as an element's content; a carriage return, written as it is, would be read as a line feed."""
    return escape(text, {"\r": "&#13;"})


def _prefixes() -> Iterator[str]:
    yield "fr"
    number = 1
    while True:
        yield f"fr{number}"
        number += 1
