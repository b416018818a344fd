"""Elements of form data with a meaning to the service: not relevant, encrypted, or holders of an attachment.

Sources: spec forms 3.1, 4.3 and 6.7; crud 8.2; seed, query parameter ``nonrelevant``.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from sys import getsizeof
from xml.sax.saxutils import escape, quoteattr

from persistence.errors import BadRequestError, DamagedError, MalformedXmlError
from persistence.limits import HOLDER_COSTS, LARGEST_ATTACHMENT_LIST, LONGEST_PATH, MOST_HOLDERS
from persistence.model.addresses import AttachmentRef, parse_holder_path
from persistence.xml.streaming import SEPARATOR, Streaming, local_name

FR_NAMESPACE = "http://orbeon.org/oxf/xml/form-runner"
RELEVANT = f"{FR_NAMESPACE}{SEPARATOR}relevant"

VALUE_ENCRYPTED = "value-encrypted"
ATTACHMENT_ENCRYPTED = "attachment-encrypted"
OLD_MARKER = "encrypted"

MARKER_WORD = b"encrypted"
"""A word in the names of all attributes of encryption."""

VALUE_MARKER = f"{FR_NAMESPACE}{SEPARATOR}{VALUE_ENCRYPTED}"
ATTACHMENT_MARKER = f"{FR_NAMESPACE}{SEPARATOR}{ATTACHMENT_ENCRYPTED}"

ITEM = "_"
"""The name of the element around each file of a control that takes several."""

_FR = f"{FR_NAMESPACE}{SEPARATOR}"


def is_value_encrypted(attributes: Mapping[str, str]) -> bool:
    """Return whether the value of an element is encrypted, by the new or the old attribute (spec forms 4.3)."""
    return attributes.get(VALUE_MARKER) == "true" or attributes.get(OLD_MARKER) == "true"


def nonrelevant_edges(pieces: Iterable[bytes]) -> array[int]:
    """Return the positions at which each non-relevant element begins and ends, in turn, ascending.

    Its bytes can be cut out, and all others stay. Of a non-relevant root only the content counts.
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
        self.parser.DefaultHandler = self._next_event
        self.edges: array[int] = array("Q")
        self._cut_from = 0
        self._is_edge_next = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._next_event()
        if not self._cut_from and attributes.get(RELEVANT) == "false":
            self._cut_from = self.depth
            self._cut(is_after=self.depth == 1)

    def end(self, name: str) -> None:
        self._next_event()
        if self.depth == self._cut_from:
            self._cut_from = 0
            self._cut(is_after=self.depth > 1)
        super().end(name)

    def _cut(self, *, is_after: bool) -> None:
        if is_after:
            self._is_edge_next = True
        else:
            self.edges.append(self.parser.CurrentByteIndex)

    def _next_event(self, _text: str = "") -> None:
        if self._is_edge_next:
            self.edges.append(self.parser.CurrentByteIndex)
            self._is_edge_next = False


@dataclass(frozen=True, slots=True)
class AttachmentHolder:
    """An element that names an attachment; ``path`` are the local names below the root, itself included.

    ``attributes`` are those without a namespace, and with the prefix ``fr:`` those of the form runner.
    """

    path: tuple[str, ...]
    attributes: Mapping[str, str]
    held: AttachmentRef
    text: str
    is_relevant: bool


class EncryptedValueWatch(Streaming):
    """A parser that finds out whether there ``is_one``: an encrypted value, by any program and with any key."""

    def __init__(self) -> None:
        super().__init__()
        self.is_one = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self.is_one = self.is_one or is_value_encrypted(attributes)


class HolderReader(Streaming):
    """A parser that collects the holders of attachments that ``is_wanted``."""

    def __init__(self, is_wanted: Callable[[AttachmentRef], bool]) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._characters
        self.holders: list[AttachmentHolder] = []
        self._is_wanted = is_wanted
        self._path: list[str] = []
        self._attributes: dict[str, str] = {}
        self._irrelevant_from = 0
        self._text: str | None = None
        self._left = LARGEST_ATTACHMENT_LIST

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._path.append(local_name(name))
        self._attributes, self._text = attributes, ""
        if not self._irrelevant_from and attributes.get(RELEVANT) == "false":
            self._irrelevant_from = self.depth

    def end(self, name: str) -> None:
        held = parse_holder_path(self._text) if self._text else None
        if held is not None and self._is_wanted(held):
            self._take(held)
        self._path.pop()
        self._text = None
        if self._irrelevant_from == self.depth:
            self._irrelevant_from = 0
        super().end(name)

    def _take(self, held: AttachmentRef) -> None:
        if len(self.holders) == MOST_HOLDERS:
            raise BadRequestError(f"the form data names more than {MOST_HOLDERS} attachments")
        own = {
            name.replace(_FR, "fr:"): value
            for name, value in self._attributes.items()
            if name != RELEVANT and (name.startswith(_FR) or SEPARATOR not in name)
        }
        text = (self._text or "").strip()
        path = tuple(map(sys.intern, self._path[1:]))
        self._left -= HOLDER_COSTS + getsizeof(text) + getsizeof(path)
        self._left -= sum(getsizeof(name) + getsizeof(value) for name, value in own.items())
        if self._left < 0:
            raise BadRequestError(f"the attachments in the form data take more than {LARGEST_ATTACHMENT_LIST} bytes")
        self.holders.append(AttachmentHolder(path, own, held, text, not self._irrelevant_from))

    def _characters(self, text: str) -> None:
        if self._text is not None and len(self._text) <= LONGEST_PATH:
            self._text += text


def write_attachment_list(attachments: Iterable[tuple[str, AttachmentHolder]]) -> bytes:
    """Write the list of attachments, each with the name of its control (spec crud 8.2)."""
    lines = []
    for name, holder in attachments:
        attributes = {**holder.attributes, "name": name}
        if not holder.is_relevant:
            attributes["fr:relevant"] = "false"
        written = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
        lines.append(f"<attachment{written}>{escape(holder.text)}</attachment>")
    return f'<attachments xmlns:fr="{FR_NAMESPACE}">{"".join(lines)}</attachments>'.encode()
