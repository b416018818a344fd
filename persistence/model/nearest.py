"""The nearest known name, for a caller who has misspelt one."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable
from itertools import islice, takewhile
from operator import eq

from persistence.limits import LONGEST_COMPARED, MOST_COMPARED, MOST_KNOWN

_ALIKE = 0.5
"""How much of two names must be the same where only a name that was probably meant is of use: from 0 to 1."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another one; ``None`` only where none is known."""
    return _nearest(name, known, 0.0)


def alike(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; ``None`` where none is like it."""
    return _nearest(name, known, _ALIKE)


def _nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    name = name[:LONGEST_COMPARED]
    names = [each for each in islice(known, MOST_KNOWN) if len(each) <= LONGEST_COMPARED]
    if len(names) > MOST_COMPARED:
        names = heapq.nsmallest(MOST_COMPARED, names, key=lambda each: _outside(name, each))
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def _outside(name: str, other: str) -> int:
    """How many characters two names have outside of their common beginning and end: few where one is misspelt."""
    begins = _common(name, other)
    ends = _common(name[begins:][::-1], other[begins:][::-1])
    return len(name) + len(other) - 2 * (begins + ends)


def _common(first: str, second: str) -> int:
    return sum(takewhile(bool, map(eq, first, second)))
