"""A process that makes indexes, begun by a service or a command (``work``)."""

from __future__ import annotations

import sys

import msgspec

from persistence.errors import PersistenceError
from persistence.index.making import processors
from persistence.index.reindexing import reported
from persistence.index.work import Work


def main() -> int:
    """Make them; 1 where that was not possible, and the cause is said."""
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


if __name__ == "__main__":
    sys.exit(main())
