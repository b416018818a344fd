"""Whatever is asked of whatever is stored: the index in a database finds what plain Python finds, in every way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from persistence.postgresql import searches
from tests.index import asked
from tests.index.memory import FORM, plain
from tests.index.test_against_oracle import DISTINCT, SAVES, beginning, texts_of
from tests.postgresql.indexing import IndexedMemory, indexed_memory
from tests.postgresql.server import Server, requires_postgresql

pytestmark = requires_postgresql

_QUICK = settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_LONG = settings(_QUICK, max_examples=25)
_MANY = 12

WAYS = {
    "as it is": {},
    "one value is walked": {"FEW_FOUND": 0, "LEAPS": 1},
    "distinct values are read": {"LEAPS": 0},
    "pages are put together": {"_AT_ONCE": 1},
}


@pytest.fixture(params=WAYS)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[request.param].items():
            patch.setattr(searches, name, value)
        yield


@pytest.mark.usefixtures("_way")
@_QUICK
@given(st.data(), SAVES)
def test_it_finds_what_plain_python_finds(database_server: Server, data: st.DataObject, saves: list[object]) -> None:
    with indexed_memory(database_server) as indexed:
        _compare(indexed, data, saves)


@pytest.mark.long
@pytest.mark.usefixtures("_way")
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
    scope = data.draw(asked.scopes)
    for by in DISTINCT:
        values = list(indexed.index.distinct(FORM, scope, by))
        if by == asked.LONG_ONES:
            assert [beginning(value) for value in values] == sorted(map(beginning, values))
            values.sort(key=lambda value: (value.casefold(), value))
        assert values == list(oracle.distinct(FORM, scope, by))
