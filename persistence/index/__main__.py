"""A process that makes indexes, begun by a service or a command (``work``)."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import msgspec

from persistence.errors import PersistenceError
from persistence.index.making import processors
from persistence.index.reindexing import reported
from persistence.index.work import Work

_ENDED = 143
"""The status of a process that was told to end, as shells have it."""


def main() -> int:
    """Make them; 1 where that was not possible, and the cause is said."""
    signal.signal(signal.SIGTERM, _end)
    work = msgspec.json.decode(sys.stdin.buffer.read(), type=Work)
    try:
        if work.tasks:
            with reported(work) as progress:
                work.run(processes=processors(), progress=progress)
        for cause in work.make_flat_views():
            sys.stderr.write(f"persistence: no flat views of {cause}\n")
    except (PersistenceError, OSError) as error:
        sys.stderr.write(f"persistence: the index cannot be made: {error}\n")
        return 1
    return 0


def _end(_number: int, _frame: FrameType | None) -> None:
    """End as an exception does: unfinished files are removed, and the processes that read are ended."""
    raise SystemExit(_ENDED)


if __name__ == "__main__":
    sys.exit(main())
