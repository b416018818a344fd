"""Whatever is asked of whatever is stored: the index finds what plain Python finds, by whichever plan."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from persistence.index import search_compiler
from persistence.index.protocol import LONGEST_KEY, SearchIndex
from persistence.index.sqlite import sqlite_dialect
from persistence.model.queries import ControlFilter, Field, Hits, Query, Scope, TextMatch
from tests.index import asked
from tests.index.memory import FORM, Content, Memory, index_of, plain

_NAMES = st.tuples(st.sampled_from(asked.DOCUMENTS), st.booleans())
SAVES = st.lists(st.tuples(_NAMES, st.one_of(asked.contents, asked.contents, st.none())), max_size=14)
_QUICK = settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
_LONG = settings(_QUICK, max_examples=100)
_MANY = 12
"""Searches of what was made once: making it takes longer."""

DISTINCT = (Field.CREATED_BY, Field.LAST_MODIFIED_BY, Field.WORKFLOW_STAGE, *asked.PATHS)

PLANS: dict[str, dict[str, object]] = {
    "as it is": {},
    "nothing is narrow": {"FEW_FOUND": 0, "MOST_GATHERED": 0, "FOLDS_TRIED": 0},
    "a third is narrow": {"FEW_FOUND": 1, "MOST_GATHERED": 3, "_MANY": 4, "LEAPS": 1},
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


@contextmanager
def planned(plan: str, dialect: object) -> Iterator[None]:
    """Search by other thresholds, in the compiler and in the module of an engine's dialect."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLANS[plan].items():
            for module in (search_compiler, dialect):
                if hasattr(module, name):
                    patch.setattr(module, name, value)
        yield


@pytest.fixture(params=PLANS)
def _plan(request: pytest.FixtureRequest) -> Iterator[None]:
    with planned(request.param, sqlite_dialect):
        yield


@contextmanager
def _root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


def _save(memory: Memory, number: int, name: tuple[str, bool], content: Content | None) -> None:
    document, is_draft = name
    if content is None:
        memory.delete(document, is_draft=is_draft)
    else:
        memory.put(document, asked.at(content, number), is_draft=is_draft)


def texts_of(memory: Memory) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for each in memory.oracle().stored for text in each.texts))


@pytest.mark.usefixtures("_plan")
@_QUICK
@given(st.data(), SAVES, SAVES)
def test_it_finds_what_plain_python_finds(data: st.DataObject, before: list[object], after: list[object]) -> None:
    """Documents that are there when it is made, and others that come, change and go afterwards."""
    _compare(data, before, after)


@pytest.mark.long
@pytest.mark.usefixtures("_plan")
@_LONG
@given(st.data(), SAVES, SAVES)
def test_more_often_it_finds_the_same(data: st.DataObject, before: list[object], after: list[object]) -> None:
    _compare(data, before, after)


def _compare(data: st.DataObject, before: list[object], after: list[object]) -> None:
    memory = Memory()
    memory.publish(1, asked.PATHS[:3])
    memory.publish(2, asked.PATHS[2:4])
    with _root() as root:
        index, journal = index_of(root, memory)
        for number, (name, content) in enumerate(before):  # type: ignore[misc]
            _save(memory, number, name, content)
        index.search(FORM, Scope(), Query())
        for number, (name, content) in enumerate(after, len(before)):  # type: ignore[misc]
            journal.write(FORM, name[0])
            _save(memory, number, name, content)
        oracle, known = memory.oracle(), texts_of(memory)
        for _ in range(_MANY):
            scope, query = data.draw(asked.scopes), data.draw(asked.queries(known))
            expected, found = oracle.search(FORM, scope, query), index.search(FORM, scope, query)
            assert (found.total, [plain(hit) for hit in found.page]) == (expected.total, list(expected.page))
            begun = index.search(FORM, scope, replace(query, needs_total=False))
            assert begun.page == found.page
            least = query.offset + query.size + 1 if begun.has_more else found.total
            assert least <= begun.total <= found.total
        scope = data.draw(asked.scopes)
        for by in DISTINCT:
            values = list(index.distinct(FORM, scope, by))
            if by == asked.LONG_ONES:
                assert [beginning(value) for value in values] == sorted(map(beginning, values))
                values.sort(key=lambda value: (value.casefold(), value))
            assert values == list(oracle.distinct(FORM, scope, by))


def test_documents_are_not_counted_where_the_first_ones_fill_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.publish(1, ["a"])
    for number in range(20):
        memory.put(f"d{number}", alike(number))
    with _root() as root:
        check_first_ones(monkeypatch, index_of(root, memory)[0])


def alike(number: int) -> Content:
    """One of twenty contents that a search of ``check_first_ones`` finds."""
    return Content(1, asked.instant(number), asked.instant(number), values={"a": ("xyz",)})


def check_first_ones(monkeypatch: pytest.MonkeyPatch, index: SearchIndex) -> None:
    """Look for a page among the first four documents of a list, and among twelve where enough of them are found."""
    for name, value in (("FOLDS_TRIED", 0), ("FIRST_TRIED", 4), ("MOST_TRIED", 12)):
        monkeypatch.setattr(search_compiler, name, value)
    query = Query(controls=(ControlFilter("a", TextMatch.SUBSTRING, "xyz"),), size=3, needs_total=False)
    newest = [f"d{number}" for number in reversed(range(20))]
    for offset, total, has_more in ((0, 4, True), (3, 8, True), (6, 12, True), (12, 20, False), (21, 20, False)):
        found = index.search(FORM, Scope((1,)), replace(query, offset=offset))
        assert (found.total, found.has_more) == (total, has_more)
        assert [hit.document for hit in found.page] == newest[offset : offset + 3]
    rare = replace(query, controls=(ControlFilter("a", TextMatch.SUBSTRING, "none"),))
    assert index.search(FORM, Scope((1,)), rare) == Hits()


def beginning(value: str) -> str:
    return value.casefold()[:LONGEST_KEY]
