"""Each worker keeps to one processor, where there are no more processors than workers."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from persistence import processes
from tests.service import alone
from tests.waiting import eventually


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_ALL", frozenset({4, 6}))


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("size", "taken", "expected"),
    [
        (2, [], 4),
        (2, [4], 6),
        (2, [6], 4),
        (2, [4, 6], 4),  # while workers are replaced, the old ones still run
        (2, [4, 6, 4], 6),
        (4, [4, 6, 6], 4),
        (2, [None, 4], 6),
        (1, [], None),
    ],
)
def test_a_worker_takes_the_processor_with_the_fewest(size: int, taken: list[int | None], expected: int | None) -> None:
    assert processes.one_for(size, taken) == expected


@pytest.mark.parametrize(
    ("available", "wanted", "limit", "expected"),
    [
        *((1, 0, "", 2), (2, 0, "", 2), (3, 0, "", 3), (64, 0, "", 4), (64, 9, "", 9), (8, 1, "", 1)),
        *((64, 0, "max 100000\n", 4), (64, 0, "300000 100000\n", 3), (64, 0, "250000 100000\n", 3)),
        (64, 0, "50000 100000\n", 2),
    ],
)
def test_there_is_a_worker_for_each_processor_of_a_container_unless_the_settings_say_how_many(
    available: int, wanted: int, limit: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(processes, "_ALL", frozenset(range(available)))
    monkeypatch.setattr(processes, "_CPU_MAX", str(tmp_path / "cpu.max"))
    assert processes.workers(wanted) == expected
    monkeypatch.setattr(processes, "_CPU_MAX", str(tmp_path / "none"))
    assert limit or processes.workers(wanted) == expected


def test_processes_that_a_worker_starts_use_all_processors() -> None:
    before = os.sched_getaffinity(0)
    command = [sys.executable, "-c", "import os, json; print(json.dumps(list(os.sched_getaffinity(0))))"]
    seen: list[set[int]] = []

    def work() -> None:
        processes.stay_on(min(before))
        seen.append(set(json.loads(subprocess.check_output(command))))
        with processes.all_of_them():
            seen.append(set(json.loads(subprocess.check_output(command))))
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)  # only a thread is kept on a processor, and those that it starts
    thread.start()
    thread.join()
    assert seen == [{min(before)}, before, {min(before)}]
    assert os.sched_getaffinity(0) == before


def test_workers_divide_the_processors_and_so_does_one_that_is_replaced(tmp_path: Path) -> None:
    size = processes.count()
    if size not in range(2, 5):
        pytest.skip(f"{size} processors: as many workers would be one or too many for a test")
    with alone(tmp_path, workers=size) as service:

        def is_divided() -> bool:
            mains = [os.sched_getaffinity(worker) for worker in service.workers()]
            return [len(each) for each in mains] == [1] * size and set.union(*mains) == os.sched_getaffinity(0)

        eventually(is_divided)
        for worker in service.workers():
            threads = [os.sched_getaffinity(int(each)) for each in os.listdir(f"/proc/{worker}/task")]
            assert threads == [os.sched_getaffinity(worker)] * len(threads)
        killed = service.workers()[0]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in service.workers() and is_divided())


def test_a_single_worker_beside_free_processors_uses_all(tmp_path: Path) -> None:
    with alone(tmp_path) as service:
        (worker,) = service.workers()
        service.get("hr/leave/data/1/data.xml")
        assert os.sched_getaffinity(worker) == os.sched_getaffinity(0)
