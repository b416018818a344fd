"""Bounds and odd texts of the index in a database."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from persistence.errors import BadRequestError, BusyError
from persistence.index.protocol import Budget
from persistence.index.search_compiler import MOST_ROWS
from persistence.limits import MOST_INDEXED
from persistence.model.permissions import OwnerPattern, OwnerSet
from persistence.model.queries import ControlFilter, Field, Query, Scope, Sort, TextMatch, VisibleOwners
from persistence.postgresql import database_index
from persistence.postgresql.database_index import PostgresDialect
from tests.index import asked
from tests.index.memory import FORM, Content
from tests.postgresql.indexing import IndexedMemory, indexed_memory
from tests.postgresql.server import Server

A, B = asked.PATHS[:2]


@pytest.fixture
def indexed(database_server: Server) -> Iterator[IndexedMemory]:
    with indexed_memory(database_server) as found:
        found.publish(1, (A, B))
        yield found


def content(number: int = 0, creator: str = "ann", **values: tuple[str, ...]) -> Content:
    at = asked.instant(number * 1000)
    by_path = {{"a": A, "b": B}[name]: texts for name, texts in values.items()}
    return Content(version=1, created=at, modified=at, creator=creator, values=by_path)


def names(indexed: IndexedMemory, *controls: ControlFilter, text: str = "", scope: Scope | None = None) -> list[str]:
    query = Query(controls=controls, text=text, paths=(A,))
    return [hit.document for hit in indexed.index.search(FORM, scope or Scope(), query).page]


def has(text: str, match: TextMatch = TextMatch.SUBSTRING, path: str = A) -> ControlFilter:
    return ControlFilter(path, match, text)


def test_a_statement_that_takes_too_long_is_refused_and_the_connection_goes_on(
    indexed: IndexedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.save("d-1", content(a=("Ada",)))
    with monkeypatch.context() as patch:
        patch.setattr(database_index, "SEARCH_WAITS", 0.05)
        patch.setattr(PostgresDialect, "hit", "document, draft, pg_sleep(2)::text, card")
        with pytest.raises(BadRequestError, match=r"takes more than 0\.05 s in the database"):
            indexed.index.search(FORM, Scope(), Query(), Budget())
    assert names(indexed) == ["d-1"]


def test_a_page_that_is_too_large_is_refused_before_all_of_it_is_read(
    indexed: IndexedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.save("d-1", content(a=("Ada",)))
    monkeypatch.setattr("persistence.index.protocol.LARGEST_FOUND", 50)
    with pytest.raises(BadRequestError, match="larger than"):
        indexed.index.search(FORM, Scope(), Query(size=10**18), Budget())
    with pytest.raises(BadRequestError, match="larger than"):
        list(indexed.index.distinct(FORM, Scope(), Field.CREATED_BY, Budget()))


def test_texts_with_a_meaning_in_sql_or_none_in_a_database(indexed: IndexedMemory) -> None:
    texts = ("100%", "100 ", "a_b", "axb", "c\\d", "c%d", "o'neil; --", "{x}", "%s", "\ufffd\ue000", "İ")
    for number, text in enumerate(texts):
        indexed.save(f"d-{number}", content(number, a=(text,)))
    for number, text in enumerate(texts):
        for match in (TextMatch.SUBSTRING, TextMatch.EXACT):
            assert f"d-{number}" in names(indexed, has(text, match))
            assert all(text.casefold() in texts[int(name[2:])].casefold() for name in names(indexed, has(text, match)))
        assert f"d-{number}" in names(indexed, text=text.strip())
    assert names(indexed, has("0%")) == ["d-0"]
    assert names(indexed, has("a_b")) == ["d-2"]


def test_facts_with_characters_that_a_database_cannot_have(indexed: IndexedMemory) -> None:
    """An old sidecar may have a NUL; a request cannot."""
    indexed.save("d-1", content(creator="a\0nn", a=("x",)))
    (hit,) = indexed.index.search(FORM, Scope(), Query()).page
    assert hit.facts.creator == "a\0nn"
    owners = frozenset({OwnerSet(frozenset({OwnerPattern(creator="a\0nn")}))})
    assert names(indexed, scope=Scope(seen=VisibleOwners(lambda _: owners))) == ["d-1"]


def test_long_values_are_found_by_their_end_sorted_by_their_beginning_and_told_apart(indexed: IndexedMemory) -> None:
    begin = "lorem ipsum " * 5_000
    indexed.save("d-1", content(1, a=(f"{begin}end one",)))
    indexed.save("d-2", content(2, a=(f"{begin}end two", "short")))
    assert names(indexed, has("end TWO")) == ["d-2"]
    assert names(indexed, has("end")) == ["d-2", "d-1"]
    assert names(indexed, has("on")) == ["d-1"]
    assert names(indexed, has("one ipsum", TextMatch.TOKEN)) == ["d-1"]
    assert names(indexed, has("ipsu", TextMatch.TOKEN)) == []
    assert names(indexed, has(f"{begin}end one", TextMatch.EXACT)) == ["d-1"]
    assert names(indexed, text="end one") == ["d-1"]
    assert list(indexed.index.distinct(FORM, Scope(), A))[-1] == "short"
    assert len(list(indexed.index.distinct(FORM, Scope(), A))) == 3


def test_thousands_of_values_and_only_as_many_as_are_allowed(indexed: IndexedMemory) -> None:
    indexed.save("d-1", content(a=tuple(f"value {number}" for number in range(5_000))))
    assert names(indexed, has("value 4999", TextMatch.EXACT)) == ["d-1"]
    assert len(list(indexed.index.distinct(FORM, Scope(), A))) == 5_000
    assert indexed.index.search(FORM, Scope(), Query(sort=Sort(A))).total == 1
    indexed.save("d-1", content(1, a=tuple(f"value {number}" for number in range(4_000, 6_000)), b=("x",)))
    assert names(indexed, has("value 3999", TextMatch.EXACT)) == []
    assert names(indexed, has("value 5999", TextMatch.EXACT)) == ["d-1"]
    indexed.save("d-2", content(2, a=("y" * (MOST_INDEXED + 1), "z")))
    assert names(indexed, has("yyy")) == []
    assert names(indexed, has("z")) == ["d-2"]


def test_more_distinct_values_than_a_page_has_documents_are_all_listed(indexed: IndexedMemory) -> None:
    indexed.save("d-1", content(a=tuple(f"v{number}" for number in range(MOST_ROWS + 2))))
    assert len(list(indexed.index.distinct(FORM, Scope(), A, Budget()))) == MOST_ROWS + 2


def test_a_save_that_changes_no_value_writes_no_entry(indexed: IndexedMemory) -> None:
    indexed.save("d-1", content(1, a=("Ada", "Bob"), b=("x",)))

    def rows() -> list[tuple[object, ...]]:
        with indexed.database.reading("looking") as connection:
            entries = connection.execute("SELECT control, fold, ctid::text FROM entry ORDER BY 1, 2").fetchall()
            return [*entries, *connection.execute("SELECT ctid::text FROM free_text").fetchall()]

    before = rows()
    indexed.save("d-1", msgspec.structs.replace(content(2, a=("Ada", "Bob"), b=("x",)), created=asked.instant(1000)))
    assert rows() == before
    indexed.save("d-1", msgspec.structs.replace(content(3, a=("Ada",), b=("x",)), created=asked.instant(1000)))
    changed = {row[1] for row in set(rows()) ^ set(before)}
    assert changed == {"ada", "bob"}  # Ada is now the highest, too


def test_definitions_that_are_stored_elsewhere_are_looked_at_by_each_search(indexed: IndexedMemory) -> None:
    indexed.memory.has_own_definitions = False
    indexed.save("d-1", content(a=("Ada",), b=("x",)))
    indexed.memory.publish(1, (B,))
    assert names(indexed, has("ada")) == []
    assert names(indexed, has("x", path=B)) == ["d-1"]
    indexed.memory.publish(1, (A, B))
    assert names(indexed, has("ada")) == ["d-1"]


def test_another_data_format_reads_all_documents_again(indexed: IndexedMemory) -> None:
    indexed.save("d-1", content(a=("Ada",)))
    memory = indexed.memory
    memory.described = msgspec.structs.replace(memory.described, data_format="4.8.0")
    assert names(indexed, has("ada")) == ["d-1"]


def test_a_closed_index_starts_no_job(indexed: IndexedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed.save("d-1", content(a=("Ada",)))
    monkeypatch.setattr(database_index, "READ_AT_ONCE", 0)
    indexed.index.close()
    indexed.publish(1, (B,))
    with pytest.raises(BusyError):
        names(indexed)
