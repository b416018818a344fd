"""The nearest known name, for a caller who has misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 200
"""Characters of names that are compared: comparing takes time that grows with the square of their length."""
_ALIKE = 0.5
"""How much of two names must be the same where only a name that was probably meant is of use: from 0 to 1."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another one; ``None`` only where none is known."""
    return _nearest(name, known, 0.0)


def alike(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; ``None`` where none is like it."""
    return _nearest(name, known, _ALIKE)


def _nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    names = [each for each in known if len(each) <= _LONGEST]
    return next(iter(difflib.get_close_matches(name[:_LONGEST], names, n=1, cutoff=cutoff)), None)
