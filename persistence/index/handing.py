"""What was read of documents while they were received, handed over so that the index need not read them again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from persistence.forms.values import Extracted, Extraction, ValueReader

_MOST = 1_000
"""Documents of which it is kept; the oldest is let go of, and read again."""

_LARGEST = 64 << 10
"""Bytes of a document of which it is kept: what is read takes memory, and large documents are not many."""


class _Handed(NamedTuple):
    """What was extracted, and the mark of the definition by which."""

    definition: str
    extracted: Extracted


class Handed:
    """What this process has read, by the id of the content. For all threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Handed] = OrderedDict()
        self._lock = threading.Lock()

    def give(self, content: str, definition: str, extracted: Extracted) -> None:
        """Hand over what a content holds by a definition; it need not be committed yet."""
        with self._lock:
            self._kept[content] = _Handed(definition, extracted)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)

    def take(self, content: str, definition: str) -> Extracted | None:
        """What was handed over, once; ``None`` where nothing was, or by another definition."""
        with self._lock:
            handed = self._kept.pop(content, None)
        return handed.extracted if handed is not None and handed.definition == definition else None


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
        if self._size > _LARGEST:
            self.forgo()

    def hand_over(self, content: str) -> None:
        """Hand over what the whole document holds, under the id of its content."""
        if self._size <= _LARGEST:
            self._handed.give(content, self._definition, self.extracted())
