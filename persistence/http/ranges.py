"""Byte ranges of attachments (spec crud 4.7; RFC 9110 14 where a range runs past the end, and for ``If-Range``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from persistence.errors import BadRequestError, RangeError

_RANGES = re.compile(r"\s*bytes\s*=\s*([0-9]{1,100})\s*-\s*(?:([0-9]{1,100})\s*)?(?:,.*)?", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes ``first`` to ``last``, both included, of a content of ``size`` bytes."""

    first: int
    last: int
    size: int

    @property
    def length(self) -> int:
        """How many bytes these are."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"bytes {self.first}-{self.last}/{self.size}"


def parse(header: str, size: int) -> ByteRange:
    """The range to serve: the first one of several, its end clamped to the content.

    Raises:
        BadRequestError: a suffix range, a reversed one, another unit, or no range at all.
        RangeError: it starts at or past the end.
    """
    match = _RANGES.fullmatch(header)
    if match is None:
        raise BadRequestError(f"only ranges such as bytes=0-99 or bytes=100- are served, not {header!r}")
    first = int(match[1])
    last = int(match[2]) if match[2] else None
    if last is not None and last < first:
        raise BadRequestError(f"the range ends before it starts: {header!r}")
    if first >= size:
        raise RangeError(size)
    return ByteRange(first, size - 1 if last is None else min(last, size - 1), size)
