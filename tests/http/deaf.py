"""The service, whose index hears of no change: as if each process died before its thread came to it."""

from persistence.cli import main
from persistence.index.sync.updater import Updater

if __name__ == "__main__":
    Updater._run = lambda _self: None  # type: ignore[method-assign]  # noqa: SLF001 - the moment to be hit
    main()
