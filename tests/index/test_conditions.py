"""What a search asks of the cards of documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from persistence.errors import BadRequestError
from persistence.index.cards import Card, encode
from persistence.index.sqlite import conditions
from persistence.index.sqlite.conditions import NumberedControls, Partition, Sql, visible
from persistence.limits import SEARCHED_OWNERS
from persistence.model.instants import Instant
from persistence.model.permissions import OwnerPattern, OwnerSet
from persistence.model.queries import ControlFilter, Query, Scope, TextMatch

_CONTROLS = NumberedControls({"name": 1, "topics": 2}, frozenset({2}))
_DAY = Instant("2024-05-01T10:00:00.000Z")
_VALUES = {1: ("Ada Lovelace",), 2: ("red green", "Blue")}
_CARD = encode(Card(1, _DAY, _DAY, None, None, (), None, None, _VALUES))


@pytest.fixture(name="connection")
def _connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        conditions.install(connection, lambda: None)
        connection.execute("CREATE TABLE documents (row INTEGER PRIMARY KEY, card TEXT)")
        connection.execute("INSERT INTO documents VALUES (1, ?)", (_CARD,))
        yield connection


def _tested(*filters: ControlFilter) -> Sql:
    found = conditions.conditions(Scope(), Query(controls=filters), _CONTROLS, lambda _trigram, _column: 0, ())
    assert found is not None
    return conditions.tested(found)


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
    where = _tested(*filters)
    found = connection.execute(f"SELECT count(*) FROM documents c WHERE {where.text}", where.parameters).fetchone()  # noqa: S608 - the expression under test
    assert found == (int(bool(is_met)),)


def test_a_card_is_asked_once_for_hundreds_of_parts() -> None:
    filters = [ControlFilter("name", TextMatch.SUBSTRING, f"{number}") for number in range(100)]
    filters += [ControlFilter("topics", TextMatch.TOKEN, f"{number}") for number in range(98)]
    where = _tested(*filters)
    assert where.text.count("card") == 1
    assert len(where.parameters) == 1


def test_what_is_asked_twice_is_one_condition() -> None:
    twice = (ControlFilter("name", TextMatch.EXACT, "Ada"),) * 2
    assert _tested(*twice) == _tested(twice[0])


def test_owners_of_many_organizations_are_one_condition_and_too_many_conditions_are_refused() -> None:
    """A user has hundreds of roles at most; SQLite takes 500 parts in one statement."""

    def partition(number: int, holders: int, organizations: int) -> Partition:
        names = (frozenset({f"{number}-{at}" for at in range(organizations)}),)
        owner_set = OwnerSet(frozenset(OwnerPattern(f"ann{at}", organizations=names) for at in range(holders)))
        return Partition(number, 1, frozenset(), owner_sets=frozenset({owner_set}))

    assert visible([partition(number, 1, 500) for number in range(SEARCHED_OWNERS)], is_by_saved=True) is not None
    for searched in (
        [partition(1, SEARCHED_OWNERS + 1, 1)],
        [partition(at, 1, 1) for at in range(SEARCHED_OWNERS + 1)],
    ):
        with pytest.raises(BadRequestError, match="search one version at a time"):
            visible(searched, is_by_saved=True)
