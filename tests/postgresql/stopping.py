"""Servers that are stopped: their network goes on answering, and nothing else does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.postgresql.server import Server


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop all processes of a server for a block, which begins when they have stopped."""
    processes = _signal(server, signal.SIGSTOP)
    try:
        while any(map(_runs, processes)):
            time.sleep(0.01)
        yield
    finally:
        _signal(server, signal.SIGCONT)


def _signal(server: Server, which: int) -> list[int]:
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    processes = [server.pid, *map(int, children.split())]
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, which)
    return processes


def _runs(process: int) -> bool:
    """Return whether a process has not stopped yet, nor ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"T", "Z"}
