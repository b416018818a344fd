"""A disk without room for the index, or that is read-only: a refusal that says so, or an answer that is right."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.orders import body, found, plant_old
from tests.published import Planter
from tests.rigs import disks
from tests.rigs.faults.filling import insist
from tests.search_faults import await_notes
from tests.service import Answer, Service, running

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


def expect_refusal(answer: Answer) -> None:
    """503 with the cause, and when to come back."""
    assert (answer.status, "no room" in answer.cause) == (503, True), answer.cause
    assert int(answer["Retry-After"] or 0) > 0


KINDS = pytest.mark.parametrize(
    "kind",
    [disks.EXT4, disks.EXT4_LARGE_BLOCKS, disks.TMPFS, disks.XFS, disks.BTRFS, disks.BTRFS_QUOTA],
    ids=lambda kind: kind.title,
)


@pytest.mark.xdist_group("loop")
@KINDS
def test_a_search_on_a_full_disk_is_refused(kind: disks.Kind, tmp_path: Path) -> None:
    """By the workers that have the index open, and by one that is started again; no worker dies."""
    disks.require(kind, tmp_path)
    with disks.mounted(kind, tmp_path) as disk:
        plant_old(Planter(disk / "data"), _DOCUMENTS)
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            assert put(service, "new", "some text") == 201
            assert len(found(search(service).body)) == _DOCUMENTS + 1
            names = distinct(service).body
            await_notes(service)
            disks.fill(disk / "weight")
            for _ in range(6):
                expect_refusal(search(service))
                expect_refusal(distinct(service))
            for worker in service.workers():
                os.kill(worker, signal.SIGKILL)
            insist(lambda: service.raw("GET", "/healthz"))
            for _ in range(6):
                expect_refusal(search(service))
            disks.make_room(disk / "weight")
            expect_everything(service, names)
        assert "SIGBUS" not in (tmp_path / "service.log").read_text()


def expect_everything(service: Service, names: bytes) -> None:
    answer = search(service)
    assert answer.status == 200, answer.cause
    assert len(found(answer.body)) == _DOCUMENTS + 1
    assert found(search(service, "some text").body) == ["new"]
    values = distinct(service)
    assert (values.status, values.body) == (200, names)


@pytest.mark.xdist_group("loop")
@KINDS
def test_a_search_on_a_full_disk_comes_back_when_something_must_be_written(kind: disks.Kind, tmp_path: Path) -> None:
    """Where there is no index, or a change to take in: 503 with ``Retry-After``. With room again, all is found."""
    disks.require(kind, tmp_path)
    with disks.mounted(kind, tmp_path) as disk:
        plant_old(Planter(disk / "data"), _DOCUMENTS)
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            disks.fill(disk / "weight")
            expect_refusal(search(service))
            expect_refusal(distinct(service))
            disks.make_room(disk / "weight")
            assert len(found(search(service).body)) == _DOCUMENTS
            disks.fill(disk / "weight")
            stored = [f"new-{number}" for number in range(20) if put(service, f"new-{number}", "some text") == 201]
            for _ in range(5):
                expect_refusal(search(service, "some text"))
            disks.make_room(disk / "weight")
            assert put(service, "last", "some text") == 201
            assert sorted(found(search(service, "some text").body)) == sorted([*stored, "last"])


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
        insist(lambda: disks.remount(disk))
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            assert len(found(search(service).body)) == 20
            assert put(service, "new", "some text") == 201
            assert found(search(service, "some text").body) == ["new"]
