"""What the index of texts is asked, which knows texts by their runs of three characters (SQLite FTS5, 4.3.4)."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.index.sampling import Rarity

TRIGRAM = 3
_MOST = 5
"""Of a text this many are looked for, the rarest ones: each of the others is a long list to be read for little."""

_LONGEST = 100
"""Characters of a text of which trigrams are looked for."""


def asked_for(parts: Iterable[str], column: int | None, rarity: Rarity) -> str:
    """What the index of texts is asked: for the rarest trigrams of the parts, the rarest first.

    Empty where all parts are too short to have one.
    """
    found = dict.fromkeys(
        part[at : at + TRIGRAM] for part in parts for at in range(min(len(part), _LONGEST) - TRIGRAM + 1)
    )
    if len(found) > 1:
        found = dict.fromkeys(sorted(found, key=lambda each: rarity(each, column))[:_MOST])
    return " AND ".join(_quoted(each) for each in found)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
