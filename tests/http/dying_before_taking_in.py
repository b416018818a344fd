"""The service, whose first worker is killed when it is to take in what was stored."""

import os
import signal
from collections.abc import Iterable
from pathlib import Path

from persistence.cli import main
from persistence.index.sync.index_files import IndexFiles
from persistence.model.addresses import Form


def _die_once() -> None:
    real = IndexFiles.refresh
    trace = Path.cwd() / "died"

    def refresh(self: IndexFiles, form: Form, documents: Iterable[str]) -> None:
        if not trace.exists():
            trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, form, documents)

    IndexFiles.refresh = refresh  # type: ignore[method-assign]


if __name__ == "__main__":
    _die_once()
    main()
