"""The service for whoever strikes it at single calls: ``python -m tests.rig_service serve``.

Its threads bear their names in the kernel too, so that the one that serves is found, however many others there are. Its
indexer works at once: what was stored before a strike it has taken in soon (``search_faults.await_index``).
"""

import threading
from contextlib import suppress
from pathlib import Path

from persistence.cli import main
from persistence.index.sync import updater

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[1])}
"""What the service needs to find this module, wherever it runs."""

_LONGEST = 15
SERVING = "ThreadPoolExecutor"[:_LONGEST]


def rig() -> None:
    """Let each thread that is started from now on tell the kernel its name, and the indexer not wait for more."""
    updater._GATHERING = 0.0  # noqa: SLF001 - there is nothing to set it by
    real = threading.Thread.run

    def run(self: threading.Thread) -> None:
        Path("/proc/thread-self/comm").write_text(self.name[:_LONGEST])
        real(self)

    threading.Thread.run = run  # type: ignore[method-assign]


def serving(worker: int) -> Path:
    """The task of a worker's only thread that serves; it is there from the first request on."""
    (task,) = (task for task in Path(f"/proc/{worker}/task").iterdir() if _name(task).startswith(SERVING))
    return task


def _name(task: Path) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):  # others may end meanwhile
        return (task / "comm").read_text()
    return ""


if __name__ == "__main__":
    rig()
    main()
