"""A process that rebuilds indexes, started by a service or a command (``sync.rebuild``)."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import msgspec

from persistence.errors import PersistenceError
from persistence.index.sync.rebuild import IndexJob


def main() -> int:
    """Do the job on standard input; return 1 where that was not possible, and log the cause."""
    signal.signal(signal.SIGTERM, _end)
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=IndexJob)
    try:
        for cause in job.work():
            sys.stderr.write(f"persistence: no flat views of {cause}\n")
    except (PersistenceError, OSError) as error:
        sys.stderr.write(f"persistence: the index cannot be made: {error}\n")
        return 1
    return 0


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)  # the status of a process that was terminated, as shells have it


if __name__ == "__main__":
    sys.exit(main())
