"""The service without an index that hears of what is saved: what a PUT costs without it."""

from __future__ import annotations

from persistence.app import create_app
from persistence.index.sync.updater import Failed, TreeIndex, Updater
from persistence.model.addresses import Form


class Deaf(Updater):
    """An updater that hears of no change, writes no journal and has no thread."""

    def start(self) -> None:
        """Recover nothing."""

    def changing(self, form: Form, document: str) -> None:
        """Write no journal entry."""

    def changed(self, form: Form, document: str) -> None:
        """Leave the index as it is."""


def _deaf(index: TreeIndex, failed: Failed) -> Updater:
    return Deaf(index.journal, index, index.flat, index.recover, failed)


TreeIndex.updater = _deaf  # type: ignore[assignment, method-assign]

app = create_app()
