"""A full and a read-only disk, for real: writes are refused with the cause, reads go on, also in a new worker."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Answer, Service, running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def eventually(service: Service, path: str) -> Answer:
    """A GET, repeated while a worker is being replaced."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return service.get(path)
        except OSError:
            assert time.monotonic() < deadline, service.log.read_text()
            time.sleep(0.1)


def kill_worker(service: Service) -> None:
    (worker,) = service.workers()
    os.kill(worker, 9)


def test_a_full_disk(small_disk: Path) -> None:
    """507 with the cause and nothing left; what is there can be read, by a new worker too; with space all is well."""
    path = "a/b/data/D/data.xml"
    with running(small_disk) as service:
        assert service.put(path, b"<d>1</d>", Form_Definition_Version=1).status == 201
        statuses = {
            service.put(f"a/b/data/D/{n}.bin", b"x" * (1 << 20), Form_Definition_Version=1).status for n in range(14)
        }
        assert statuses == {201, 507}
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        refused = service.put(path, b"<d>" + b"2" * 10_000 + b"</d>")
        assert (refused.status, "No space left on device" in refused.cause) == (507, True)
        assert (
            service.put("a/b/data/new/data.xml", b"<d>" + b"2" * 10_000 + b"</d>", Form_Definition_Version=1).status
            == 507
        )
        assert service.raw("GET", "/readyz").status == 503
        kill_worker(service)
        assert eventually(service, path).body == b"<d>1</d>"
        assert service.leftovers() == []
        filler.unlink()
        assert service.put(path, b"<d>3</d>").status == 204
        assert service.get(path).body == b"<d>3</d>"


def test_a_read_only_disk(small_disk: Path, tmp_path: Path) -> None:
    """500 with the cause; reads go on, by a new worker too."""
    path = "a/b/data/D/data.xml"
    with running(small_disk, log=tmp_path / "service.log") as service:
        service.put(path, b"<d>1</d>", Form_Definition_Version=1)
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        kill_worker(service)
        assert eventually(service, path).body == b"<d>1</d>"
        refused = service.put(path)
        assert (refused.status, "Read-only file system" in refused.cause) == (500, True)
        assert service.raw("GET", "/readyz").status == 503


def test_a_log_that_cannot_be_written_costs_no_answer(small_disk: Path, tmp_path: Path) -> None:
    """The log's disk is full: requests are answered all the same."""
    with running(tmp_path, log=small_disk / "service.log") as service:
        (small_disk / "filler").write_bytes(b"x" * (11 << 20))
        with (small_disk / "filler").open("ab", buffering=0) as file:
            try:
                while file.write(b"x" * 512):
                    pass
            except OSError:
                pass
        for number in range(40):
            assert service.put(f"a/b/data/{number}/data.xml", Form_Definition_Version=1).status == 201
        assert service.get("a/b/data/0/data.xml").status == 200
