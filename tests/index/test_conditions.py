"""What a search asks of the cards of documents, and by which texts it looks for them first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from persistence.errors import BadRequestError
from persistence.index.protocol import Card, encode
from persistence.index.search_compiler import Condition, Partition, Search, Sql
from persistence.index.sqlite.sqlite_dialect import CardTest, Sample, SqliteDialect, install, passing
from persistence.index.sqlite.tables import COLUMNS, FIELDS, INDEXES, TABLES
from persistence.limits import SEARCHED_OWNERS
from persistence.model.permissions import OwnerPattern, OwnerSet
from persistence.model.queries import ControlFilter, Query, Scope, TextMatch
from persistence.model.texts import Instant

_SEARCHED = Partition(1, 1, {"name": 1, "topics": 2})
_DAY = Instant("2024-05-01T10:00:00.000Z")
_VALUES = {1: ("Ada Lovelace",), 2: ("red green", "Blue")}
_CARD = encode(Card(1, _DAY, _DAY, None, None, (), None, None, _VALUES))


@pytest.fixture(name="connection")
def _connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        install(connection, lambda: None)
        connection.executescript(TABLES + INDEXES)
        connection.execute("INSERT INTO partition (number, version, draft, round, documents) VALUES (1, 1, 0, 1, 1)")
        connection.execute("INSERT INTO document VALUES (1, 1, 1, 0, 'd', '', '', ?)", (_CARD,))
        yield connection


def _dialect(connection: sqlite3.Connection, searched: Sequence[Partition] = (_SEARCHED,)) -> SqliteDialect:
    return SqliteDialect(connection, lambda _trigram, _column: 0, searched, None)


def _tested(connection: sqlite3.Connection, *filters: ControlFilter) -> Sql:
    dialect = _dialect(connection)
    numbered = {"name": 1, "topics": 2}
    exact = [dialect.keyed(numbered[each.path], each.text) for each in filters if each.match is TextMatch.EXACT]
    others = (each for each in filters if each.match is not TextMatch.EXACT)
    return dialect.tested([*exact, *(dialect.containing(numbered[each.path], each, None) for each in others)])


@pytest.mark.parametrize(
    ("filters", "is_met"),
    [
        ([ControlFilter("name", TextMatch.SUBSTRING, "LOVE"), ControlFilter("name", TextMatch.SUBSTRING, "ada")], True),
        (
            [ControlFilter("name", TextMatch.SUBSTRING, "love"), ControlFilter("name", TextMatch.SUBSTRING, "bob")],
            False,
        ),
        (
            [
                ControlFilter("topics", TextMatch.TOKEN, "green red"),
                ControlFilter("topics", TextMatch.SUBSTRING, "blu"),
            ],
            True,
        ),
        ([ControlFilter("topics", TextMatch.TOKEN, "green blue")], False),
        ([ControlFilter("topics", TextMatch.TOKEN, "red"), ControlFilter("topics", TextMatch.TOKEN, "blue")], True),
        ([ControlFilter("topics", TextMatch.TOKEN, "gree")], False),
        ([ControlFilter("name", TextMatch.SUBSTRING, '"é')], False),
    ],
)
def test_each_part_is_in_one_of_the_values(
    connection: sqlite3.Connection, filters: list[ControlFilter], is_met: object
) -> None:
    where = _tested(connection, *filters)
    found = connection.execute(f"SELECT count(*) FROM document d WHERE {where.text}", where.values).fetchone()  # noqa: S608 - the expression under test
    assert found == (int(bool(is_met)),)


def test_a_card_is_asked_once_for_hundreds_of_parts(connection: sqlite3.Connection) -> None:
    filters = [ControlFilter("name", TextMatch.SUBSTRING, f"{number}") for number in range(100)]
    filters += [ControlFilter("topics", TextMatch.TOKEN, f"{number}") for number in range(98)]
    where = _tested(connection, *filters)
    assert where.text.count("card") == 1
    assert len(where.values) == 1


def _asked(connection: sqlite3.Connection, searched: Sequence[Partition], *filters: ControlFilter) -> list[Condition]:
    found = Search(_dialect(connection, searched), Scope(), None).conditions(Query(controls=filters))
    assert found is not None
    return found


def test_what_is_asked_twice_is_one_condition(connection: sqlite3.Connection) -> None:
    twice = (ControlFilter("name", TextMatch.EXACT, "Ada"),) * 2
    assert len(_asked(connection, [_SEARCHED], *twice)) == 1


def test_owners_of_many_organizations_are_one_condition_and_too_many_conditions_are_refused(
    connection: sqlite3.Connection,
) -> None:
    """A user has hundreds of roles at most; SQLite takes 500 parts in one statement."""

    def partition(number: int, holders: int, organizations: int) -> Partition:
        names = (frozenset({f"{number}-{at}" for at in range(organizations)}),)
        owner_set = OwnerSet(frozenset(OwnerPattern(f"ann{at}", organizations=names) for at in range(holders)))
        return Partition(number, 1, {}, owner_sets=frozenset({owner_set}))

    assert len(_asked(connection, [partition(number, 1, 500) for number in range(SEARCHED_OWNERS)])) == 1
    for searched in (
        [partition(1, SEARCHED_OWNERS + 1, 1)],
        [partition(at, 1, 1) for at in range(SEARCHED_OWNERS + 1)],
    ):
        with pytest.raises(BadRequestError, match="search one version at a time"):
            _asked(connection, searched)


def has(values: tuple[str, ...], text: str, *, are_words: bool) -> bool:
    card = encode(Card(1, _DAY, _DAY, None, None, (), None, None, {1: values, 2: ("elsewhere",)}))
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


_MARKS = ", ".join("?" * COLUMNS)


def test_a_document_with_many_long_texts_adds_no_more_than_one_with_a_single_long_one() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        connection.execute("INSERT INTO texts VALUES (1, 1)")
        connection.execute("INSERT INTO free_text (rowid, text) VALUES (1, '')")
        text = f"abc{'-' * 1000}xyz"
        connection.execute(f"INSERT INTO fields (rowid, {', '.join(FIELDS)}) VALUES (1, {_MARKS})", (text,) * COLUMNS)  # noqa: S608 - names of columns
        sample = Sample(connection)
        assert sample.rarity("abc", 3) > 0
        assert sample.rarity("xyz", 3) == 0
