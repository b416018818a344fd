"""The service, or a command, with a defect: ``TESTS_DEFECT=2 python -m tests.http.dying serve ...``.

With a number its process dies after so many commits. ``rename-9``, it is killed at its ninth rename, but for those of
the report of a re-encryption. ``deaf``, its index hears of no change, as if each process died
before its thread came to it. ``before-taking-in``, its first worker is killed when it is to take in what was stored.
"""

import os
import signal
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from persistence.cli import main
from persistence.index.sync.updater import TreeIndex, Updater
from persistence.model.addresses import Form
from persistence.storage import files
from persistence.storage.store import Writer

DEFECT = "TESTS_DEFECT"


def _die_after(most: int) -> None:
    real, numbers = Writer.commit, count(1)

    def commit(self: Writer, *arguments: object, **named: object) -> None:
        if next(numbers) > most:
            os._exit(9)
        real(self, *arguments, **named)  # type: ignore[arg-type]

    Writer.commit = commit  # type: ignore[method-assign, assignment]


def _die_at_rename(number: int) -> None:
    real, numbers = files.rename, count(1)

    def rename(source: str, target: str) -> None:
        if ".reencrypt" not in target and next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        real(source, target)

    files.rename = rename


def _die_once() -> None:
    real = TreeIndex.refresh
    trace = Path.cwd() / "died"

    def refresh(self: TreeIndex, form: Form, documents: Iterable[str]) -> None:
        if not trace.exists():
            trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, form, documents)

    TreeIndex.refresh = refresh  # type: ignore[method-assign]


if __name__ == "__main__":
    match os.environ[DEFECT]:
        case "deaf":
            Updater._run = lambda _self: None  # type: ignore[method-assign]  # noqa: SLF001 - the moment to be hit
        case "before-taking-in":
            _die_once()
        case rename if rename.startswith("rename-"):
            _die_at_rename(int(rename.removeprefix("rename-")))
        case commits:
            _die_after(int(commits))
    main()
