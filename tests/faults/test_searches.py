"""A disk without room for the index, or that is read-only: a refusal that says so, or an answer that is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import disks
from tests.faults.filling import insist
from tests.index.racing import body, plant
from tests.orders import found
from tests.published import Planter
from tests.service import Answer, Service, running

_DATA = "acme/order/data/{}/data.xml"
_DOCUMENTS = 200


def search(service: Service, text: str = "") -> Answer:
    query = f"<search><query>{text}</query><page-size>999</page-size></search>".encode()
    return service.raw("POST", "/search/acme/order", {"Content-Type": "application/xml"}, query)


def put(service: Service, name: str, text: str) -> int:
    return service.put(_DATA.format(name), body(text), Form_Definition_Version="1").status


@pytest.mark.xdist_group("loop")
@pytest.mark.parametrize("kind", [disks.EXT4, disks.TMPFS], ids=lambda kind: kind.title)
def test_searches_on_a_full_disk(kind: disks.Kind, tmp_path: Path) -> None:
    disks.require(kind, tmp_path)
    with disks.mounted(kind, tmp_path) as disk:
        plant(Planter(disk / "data"), _DOCUMENTS)
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            disks.fill(disk / "weight")
            assert search(service).status in (503, 507)  # there is no index, and no room for one
            (disk / "weight").unlink()
            assert len(found(search(service).body)) == _DOCUMENTS
            disks.fill(disk / "weight")
            stored = [f"new-{number}" for number in range(20) if put(service, f"new-{number}", "some text") == 201]
            for _ in range(5):
                answer = search(service, "some text")
                assert answer.status in (200, 503, 507), answer.cause
                if answer.status == 200:
                    assert sorted(found(answer.body)) == sorted(stored)
            (disk / "weight").unlink()
            assert put(service, "last", "some text") == 201
            assert sorted(found(search(service, "some text").body)) == sorted([*stored, "last"])


@pytest.mark.xdist_group("loop")
def test_searches_on_a_read_only_disk(tmp_path: Path) -> None:
    disks.require(disks.EXT4, tmp_path)
    with disks.mounted(disks.EXT4, tmp_path) as disk:
        plant(Planter(disk / "data"), 20)
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            assert len(found(search(service).body)) == 20
            disks.turn_read_only(disk)
            for _ in range(6):
                answer = search(service)
                assert answer.status in (200, 500), answer.cause
                if answer.status == 200:
                    assert len(found(answer.body)) == 20
        insist(lambda: disks.mount_anew(disk))
        with running(disk, workers=2, log=tmp_path / "service.log") as service:
            assert len(found(search(service).body)) == 20
            assert put(service, "new", "some text") == 201
            assert found(search(service, "some text").body) == ["new"]
