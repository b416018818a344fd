"""Bytes of an index that are lost or changed: what the next searches say, compared with plain Python."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from persistence.errors import BusyError, DiskError
from persistence.index.protocol import ReindexingState, ReindexingStatus, reported, status_in
from persistence.index.sync.updater import TreeIndex
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    Query,
    Scope,
    Sort,
    TextMatch,
)
from persistence.storage.store import JobFile
from tests.index import asked
from tests.index.memory import FORM, Content, Memory, index_of, plain
from tests.opened import close

RIGHT, BUSY, REFUSED, WRONG = "right", "503", "500", "wrong"
_DOCUMENTS = 60
_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")


def filled() -> Memory:
    memory = Memory()
    memory.publish(1, ("name", "topic"))
    rng = random.Random(1)
    for number in range(_DOCUMENTS):
        when = asked.instant(number * 1000)
        texts = {"name": (" ".join(rng.sample(_WORDS, 3)),), "topic": tuple(rng.sample(_WORDS, 2))}
        said = Content(1, when, when, creator=rng.choice(_WORDS), stage=rng.choice(_WORDS), values=texts)
        memory.put(f"d{number}", said, is_draft=number % 7 == 0)
    return memory


QUERIES = (
    Query(size=1000),
    Query(text="lph", size=1000),
    Query(text="zeta", size=5),
    Query(controls=(ControlFilter("name", TextMatch.SUBSTRING, "amm"),), size=1000),
    Query(controls=(ControlFilter("topic", TextMatch.EXACT, "eta"),), size=1000),
    Query(controls=(ControlFilter("name", TextMatch.TOKEN, "theta"),), sort=Sort("topic"), size=1000),
    Query(fields=(FieldFilter(Field.CREATED_BY, Comparison.EXACT, "alpha"),), size=1000),
    Query(fields=(FieldFilter(Field.LAST_MODIFIED, Comparison.GTE, asked.instant(30_000)),), size=1000),
    Query(sort=Sort(Field.WORKFLOW_STAGE, is_descending=False), size=1000),
)
SCOPES = (Scope(), Scope((1,), DraftFilter(Drafts.EXCLUDE)))


def answers(index: TreeIndex, memory: Memory) -> Iterator[str]:
    oracle = memory.oracle()
    for query in QUERIES:
        for scope in SCOPES:
            try:
                found = index.search(FORM, scope, query)
            except BusyError:
                yield BUSY
                continue
            except DiskError:
                yield REFUSED
                continue
            expected = oracle.search(FORM, scope, query)
            is_right = (found.total, [plain(hit) for hit in found.page]) == (expected.total, list(expected.page))
            yield RIGHT if is_right else WRONG


def worst(found: list[str]) -> str:
    return max(found, key=(RIGHT, BUSY, REFUSED, WRONG).index)


def file_in(root: Path) -> Path:
    (pointer,) = root.glob(".index/*/*/current")
    return pointer.parent / pointer.read_text()


def pristine(root: Path, memory: Memory) -> None:
    """An index that nobody has open, all of it in one file."""
    index, _ = index_of(root, memory)
    assert set(answers(index, memory)) == {RIGHT}
    close(index)


def cut_short(path: Path, rng: random.Random) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(rng.choice((0, 1, 99, 100, 512, 4096, size - 1, size - 4096, rng.randrange(size))))


def swap_pages(path: Path, rng: random.Random) -> None:
    pages = path.stat().st_size // 4096
    data = path.read_bytes()
    first, second = (page * 4096 for page in rng.sample(range(1, pages), 2))
    _put(path, first, data[second : second + 4096])
    _put(path, second, data[first : first + 4096])


NOTICED: dict[str, Callable[[Path, random.Random], None]] = {
    "cut short": cut_short,
    "a bit in the header": lambda path, rng: _flip(path, rng.randrange(100), rng),
    "a page of zeros": lambda path, rng: _put(path, rng.randrange(path.stat().st_size // 4096) * 4096, bytes(4096)),
}
"""What SQLite or we must notice."""

UNNOTICED: dict[str, Callable[[Path, random.Random], None]] = {
    "a bit anywhere": lambda path, rng: _flip(path, rng.randrange(100, path.stat().st_size), rng),
    "a sector of noise": lambda path, rng: _put(path, rng.randrange(path.stat().st_size - 600), rng.randbytes(512)),
    "two pages swapped": swap_pages,
}
"""What nobody can: SQLite has no checksums, and a text with another letter is a text."""

WAYS = NOTICED | UNNOTICED


def _flip(path: Path, at: int, rng: random.Random) -> None:
    with path.open("rb") as file:
        file.seek(at)
        byte = file.read(1)[0]
    _put(path, at, bytes([byte ^ (1 << rng.randrange(8))]))


def _put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def tried(memory: Memory, way: str, seed: int, directory: Path, *, is_open: bool) -> str:
    """One damage, under an open index or one that is opened afterwards."""
    root = directory / f"{way.replace(' ', '-')}-{seed}-{is_open}"
    root.mkdir()
    pristine(root, memory)
    index = index_of(root, memory)[0]
    try:
        if is_open:
            assert index.search(FORM, Scope(), Query()).total  # and most of it is still to be read
        WAYS[way](file_in(root), random.Random(seed))
        return worst(list(answers(index, memory)))
    finally:
        close(index)
        shutil.rmtree(root)


def counted(memory: Memory, way: str, seeds: range, directory: Path, *, is_open: bool) -> Counter[str]:
    return Counter(tried(memory, way, seed, directory, is_open=is_open) for seed in seeds)


# An index that is damaged is rebuilt, wherever that can be told; the long run counts where it cannot.


_TIMES = 8


@pytest.mark.parametrize("times", [3, pytest.param(_TIMES, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_open", [False, True], ids=["opened afterwards", "open"])
@pytest.mark.parametrize("way", NOTICED)
def test_searches_are_right_after_damage_that_can_be_noticed(
    way: str, times: int, tmp_path: Path, *, is_open: bool
) -> None:
    assert counted(filled(), way, range(times), tmp_path, is_open=is_open) == Counter({RIGHT: times})


@pytest.mark.parametrize("way", UNNOTICED)
def test_other_damage_is_no_failure_of_the_service(way: str, tmp_path: Path) -> None:
    """A search is answered, and what is noticed is mended at once."""
    found = Counter(tried(filled(), way, seed, tmp_path, is_open=seed % 2 == 1) for seed in range(_TIMES))
    assert found[RIGHT] + found[WRONG] == _TIMES
    assert found[RIGHT] > found[WRONG]


# The progress of a rebuild in a record of any kind and age, and the turns of those who ask for one.


@pytest.fixture(params=["lock", "text"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> JobFile:
    """A record in one file, and one in two."""
    return JobFile("rebuild", str(tmp_path / "lock"), str(tmp_path / request.param))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (b'{"state":"indexing","current":1,"total":2}', (1, 2)),
        (b'{"current":1,"total":2}', (1, 2)),
        (b"", (0, 0)),
        (b"{", (0, 0)),
    ],
)
def test_a_record_of_before_is_read_while_somebody_rebuilds(
    record: JobFile, text: bytes, numbers: tuple[int, int]
) -> None:
    with record.turn("busy", 1, lambda: False):
        record.write(text)
        assert status_in(record) == ReindexingStatus(ReindexingState.INDEXING, *numbers)
    assert status_in(record) == ReindexingStatus()


def test_a_rebuild_reports_to_all_and_the_next_one_waits(record: JobFile) -> None:
    heard = list[int]()
    assert status_in(record).state is ReindexingState.STOPPED
    with reported(record, lambda: 3, heard.append) as report:
        assert status_in(record) == ReindexingStatus(ReindexingState.INDEXING, 0, 3)
        report(2)
        with (
            pytest.raises(BusyError, match="another index is being made"),
            reported(record, lambda: 1, is_ending=lambda: True),
        ):
            pass
    assert heard == [0, 2]
    assert status_in(record).state is ReindexingState.STOPPED
