"""Changing an XML document while it streams by: bytes in, bytes out, and all other bytes stay as they are.

A changed tag is made of its own bytes: an attribute is cut out or put in, and nothing is encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from persistence.errors import MalformedXmlError
from persistence.forms.form_data import FR_NAMESPACE
from persistence.limits import MOST_EDITED
from persistence.xml import markup
from persistence.xml.streaming import Streaming

_WINDOW = 1 << 10
_BLANKS = " \t\r\n"
_PREFIX = "fr"
_MOST_DIGITS = 9
"""Digits of a number after a prefix that count: no document has as many declarations."""


@dataclass(frozen=True, slots=True)
class StartTag:
    """The new bytes of a start tag, and the byte of the document after the old tag."""

    written: bytes
    after: int


class StreamEditor(Streaming):
    """A parser that changes a document, and yields the bytes that will not change any more.

    Attributes are added in the form runner's namespace: a prefix that is declared for it is used, else one is declared.
    Subclasses call ``replace`` and ``tag_of`` for bytes from ``settled`` on, which are not yielded yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bound: dict[str, list[str | None]] = {}
        self._fitting: dict[str, None] = {}
        self._highest = 0
        self._bytes = bytearray()
        self._from = 0
        self._replacements: list[tuple[int, int, bytes]] = []

    def edited(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the changed document."""
        for piece in pieces:
            self._bytes += piece
            self.feed(piece)
            if self._from + len(self._bytes) - self.settled > MOST_EDITED:
                self.abandon()
            if settled := self._settled(min(self.settled, self._from + len(self._bytes))):
                yield settled
        self.finish()
        if settled := self._settled(self._from + len(self._bytes)):
            yield settled

    @property
    def settled(self) -> int:
        """The number of bytes of the document that will not be changed any more."""
        return max(self._from, self.parser.CurrentByteIndex)

    def abandon(self) -> None:
        """Stop holding bytes for an element: there are too many of them."""

    def replace(self, begin: int, end: int, written: bytes) -> None:
        """Replace bytes; to be called in ascending order."""
        self._replacements.append((begin, end, written))

    def encoded(self, content: str) -> bytes:
        """Encode content in the document's encoding; other characters become references."""
        return content.encode(self._codec, "xmlcharrefreplace")

    def tag_of(self, at: int) -> StartTag:
        """Return the start tag at a byte that has been parsed."""
        written = self._markup_at(at, markup.end_of_tag)
        return StartTag(written, at + len(written))

    def end_of_instruction(self, at: int) -> int:
        """Return the byte after the processing instruction at a byte that has been parsed."""
        return at + len(self._markup_at(at, lambda text: text.find("?>") + 2 if "?>" in text else None))

    def _markup_at(self, at: int, length_in: Callable[[str], int | None]) -> bytes:
        begin, size = at - self._from, _WINDOW
        while True:
            data = bytes(self._bytes[begin : begin + size])
            text = self._markup(data)
            length = length_in(text)
            if length is not None:
                return self._written(text[:length])
            if len(data) < size:
                raise MalformedXmlError("the XML has a tag or processing instruction that cannot be read")
            size *= 2

    def without(self, tag: StartTag, is_dropped: Callable[[str, str], bool]) -> StartTag:
        """Drop attributes of a start tag by prefix and local name; to be called while the element begins."""
        text, kept, at = self._markup(tag.written), [], 0
        for attribute in markup.attributes(text):
            prefix, _, local = self._written(attribute.name).decode(self._codec).rpartition(":")
            if is_dropped(prefix, local):
                kept.append(text[at : attribute.begin])
                at = attribute.end
        kept.append(text[at:])
        return StartTag(self._written("".join(kept)), tag.after)

    def is_fitting(self, prefix: str) -> bool:
        """Return whether a prefix stands for the namespace here."""
        return prefix in self._fitting

    @property
    def prefix(self) -> str | None:
        """A prefix that stands for the namespace here, if any."""
        return next(iter(self._fitting), None)

    def with_attribute(self, tag: StartTag, prefix: str | None, name: str) -> StartTag:
        """Add an attribute that is true to a start tag; without a ``prefix``, one is declared."""
        declared = ""
        if prefix is None:
            # The usual prefix, else one that no element so far has declared: to find the first free one, all declared
            # prefixes would have to be searched.
            prefix = f"{_PREFIX}{self._highest + 1}" if self._bound.get(_PREFIX) else _PREFIX
            declared = f' xmlns:{prefix}="{FR_NAMESPACE}"'
        text = self._markup(tag.written)
        end = len(text) - (2 if text.endswith("/>") else 1)
        added = f'{declared} {prefix}:{name}="true"'.encode(self._codec)
        return StartTag(self._written(text[:end].rstrip(_BLANKS)) + added + self._written(text[end:]), tag.after)

    def declare(self, prefix: str | None, namespace: str | None) -> None:
        super().declare(prefix, namespace)
        if prefix is not None:
            self._bound.setdefault(prefix, []).append(namespace)
            self._fit(prefix)
            number = prefix.removeprefix(_PREFIX)
            if len(number) <= _MOST_DIGITS and number.isdecimal():
                self._highest = max(self._highest, int(number))

    def undeclare(self, prefix: str | None) -> None:
        super().undeclare(prefix)
        if prefix is not None:
            self._bound[prefix].pop()
            self._fit(prefix)

    def _fit(self, prefix: str) -> None:
        if self._bound[prefix][-1:] == [FR_NAMESPACE]:
            self._fitting[prefix] = None
        else:
            self._fitting.pop(prefix, None)
        if not self._bound[prefix]:
            del self._bound[prefix]

    @property
    def _codec(self) -> str:
        return markup.codec_of(self._begin, self.encoding)

    def _markup(self, data: bytes) -> str:
        """Decode bytes so that the markup can be read; ``_written`` gives the same bytes back."""
        return data.decode(markup.markup_codec_of(self._begin), "surrogatepass")

    def _written(self, text: str) -> bytes:
        return text.encode(markup.markup_codec_of(self._begin), "surrogatepass")

    def _settled(self, end: int) -> bytes:
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
    """Escape a text as an element's content; a bare carriage return would be read as a line feed."""
    return escape(text, {"\r": "&#13;"})
