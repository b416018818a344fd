"""What is asked of a card: the parts that a plain look at the values finds, whatever is in them."""

import sqlite3

import pytest

from persistence.index.protocol import Card, encode
from persistence.index.sqlite.sqlite_dialect import CardTest, install, passing
from persistence.model.instants import Instant

AT = Instant("2024-01-01T00:00:00.000Z")


def has(values: tuple[str, ...], text: str, *, are_words: bool) -> bool:
    card = encode(Card(1, AT, AT, None, None, (), None, None, {1: values, 2: ("elsewhere",)}))
    asked = passing([CardTest(1, text.casefold(), are_words)], "?")
    connection = sqlite3.connect(":memory:")
    install(connection, lambda: None)
    return bool(connection.execute(f"SELECT {asked.text}", (card, *asked.values)).fetchone()[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a "quoted" word', '"QUOTED"'),
        ("back\\slash", "k\\S"),
        ("tab\there", "b\th"),
        ("line\nend", "e\nE"),
        ("STRASSE", "straße"),
        ("Straße", "RASS"),
        ("ὈΔΥΣΣΕΎΣ", "σεύς"),
        ("\u212a elvin", "K"),
        ("a / b", " / "),
        ("ﬁne", "fin"),
        ("\x7f\u2028", "\u2028"),
    ],
)
def test_a_text_is_found_in_a_value(value: str, text: str) -> None:
    assert has((value,), text, are_words=False)
    assert not has((value,), text + "!", are_words=False)


@pytest.mark.parametrize(
    ("values", "words", "is_found"),
    [
        (("red green",), "green RED", True),
        (("red", "green"), "green red", False),
        (("red", "green red"), "red green", True),
        (("redgreen",), "red", False),
        (('say "no"',), '"NO"', True),
        (("elsewhere",), "else", False),
    ],
)
def test_words_are_found_in_one_value(values: tuple[str, ...], words: str, *, is_found: bool) -> None:
    assert has(values, words, are_words=True) is is_found


def test_what_another_control_has_does_not_count() -> None:
    assert not has(("here",), "elsewhere", are_words=False)
