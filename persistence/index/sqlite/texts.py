"""How texts are searched for: by runs of three characters in the index of texts, and by an SQL function in cards.

The index of texts knows texts by their trigrams (SQLite FTS5, 4.3.4). A card describes a document: values of its
controls have given texts or words in them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from persistence.index.cards import decode
from persistence.index.sqlite.partitions import CardTest, Sql
from persistence.index.sqlite.records import COLUMNS, as_in_card
from persistence.limits import QUERIES_KEPT

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
    return " AND ".join(quoted(each) for each in found)


def quoted(text: str) -> str:
    """Return a text as a query of the index of texts has it."""
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


def install(connection: sqlite3.Connection, check: Callable[[], None]) -> None:
    """Give a connection the function that statements use; ``check`` raises when the time is used up."""

    def has_parts(card: str, asked: str) -> bool:
        check()
        return _passes(card, asked)

    connection.create_function("has_parts", 2, has_parts, deterministic=True)


def passing(tests: Iterable[CardTest], of: str) -> Sql:
    """Return an expression that is true where the document of a row passes all tests."""
    return card_passing(tests, f"(SELECT card FROM documents d WHERE d.row = {of}.row)")


def card_passing(tests: Iterable[CardTest], card: str) -> Sql:
    """Return an expression that is true where a card passes all tests."""
    asked = json.dumps([(each.number, each.text, each.are_words) for each in tests], ensure_ascii=False)
    return Sql(f"has_parts({card}, ?)", (asked,))


class _Tests(NamedTuple):
    """The tests of a statement.

    A card that passes has all texts ``anywhere`` in it, folded as its JSON is. ``of_controls`` are the number of each
    control and the texts and words, each between spaces, that its values must have.
    """

    anywhere: list[str]
    of_controls: list[tuple[int, list[str], list[list[str]]]]


def _passes(card: str, asked: str) -> bool:
    tests = _parsed(asked)
    folded = card.casefold()
    if not all(text in folded for text in tests.anywhere):
        return False
    found = decode(card)
    for number, texts, words in tests.of_controls:
        values = [value.casefold() for value in found.of(number)]
        if not all(any(text in value for value in values) for text in texts):
            return False
        if words:
            spaced = [f" {value} " for value in values]
            if not all(any(all(word in value for word in wanted) for value in spaced) for wanted in words):
                return False
    return True


@lru_cache(QUERIES_KEPT)
def _parsed(asked: str) -> _Tests:
    found: dict[int, tuple[list[str], list[list[str]]]] = {}
    anywhere: dict[str, None] = {}
    for number, text, are_words in json.loads(asked):
        texts, words = found.setdefault(number, ([], []))
        wanted = text.split() if are_words else [text]
        if are_words:
            words.append([f" {word} " for word in wanted])
        else:
            texts.append(text)
        anywhere |= dict.fromkeys(as_in_card(each).casefold() for each in wanted)
    return _Tests(list(anywhere), [(number, texts, words) for number, (texts, words) in found.items()])
