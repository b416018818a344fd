"""The attributes by which form data marks elements as not relevant or encrypted (spec forms 3.1, 4.3).

Non-relevant elements are cut out of the bytes as they are stored, so that everything else stays as it is: declarations
of namespaces, ``xml:lang``, CDATA, the encoding (seed, query parameter ``nonrelevant``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from persistence.errors import DamagedError, MalformedXmlError
from persistence.xml.streaming import SEPARATOR, Streaming

FR = "http://orbeon.org/oxf/xml/form-runner"
RELEVANT = f"{FR}{SEPARATOR}relevant"

VALUE_ENCRYPTED = "value-encrypted"
ATTACHMENT_ENCRYPTED = "attachment-encrypted"
OLD_MARKER = "encrypted"

MARKER_WORD = b"encrypted"
"""A word in the names of all marks of encryption."""

VALUE_MARKER = f"{FR}{SEPARATOR}{VALUE_ENCRYPTED}"
ATTACHMENT_MARKER = f"{FR}{SEPARATOR}{ATTACHMENT_ENCRYPTED}"


def is_value_marked(attributes: Mapping[str, str]) -> bool:
    """Return whether an element is marked as encrypted, in the new or in the old way (spec forms 4.3)."""
    return attributes.get(VALUE_MARKER) == "true" or attributes.get(OLD_MARKER) == "true"


def nonrelevant_edges(pieces: Iterable[bytes]) -> array[int]:
    """Return the bytes at which each non-relevant stretch begins and ends, in turn, ascending.

    A stretch is an element that has ``fr:relevant="false"``, with all inside it; of the root its content only, because
    a document needs a root.

    Raises:
        DamagedError: the stored data is not well-formed.
    """
    try:
        with _Finder() as finder:
            return finder.read(pieces).edges
    except MalformedXmlError as error:
        raise DamagedError(f"the stored form data cannot be parsed: {error}") from error


class _Finder(Streaming):
    """A parser that records the edges of non-relevant elements.

    An event has the byte at which its markup begins; it ends where the next event begins. The default handler gets
    every event that no other handler takes, so none is missed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parser.DefaultHandler = self._other
        self.edges: array[int] = array("Q")
        self._inside = 0
        self._is_edge_next = False
        self._is_root_emptied = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin a stretch, if the element is not relevant."""
        super().start(name, attributes)
        at = self._next_event()
        if self._inside:
            self._inside += 1
        elif attributes.get(RELEVANT) == "false":
            self._inside = 1
            self._is_root_emptied = self.depth == 1
            if self._is_root_emptied:
                self._is_edge_next = True
            else:
                self.edges.append(at)

    def end(self, name: str) -> None:
        """End a stretch, if the element has begun it."""
        super().end(name)
        at = self._next_event()
        if not self._inside:
            return
        self._inside -= 1
        if self._inside:
            return
        if self._is_root_emptied:
            self.edges.append(at)
        else:
            self._is_edge_next = True

    def _other(self, _text: str) -> None:
        self._next_event()

    def _next_event(self) -> int:
        at = self.parser.CurrentByteIndex
        if self._is_edge_next:
            self.edges.append(at)
            self._is_edge_next = False
        return at
