"""Whatever is asked of whatever is stored: the index in a database finds what plain Python finds, in every way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from persistence.model.addresses import Form
from persistence.model.queries import Comparison, ControlFilter, Field, FieldFilter, Query, Scope, Sort, TextMatch
from persistence.postgresql import database_index
from tests.index import asked
from tests.index.memory import FORM, Content, plain
from tests.index.test_against_oracle import (
    DISTINCT,
    PLANS,
    SAVES,
    alike,
    beginning,
    check_first_ones,
    planned,
    texts_of,
)
from tests.postgresql.indexing import IndexedMemory, indexed_memory, of_memory
from tests.postgresql.server import Server

_QUICK = settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_LONG = settings(_QUICK, max_examples=25)
_MANY = 12


@pytest.fixture(params=PLANS)
def _plan(request: pytest.FixtureRequest) -> Iterator[None]:
    with planned(request.param, database_index):
        yield


@pytest.mark.usefixtures("_plan")
@_QUICK
@given(st.data(), SAVES)
def test_it_finds_what_plain_python_finds(database_server: Server, data: st.DataObject, saves: list[object]) -> None:
    with indexed_memory(database_server) as indexed:
        _compare(indexed, data, saves)


@pytest.mark.long
@pytest.mark.usefixtures("_plan")
@_LONG
@given(st.data(), SAVES)
def test_more_often_it_finds_the_same(database_server: Server, data: st.DataObject, saves: list[object]) -> None:
    with indexed_memory(database_server) as indexed:
        _compare(indexed, data, saves)


def _compare(indexed: IndexedMemory, data: st.DataObject, saves: list[object]) -> None:
    """Documents come, change and go, and a version is published with other controls meanwhile."""
    indexed.publish(1, asked.PATHS[:2])
    indexed.publish(2, asked.PATHS[2:4])
    for number, (name, content) in enumerate(saves):  # type: ignore[misc]
        document, is_draft = name
        indexed.save(document, content and asked.at(content, number), is_draft=is_draft)
        if number == len(saves) // 2:
            indexed.publish(1, asked.PATHS[:3])
    oracle, known = indexed.memory.oracle(), texts_of(indexed.memory)
    for _ in range(_MANY):
        scope, query = data.draw(asked.scopes), data.draw(asked.queries(known))
        expected, found = oracle.search(FORM, scope, query), indexed.index.search(FORM, scope, query)
        assert (found.total, [plain(hit) for hit in found.page]) == (expected.total, list(expected.page))
        begun = indexed.index.search(FORM, scope, replace(query, needs_total=False))
        least = query.offset + query.size + 1 if begun.has_more else found.total
        assert begun.page == found.page
        assert least <= begun.total <= found.total
    scope = data.draw(asked.scopes)
    for by in DISTINCT:
        values = list(indexed.index.distinct(FORM, scope, by))
        if by == asked.LONG_ONES:
            assert [beginning(value) for value in values] == sorted(map(beginning, values))
            values.sort(key=lambda value: (value.casefold(), value))
        assert values == list(oracle.distinct(FORM, scope, by))


def _several() -> Iterator[Query]:
    """Queries with several conditions on two controls, by the texts that many, few and no documents have."""
    first, second = asked.PATHS[:2]
    texts = ("o", "open", "none")
    for one, other in itertools.product(texts, texts):
        for match in TextMatch:
            controls = ControlFilter(first, match, one), ControlFilter(second, TextMatch.SUBSTRING, other)
            yield Query(controls=controls, size=3, offset=1)
        yield Query(controls=(ControlFilter(first, TextMatch.EXACT, one),), text=other, sort=Sort(second), size=2)
        yield Query(controls=(ControlFilter(second, TextMatch.SUBSTRING, one),), text=other)
        yield Query(text=one, fields=(FieldFilter(Field.CREATED_BY, Comparison.EXACT, "user-1"),), size=4)


@pytest.mark.usefixtures("_plan")
def test_several_conditions_find_the_same_in_whatever_order_they_are_met(database_server: Server) -> None:
    """Documents of another form, and those of a version that was deleted, are there, too."""
    with indexed_memory(database_server) as indexed:
        others = of_memory(indexed.database, Form("hr", "other"))
        for version in (1, 2):
            indexed.publish(version, asked.PATHS[:2])
        others.publish(1, ())
        for number in range(24):
            values = {
                asked.PATHS[0]: (("open", "Closed", "open red")[number % 3],),
                asked.PATHS[1]: (f"red d-{number}", "o")[: 1 + number % 2],
                asked.PATHS[3]: ("rest open",),
            }
            at, version = asked.instant(number), 1 + (number % 8 == 0)
            content = Content(version, at, at, creator=f"user-{number % 2}", values=values)
            indexed.save(f"d-{number}", asked.at(content, number))
            others.save(f"d-{number}", asked.at(msgspec.structs.replace(content, version=1), number))
        indexed.unpublish(2)
        oracle = indexed.memory.oracle()
        for query in _several():
            expected, found = oracle.search(FORM, Scope(), query), indexed.index.search(FORM, Scope(), query)
            assert (found.total, [plain(hit) for hit in found.page]) == (expected.total, list(expected.page)), query


def test_documents_are_not_counted_where_the_first_ones_fill_the_page(
    database_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with indexed_memory(database_server) as indexed:
        indexed.publish(1, ("a",))
        for number in range(20):
            indexed.save(f"d{number}", alike(number))
        check_first_ones(monkeypatch, indexed.index)
