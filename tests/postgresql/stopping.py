"""Servers that are stopped: their network goes on answering, and nothing else does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.postgresql.server import Server


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop all processes of a server for a block."""
    _signal(server, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(server, signal.SIGCONT)


def _signal(server: Server, which: int) -> None:
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    for pid in (server.pid, *map(int, children.split())):
        with suppress(ProcessLookupError):
            os.kill(pid, which)
