"""What was read of documents while they were received, handed over so that the index need not read them again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from persistence.forms.values import Extracted, Extraction, ValueReader
from persistence.keeping import Kept
from persistence.limits import (
    DEFINITIONS_KEPT,
    DEFINITIONS_KEPT_BYTES,
    LARGEST_HANDED,
    MOST_HANDED,
    MOST_HANDED_CHARACTERS,
    VALUE_COSTS,
)

if TYPE_CHECKING:
    from persistence.index.sources import Definition


class _Handed(NamedTuple):
    """The extracted entries, the mark of the definition that was used, and the size they count for, in characters."""

    definition: str
    extracted: Extracted
    size: int


class Handed:
    """Documents that this process has read, by the ids of their contents, and definitions. For all threads."""

    def __init__(self) -> None:
        self.definitions: Kept[Definition] = Kept(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self.readers: Kept[ValueReader] = Kept(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self._kept: OrderedDict[str, _Handed] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def give(self, content: str, definition: str, extracted: Extracted) -> None:
        """Hand over what a content holds by a definition; it need not be committed yet."""
        size = _size(extracted)
        with self._lock:
            self._kept[content] = _Handed(definition, extracted, size)
            self._size += size
            while len(self._kept) > MOST_HANDED or self._size > MOST_HANDED_CHARACTERS:
                self._size -= self._kept.popitem(last=False)[1].size

    def take(self, content: str, definition: str) -> Extracted | None:
        """What was handed over, once; ``None`` where nothing was, or by another definition."""
        with self._lock:
            handed = self._kept.pop(content, None)
            self._size -= 0 if handed is None else handed.size
        return handed.extracted if handed is not None and handed.definition == definition else None


def _size(extracted: Extracted) -> int:
    """The size that it counts for: a value takes some memory besides its characters."""
    return len(extracted.rest) + sum(
        VALUE_COSTS + len(value) for values in extracted.values.values() for value in values
    )


class Handing(Extraction):
    """Checks a document while it is received, and extracts what it holds by a definition."""

    def __init__(self, reader: ValueReader, definition: str, handed: Handed) -> None:
        super().__init__(reader)
        self._definition = definition
        self._handed = handed
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Parse the next piece; of a large document, nothing more is extracted."""
        super().feed(piece)
        self._size += len(piece)
        if self._size > LARGEST_HANDED:
            self.forgo()

    def hand_over(self, content: str) -> None:
        """Hand over what the whole document holds, under the id of its content."""
        if self._size <= LARGEST_HANDED:
            self._handed.give(content, self._definition, self.extracted())
