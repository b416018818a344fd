"""Whatever is asked of whatever is stored: each index finds what plain Python finds, by whichever plan."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from persistence import limits
from persistence.errors import BadRequestError
from persistence.index import search_compiler
from persistence.index.protocol import LONGEST_KEY
from persistence.index.search_compiler import Condition, Partition, Search
from persistence.index.sqlite import sqlite_dialect
from persistence.index.sqlite.sqlite_dialect import Sample, SqliteDialect
from persistence.index.sqlite.tables import COLUMNS, FIELDS, INDEXES, TABLES
from persistence.limits import SEARCHED_OWNERS
from persistence.model.addresses import Form
from persistence.model.permissions import OwnerPattern, OwnerSet
from persistence.model.queries import Comparison, ControlFilter, Field, FieldFilter, Hits, Query, Scope, Sort, TextMatch
from persistence.postgresql import database_index
from tests.index import asked
from tests.index.conftest import Made
from tests.index.memory import FORM, Content, Indexed, plain
from tests.index.oracle import Oracle
from tests.postgresql.indexing import of_memory

_NAMES = st.tuples(st.sampled_from(asked.DOCUMENTS), st.booleans())
_SAVES = st.lists(st.tuples(_NAMES, st.one_of(asked.contents, asked.contents, st.none())), max_size=14)
_SETTINGS = settings(
    deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck)
)
_MANY = 5
"""Searches by each plan of what was made once: making it takes longer."""

_DISTINCT = (Field.CREATED_BY, Field.LAST_MODIFIED_BY, Field.WORKFLOW_STAGE, *asked.PATHS)

_PLANS: dict[str, dict[str, object]] = {
    "as it is": {},
    "nothing is narrow": {"FEW_FOUND": 0, "MOST_GATHERED": 0, "FOLDS_TRIED": 0},
    "a third is narrow": {"FEW_FOUND": 1, "MOST_GATHERED": 3, "_MANY": 4, "LEAPS": 1, "_OTHER_KEYS": -1},
    "lists are walked": {"MOST_GATHERED": 1, "FIRST_TRIED": 1, "MOST_TRIED": 6, "_SORTING": 10**6},
    "lists are never walked": {"MOST_TRIED": 0, "_SORTING": 0, "LEAPS": 0, "_FEW_PARTITIONS": 0, "_MOST_ARMS": 2},
    "trigrams are always looked at": {"FOLDS_TRIED": 0, "_WORTH_IN_FIELD": 1.0, "_MOST_TRIGRAMS": 1, "_RARE": 1},
    "trigrams are never looked at": dict.fromkeys(("FOLDS_TRIED", "FEW_FOUND", "_WORTH_IN_FIELD", "_WORTH_ANYWHERE"), 0)
    | {"_RARE": -1, "_AT_ONCE": 1},
}
"""Other thresholds, so that few documents are found in the ways in which many are."""


@contextmanager
def planned(kind: str, plan: str) -> Iterator[None]:
    """Other thresholds, in the compiler and in the module of an engine's dialect."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _PLANS[plan].items():
            for module in (limits, search_compiler, {"tree": sqlite_dialect, "database": database_index}[kind]):
                if hasattr(module, name):
                    patch.setattr(module, name, value)
        yield


@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        *(("tree", 6), ("database", 3)),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("tree", 100), ("database", 25))),
    ],
)
def test_it_finds_what_plain_python_finds(made: Made, kind: str, examples: int) -> None:
    """Documents that are there when it is made, and others that come, change and go after a publication."""

    @settings(_SETTINGS, max_examples=examples)
    @given(st.data(), _SAVES, _SAVES)
    def compare(data: st.DataObject, before: list[object], after: list[object]) -> None:
        with made() as indexed:
            _save(indexed, before, after)
            for plan in _PLANS:
                with planned(kind, plan):
                    _compare(indexed, data)

    compare()


def _save(indexed: Indexed, before: list[object], after: list[object]) -> None:
    indexed.publish(1, asked.PATHS[:2])
    indexed.publish(2, asked.PATHS[2:4])
    for number, (name, content) in enumerate([*before, *after]):  # type: ignore[misc]
        if number == len(before):
            indexed.index.search(FORM, Scope(), Query())
            indexed.publish(1, asked.PATHS[:3])
        indexed.save(name[0], content and asked.at(content, number), is_draft=name[1])


def _compare(indexed: Indexed, data: st.DataObject) -> None:
    oracle = indexed.memory.oracle()
    known = tuple(dict.fromkeys(text for each in oracle.stored for text in each.texts))
    for _ in range(_MANY):
        scope, query = data.draw(asked.scopes), data.draw(asked.queries(known))
        found = _same(indexed, oracle, query, scope)
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


def _same(indexed: Indexed, oracle: Oracle, query: Query, scope: Scope | None = None) -> Hits:
    """What the index finds, which is what the oracle finds."""
    scope = scope or Scope()
    expected, found = oracle.search(FORM, scope, query), indexed.index.search(FORM, scope, query)
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


_BRIEFLY = ("as it is", "nothing is narrow", "trigrams are never looked at")


@pytest.mark.parametrize("kind", ["database"])
@pytest.mark.parametrize("plans", [_BRIEFLY, pytest.param(_PLANS, marks=pytest.mark.long)], ids=["some", "all"])
def test_several_conditions_find_the_same_in_whatever_order_they_are_met(
    made: Made, kind: str, plans: Iterable[str]
) -> None:
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
        oracle = indexed.memory.oracle()
        for plan in plans:
            with planned(kind, plan):
                for query in _several():
                    _same(indexed, oracle, query)


def test_documents_are_not_counted_where_the_first_ones_fill_the_page(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is looked for among the first four documents of a list, and among twelve where enough are found."""
    for name, value in (("FOLDS_TRIED", 0), ("FIRST_TRIED", 4), ("MOST_TRIED", 12)):
        monkeypatch.setattr(limits, name, value)
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


AWKWARD = (
    *("Ada Lovelace", "red green", "Blue", "redgreen", "green red", 'a "quoted" word', 'say "no"', '"QUOTED"', '"é'),
    *("back\\slash", "k\\S", "tab\there", "b\th", "line\nend", "e\nE", "STRASSE", "Straße", "rass", "ὈΔΥΣΣΕΎΣ", "σεύς"),
    *("\u212a elvin", "K", "a / b", " / ", "ﬁne", "fin", "\x7f\u2028", "\u2028", "here", "elsewhere", "else"),
    *("100%", "0%", "100 ", "a_b", "axb", "c\\d", "c%d", "o'neil; --", "{x}", "%s", "\ufffd\ue000", "İ", "gree"),
    *("a\\u0000b", "\\x00", "$1", "{0}", "\ufdd0", "\U0010ffff"),
)
"""Texts with a meaning in SQL or in an index, of which some are parts of others."""


def test_each_awkward_text_is_found_as_a_value_a_part_and_a_word(made: Made, kind: str) -> None:
    first, second = asked.PATHS[:2]
    with made() as indexed:
        indexed.publish(1, asked.PATHS[:2])
        for number, text in enumerate(AWKWARD):
            at = asked.instant(number * 1000)
            values = {first: (text, AWKWARD[number - 1]), second: (AWKWARD[number - 2],), asked.PATHS[2]: (text,)}
            indexed.save(f"d{number}", Content(1, at, at, values=values))
        oracle = indexed.memory.oracle()
        for plan in ("as it is", "nothing is narrow"):
            with planned(kind, plan):
                for number, text in enumerate(AWKWARD):
                    exact, part, words = (
                        ControlFilter(first, match, text)
                        for match in (TextMatch.EXACT, TextMatch.SUBSTRING, TextMatch.TOKEN)
                    )
                    before = ControlFilter(second, TextMatch.SUBSTRING, AWKWARD[number - 2])
                    assert _same(indexed, oracle, Query(controls=(exact,), size=100)).total
                    assert _same(indexed, oracle, Query(controls=(part,), size=100)).total
                    assert _same(indexed, oracle, Query(controls=(part, before))).total
                    assert _same(indexed, oracle, Query(text=text.strip(), size=100)).total
                    _same(indexed, oracle, Query(controls=(words,), size=100))


# What a search asks of SQLite: conditions, and by which texts it looks for documents first.

_SEARCHED = Partition(1, 1, {"name": 1, "topics": 2})


@pytest.fixture(name="connection")
def _connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES + INDEXES)
        yield connection


def _dialect(connection: sqlite3.Connection, searched: Sequence[Partition] = (_SEARCHED,)) -> SqliteDialect:
    return SqliteDialect(connection, lambda _trigram, _column: 0, searched, None)


def test_a_card_is_asked_once_for_hundreds_of_parts(connection: sqlite3.Connection) -> None:
    dialect = _dialect(connection)
    parts = [dialect.containing(1, ControlFilter("name", TextMatch.SUBSTRING, str(each)), None) for each in range(100)]
    parts += [dialect.containing(2, ControlFilter("topics", TextMatch.TOKEN, str(each)), None) for each in range(98)]
    where = dialect.tested(parts)
    assert (where.text.count("card"), len(where.values)) == (1, 1)


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


def test_a_document_with_many_long_texts_adds_no_more_than_one_with_a_single_long_one(
    connection: sqlite3.Connection,
) -> None:
    connection.execute("INSERT INTO texts VALUES (1, 1)")
    connection.execute("INSERT INTO free_text (rowid, text) VALUES (1, '')")
    text, marks = f"abc{'-' * 1000}xyz", ", ".join("?" * COLUMNS)
    connection.execute(f"INSERT INTO fields (rowid, {', '.join(FIELDS)}) VALUES (1, {marks})", (text,) * COLUMNS)  # noqa: S608 - names of columns
    sample = Sample(connection)
    assert sample.rarity("abc", 3) > 0
    assert sample.rarity("xyz", 3) == 0
