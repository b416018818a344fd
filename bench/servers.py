"""Servers of a benchmark: each on a free port of loopback, for the length of a block."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from persistence.storage.root import init

HERE = Path(__file__).parent
CONFIG = HERE.parent / "config"
SERVICE = "persistence.app:create_app()"
"""The service, as gunicorn names it."""

_UNINDEXED = "unindexed:app"
_READY = 60.0
_STOPPING = 60.0


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def scratch(parent: str | None) -> Iterator[Path]:
    """Make a directory for the length of a block; on ext4 the directories in it lie in groups of inodes of their own.

    ext4 looks for the inode of a new file in the group of its directory, and passes one by one over those that were
    deleted in the last minutes: where another benchmark was cleaned up, it takes 0.2 to 0.5 ms in place of 0.01.
    """
    with tempfile.TemporaryDirectory(prefix="persistence-bench-", dir=parent) as name:
        directory = Path(name)
        directory.chmod(0o755)
        with suppress(OSError):
            command = ("chattr", "+T", name)
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
        yield directory


@contextmanager
def running(command: Sequence[str], port: int, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run a server that listens on a port; yields its first process."""
    own, quiet = {**os.environ, **(environment or {})}, subprocess.DEVNULL
    process = subprocess.Popen(command, env=own, cwd=HERE, stderr=quiet, stdout=quiet)
    try:
        wait(port, process)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOPPING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server accepts connections."""
    deadline = time.monotonic() + _READY
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"this did not start: {process.args!r}") from None
            time.sleep(0.02)
        else:
            return


@contextmanager
def server(application: str, directory: str, workers: int, threads: int) -> Iterator[int]:
    """Run a gunicorn with one application; yields its port."""
    if application in {SERVICE, _UNINDEXED}:
        init(directory)
    environment = {"PERSISTENCE_DATA": directory, "BENCH_DATA": directory}
    with served(application, environment, workers, threads) as (port, _):
        yield port


@contextmanager
def served(application: str, environment: Mapping[str, str], workers: int, threads: int) -> Iterator[tuple[int, int]]:
    """Run a gunicorn with one application; yields its port and its first process. The service has its own settings."""
    port = free_port()
    own = ("-c", str(CONFIG / "gunicorn.conf.py")) if application in {SERVICE, _UNINDEXED} else ("-k", "gthread")
    command = [
        *(sys.executable, "-m", "gunicorn", *own, "-b", f"127.0.0.1:{port}", "--log-level", "critical"),
        *("-w", str(workers), "--threads", str(threads), "--keep-alive", "75", "--no-control-socket"),
        *("--chdir", str(HERE), application),
    ]
    with running(command, port, environment) as process:
        yield port, process
