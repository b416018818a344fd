"""Attaching strace to a running process: the one place that starts it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

_PATIENCE = 10.0


class TracingError(Exception):
    """strace could not be attached; the text is what it said."""


def calls(*names: str) -> str:
    """A set of system calls for ``-e trace=``; those that this machine does not have are left out."""
    return ",".join(f"?{name}" for name in names)


def require(directory: Path) -> None:
    """Skip the calling test where processes cannot be traced."""
    reason = refusal(directory)
    if reason is not None:
        pytest.skip(reason)


@cache
def refusal(directory: Path) -> str | None:
    """Why processes cannot be traced here, if they cannot."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    # A sibling of this process, as a worker is one of strace: some systems allow tracing one's own children only.
    sleeper = subprocess.Popen([sys.executable, "-S", "-c", f"import time; time.sleep({_PATIENCE})"])
    try:
        with attached(sleeper.pid, directory / "trial.log"):
            return None
    except TracingError as error:
        return f"processes cannot be traced here: {error}"
    finally:
        sleeper.kill()
        sleeper.wait()


@contextmanager
def attached(pid: int, log: Path, *options: str) -> Iterator[None]:
    """Trace a process or thread into ``log`` for the length of a block, at the end of which the log is complete.

    Raises:
        TracingError: strace cannot be attached.
    """
    said = log.with_suffix(".said")
    with said.open("wb") as output:
        tracer = subprocess.Popen(
            ["strace", "-o", str(log), *options, "-p", str(pid)], stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        _await(tracer, said)
        yield
    finally:
        tracer.terminate()  # it lets go of what still runs, and has ended already where its signal killed that
        try:
            tracer.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()


def _await(tracer: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while b" attached" not in said.read_bytes():
        if tracer.poll() is not None or time.monotonic() > deadline:
            raise TracingError(said.read_text(errors="replace").strip() or "strace did not attach in time")
        time.sleep(0.001)
