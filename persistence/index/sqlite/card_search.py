"""The SQL function that searches the card of a document: values of its controls have given texts or words in them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from persistence.index.sqlite.partitions import Sql
from persistence.index.sqlite.records import as_in_card, decode
from persistence.limits import QUERIES_KEPT


@dataclass(frozen=True, slots=True)
class CardTest:
    """One value of a control has the folded ``text`` in it, or all of its words if they ``are_words``."""

    number: int
    text: str
    are_words: bool


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
    """Return whether a card passes; it is decoded once for all tests, and its values are folded once."""
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
