"""``config/logrotate.conf`` and real logrotate: no line is lost while the service answers requests."""

from __future__ import annotations

import grp
import gzip
import json
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_commands import persistence
from tests.service import Service, alone
from tests.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "config/logrotate.conf"
LOGROTATE = shutil.which("logrotate", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
ROTATIONS = 2


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service with two workers whose log is a file; standard error leads there from its start on."""
    (tmp_path / "log").mkdir()
    log = tmp_path / "log/persistence.log"
    with alone(tmp_path, workers=2, log=log, env={"PERSISTENCE_LOG_FILE": str(log)}) as service:
        yield service


def example(service: Service, directory: Path) -> tuple[Path, dict[str, str]]:
    """Return the example for the log of a service, and an environment with a ``systemctl`` that knows its process."""
    user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
    text = EXAMPLE.read_text().replace("/var/lib/persistence/var/log/persistence.log", str(service.log))
    file = directory / "logrotate.conf"
    file.write_text(text.replace("su persistence persistence", f"su {user} {group}"))
    file.chmod(0o644)
    assert str(service.log) in file.read_text()
    command = directory / "bin/systemctl"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\n[ "$*" = "kill --kill-who=main --signal=USR1 persistence.service" ] && '
        f"kill -USR1 {service.process.pid}\n"
    )
    command.chmod(0o755)
    return file, {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}


def written(directory: Path) -> str:
    """Return all lines of a log and of what was rotated."""
    return "".join(
        gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for path in directory.iterdir()
    )


@pytest.mark.skipif(LOGROTATE is None, reason="logrotate is not installed")
def test_no_line_is_lost_while_logrotate_rotates(service: Service, tmp_path: Path) -> None:
    file, environment = example(service, tmp_path)
    ends, sent = threading.Event(), []

    def ask(thread: int) -> None:
        number = 0
        while not ends.is_set() or number < 20:
            sent.append(f"{thread}-{number}")
            service.get("hr/leave/data/1/data.xml", {"X-Request-Id": sent[-1]})
            number += 1
            time.sleep(0.02)  # a hundred requests for each rotation are enough

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(ROTATIONS):
            command = [str(LOGROTATE), "--force", "--state", str(tmp_path / "state"), str(file)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            service.get(f"hr/leave/data/{number}/data.xml")
            ends.wait(1.1)  # names of rotated files have the second
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    names = [path.name for path in service.log.parent.iterdir()]
    assert len(names) == ROTATIONS + 1
    assert len([name for name in names if name.endswith(".gz")]) == ROTATIONS - 1
    lines = written(service.log.parent).splitlines()
    found = Counter(line["id"] for line in map(json.loads, lines) if "id" in line)
    assert [each for each in sent if found[each] != 1] == []
    current = service.log.read_text()
    assert current
    assert "Booting worker" not in current  # no worker was replaced for that


def test_the_log_is_opened_again_by_every_process(service: Service) -> None:
    """Lines of the service, which go to standard error, and those of gunicorn's own logger; of a new worker, too."""
    old = service.log.rename(service.log.with_name("old"))
    service.process.send_signal(signal.SIGUSR1)
    processes = [service.process.pid, *service.workers()]
    eventually(lambda: all(os.path.realpath(f"/proc/{pid}/fd/2") == str(service.log) for pid in processes))
    size = old.stat().st_size
    service.get("hr/leave/data/1/data.xml", {"X-Request-Id": "afterwards"})
    os.kill(service.workers()[0], signal.SIGKILL)
    eventually(lambda: "Booting worker" in service.log.read_text())
    assert '"id":"afterwards"' in service.log.read_text()
    assert old.stat().st_size == size


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "missing/persistence.log"
    command = ("serve", "--init", "--data", "data", "--bind", "127.0.0.1:0")
    done = persistence(*command, cwd=tmp_path, env={"PERSISTENCE_LOG_FILE": str(log)})
    assert done.returncode == 1
    assert done.stderr == f"persistence: cannot write the log to {log}: No such file or directory\n"


def test_standard_output_stays_where_it_is(tmp_path: Path) -> None:
    """It may be the audit."""
    log = tmp_path / "service.log"
    with alone(tmp_path, log=log, env={"PERSISTENCE_LOG_FILE": str(log), "PERSISTENCE_AUDIT": "stdout"}) as service:
        log.rename(tmp_path / "old")
        service.process.send_signal(signal.SIGUSR1)
        (worker,) = service.workers()
        eventually(lambda: os.path.realpath(f"/proc/{worker}/fd/2") == str(log))
        service.put("hr/leave/data/1/data.xml", b"<a/>", Form_Definition_Version=1)
    assert '"status":201' in log.read_text()
    assert '"action":"create"' not in log.read_text()
    assert '"action":"create"' in (tmp_path / "old").read_text()
