"""Moves while gunicorn's workers write to the source, killed again and again before they come to their end."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import in_process
from tests.postgresql.server import fresh_schema, requires_postgresql
from tests.service import Answer, Service, running

V1 = {"Form_Definition_Version": 1}
_WAYS = [
    ("tree", "tree"),
    pytest.param("tree", "database", marks=requires_postgresql),
    pytest.param("database", "tree", marks=requires_postgresql),
]
_KILLED_AFTER = (0.6, 0.9, 1.2, 1.5, 1.8, 2.2, 2.6, 3.1, 3.7, 4.5)
"""Seconds: from while the program is loaded to after its last pass, on machines of most speeds."""
_WRITERS = 4
_DOCUMENTS = 10
_PAUSE = 0.1
"""Seconds between the writes of a client: all revisions are moved, so there must not be too many."""
_HEADERS = ("ETag", "Last-Modified", "Svc-Last-Modified", "Svc-Form-Definition-Version")


@dataclass
class _Clients:
    """Clients that save documents and attachments in turn; ``acknowledged`` has bodies with what was answered."""

    service: Service
    acknowledged: dict[str, tuple[bytes, list[str | None]]] = field(default_factory=dict)
    statuses: set[int] = field(default_factory=set)
    ends: threading.Event = field(default_factory=threading.Event)

    def write(self, number: int) -> None:
        """Save until the service does not answer any more; what it may have saved unanswered is forgotten."""
        count = 0
        while not self.ends.wait(_PAUSE):
            count += 1
            path = f"a/f/data/{number}-{count % _DOCUMENTS}/{('data.xml', 'scan.bin')[count // _DOCUMENTS % 2]}"
            body = b"<d>%d</d>" % count
            try:
                answer = self.service.put(path, body, **V1)
            except OSError:
                self.acknowledged.pop(path, None)
                return
            self.statuses.add(answer.status)
            if answer.status < 300:
                self.acknowledged[path] = (body, _facts(answer))


def _facts(answer: Answer) -> list[str | None]:
    return [answer[name] for name in _HEADERS]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("there", "here"), _WAYS)
def test_nothing_acknowledged_is_missing_after_kills(
    tmp_path: Path, there: str, here: str, request: pytest.FixtureRequest
) -> None:
    """Clients save until the service is ended by ``--then``; the destination answers what they were answered."""

    def place(kind: str, name: str) -> str:
        if kind == "tree":
            return str(tmp_path / name)
        return str(request.getfixturevalue("database_server").uri(fresh_schema()))

    source, to = place(there, "from"), place(here, "to")
    options = ["--workers", "2", "--data", source]
    with running(tmp_path / "service", options=options, env={"PERSISTENCE_LOCAL": str(tmp_path / "local")}) as service:
        clients = _Clients(service)
        threads = [threading.Thread(target=clients.write, args=(number,)) for number in range(_WRITERS)]
        with ExitStack() as ended:
            ended.callback(clients.ends.set)
            for each in threads:
                each.start()
            for seconds in _KILLED_AFTER:
                mover = _moving(tmp_path, source, to)
                time.sleep(seconds)
                mover.send_signal(signal.SIGKILL)
                mover.communicate()
            stop = f"sleep 1; kill {service.process.pid}; while kill -0 {service.process.pid}; do sleep 0.1; done"
            mover = _moving(tmp_path, source, to, "--then", f"({stop}) 2>&-")
            said = mover.communicate(timeout=240)[1].decode()
        for each in threads:
            each.join()
    assert mover.returncode == 0, said
    assert 503 in clients.statuses
    assert clients.statuses <= {201, 204, 503}
    assert re.search(r"last pass: .*; [0-9]+\.[0-9] s", said)
    assert len(clients.acknowledged) > _WRITERS * _DOCUMENTS
    with in_process.serving(tmp_path / "after", place=to, alone=True) as after:
        answered = {path: after.get(path) for path in clients.acknowledged}
    assert {path: (each.body, _facts(each)) for path, each in answered.items()} == clients.acknowledged


def _moving(directory: Path, source: str, to: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "persistence.cli", "move", "--from", source, "--to", to, *options]
    environment = {**os.environ, "PERSISTENCE_LOCAL": str(directory / "moving")}
    return subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
