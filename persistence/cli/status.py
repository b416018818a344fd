"""Exit statuses of the commands that look after the tree; 1 is for what could not be done, 2 for wrong usage."""

from __future__ import annotations

from collections.abc import Iterable

REPAIRED = 3
"""Something was found, and all of it taken care of."""

REMAINS = 4
"""Damage remains; the lines above say what."""

EDITED = 5
"""Nothing is worse than edits by hand that nobody has adopted."""

FAILED = 1
"""It could not be done at all."""

_FROM_BEST = (0, REPAIRED, EDITED, REMAINS, FAILED)


def worst(statuses: Iterable[int]) -> int:
    """The status of several trees: what could not be looked at is worse than what was found to be damaged."""
    return max(statuses, key=_FROM_BEST.index, default=0)
