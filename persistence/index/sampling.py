"""Which trigrams are rare: told by the texts of some documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from persistence.index.records import COLUMNS

Rarity = Callable[[str, int | None], int]
"""How often a trigram is met, roughly, in a column of fields or in any text: only which is rarer matters."""

_SAMPLED = 64
_LONGEST = 4_000
"""Characters that are kept of a document, of each of its texts as many: every connection keeps a sample."""

_FIELDS = ", ".join(f"f.c{number}" for number in range(COLUMNS))
_AT = (
    f"SELECT r.c0, {_FIELDS} FROM rests_content r JOIN fields_content f ON f.id = r.id WHERE r.id >= ?"
    " ORDER BY r.id LIMIT 1"
)


class Sample:
    """The texts of documents from evenly spread places, read when they are first needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts: list[tuple[str, ...]] | None = None

    def rarity(self, trigram: str, column: int | None) -> int:
        """In how many of them a trigram is, in a column of fields or in any text."""
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
                each = _LONGEST // max(1, sum(map(bool, found)))
                yield tuple((text or "")[:each] for text in found)
