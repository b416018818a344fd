"""The pre-pass over XML on its way in: well-formed, without a document type, of bounded depth and size.

It streams: memory does not grow with the document. (lxml alone accepts a document type, and builds a tree of
gigabytes from fifty megabytes of empty elements.)
"""

from __future__ import annotations

from collections.abc import Callable

from lxml import etree

from persistence.errors import MalformedXmlError
from persistence.forms.parser import DEEPEST, MOST_ELEMENTS, streaming_parser


class WellFormedness:
    """Checks one document, fed in pieces of any length; every method raises ``MalformedXmlError``."""

    def __init__(self, counter: Counter | None = None) -> None:
        self._parser = streaming_parser(counter or Counter())

    def feed(self, chunk: bytes) -> None:
        """Check the next piece."""
        self._guarded(lambda: self._parser.feed(chunk))
        # Errors of namespaces do not stop a streaming parse, but would stop everyone who reads the document later.
        for entry in self._parser.feed_error_log.filter_from_errors():
            raise MalformedXmlError(f"the body is not well-formed XML: {entry.message}")

    def close(self) -> None:
        """Check that the document is complete."""
        self._guarded(self._parser.close)

    def _guarded(self, step: Callable[[], object]) -> None:
        try:
            step()
        except etree.XMLSyntaxError as error:
            raise MalformedXmlError(f"the body is not well-formed XML: {error.msg or 'no element found'}") from error


class Counter:
    """Counts what is limited; the methods are those a streaming parse calls."""

    def __init__(self) -> None:
        self._depth = 0
        self._elements = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:  # noqa: ARG002 - the parser's signature
        """An element begins."""
        self._depth += 1
        self._elements += 1
        if self._depth > DEEPEST:
            raise MalformedXmlError(f"the XML is nested deeper than {DEEPEST} elements")
        if self._elements > MOST_ELEMENTS:
            raise MalformedXmlError(f"the XML has more than {MOST_ELEMENTS} elements")

    def end(self, tag: str) -> None:  # noqa: ARG002 - the parser's signature
        """An element ends."""
        self._depth -= 1

    def doctype(self, _name: str, _public: str | None, _system: str | None) -> None:
        """A document type is never accepted: definitions and data have no use for one."""
        raise MalformedXmlError("the XML has a document type (DOCTYPE), which is not accepted here")

    def close(self) -> None:
        """End of the document; there is nothing to return."""
