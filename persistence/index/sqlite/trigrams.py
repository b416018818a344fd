"""Queries of the index of texts, which knows texts by their runs of three characters (SQLite FTS5, 4.3.4)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator

from persistence.index.sqlite.records import COLUMNS

TRIGRAM = 3
_MOST = 5
"""Trigrams of a text that are looked for, the rarest ones: each further one is a long list to be read for little."""

_LONGEST = 100
"""Characters of a text of which trigrams are looked for."""

_SAMPLED = 64
_LONGEST_SAMPLE = 4_000
"""Characters that are kept of a document, of each of its texts as many: every connection keeps a sample."""

_FIELDS = ", ".join(f"f.c{number}" for number in range(COLUMNS))
_AT = (
    f"SELECT r.c0, {_FIELDS} FROM rests_content r JOIN fields_content f ON f.id = r.id WHERE r.id >= ?"
    " ORDER BY r.id LIMIT 1"
)

Rarity = Callable[[str, int | None], int]
"""Estimates how often a trigram occurs in a column of fields, or in any text: only which is rarer matters."""


def query_for(parts: Iterable[str], column: int | None, rarity: Rarity) -> str:
    """Return the query for the rarest trigrams of some texts, the rarest first.

    It is empty where all texts are too short to have one.
    """
    found = dict.fromkeys(
        part[at : at + TRIGRAM] for part in parts for at in range(min(len(part), _LONGEST) - TRIGRAM + 1)
    )
    if len(found) > 1:
        found = dict.fromkeys(sorted(found, key=lambda each: rarity(each, column))[:_MOST])
    return " AND ".join(_quoted(each) for each in found)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


class Sample:
    """The texts of documents from evenly spread places, read when they are first needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts: list[tuple[str, ...]] | None = None

    def rarity(self, trigram: str, column: int | None) -> int:
        """Return the number of sampled documents that have a trigram, in a column of fields or in any text."""
        if self._texts is None:
            self._texts = list(self._read())
        if column is not None:
            return sum(trigram in texts[column + 1] for texts in self._texts)
        return sum(any(trigram in text for text in texts) for texts in self._texts)

    def _read(self) -> Iterator[tuple[str, ...]]:
        first, last = self._connection.execute("SELECT min(text), max(text) FROM texts").fetchone()
        for at in range(_SAMPLED if first is not None else 0):
            found = self._connection.execute(_AT, (first + (last - first) * at // _SAMPLED,)).fetchone()
            if found is not None:
                each = _LONGEST_SAMPLE // max(1, sum(map(bool, found)))
                yield tuple((text or "")[:each] for text in found)
