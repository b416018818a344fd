"""An index that is damaged is rebuilt, wherever that can be told; the long run counts where it cannot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.index.protocol import ReindexingState, ReindexingStatus, reported, status_in
from persistence.storage.store import JobFile
from tests.index.damaging import NOTICED, RIGHT, UNNOTICED, WRONG, counted, filled, tried

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
