"""Documents with long values: no more of them is held at a time than is needed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from persistence.index.sqlite.engine import PreparedDocument
from persistence.index.sqlite.rows import IndexWriter
from persistence.model.instants import Instant
from persistence.model.queries import Query, Scope
from tests.index.memory import FORM, Content, Memory, index_of

_DAY = Instant("2024-05-01T10:00:00.000Z")
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
