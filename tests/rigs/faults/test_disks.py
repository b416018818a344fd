"""A full, a read-only and a slow disk, and too few descriptors, for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs import disks, strikes
from tests.rigs.faults.filling import FULL, NO_INODES, Room, fill_up, pass_the_floor, run_out, turn_read_only
from tests.rigs.faults.slow import stall
from tests.service import running


@pytest.mark.xdist_group("loop")
@pytest.mark.parametrize("room", [pytest.param(room, id=room.kind.title) for room in (FULL, NO_INODES)])
def test_a_disk_that_fills_up_refuses_and_loses_nothing(room: Room, tmp_path: Path) -> None:
    """507 with the cause, nothing left behind, all that was acknowledged is read, by a new worker too; then room."""
    disks.require(room.kind, tmp_path)
    story = fill_up(room, tmp_path)
    assert story.violations == []
    assert set(story.refusals) == {507}


@pytest.mark.xdist_group("loop")
def test_a_disk_that_turns_read_only_refuses_and_loses_nothing(tmp_path: Path) -> None:
    """500 with the cause; reads go on, by a new worker too; writable again, all is well."""
    disks.require(disks.EXT4, tmp_path)
    story = turn_read_only(disks.EXT4, tmp_path)
    assert story.violations == []
    assert set(story.refusals) == {500}


def test_readiness_ends_at_the_floor(tmp_path: Path) -> None:
    disks.require(disks.TMPFS, tmp_path)
    assert pass_the_floor(disks.TMPFS, tmp_path).violations == []


def test_too_few_descriptors_are_refusals_and_pass(tmp_path: Path) -> None:
    """500 with the cause, or no answer; healthy afterwards."""
    story = run_out(tmp_path, spares=(1,))
    assert story.violations == []
    assert story["served"] > 0
    assert set(story.refusals) <= {0, 500}
    assert story.refusals.total() > 0


def test_an_fsync_that_hangs_delays_only_writers_of_its_document(tmp_path: Path) -> None:
    """They get 503 with Retry-After at the deadline; its readers and all other documents are served meanwhile."""
    strikes.require(tmp_path)
    story = stall(tmp_path / "ground")
    assert story.violations == []
    assert set(story.refusals) == {503}


@pytest.fixture
def full_log(tmp_path: Path) -> Iterator[Path]:
    """A log on a disk of its own, on which there is no room."""
    disks.require(disks.TMPFS, tmp_path)
    with disks.mounted(disks.TMPFS, tmp_path) as disk:
        yield disk / "service.log"


def test_a_log_that_cannot_be_written_costs_no_answer(full_log: Path, tmp_path: Path) -> None:
    """The log's disk is full: requests are answered all the same."""
    with running(tmp_path / "ground", log=full_log) as service:
        disks.fill(full_log.with_name("filler"))
        for number in range(40):
            assert service.put(f"a/b/data/{number}/data.xml", Form_Definition_Version=1).status == 201
        assert service.get("a/b/data/0/data.xml").status == 200
