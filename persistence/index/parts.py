"""What is asked of the card of a document: that values of its controls have texts or words in them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from persistence.index.records import decode
from persistence.index.sql import Sql


@dataclass(frozen=True, slots=True)
class Part:
    """One value of a control has the folded ``text`` in it, or all of its words if they ``are_words``."""

    number: int
    text: str
    are_words: bool


def install(connection: sqlite3.Connection) -> None:
    """Give a connection the function that statements use."""
    connection.create_function("has_parts", 2, _has_parts, deterministic=True)


def _has_parts(card: str, asked: str) -> bool:
    """Whether a document has all the parts; its card is taken apart once for them, and its values are folded once."""
    found = decode(card)
    for number, texts, words in _parts(asked):
        values = [value.casefold() for value in found.of(number)]
        if not all(any(text in value for value in values) for text in texts):
            return False
        if words:
            split = [set(value.split(" ")) for value in values]
            if not all(any(wanted <= each for each in split) for wanted in words):
                return False
    return True


@lru_cache(4)
def _parts(asked: str) -> list[tuple[int, list[str], list[set[str]]]]:
    """The texts and the words that are asked of each control."""
    found: dict[int, tuple[list[str], list[set[str]]]] = {}
    for number, text, are_words in json.loads(asked):
        texts, words = found.setdefault(number, ([], []))
        if are_words:
            words.append(set(text.split()))
        else:
            texts.append(text)
    return [(number, texts, words) for number, (texts, words) in found.items()]


def told(parts: Iterable[Part], of: str) -> Sql:
    """An expression that is true where the document of a row has all the parts."""
    asked = json.dumps([(each.number, each.text, each.are_words) for each in parts], ensure_ascii=False)
    return Sql(f"has_parts((SELECT card FROM documents d WHERE d.row = {of}.row), ?)", (asked,))
