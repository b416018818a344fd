"""Form data as a tree of the elements that its form knows; of all else, a digest that tells whether it is the same.

Sources: spec forms 2, 4.3 and 6.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from persistence.forms.form_data import ITEM, is_value_encrypted
from persistence.forms.outline import Outline, OutlineNode
from persistence.limits import MOST_DIFFED_ELEMENTS
from persistence.xml.streaming import SEPARATOR, Streaming

HOLDER_ATTRIBUTES = ("filename", "mediatype", "size", "hash-algorithm", "hash-value")
"""The attributes of the holder of an attachment that belong to its value: the others are about the element."""

_DIGEST = 16
_BEGIN, _NAMED, _END = "\x01", "\x02", "\x03"
"""Around tags in content that no control has: characters that XML does not have."""
_TAGS = re.compile(f"([{_BEGIN}{_NAMED}{_END}])")


@dataclass(frozen=True, slots=True)
class HeldValue:
    """The value of a control: its text, and the attributes of an attachment holder; all encrypted values are equal."""

    text: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    is_encrypted: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.attributes or self.is_encrypted)


NO_VALUE = HeldValue()


class DataNode:
    """An element of form data at a node of the outline; ``inside`` are the known elements in it by name.

    ``value`` is that of a control, ``items`` those of one that takes several files, ``other`` a digest of all unknown
    content, and ``digest`` of all content.
    """

    __slots__ = ("digest", "inside", "items", "other", "value")

    def __init__(self) -> None:
        self.inside: dict[str, list[DataNode]] = {}
        self.items: tuple[HeldValue, ...] = ()
        self.value = NO_VALUE
        self.other = b""
        self.digest = b""

    def at(self, name: str) -> list[DataNode]:
        """Return the elements of a name inside, in document order."""
        return self.inside.get(name, [])

    def close(self) -> None:
        """Compute the digest, when all inside is known."""
        parts = [repr((self.value, self.items, self.other)).encode("utf-8", "surrogatepass")]
        for name in sorted(self.inside):
            parts += (b"\0", name.encode(), *(each.digest for each in self.inside[name]))
        self.digest = blake2b(b"".join(parts), digest_size=_DIGEST).digest()


NO_DATA = DataNode()
"""An empty element."""


def read_data(pieces: Iterable[bytes], outline: Outline) -> DataNode | None:
    """Read form data; return ``None`` where it has more elements than are compared (``MOST_DIFFED_ELEMENTS``)."""
    with _DataReader(outline) as reader:
        return reader.read(pieces).root


def opaque_data(pieces: Iterable[bytes]) -> DataNode:
    """Return data without a known structure, such as a definition: two are equal or not."""
    root, digest = DataNode(), blake2b(digest_size=_DIGEST)
    for piece in pieces:
        digest.update(piece)
    root.other = digest.digest()
    root.close()
    return root


class _Open:
    """An element that has begun: ``known`` is its node in the outline, ``None`` in a control or in unknown content."""

    __slots__ = ("attributes", "items", "known", "node", "other", "text")

    def __init__(self, known: OutlineNode | None, node: DataNode, attributes: Mapping[str, str]) -> None:
        self.known = known
        self.node = node
        self.attributes = attributes
        self.text: list[str] = []
        self.items: list[HeldValue] = []
        self.other: list[str] = []


class _DataReader(Streaming):
    def __init__(self, outline: Outline) -> None:
        super().__init__()
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._characters
        self.root: DataNode | None = None
        self._outline = outline
        self._open: list[_Open] = []
        self._count = 0
        self._deeper = 0
        """The number of open elements below the innermost one on the stack: unknown, or inside a control."""
        self._item: _Open | None = None
        self._foreign_from = 0
        """The number of open elements from which on content is not the form's, but a runtime's; 0 outside of it."""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._count += 1
        if self._count > MOST_DIFFED_ELEMENTS:
            return
        if not self._open:
            self._open.append(_Open(self._outline.root, DataNode(), attributes))
            self._note(f"{_BEGIN}{name}{_NAMED}")  # no form says how its root is called
            return
        above = self._open[-1]
        known = None if self._deeper or above.known is None else above.known.inside.get(name)
        if known is not None:
            node = DataNode()
            above.node.inside.setdefault(name, []).append(node)
            self._open.append(_Open(known, node, attributes))
        elif not self._deeper and name == ITEM and above.known is not None and above.known.is_control:
            self._deeper = 1
            self._item = _Open(None, above.node, attributes)
        else:
            self._deeper += 1
            if not self._foreign_from and SEPARATOR in name:
                self._foreign_from = self._deeper
            self._note(f"{_BEGIN}{name}{_NAMED}")

    def end(self, name: str) -> None:
        if self._count <= MOST_DIFFED_ELEMENTS:
            if self._deeper:
                self._leave_unknown()
            else:
                self._close_node()
        super().end(name)

    def finish(self) -> None:
        super().finish()
        if self._count > MOST_DIFFED_ELEMENTS:
            self.root = None

    def _leave_unknown(self) -> None:
        if self._deeper == 1 and self._item is not None:
            self._open[-1].items.append(_value(self._item))
            self._item = None
        else:
            self._note(_END)
        if self._foreign_from == self._deeper:
            self._foreign_from = 0
        self._deeper -= 1

    def _note(self, content: str) -> None:
        if not self._foreign_from:
            self._open[-1].other.append(content)

    def _close_node(self) -> None:
        ended = self._open.pop()
        node = ended.node
        if ended.known is not None and ended.known.is_control:
            node.items = tuple(ended.items)
            node.value = NO_VALUE if ended.items else _value(ended)
        parts = list(filter(str.strip, _TAGS.split("".join(ended.other))))
        if parts:
            node.other = blake2b("\0".join(map(str.strip, parts)).encode(), digest_size=_DIGEST).digest()
        node.close()
        if not self._open:
            self.root = node

    def _characters(self, text: str) -> None:
        if self._count > MOST_DIFFED_ELEMENTS or not self._open:
            return
        above = self._open[-1]
        if self._item is not None:
            self._item.text.append(text)
        elif above.known is not None and above.known.is_control:
            above.text.append(text)
        else:
            self._note(text)


def _value(ended: _Open) -> HeldValue:
    if is_value_encrypted(ended.attributes):
        return HeldValue(is_encrypted=True)
    held = tuple((name, found) for name in HOLDER_ATTRIBUTES if (found := ended.attributes.get(name)))
    text = "".join(ended.text)
    return HeldValue(text.strip() if held else text, held)
