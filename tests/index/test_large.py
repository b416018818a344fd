"""Documents with long values: no more of them is held at a time than is needed."""

from __future__ import annotations

from pathlib import Path

from persistence.index.cards import VersionKeys
from persistence.index.sync.parallel_reader import DocumentReader, read_all
from persistence.model.instants import Instant
from persistence.model.search import Query, Scope
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


def test_documents_are_handed_on_before_they_are_too_much_to_hold() -> None:
    memory = _memory()
    reader = DocumentReader(memory, {1: (VersionKeys(1, 1, {"name": 1, "notes": 2}), memory.definition(1))})  # type: ignore[arg-type]
    assert [len(batch) for _, batch in read_all(reader, 1)] == [2, 2]
