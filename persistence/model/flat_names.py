"""Names of flat views and their columns: identifiers of limited length, each of them once (spec search 7.2)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class Naming:
    """How views are called: they begin with ``prefix``, and no name has more than ``longest`` characters.

    With ``prefixes_in_main`` a column of the view of documents is called by its whole path, else by its control.
    """

    prefix: str
    longest: int
    prefixes_in_main: bool


_NOT_IN_IDENTIFIERS = re.compile("[^A-Za-z0-9_]")


def identifier(name: str) -> str:
    """The name of an application, a form or a control as an identifier that needs no quotes."""
    return _NOT_IN_IDENTIFIERS.sub("", name.replace("-", "_")).strip("_") or "_"


def joined(parts: Sequence[str], longest: int) -> str:
    """The parts with ``_`` between, in at most ``longest`` characters.

    As long as they are too long, the first of the longest parts loses its last character and the ``_`` before it. That
    is worked out at once down to the length at which only some of the longest parts lose one more.
    """
    room = max(longest - (len(parts) - 1), 0)
    cut = list(parts)
    if sum(map(len, cut)) > room:
        lengths = range(max(map(len, cut)) + 1)
        length = bisect_right(lengths, room, key=lambda length: sum(len(_cut(part, length)) for part in parts))
        cut = [_cut(part, length) for part in parts]
        at = 0
        while sum(map(len, cut)) > room:
            cut[at] = _cut(cut[at], length - 1)
            at += 1
    return "_".join(cut)[: max(longest, 1)]


def _cut(part: str, length: int) -> str:
    return part[:length].rstrip("_") if len(part) > length else part


class Names:
    """Hands out names that are not taken, whatever the case of letters: SQL does not look at it."""

    def __init__(self, taken: Iterable[str], longest: int) -> None:
        self._taken = {name.lower() for name in taken}
        self._longest = longest

    def take(self, name: str) -> str:
        """The name, with the first counter that makes it free if it is taken."""
        free = name
        counters = count(1)
        while free.lower() in self._taken:
            digits = str(next(counters))
            free = name[: max(self._longest - len(digits), 0)] + digits
        self._taken.add(free.lower())
        return free
