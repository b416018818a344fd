"""The processors that the service may use, the one on which each worker stays, and the processes that it starts.

Only one thread of a worker runs Python at a time. Left to the system, its threads move from processor to processor, and
each takes the memory of the interpreter along: 8 connections send 1.28 times as many PUTs, and 1.1 to 1.25 times as
many GETs, to workers that are kept (docs/reliability.md).
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from persistence.limits import LONGEST_OUTPUT, LONGEST_OUTPUT_LINE

_ALL = frozenset(os.sched_getaffinity(0))
"""The processors of this process at its start, before it was kept on one of them."""

_LEAST_WORKERS, _MOST_WORKERS = 2, 4
_CPU_MAX = "/sys/fs/cgroup/cpu.max"


def count() -> int:
    return len(_ALL)


def workers(wanted: int) -> int:
    """Return the number of worker processes; 0 is one for each processor, but two at least and four at most."""
    return wanted or min(max(min(count(), _quota()), _LEAST_WORKERS), _MOST_WORKERS)


def _quota() -> int:
    try:
        with open(_CPU_MAX, encoding="ascii") as file:
            quota, period = file.read().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # there is none, or it is max
        return sys.maxsize


def one_for(size: int, taken: Iterable[int | None]) -> int | None:
    """Return one of the processors that the fewest workers have; ``None`` (all) if there are more than workers."""
    if count() > size:
        return None
    running = list(taken)
    return min(sorted(_ALL), key=running.count)


def stay_on(processor: int) -> None:
    """Keep this thread, and those that it starts, on one processor; on all where the system does not allow it."""
    with suppress(OSError):
        os.sched_setaffinity(0, {processor})


@contextmanager
def all_of_them() -> Iterator[None]:
    """Let processes that this thread starts in a block use all processors again."""
    own = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, _ALL)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, own)


# Processes that the service starts: Python, isolated from the current directory and from the environment's paths.
#
# ``python -I -m persistence.processes ARGUMENT...`` starts another one with the arguments of Python, and passes on
# the first lines of its streams and the last one, so that no file of them grows for ever. It is a process of its own,
# because a command of the pages goes on when the worker that has begun it is replaced.
Child = subprocess.Popen[bytes]


def start(*arguments: str, given: bytes | None = None, **options: Any) -> Child:
    """Start Python, isolated from the current directory and the settings in the environment, on all processors."""
    # Others can read its arguments: what is long or secret is ``given`` as its standard input.
    with all_of_them(), ExitStack() as stack:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PERSISTENCE_")}
        if given is not None:
            options["stdin"] = stack.enter_context(tempfile.TemporaryFile())
            options["stdin"].write(given)
            options["stdin"].seek(0)
        return subprocess.Popen([sys.executable, "-I", *arguments], cwd="/", env=environment, **options)  # noqa: S603 - our own interpreter


def run(arguments: list[str]) -> int:
    """Run Python to its end, and return its exit status. It has the input and the locks of this process, too."""
    pipe = subprocess.PIPE
    with start(*arguments, stdout=pipe, stderr=pipe, close_fds=False) as process:
        streams = ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
        threads = [threading.Thread(target=pass_on, args=(source, target)) for source, target in streams if source]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return process.returncode


def pass_on(source: IO[bytes], target: IO[bytes], most: int = LONGEST_OUTPUT) -> None:
    """Copy lines from a stream to another one until they are too many, then the last one, when the stream ends."""
    left, last = most, b""
    while line := source.readline(LONGEST_OUTPUT_LINE):
        if len(line) <= left:
            target.write(line)
            target.flush()
            left -= len(line)
        else:
            left, last = 0, line
    target.write(last)
    target.flush()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
