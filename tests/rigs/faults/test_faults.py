"""One fault in each request, and disks that are full, read-only or slow for real; a sample of the long run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.orders import body, found, plant_old
from tests.published import Planter
from tests.rigs import disks, strikes
from tests.rigs.faults import filling
from tests.rigs.faults.runs import ERRORS, WRITING, noticed, read_all, strike_all
from tests.rigs.scenarios import CREATE, REPLACE, UNINDEXED
from tests.rigs.strikes import Point
from tests.rigs.weakened import FORGIVEN
from tests.search_faults import await_notes
from tests.service import Answer, Service, running

_TIMES = 8


def each_in_turn(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    """Every second point with one error, the errors in turn."""
    changing = [point for point in points if point.call in WRITING]
    return ((point, [ERRORS[number % len(ERRORS)]]) for number, point in enumerate(changing[::2]))


def of_the_index(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    """Every call on the files of the index, the errors in turn."""
    chosen = [point for point in points if point.is_for_the_index]
    return ((point, [ERRORS[number % len(ERRORS)]]) for number, point in enumerate(chosen))


def unstruck(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    """Every fifth point, to be struck in a row only."""
    return ((point, []) for point in points[::5])


def test_an_error_at_any_call_is_a_refusal_that_leaves_the_old_content(tmp_path: Path) -> None:
    """507 or 500 in one line, the old revision with its headers, no leftover, and the next write succeeds."""
    strikes.require(tmp_path)
    run = strike_all(CREATE, tmp_path, choose=each_in_turn)
    assert run.violations == []
    assert {error for error, kind in run.kinds if kind == "refused"} == set(ERRORS)
    assert run["refused"] > run["open"] > 0


def test_an_error_where_the_index_is_told_costs_neither_the_change_nor_a_search(tmp_path: Path) -> None:
    """Acknowledged, and found by the next search, whichever call on the files of the index fails."""
    strikes.require(tmp_path)
    run = strike_all(UNINDEXED, tmp_path, choose=of_the_index)
    assert run.violations == []
    assert set(run.kinds) == {(error, "tolerated") for error in ERRORS}
    assert {call.split()[0] for call, *_ in run.after_commit} >= {"mkdir", "fsync", "openat", "flock", "write"}


def test_the_same_error_again_and_again_leaves_nothing_that_grows(tmp_path: Path) -> None:
    strikes.require(tmp_path)
    run = strike_all(REPLACE, tmp_path, choose=unstruck, times=_TIMES)
    assert run.violations == []
    assert run["in a row"] > _TIMES


def test_an_error_while_reading_is_a_refusal_and_never_half_a_content(tmp_path: Path) -> None:
    """500 in one line; where the answer has begun, or the content ends early, the connection breaks."""
    strikes.require(tmp_path)
    runs = read_all(tmp_path, ["GET data", "HEAD data", "GET relevant data", "GET large attachment"])
    assert [violation for run in runs for violation in run.violations] == []
    kinds = {kind for run in runs for _, kind in run.kinds}
    assert kinds == {"refused", "cut off", "whole"}


def test_a_missing_protection_is_noticed(tmp_path: Path) -> None:
    """The long run takes away each of them."""
    strikes.require(tmp_path)
    assert noticed(FORGIVEN, tmp_path) != []


# Full, read-only and slow disks, and too few descriptors, for real.


@pytest.mark.xdist_group("loop")
@pytest.mark.parametrize("room", [pytest.param(room, id=room.kind.title) for room in (filling.FULL, filling.NO_INODES)])
def test_a_disk_that_fills_up_refuses_and_loses_nothing(room: filling.Room, tmp_path: Path) -> None:
    """507 with the cause, nothing left behind, all that was acknowledged is read, by a new worker too; then room."""
    disks.require(room.kind, tmp_path)
    story = filling.fill_up(room, tmp_path)
    assert story.violations == []
    assert set(story.refusals) == {507}


@pytest.mark.xdist_group("loop")
def test_a_disk_that_turns_read_only_refuses_and_loses_nothing(tmp_path: Path) -> None:
    """500 with the cause; reads go on, by a new worker too; writable again, all is well."""
    disks.require(disks.EXT4, tmp_path)
    story = filling.turn_read_only(disks.EXT4, tmp_path)
    assert story.violations == []
    assert set(story.refusals) == {500}


def test_readiness_ends_at_the_floor(tmp_path: Path) -> None:
    disks.require(disks.TMPFS, tmp_path)
    assert filling.pass_the_floor(disks.TMPFS, tmp_path).violations == []


def test_too_few_descriptors_are_refusals_and_pass(tmp_path: Path) -> None:
    """500 with the cause, or no answer; healthy afterwards."""
    story = filling.run_out(tmp_path, spares=(1,))
    assert story.violations == []
    assert story["served"] > 0
    assert set(story.refusals) <= {0, 500}
    assert story.refusals.total() > 0


def test_an_fsync_that_hangs_delays_only_writers_of_its_document(tmp_path: Path) -> None:
    """They get 503 with Retry-After at the deadline; its readers and all other documents are served meanwhile."""
    strikes.require(tmp_path)
    story = filling.stall(tmp_path / "ground")
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


# A search on a disk without room for the index, or that is read-only: a refusal that says so, or a right answer.

_DATA = "acme/order/data/{}/data.xml"
_DOCUMENTS = 200


def search(service: Service, text: str = "") -> Answer:
    query = f"<search><query>{text}</query><page-size>999</page-size></search>".encode()
    return service.raw("POST", "/search/acme/order", {"Content-Type": "application/xml"}, query)


def put(service: Service, name: str, text: str) -> int:
    return service.put(_DATA.format(name), body(text), Form_Definition_Version="1").status


def distinct(service: Service) -> Answer:
    query = b'<distinct-values><query path="customer/name"/></distinct-values>'
    return service.raw("POST", "/distinct-values/acme/order", {"Content-Type": "application/xml"}, query)


@pytest.mark.xdist_group("loop")
@pytest.mark.parametrize(
    "kind",
    [disks.EXT4, disks.EXT4_LARGE_BLOCKS, disks.TMPFS, disks.XFS, disks.BTRFS, disks.BTRFS_QUOTA],
    ids=lambda kind: kind.title,
)
def test_a_search_on_a_full_disk_is_refused(kind: disks.Kind, tmp_path: Path) -> None:
    """Where there is no index, where there is one, to a worker that has just started, and after changes.

    No worker dies; with room again everything is found.
    """
    disks.require(kind, tmp_path)
    with disks.mounted(kind, tmp_path) as disk:
        plant_old(Planter(disk / "data"), _DOCUMENTS)
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            with full(disk):
                expect_refusals(service)
            assert len(found(search(service).body)) == _DOCUMENTS
            assert put(service, "new", "some text") == 201
            assert len(found(search(service).body)) == _DOCUMENTS + 1
            names = distinct(service).body
            await_notes(service)
            with full(disk):
                expect_refusals(service, 6)
                for worker in service.workers():
                    os.kill(worker, signal.SIGKILL)
                filling.insist(lambda: service.raw("GET", "/healthz"))
                expect_refusals(service, 6)
            answer = search(service)
            assert answer.status == 200, answer.cause
            assert len(found(answer.body)) == _DOCUMENTS + 1
            assert (distinct(service).status, distinct(service).body) == (200, names)
            with full(disk):
                more = [
                    name for name in (f"new-{number}" for number in range(20)) if put(service, name, "some text") == 201
                ]
                expect_refusals(service, 5)
            assert put(service, "last", "some text") == 201
            assert sorted(found(search(service, "some text").body)) == sorted(["new", *more, "last"])
        assert "SIGBUS" not in (tmp_path / "service.log").read_text()


@contextmanager
def full(disk: Path) -> Iterator[None]:
    disks.fill(disk / "weight")
    yield
    disks.make_room(disk / "weight")


def expect_refusals(service: Service, times: int = 1) -> None:
    """503 with the cause, and when to come back."""
    for answer in (ask(service) for _ in range(times) for ask in (search, distinct)):
        assert (answer.status, "no room" in answer.cause) == (503, True), answer.cause
        assert int(answer["Retry-After"] or 0) > 0


@pytest.mark.xdist_group("loop")
def test_searches_on_a_read_only_disk(tmp_path: Path) -> None:
    disks.require(disks.EXT4, tmp_path)
    with disks.mounted(disks.EXT4, tmp_path) as disk:
        with Planter(disk / "data") as planter:
            plant_old(planter, 20)
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            assert len(found(search(service).body)) == 20
            disks.turn_read_only(disk)
            for _ in range(6):
                answer = search(service)
                assert answer.status in (200, 500), answer.cause
                if answer.status == 200:
                    assert len(found(answer.body)) == 20
        filling.insist(lambda: disks.remount(disk))
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            assert len(found(search(service).body)) == 20
            assert put(service, "new", "some text") == 201
            assert found(search(service, "some text").body) == ["new"]
