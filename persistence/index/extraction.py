"""The values that an index takes from a document, and a cache of those that were extracted while it was received."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from persistence.bounded_cache import BoundedCache
from persistence.forms.values import ExtractedText, TextExtraction, ValueReader
from persistence.limits import (
    DEFINITIONS_KEPT,
    DEFINITIONS_KEPT_BYTES,
    LARGEST_HANDED,
    MOST_HANDED,
    MOST_HANDED_CHARACTERS,
    VALUE_COSTS,
)
from persistence.model.sidecar import DocumentFacts


class Owner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The creator of a document, as far as permissions are concerned."""

    creator: str | None
    group: str | None
    organization: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document or draft as an index reads it.

    ``values`` are those of the indexed controls by path, and ``rest`` is the text in none of them. ``fingerprint`` is
    that of its files. ``reader`` is set for drafts only: the owner who decides who may read the draft.
    """

    document: str
    is_draft: bool
    fingerprint: str
    facts: DocumentFacts
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rest: str = ""
    reader: Owner | None = None


class _Cached(NamedTuple):
    """Extracted values, the fingerprint of the definition that was used, and their size in characters."""

    definition: str
    extracted: ExtractedText
    size: int


class ExtractionCache:
    """The values of documents that this process has received, by content id, and readers of values. For all threads."""

    def __init__(self) -> None:
        self.readers: BoundedCache[ValueReader] = BoundedCache(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self._kept: OrderedDict[str, _Cached] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def put(self, content: str, definition: str, extracted: ExtractedText) -> None:
        """Keep the values of a content, extracted by a definition; it need not be committed yet."""
        size = _size(extracted)
        with self._lock:
            self._kept[content] = _Cached(definition, extracted, size)
            self._size += size
            while len(self._kept) > MOST_HANDED or self._size > MOST_HANDED_CHARACTERS:
                self._size -= self._kept.popitem(last=False)[1].size

    def pop(self, content: str, definition: str) -> ExtractedText | None:
        """Return the values of a content, once; ``None`` where none are kept, or by another definition."""
        with self._lock:
            found = self._kept.pop(content, None)
            self._size -= 0 if found is None else found.size
        return found.extracted if found is not None and found.definition == definition else None


def _size(extracted: ExtractedText) -> int:
    """Return the size that values count for: each takes some memory besides its characters."""
    return len(extracted.rest) + sum(
        VALUE_COSTS + len(value) for values in extracted.values.values() for value in values
    )


class CachingExtraction(TextExtraction):
    """Checks a document while it is received, and extracts its values by a definition for the cache."""

    def __init__(self, reader: ValueReader, definition: str, cache: ExtractionCache) -> None:
        super().__init__(reader)
        self._definition = definition
        self._cache = cache
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Parse the next piece. Nothing more is extracted from a large document."""
        super().feed(piece)
        self._size += len(piece)
        if self._size > LARGEST_HANDED:
            self.stop_extracting()

    def keep(self, content: str) -> None:
        """Keep the values of the whole document, under the id of its content."""
        if self._size <= LARGEST_HANDED:
            self._cache.put(content, self._definition, self.extracted())
