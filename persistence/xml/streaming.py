"""XML parsed as it streams by: without a tree, bounded in everything a document can grow in.

It is how everything comes in, and how most is read. expat, not lxml: lxml keeps the names of all documents a thread has
ever parsed in one dictionary that is never emptied, so that documents with ever new names fill the memory and at last
make the thread refuse every new name (``trees`` says what is done about it where a tree is needed). An expat parser
forgets everything with its document. Nothing is fetched or expanded: a document type is refused at once, and without
one there are no entities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import TracebackType
from typing import Self
from xml.parsers import expat

from persistence.errors import MalformedXmlError, one_line

DEEPEST = 256
MOST_ELEMENTS = 1_000_000
LONGEST_TOKEN = 10 << 20
"""Bytes in one tag, comment or other piece that a parser must see whole.

A parser that is fed in pieces scans an unfinished token again with every piece: without a limit, long tokens would
cost time that grows with the square of their length.
"""

LONGEST_NAME = 10_000
"""Characters in an element's name with its namespace."""

LONGEST_NAMESPACE = 1_000
"""Characters in the name of a namespace.

The parser writes it out before every element and attribute that is in it, so its length multiplies.
"""

_STEP = 1 << 18

_VERSION = re.compile(r"1\.[0-9]+", re.ASCII)

SEPARATOR = " "
"""Between namespace and local name in the names that handlers get."""


class Streaming:
    """Parses one document, fed in pieces of any length; ``feed`` and ``finish`` raise ``MalformedXmlError``.

    Use it in a ``with`` block: at its end parser and handlers let go of each other, and the memory is free at once
    instead of at some collection of cycles. Subclasses override the handlers they need and call the inherited one.
    """

    def __init__(self) -> None:
        parser = expat.ParserCreate(namespace_separator=SEPARATOR)
        parser.buffer_text = False
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.StartDoctypeDeclHandler = _refuse_doctype
        parser.XmlDeclHandler = self.declaration
        parser.StartNamespaceDeclHandler = self.declare
        self.parser = parser
        self._fed = 0
        self.depth = 0
        self._elements = 0

    def read(self, pieces: Iterable[bytes]) -> Self:
        """Parse a whole document; returns the parser, which knows by then what it was to find."""
        for piece in pieces:
            self.feed(piece)
        self.finish()
        return self

    def feed(self, piece: bytes) -> None:
        """Parse the next piece."""
        for at in range(0, len(piece), _STEP):
            step = piece[at : at + _STEP]
            self._fed += len(step)
            self._parse(step, is_final=False)
            if self._fed - self.parser.CurrentByteIndex > LONGEST_TOKEN:
                raise MalformedXmlError(f"the XML has a tag, comment or the like of more than {LONGEST_TOKEN} bytes")

    def finish(self) -> None:
        """Parse the end of the document."""
        self._parse(b"", is_final=True)

    def start(self, name: str, attributes: dict[str, str]) -> None:  # noqa: ARG002 - expat's signature
        """An element begins."""
        self.depth += 1
        self._elements += 1
        if self.depth > DEEPEST or self._elements > MOST_ELEMENTS or len(name) > LONGEST_NAME:
            raise past_limits(name, self.depth)

    def end(self, name: str) -> None:  # noqa: ARG002 - expat's signature
        """An element ends."""
        self.depth -= 1

    def declare(self, _prefix: str | None, namespace: str | None) -> None:
        """A namespace is declared."""
        if namespace is not None and len(namespace) > LONGEST_NAMESPACE:
            raise MalformedXmlError(f"the XML has a namespace of more than {LONGEST_NAMESPACE} characters")

    def declaration(self, version: str, _encoding: str | None, _standalone: int) -> None:
        """The XML declaration; refuse what is no version 1.x (XML 1.0, production 26), which expat lets pass."""
        if not _VERSION.fullmatch(version):
            raise MalformedXmlError(one_line(f"the body is not well-formed XML: its version is {version!r}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parser = self.parser
        parser.StartElementHandler = parser.EndElementHandler = parser.StartNamespaceDeclHandler = None
        parser.CharacterDataHandler = parser.DefaultHandler = None
        parser.CommentHandler = parser.ProcessingInstructionHandler = None
        parser.XmlDeclHandler = parser.EndNamespaceDeclHandler = None

    def _parse(self, piece: bytes, *, is_final: bool) -> None:
        try:
            self.parser.Parse(piece, is_final)
        except (expat.ExpatError, ValueError, LookupError) as error:  # the last two: an encoding Python does not know
            raise MalformedXmlError(one_line(f"the body is not well-formed XML: {error}")) from error


def past_limits(name: str, depth: int) -> MalformedXmlError:
    """The refusal of an element that is too deep, has too long a name, or is one too many."""
    if len(name) > LONGEST_NAME:
        return MalformedXmlError(f"the XML has an element name of more than {LONGEST_NAME} characters")
    if depth > DEEPEST:
        return MalformedXmlError(f"the XML is nested deeper than {DEEPEST} elements")
    return MalformedXmlError(f"the XML has more than {MOST_ELEMENTS} elements")


def _refuse_doctype(_name: str, _system: str | None, _public: str | None, _has_subset: int) -> None:
    raise MalformedXmlError("the XML has a document type (DOCTYPE), which is not accepted here")
