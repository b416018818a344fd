"""What an index holds of documents, and what one request may ask of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from persistence.errors import BadRequestError
from persistence.forms.form_data import ExtractedText, ValueReader
from persistence.index import protocol as module
from persistence.index.protocol import Budget, VersionKeys, decode, prepared
from persistence.index.sources import CachingExtraction, ExtractionCache, IndexedDocument
from persistence.index.sqlite.engine import PreparedDocument, limited
from persistence.index.sqlite.rows import IndexWriter
from persistence.index.sqlite.tables import columns
from persistence.limits import LARGEST_FOUND, MOST_HANDED, MOST_HANDED_CHARACTERS, MOST_INDEXED, MOST_INDEXED_VALUES
from persistence.model.instants import Instant
from persistence.model.queries import ControlFilter, Hit, Query, Scope, TextMatch
from persistence.model.sidecar import DocumentFacts
from persistence.model.versions import IndexKey, PathStep
from tests.index.memory import FORM, Content, Memory, index_of

_DAY = Instant("2024-05-01T10:00:00.000Z")
_FACTS = DocumentFacts(1, _DAY, _DAY)


def indexed(values: dict[str, tuple[str, ...]]) -> IndexedDocument:
    return IndexedDocument(Hit("d", is_draft=False, facts=_FACTS, values=values), "m")


def test_values_are_indexed_up_to_a_number_of_characters_each_as_a_whole() -> None:
    values = {"a": ("x" * (MOST_INDEXED - 10),), "b": ("too long to fit", "fits"), "c": ("y" * 7,), "d": ("z" * 6,)}
    made = prepared(indexed(values), VersionKeys(1, 1, {"a": 1, "b": 2, "c": 3, "d": 4}))
    found = decode(made.card).values
    assert {number: len("".join(each)) for number, each in found.items()} == {1: MOST_INDEXED - 10, 2: 4, 3: 0, 4: 6}
    assert sum(len(text or "") for text in columns(made.content)) <= MOST_INDEXED


def test_values_are_indexed_up_to_a_number_so_that_each_document_can_be_shown() -> None:
    values = {"a": ("a",) * (MOST_INDEXED_VALUES - 2), "b": ("b",) * 1_000_000, "c": ("c",)}
    found = decode(prepared(indexed(values), VersionKeys(1, 1, {"a": 1, "b": 2, "c": 3})).card).values
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


def received(document: bytes, handed: ExtractionCache) -> None:
    with CachingExtraction(READER, "mark", handed) as check:
        check.read([document])
        check.keep("id")


def test_what_was_received_is_what_a_reader_finds() -> None:
    handed = ExtractionCache()
    received(DOCUMENT, handed)
    assert handed.pop("id", "mark") == READER.read([DOCUMENT]) == ExtractedText({"city": ("Ulm",)}, "by hand")


def test_it_is_handed_over_once_and_for_one_definition() -> None:
    handed = ExtractionCache()
    received(DOCUMENT, handed)
    assert handed.pop("id", "another") is None
    assert handed.pop("id", "mark") is None
    received(DOCUMENT, handed)
    assert handed.pop("id", "mark") is not None
    assert handed.pop("id", "mark") is None


@pytest.mark.parametrize("around", [b"", b"<city>"], ids=["outside of a control", "inside of one"])
def test_large_documents_are_not_kept(around: bytes) -> None:
    handed = ExtractionCache()
    with CachingExtraction(READER, "mark", handed) as check:
        check.read([b"<form>", around, *[b"<x>word</x>"] * 10_000, around.replace(b"<", b"</"), b"</form>"])
        check.keep("id")
        assert check.extracted() == ExtractedText({}, "")
    assert handed.pop("id", "mark") is None


def test_the_oldest_are_let_go_of() -> None:
    handed = ExtractionCache()
    for number in range(5_000):
        handed.put(str(number), "mark", ExtractedText({}, ""))
    assert handed.pop("0", "mark") is None
    assert handed.pop("4999", "mark") is not None
