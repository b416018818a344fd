"""Holders: the elements of form data that name attachments, found while it streams by (spec forms 6.7)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from sys import getsizeof
from xml.sax.saxutils import escape, quoteattr

from persistence.errors import BadRequestError
from persistence.forms.data_marks import FR, RELEVANT
from persistence.limits import HOLDER_COSTS, LARGEST_ATTACHMENT_LIST, LONGEST_PATH, MOST_HOLDERS
from persistence.model.addresses import AttachmentRef, parse_holder_path
from persistence.xml.streaming import SEPARATOR, Streaming

ITEM = "_"
"""The name of the element around each file of a control that takes several."""

_FR = f"{FR}{SEPARATOR}"


@dataclass(frozen=True, slots=True)
class AttachmentHolder:
    """An element that names an attachment.

    ``path`` has the local names below the root, down to the element itself. ``attributes`` are those without a
    namespace, and with ``fr:`` those of the form runner's. ``is_relevant`` is false where the element or one around it
    is marked as not relevant.
    """

    path: tuple[str, ...]
    attributes: Mapping[str, str]
    held: AttachmentRef
    text: str
    is_relevant: bool


class HolderReader(Streaming):
    """A parser that collects the holders of attachments that ``is_wanted``.

    Raises, besides what ``Streaming`` does:
        BadRequestError: there are too many.
    """

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
        """Begin an element that may be a holder; the one around it is none."""
        super().start(name, attributes)
        self._path.append(name.rpartition(SEPARATOR)[2])
        self._attributes, self._text = attributes, ""
        if not self._irrelevant_from and attributes.get(RELEVANT) == "false":
            self._irrelevant_from = self.depth

    def end(self, name: str) -> None:
        """Take the element, if it is a holder."""
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
        own = {name.replace(_FR, "fr:"): value for name, value in self._attributes.items() if _is_copied(name)}
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


def _is_copied(name: str) -> bool:
    return name != RELEVANT and (name.startswith(_FR) or SEPARATOR not in name)


def as_xml(attachments: Iterable[tuple[str, AttachmentHolder]]) -> bytes:
    """Write the list of attachments, each with the name of its control (spec crud 8.2)."""
    lines = "".join(_as_xml(name, holder) for name, holder in attachments)
    return f'<attachments xmlns:fr="{FR}">{lines}</attachments>'.encode()


def _as_xml(name: str, holder: AttachmentHolder) -> str:
    attributes = {**holder.attributes, "name": name}
    if not holder.is_relevant:
        attributes["fr:relevant"] = "false"
    said = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<attachment{said}>{escape(holder.text)}</attachment>"
