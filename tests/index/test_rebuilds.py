"""The progress of a rebuild in a record of any kind and age, and the turns of those who ask for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.index.protocol import ReindexingState, ReindexingStatus, reported, status_in
from persistence.storage.store import JobFile


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
