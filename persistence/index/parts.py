"""What is asked of the card of a document: that values of its controls have texts or words in them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from persistence.index.records import as_in_card, decode
from persistence.index.sql import Sql
from persistence.limits import QUERIES_KEPT


@dataclass(frozen=True, slots=True)
class Part:
    """One value of a control has the folded ``text`` in it, or all of its words if they ``are_words``."""

    number: int
    text: str
    are_words: bool


def install(connection: sqlite3.Connection, check: Callable[[], None]) -> None:
    """Give a connection the function that statements use; ``check`` raises where it is to take no more time."""

    def has_parts(card: str, asked: str) -> bool:
        check()
        return _has_parts(card, asked)

    connection.create_function("has_parts", 2, has_parts, deterministic=True)


def _has_parts(card: str, asked: str) -> bool:
    """Whether a document has all the parts; its card is taken apart once for them, and its values are folded once."""
    parts = _parts(asked)
    folded = card.casefold()
    if not all(text in folded for text in parts.anywhere):
        return False
    found = decode(card)
    for number, texts, words in parts.of_controls:
        values = [value.casefold() for value in found.of(number)]
        if not all(any(text in value for value in values) for text in texts):
            return False
        if words:
            spaced = [f" {value} " for value in values]
            if not all(any(all(word in value for word in wanted) for value in spaced) for wanted in words):
                return False
    return True


class _Parts(NamedTuple):
    """What is asked: ``anywhere`` in a card that has all parts are these texts, folded as its JSON is.

    ``of_controls`` are the number, the texts and the words, each between spaces, that are asked of each control.
    """

    anywhere: list[str]
    of_controls: list[tuple[int, list[str], list[list[str]]]]


@lru_cache(QUERIES_KEPT)
def _parts(asked: str) -> _Parts:
    found: dict[int, tuple[list[str], list[list[str]]]] = {}
    anywhere: dict[str, None] = {}
    for number, text, are_words in json.loads(asked):
        texts, words = found.setdefault(number, ([], []))
        sought = text.split() if are_words else [text]
        if are_words:
            words.append([f" {word} " for word in sought])
        else:
            texts.append(text)
        anywhere |= dict.fromkeys(as_in_card(each).casefold() for each in sought)
    return _Parts(list(anywhere), [(number, texts, words) for number, (texts, words) in found.items()])


def told(parts: Iterable[Part], of: str) -> Sql:
    """An expression that is true where the document of a row has all the parts."""
    return told_by_card(parts, f"(SELECT card FROM documents d WHERE d.row = {of}.row)")


def told_by_card(parts: Iterable[Part], card: str) -> Sql:
    """The same where the card is at hand."""
    asked = json.dumps([(each.number, each.text, each.are_words) for each in parts], ensure_ascii=False)
    return Sql(f"has_parts({card}, ?)", (asked,))
