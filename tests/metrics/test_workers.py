"""Metrics of a service with several worker processes, some of which end or are killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from persistence.metrics import service as shared
from persistence.storage.locks import try_lock
from tests.metrics.test_metrics import samples, value
from tests.service import Service, alone
from tests.waiting import eventually


def _asked(service: Service) -> float:
    return value(samples(service), "requests_total", method="GET", kind="data", status="4xx")


def _directories(pid: int) -> set[str]:
    """Return the directories of metrics whose files a process has open."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(descriptor)
        if "persistence-metrics-" in target:
            found.add(os.path.dirname(target))
    return found


def test_all_workers_count_together_and_nothing_is_lost_with_one(tmp_path: Path) -> None:
    with alone(tmp_path, workers=2) as service:
        master = service.process.pid
        (directory,) = _directories(master)
        for _ in range(40):
            service.get("hr/leave/data/1/data.xml")
        eventually(lambda: _asked(service) == 40)
        eventually(lambda: value(samples(service), "workers") == 2)  # the second may not have begun yet
        killed = service.workers()[0]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in service.workers() and len(service.workers()) == 2)
        eventually(lambda: value(samples(service), "workers") == 2)
        assert _asked(service) == 40
        before = set(service.workers())
        os.kill(master, signal.SIGHUP)
        eventually(lambda: not before & set(service.workers()) and len(service.workers()) == 2)
        eventually(lambda: value(samples(service), "workers") == 2)
        assert _asked(service) == 40
        names = os.listdir(directory)
        assert len([name for name in names if name.startswith("counter_")]) <= 4
    assert not os.path.exists(directory)


@pytest.mark.parametrize(
    "content",
    [
        b"\x40\0\0\0\0\0\0\0\x08\0\0\0no json ",
        *(pytest.param(content, marks=pytest.mark.long) for content in (b"", b"\xff" * 4096)),
    ],
)
def test_a_file_that_cannot_be_read_costs_a_sample_and_no_worker(tmp_path: Path, content: bytes) -> None:
    """One that a worker has left that was killed, and one of the number that the next worker gets."""
    with alone(tmp_path, workers=2) as service:
        (directory,) = _directories(service.process.pid)
        eventually(lambda: len(service.workers()) == 2 and value(samples(service), "workers") == 2)
        for _ in range(10):
            service.get("hr/leave/data/1/data.xml")
        (Path(directory) / "counter_7.db").write_bytes(content)
        (Path(directory) / "histogram_7.db").write_bytes(content)
        workers = set(service.workers())
        eventually(lambda: _asked(service) == 10)
        time.sleep(2.5)  # in which each worker takes a sample
        assert (set(service.workers()), _asked(service)) == (workers, 10)
        killed = service.workers()[0]
        for file in Path(directory).glob("*_[01].db"):
            fresh = file.with_suffix(".replaced")  # living workers have the file mapped
            fresh.write_bytes(content)
            fresh.rename(file)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in service.workers() and len(service.workers()) == 2)
        eventually(lambda: value(samples(service), "workers") == 1)  # the other one counts in a file that is lost
        assert service.get("hr/leave/data/1/data.xml").status == 404
        assert len(workers & set(service.workers())) == 1


def test_what_a_killed_service_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with alone(tmp_path / "first") as service:
        (directory,) = _directories(service.process.pid)
        workers = service.workers()
        os.kill(service.process.pid, signal.SIGKILL)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        service.process.wait()
    assert os.path.exists(directory)
    eventually(lambda: not any(os.path.exists(f"/proc/{worker}") for worker in workers))
    with alone(tmp_path / "second"):
        assert not os.path.exists(directory)


def test_a_directory_that_another_service_takes_for_dead_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed between its making and its locking."""
    made = []

    def swept(descriptor: int) -> bool:
        made.append(descriptor)
        if len(made) == 1:
            monkeypatch.setattr(shared, "try_lock", try_lock)
            shared.sweep(str(tmp_path))
            monkeypatch.setattr(shared, "try_lock", swept)
        return try_lock(descriptor)

    monkeypatch.setattr(shared, "try_lock", swept)
    path = shared.own_directory(str(tmp_path))
    assert len(made) == 2
    assert [str(each) for each in tmp_path.iterdir()] == [path]
    shared.sweep(str(tmp_path))
    assert os.path.exists(path)
    os.close(made[1])
