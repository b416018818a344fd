"""Whatever is asked of whatever is stored: each index finds what plain Python finds, by whichever plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from persistence.index import search_compiler
from persistence.index.protocol import LONGEST_KEY
from persistence.index.sqlite import sqlite_dialect
from persistence.model.addresses import Form
from persistence.model.queries import Comparison, ControlFilter, Field, FieldFilter, Hits, Query, Scope, Sort, TextMatch
from persistence.postgresql import database_index
from tests.index import asked
from tests.index.conftest import Made
from tests.index.memory import FORM, Content, Indexed, plain
from tests.postgresql.indexing import of_memory

_NAMES = st.tuples(st.sampled_from(asked.DOCUMENTS), st.booleans())
_SAVES = st.lists(st.tuples(_NAMES, st.one_of(asked.contents, asked.contents, st.none())), max_size=14)
_SETTINGS = settings(
    deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck)
)
_MANY = 12
"""Searches of what was made once: making it takes longer."""

_DISTINCT = (Field.CREATED_BY, Field.LAST_MODIFIED_BY, Field.WORKFLOW_STAGE, *asked.PATHS)

_PLANS: dict[str, dict[str, object]] = {
    "as it is": {},
    "nothing is narrow": {"FEW_FOUND": 0, "MOST_GATHERED": 0, "FOLDS_TRIED": 0},
    "a third is narrow": {"FEW_FOUND": 1, "MOST_GATHERED": 3, "_MANY": 4, "LEAPS": 1, "_OTHER_KEYS": -1},
    "lists are walked": {"MOST_GATHERED": 1, "FIRST_TRIED": 1, "MOST_TRIED": 6, "_SORTING": 10**6},
    "lists are never walked": {"MOST_TRIED": 0, "_SORTING": 0, "LEAPS": 0, "_FEW_PARTITIONS": 0, "_MOST_ARMS": 2},
    "what trigrams tell is always looked at": {
        "FOLDS_TRIED": 0,
        "_WORTH_IN_FIELD": 1.0,
        "_MOST_TRIGRAMS": 1,
        "_RARE": 1,
    },
    "what trigrams tell is never looked at": {
        "FOLDS_TRIED": 0,
        "FEW_FOUND": 0,
        "_WORTH_IN_FIELD": 0.0,
        "_WORTH_ANYWHERE": 0.0,
        "_RARE": -1,
        "_AT_ONCE": 1,
    },
}
"""Other thresholds, so that few documents are found in the ways in which many are."""


@pytest.fixture(params=_PLANS)
def _plan(request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other thresholds, in the compiler and in the module of an engine's dialect."""
    for name, value in _PLANS[request.param].items():
        for module in (search_compiler, {"tree": sqlite_dialect, "database": database_index}[kind]):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("_plan")
@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        *(("tree", 3), ("database", 2)),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("tree", 100), ("database", 25))),
    ],
)
def test_it_finds_what_plain_python_finds(made: Made, examples: int) -> None:
    """Documents that are there when it is made, and others that come, change and go after a publication."""

    @settings(_SETTINGS, max_examples=examples)
    @given(st.data(), _SAVES, _SAVES)
    def compare(data: st.DataObject, before: list[object], after: list[object]) -> None:
        with made() as indexed:
            _compare(indexed, data, before, after)

    compare()


def _compare(indexed: Indexed, data: st.DataObject, before: list[object], after: list[object]) -> None:
    indexed.publish(1, asked.PATHS[:2])
    indexed.publish(2, asked.PATHS[2:4])
    for number, (name, content) in enumerate([*before, *after]):  # type: ignore[misc]
        if number == len(before):
            indexed.index.search(FORM, Scope(), Query())
            indexed.publish(1, asked.PATHS[:3])
        indexed.save(name[0], content and asked.at(content, number), is_draft=name[1])
    oracle = indexed.memory.oracle()
    known = tuple(dict.fromkeys(text for each in oracle.stored for text in each.texts))
    for _ in range(_MANY):
        scope, query = data.draw(asked.scopes), data.draw(asked.queries(known))
        found = _same(indexed, scope, query)
        begun = indexed.index.search(FORM, scope, replace(query, needs_total=False))
        assert begun.page == found.page
        least = query.offset + query.size + 1 if begun.has_more else found.total
        assert least <= begun.total <= found.total
    scope = data.draw(asked.scopes)
    for by in _DISTINCT:
        values = list(indexed.index.distinct(FORM, scope, by))
        if by == asked.LONG_ONES:
            assert [_beginning(value) for value in values] == sorted(map(_beginning, values))
            values.sort(key=lambda value: (value.casefold(), value))
        assert values == list(oracle.distinct(FORM, scope, by))


def _same(indexed: Indexed, scope: Scope, query: Query) -> Hits:
    """What the index finds, which is what the oracle finds."""
    expected, found = indexed.memory.oracle().search(FORM, scope, query), indexed.index.search(FORM, scope, query)
    assert (found.total, [plain(hit) for hit in found.page]) == (expected.total, list(expected.page)), query
    return found


def _beginning(value: str) -> str:
    return value.casefold()[:LONGEST_KEY]


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


_BRIEFLY = ("as it is", "nothing is narrow", "what trigrams tell is never looked at")


@pytest.mark.usefixtures("_plan")
@pytest.mark.parametrize("kind", ["database"])
@pytest.mark.parametrize(
    "_plan", [pytest.param(plan, marks=() if plan in _BRIEFLY else pytest.mark.long) for plan in _PLANS], indirect=True
)
def test_several_conditions_find_the_same_in_whatever_order_they_are_met(made: Made) -> None:
    """Documents of another form, and those of a version that was deleted, are there, too."""
    with made() as indexed:
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
        for query in _several():
            _same(indexed, Scope(), query)


def test_documents_are_not_counted_where_the_first_ones_fill_the_page(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is looked for among the first four documents of a list, and among twelve where enough are found."""
    for name, value in (("FOLDS_TRIED", 0), ("FIRST_TRIED", 4), ("MOST_TRIED", 12)):
        monkeypatch.setattr(search_compiler, name, value)
    query = Query(controls=(ControlFilter("a", TextMatch.SUBSTRING, "xyz"),), size=3, needs_total=False)
    newest = [f"d{number}" for number in reversed(range(20))]
    with made() as indexed:
        indexed.publish(1, ("a",))
        for number in range(20):
            at = asked.instant(number)
            indexed.save(f"d{number}", Content(1, at, at, values={"a": ("xyz",)}))
        for offset, total, has_more in ((0, 4, True), (3, 8, True), (6, 12, True), (12, 20, False), (21, 20, False)):
            found = indexed.index.search(FORM, Scope((1,)), replace(query, offset=offset))
            assert (found.total, found.has_more) == (total, has_more)
            assert [hit.document for hit in found.page] == newest[offset : offset + 3]
        rare = replace(query, controls=(ControlFilter("a", TextMatch.SUBSTRING, "none"),))
        assert indexed.index.search(FORM, Scope((1,)), rare) == Hits()
