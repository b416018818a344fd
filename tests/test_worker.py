"""A worker is replaced where it has grown past a limit, without a request that fails."""

import http.client
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from persistence import gunicorn_worker
from persistence.gunicorn_worker import MemoryWatch
from tests.service import PUBLIC, Service, alone

_MIB = 1 << 20
_ASKED = 12
"""Requests that the clients of a service have sent at least when its workers have been replaced."""


@dataclass
class Process:
    """A process whose memory grows as a test says, at times that it says."""

    resident: int = 50 * _MIB
    now: float = 0.0
    memory: MemoryWatch = field(init=False)

    def look(self, limit: int, *, is_busy: bool = False, after: float = 2.0) -> bool:
        self.now += after
        return self.memory.is_past(limit, is_busy=is_busy)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(gunicorn_worker.time, "monotonic", lambda: made.now)
    made.memory = MemoryWatch(lambda: made.resident)
    return made


def test_a_worker_that_has_grown_is_past_its_limit_and_one_without_a_limit_never(process: Process) -> None:
    process.resident = 300 * _MIB
    assert process.look(200 * _MIB)
    assert not process.look(0)


def test_a_worker_that_answers_has_time_to_free_what_it_needs(process: Process) -> None:
    process.resident = 300 * _MIB
    assert not process.look(200 * _MIB, is_busy=True)
    assert not process.look(200 * _MIB, is_busy=True, after=9)
    assert process.look(200 * _MIB, is_busy=True, after=2)


def test_the_clock_decides_how_often_is_looked(process: Process) -> None:
    process.resident = 300 * _MIB
    assert not process.look(200 * _MIB, after=0.5)


def test_a_worker_is_replaced_while_clients_go_on(tmp_path: Path) -> None:
    replaced(tmp_path, 1)


@pytest.mark.long
def test_every_worker_is_replaced_while_clients_go_on(tmp_path: Path) -> None:
    replaced(tmp_path, 6)


def test_one_thread_serves_several_connections(tmp_path: Path) -> None:
    """A connection with one request after the other does not keep the thread from others."""
    with alone(tmp_path, threads=1) as service:
        version = {f"{service.prefix}Form-Definition-Version": "1"}
        assert service.put("hr/leave/data/d/data.xml", b"<d/>", version).status == http.client.CREATED
        failed: list[str] = []
        asked = [[0], [0], [0]]
        end = threading.Event()
        clients = [threading.Thread(target=go_on, args=(service, True, end, each, failed, 0.0)) for each in asked]
        for each in clients:
            each.start()
        deadline = time.monotonic() + 20
        while min(asked)[0] < _ASKED and time.monotonic() < deadline:
            time.sleep(0.02)
        end.set()
        for each in clients:
            each.join()
        assert failed == []
        assert min(asked)[0] >= _ASKED


def replaced(directory: Path, number: int, env: Mapping[str, str] | None = None) -> None:
    """Replace so many workers of a service, and see that its clients do not notice."""
    little = {**(env or {}), "PERSISTENCE_WORKER_MEMORY": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    with alone(directory, workers=2, env=little, module="tests.often_replaced") as service:
        version = {f"{service.prefix}Form-Definition-Version": "1"}
        assert service.put("hr/leave/data/d/data.xml", b"<d/>", version).status == http.client.CREATED
        seen, first = set(service.workers()), 2  # the second may not have begun yet
        failed: list[str] = []
        asked = [0]
        end = threading.Event()
        clients = [threading.Thread(target=go_on, args=(service, kept, end, asked, failed)) for kept in (True, False)]
        for each in clients:
            each.start()
        deadline = time.monotonic() + 20 * number
        while (len(seen) < first + number or asked[0] < _ASKED) and time.monotonic() < deadline:
            time.sleep(0.1)
            seen.update(service.workers())
        end.set()
        for each in clients:
            each.join()
        assert failed == []
        assert len(seen) >= first + number
        assert asked[0] >= _ASKED
        assert b"replacing a worker that has grown to" in service.log.read_bytes()


def go_on(
    service: Service,
    is_kept: bool,  # noqa: FBT001
    end: threading.Event,
    asked: list[int],
    failed: list[str],
    pause: float = 0.02,
) -> None:
    """Ask for a document again and again, on one connection or on one for each request."""
    path = f"{PUBLIC}/crud/hr/leave/data/d/data.xml"
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    while not end.is_set():
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            if response.status != http.client.OK:
                failed.append(str(response.status))
            if not is_kept or response.will_close:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            failed.append(repr(error))
            connection.close()
        asked[0] += 1
        time.sleep(pause)
    connection.close()
