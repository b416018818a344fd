"""The service and its commands without one of their protections, to show that the model would notice.

``python -m tests.modelled.weakened …`` takes what ``persistence`` takes; ``WEAKENED`` in the environment names the
protection to do without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from persistence.cli import main
from persistence.errors import ConflictError
from persistence.index.sync.updater import Updater
from persistence.model.addresses import DocumentAddress, Form
from persistence.model.instants import Instant, next_after
from persistence.providers.router import Route
from persistence.services import histories, purging, rules
from persistence.storage import commit, files
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.writer import Writer
from tests.linear import weakened
from tests.modelled.server import Variant

_ROOT = Path(__file__).parents[2]


def _keep_drafts() -> None:
    """A save leaves the draft."""
    Writer.discard_draft = lambda *_: None  # type: ignore[method-assign,assignment]


def _keep_no_history() -> None:
    """A write replaces the revision before it."""
    commit.keep = lambda paths, _sidecar: files.open_directory(paths.directory)


def _trust_the_clock() -> None:
    """An instant is that of the clock, whatever was stored before."""
    rules.next_after = lambda _previous: next_after(None)


def _tell_no_index() -> None:
    """The index hears of no change."""

    def nothing(_self: Updater, _form: Form, _document: str) -> None:
        """Nothing."""

    Updater.changing = nothing  # type: ignore[method-assign]
    Updater.changed = nothing  # type: ignore[method-assign]


def _remember() -> None:
    """A worker goes on showing what it showed last, for as long as a slow machine needs to ask again."""
    weakened.REMEMBERED = 5.0
    weakened.WEAKNESSES["no fresh reads"]()


def _count_the_tombstone_alone() -> None:
    """A purge of a deleted document looks at nothing that was stored after the deletion."""
    purging.newest_of = lambda store, main: store.sidecar(main)


def _revert_to_what_is_left() -> None:
    """A revert brings back the first revision of an attachment that a purge has left."""
    as_of = histories._as_of  # noqa: SLF001 - without what it refuses

    def first(route: Route, address: DocumentAddress, moment: Instant) -> StoredRevision | None:
        with suppress(ConflictError):
            return as_of(route, address, moment)
        revisions = route.storage.history(address)
        assert revisions is not None
        return route.storage.read_revision(address, revisions.instant(revisions.total - 1), content=False)

    histories._as_of = first  # noqa: SLF001


TRUSTING = "instants of the clock"
WEAKNESSES: dict[str, Callable[[], None]] = {
    "drafts stay": _keep_drafts,
    "no history": _keep_no_history,
    TRUSTING: _trust_the_clock,
    "the index is not told": _tell_no_index,
    "no fresh reads": _remember,
}
REMOVAL_WEAKNESSES: dict[str, Callable[[], None]] = {
    "the tombstone alone counts": _count_the_tombstone_alone,
    "reverts to what is left": _revert_to_what_is_left,
}


def variant(weakness: str, workers: int = 2) -> Variant:
    """The service and its commands without a protection."""
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    return Variant("tests.modelled.weakened", {weakened.WEAKENED: weakness, "PYTHONPATH": path}, workers)


if __name__ == "__main__":
    {**WEAKNESSES, **REMOVAL_WEAKNESSES}[os.environ[weakened.WEAKENED]]()
    main()
