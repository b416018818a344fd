"""What an index holds of documents, odd texts among them, and what one request may ask of it."""

from __future__ import annotations

import sqlite3
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from persistence.errors import BadRequestError, BusyError
from persistence.forms.form_data import ExtractedText, ValueReader
from persistence.index import protocol as module
from persistence.index import search_compiler
from persistence.index.protocol import Budget, VersionState, decode, prepared
from persistence.index.sources import (
    CachingExtraction,
    DefinitionState,
    ExtractionCache,
    IndexedDefinition,
    IndexedDocument,
)
from persistence.index.sqlite.engine import IndexWriter, PreparedDocument, limited
from persistence.index.sqlite.tables import columns
from persistence.limits import (
    INDEX_KEYS_KEPT_BYTES,
    LARGEST_FOUND,
    MOST_HANDED,
    MOST_HANDED_CHARACTERS,
    MOST_INDEXED,
    MOST_INDEXED_VALUES,
)
from persistence.model.permissions import OwnerPattern, OwnerSet
from persistence.model.queries import ControlFilter, Hit, Query, Scope, Sort, TextMatch, VisibleOwners
from persistence.model.sidecar import DocumentFacts
from persistence.model.texts import Instant
from persistence.model.versions import IndexKey, PathStep
from persistence.postgresql import database_index
from persistence.postgresql.database_index import PostgresDialect
from tests.index import asked
from tests.index.conftest import Made
from tests.index.memory import FORM, Content, Indexed, Memory, index_of

_DAY = Instant("2024-05-01T10:00:00.000Z")
_FACTS = DocumentFacts(1, _DAY, _DAY)


def document_with(values: dict[str, tuple[str, ...]]) -> IndexedDocument:
    return IndexedDocument(Hit("d", is_draft=False, facts=_FACTS, values=values), "m")


def by(*paths: str) -> VersionState:
    """A version whose controls have the numbers from 1."""
    keys = tuple(IndexKey(path, (PathStep(path),)) for path in paths)
    numbers = {path: number for number, path in enumerate(paths, 1)}
    return VersionState.of(IndexedDefinition("m", DefinitionState.PUBLISHED, keys), "4.0.0", numbers)


def test_controls_of_many_large_versions_take_bounded_memory() -> None:
    tracemalloc.start()
    try:
        for each in range(12):
            version = by(*(f"{each}-{number}".ljust(1_000, "x") for number in range(1_000)))
            assert len(version.definition.keys) == len(version.controls.numbers) == 1_000
        assert tracemalloc.get_traced_memory()[0] < 1.5 * INDEX_KEYS_KEPT_BYTES
    finally:
        tracemalloc.stop()


def test_values_are_indexed_up_to_a_number_of_characters_each_as_a_whole() -> None:
    values = {"a": ("x" * (MOST_INDEXED - 10),), "b": ("too long to fit", "fits"), "c": ("y" * 7,), "d": ("z" * 6,)}
    made = prepared(document_with(values), by("a", "b", "c", "d"))
    found = decode(made.card).values
    assert {number: len("".join(each)) for number, each in found.items()} == {1: MOST_INDEXED - 10, 2: 4, 3: 0, 4: 6}
    assert sum(len(text or "") for text in columns(made.content)) <= MOST_INDEXED


def test_values_are_indexed_up_to_a_number_so_that_each_document_can_be_shown() -> None:
    values = {"a": ("a",) * (MOST_INDEXED_VALUES - 2), "b": ("b",) * 1_000_000, "c": ("c",)}
    found = decode(prepared(document_with(values), by("a", "b", "c")).card).values
    assert {number: len(each) for number, each in found.items()} == {1: MOST_INDEXED_VALUES - 2, 2: 2, 3: 0}
    most = ("\U0001f600" * 10,) * MOST_INDEXED_VALUES
    Budget().hold(Hit("d", is_draft=False, facts=_FACTS, values={"a": most}), ("a",))


def test_an_interrupted_statement_says_that_the_search_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEARCH_SECONDS", 0.05)
    connection = sqlite3.connect(":memory:")
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    began = time.thread_time()
    with pytest.raises(BadRequestError, match=r"0\.05 s of processor time"), limited(connection, Budget()):
        connection.execute(endless).fetchone()
    assert time.thread_time() - began < 0.5
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_time_grows_with_the_documents_and_is_one_for_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "thread_time", lambda: now[0])
    connection = sqlite3.connect(":memory:")
    budget = Budget()
    budget.allow_for(1_000_000)
    for _ in range(2):
        with limited(connection, budget):
            now[0] += 5.2
            budget.check()
    with limited(connection, budget):
        now[0] += 0.5
        with pytest.raises(BadRequestError):
            budget.check()


def test_a_search_ends_at_a_time_of_the_clock_whatever_it_has_used(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    budget = Budget(until=8.0)
    budget.allow_for(1_000_000)
    budget.check()
    now[0] = 8.1
    with pytest.raises(BadRequestError):
        budget.check()


def test_other_errors_stay_what_they_are() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.OperationalError), limited(connection, Budget()):
        connection.execute("SELECT nothing")


def test_an_answer_counts_paths_and_values_as_often_as_they_are_asked_for() -> None:
    hit = Hit("d", is_draft=False, facts=_FACTS, values={"a": ("x" * 1_000_000,)})
    Budget().hold(hit, ["a"] * (LARGEST_FOUND // 1_001_000))
    with pytest.raises(BadRequestError, match="32 MiB"):
        Budget().hold(hit, ["a"] * (LARGEST_FOUND // 1_000_000 + 1))
    with pytest.raises(BadRequestError, match="32 MiB"):
        Budget().hold(hit, ["p" * 1_000_000] * (LARGEST_FOUND // 1_000_000 + 1))


def test_a_search_that_takes_too_long_is_refused_and_the_next_one_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory()
    memory.publish(1, ("name",))
    for number in range(6):
        memory.put(f"d{number}", Content(1, _DAY, _DAY, values={"name": ("ab" * 200_000,)}))
    index, _ = index_of(tmp_path, memory)
    assert index.search(FORM, Scope(), Query(), Budget()).total == 6
    heavy = Query(controls=(ControlFilter("name", TextMatch.SUBSTRING, "ab" * 60 + "c"),))
    monkeypatch.setattr(module, "SEARCH_SECONDS", 1e-6)
    monkeypatch.setattr(module, "SEARCH_SECONDS_PER_DOCUMENT", 0)
    with pytest.raises(BadRequestError, match="processor time"):
        index.search(FORM, Scope(), heavy, Budget())
    assert index.search(FORM, Scope(), heavy).total == 0


def test_what_waits_for_the_index_is_bounded() -> None:
    handed = ExtractionCache()
    for number in range(MOST_HANDED + 10):
        handed.put(str(number), "", ExtractedText({}, "x"))
    assert handed.pop("0", "") is None
    assert handed.pop(str(MOST_HANDED), "") is not None
    for number in range(100):
        handed.put(f"large {number}", "", ExtractedText({"a": ("x" * (MOST_HANDED_CHARACTERS // 10),)}, ""))
    assert sum(handed.pop(f"large {number}", "") is not None for number in range(100)) == 9


_LONG = "x" * 700_000


def _memory() -> Memory:
    memory = Memory()
    memory.publish(1, ("name", "notes"))
    for number in range(4):
        memory.put(f"d{number}", Content(1, _DAY, _DAY, values={"name": ("Ada",), "notes": (_LONG,)}))
    return memory


def test_a_page_holds_the_values_that_are_asked_for(tmp_path: Path) -> None:
    index, _ = index_of(tmp_path, _memory())
    for paths, names in (((), set()), (("name",), {"name"}), (None, {"name", "notes"})):
        hits = index.search(FORM, Scope(), Query(paths=paths))
        assert [set(hit.values) for hit in hits.page] == [names] * 4


def test_documents_are_written_before_they_are_too_much_to_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    real = IndexWriter.add

    def counted(self: IndexWriter, documents: Iterable[PreparedDocument]) -> None:
        batch = list(documents)
        written.append(len(batch))
        real(self, batch)

    monkeypatch.setattr(IndexWriter, "add", counted)
    index, _ = index_of(tmp_path, _memory())
    assert index.search(FORM, Scope(), Query()).total == 4
    assert [each for each in written if each] == [2, 2]


READER = ValueReader([IndexKey("city", (PathStep("city"),))])
DOCUMENT = b"<form><city>Ulm</city><note>by hand</note></form>"


def test_what_was_received_is_what_a_reader_finds_and_is_handed_over_once_and_for_one_definition() -> None:
    handed = ExtractionCache()

    def received() -> None:
        with CachingExtraction(READER, "mark", handed) as check:
            check.read([DOCUMENT])
            check.keep("id")

    received()
    assert handed.pop("id", "mark") == READER.read([DOCUMENT]) == ExtractedText({"city": ("Ulm",)}, "by hand")
    assert handed.pop("id", "mark") is None
    received()
    assert handed.pop("id", "another") is None
    assert handed.pop("id", "mark") is None


@pytest.mark.parametrize("around", [b"", b"<city>"], ids=["outside of a control", "inside of one"])
def test_large_documents_are_not_kept(around: bytes) -> None:
    handed = ExtractionCache()
    with CachingExtraction(READER, "mark", handed) as check:
        check.read([b"<form>", around, *[b"<x>word</x>"] * 10_000, around.replace(b"<", b"</"), b"</form>"])
        check.keep("id")
        assert check.extracted() == ExtractedText({}, "")
    assert handed.pop("id", "mark") is None


A, B = asked.PATHS[:2]


@pytest.fixture
def indexed(made: Made) -> Iterator[Indexed]:
    """An index with a version whose controls ``a`` and ``b`` are indexed."""
    with made() as found:
        found.publish(1, (A, B))
        yield found


def content_of(number: int = 0, creator: str = "ann", **values: tuple[str, ...]) -> Content:
    at = asked.instant(number * 1000)
    by_path = {{"a": A, "b": B}[name]: texts for name, texts in values.items()}
    return Content(version=1, created=at, modified=at, creator=creator, values=by_path)


def names(indexed: Indexed, *controls: ControlFilter, text: str = "", scope: Scope | None = None) -> list[str]:
    query = Query(controls=controls, text=text, paths=(A,))
    return [hit.document for hit in indexed.index.search(FORM, scope or Scope(), query).page]


def has(text: str, match: TextMatch = TextMatch.SUBSTRING, path: str = A) -> ControlFilter:
    return ControlFilter(path, match, text)


@pytest.mark.parametrize("kind", ["database"])
def test_a_statement_that_takes_too_long_is_refused_and_the_connection_goes_on(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.save("d-1", content_of(a=("Ada",)))
    with monkeypatch.context() as patch:
        patch.setattr(database_index, "SEARCH_WAITS", 0.05)
        patch.setattr(PostgresDialect, "hit", "document, draft, pg_sleep(2)::text, card")
        with pytest.raises(BadRequestError, match=r"takes more than 0\.05 s in the database"):
            indexed.index.search(FORM, Scope(), Query(), Budget())
    assert names(indexed) == ["d-1"]


def test_facts_with_characters_that_a_database_cannot_have(indexed: Indexed) -> None:
    """An old sidecar may have a NUL; a request cannot."""
    indexed.save("d-1", content_of(creator="a\0nn", a=("x",)))
    (hit,) = indexed.index.search(FORM, Scope(), Query()).page
    assert hit.facts.creator == "a\0nn"
    owners = frozenset({OwnerSet(frozenset({OwnerPattern(creator="a\0nn")}))})
    assert names(indexed, scope=Scope(seen=VisibleOwners(lambda _: owners))) == ["d-1"]


def test_long_values_are_found_by_their_end_sorted_by_their_beginning_and_told_apart(indexed: Indexed) -> None:
    begin = "lorem ipsum " * 5_000
    indexed.save("d-1", content_of(1, a=(f"{begin}end one",)))
    indexed.save("d-2", content_of(2, a=(f"{begin}end two", "short")))
    assert names(indexed, has("end TWO")) == ["d-2"]
    assert names(indexed, has("end")) == ["d-2", "d-1"]
    assert names(indexed, has("on")) == ["d-1"]
    assert names(indexed, has("one ipsum", TextMatch.TOKEN)) == ["d-1"]
    assert names(indexed, has("ipsu", TextMatch.TOKEN)) == []
    assert names(indexed, has(f"{begin}end one", TextMatch.EXACT)) == ["d-1"]
    assert names(indexed, text="end one") == ["d-1"]
    assert list(indexed.index.distinct(FORM, Scope(), A))[-1] == "short"
    assert len(list(indexed.index.distinct(FORM, Scope(), A))) == 3


def test_thousands_of_values_more_than_a_page_has_documents_and_only_as_many_as_are_allowed(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_compiler, "MOST_ROWS", 4_000)
    indexed.save("d-1", content_of(a=tuple(f"value {number}" for number in range(5_000))))
    assert names(indexed, has("value 4999", TextMatch.EXACT)) == ["d-1"]
    assert len(list(indexed.index.distinct(FORM, Scope(), A))) == 5_000
    assert indexed.index.search(FORM, Scope(), Query(sort=Sort(A))).total == 1
    indexed.save("d-1", content_of(1, a=tuple(f"value {number}" for number in range(4_000, 6_000)), b=("x",)))
    assert names(indexed, has("value 3999", TextMatch.EXACT)) == []
    assert names(indexed, has("value 5999", TextMatch.EXACT)) == ["d-1"]
    indexed.save("d-2", content_of(2, a=("y" * (MOST_INDEXED + 1), "z")))
    assert names(indexed, has("yyy")) == []
    assert names(indexed, has("z")) == ["d-2"]


@pytest.mark.parametrize("kind", ["database"])
def test_a_save_that_changes_no_value_writes_no_entry(indexed: Indexed) -> None:
    indexed.save("d-1", content_of(1, a=("Ada", "Bob"), b=("x",)))

    def rows() -> list[tuple[object, ...]]:
        with indexed.database.reading("looking") as connection:
            entries = connection.execute("SELECT control, fold, ctid::text FROM entry ORDER BY 1, 2").fetchall()
            return [*entries, *connection.execute("SELECT ctid::text FROM free_text").fetchall()]

    before = rows()
    indexed.save("d-1", msgspec.structs.replace(content_of(2, a=("Ada", "Bob"), b=("x",)), created=asked.instant(1000)))
    assert rows() == before
    indexed.save("d-1", msgspec.structs.replace(content_of(3, a=("Ada",), b=("x",)), created=asked.instant(1000)))
    changed = {row[1] for row in set(rows()) ^ set(before)}
    assert changed == {"ada", "bob"}  # Ada is now the highest, too


def test_definitions_that_are_stored_elsewhere_are_looked_at_by_each_search(indexed: Indexed) -> None:
    indexed.memory.has_own_definitions = False
    indexed.save("d-1", content_of(a=("Ada",), b=("x",)))
    indexed.memory.publish(1, (B,))
    assert names(indexed, has("ada")) == []
    assert names(indexed, has("x", path=B)) == ["d-1"]
    indexed.memory.publish(1, (A, B))
    assert names(indexed, has("ada")) == ["d-1"]


def test_another_data_format_reads_all_documents_again(indexed: Indexed) -> None:
    indexed.save("d-1", content_of(a=("Ada",)))
    memory = indexed.memory
    memory.described = msgspec.structs.replace(memory.described, data_format="4.8.0")
    assert names(indexed, has("ada")) == ["d-1"]


@pytest.mark.parametrize("kind", ["database"])
def test_a_closed_index_starts_no_job(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed.save("d-1", content_of(a=("Ada",)))
    monkeypatch.setattr(database_index, "READ_AT_ONCE", 0)
    indexed.index.close()
    indexed.publish(1, (B,))
    with pytest.raises(BusyError):
        names(indexed)
