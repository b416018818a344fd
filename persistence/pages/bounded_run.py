"""Run a command for the pages, and pass on its first lines and its last one, so that no file of them grows for ever.

``python -m persistence.pages.bounded_run PROGRAM ARGUMENT...``: each stream has at most ``LONGEST_OUTPUT`` bytes and
the last line. It is a process of its own, because the command goes on when the worker that has begun it is replaced.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import IO

from persistence.limits.pages import LONGEST_OUTPUT, LONGEST_OUTPUT_LINE


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


def run(command: list[str]) -> int:
    """Run a command to its end, and return its exit status. It has the locks of this process, too."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False) as process:  # noqa: S603 - as the pages have chosen it
        streams = ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
        threads = [threading.Thread(target=pass_on, args=(source, target)) for source, target in streams if source]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return process.returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
