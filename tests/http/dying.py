"""The service, whose process dies after some commits: ``COMMITS=2 python -m tests.http.dying serve ...``."""

import os
from itertools import count

from persistence.cli import main
from persistence.storage.store import Writer

COMMITS = "TESTS_COMMITS"
"""The environment variable that says after how many."""


def _die_after(most: int) -> None:
    real, numbers = Writer.commit, count(1)

    def commit(self: Writer, *arguments: object, **named: object) -> None:
        if next(numbers) > most:
            os._exit(9)
        real(self, *arguments, **named)  # type: ignore[arg-type]

    Writer.commit = commit  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _die_after(int(os.environ[COMMITS]))
    main()
