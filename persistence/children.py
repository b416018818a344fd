"""Processes that the service starts: Python, isolated from the current directory and from the environment's paths.

``python -I -m persistence.children ARGUMENT...`` starts another one with the arguments of Python, and passes on the
first lines of its streams and the last one, so that no file of them grows for ever. It is a process of its own, because
a command of the pages goes on when the worker that has begun it is replaced.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from typing import IO, Any

from persistence import processors
from persistence.limits import LONGEST_OUTPUT, LONGEST_OUTPUT_LINE

Child = subprocess.Popen[bytes]


def start(*arguments: str, given: bytes | None = None, **options: Any) -> Child:
    """Start Python, isolated from the current directory and the settings in the environment, on all processors.

    Others can read its arguments: what is long or secret is ``given`` as its standard input.
    """
    with processors.all_of_them(), ExitStack() as stack:
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
