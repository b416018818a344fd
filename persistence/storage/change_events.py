"""Who wants to hear which documents change, before and after: the index, which must not become stale unnoticed."""

from __future__ import annotations

from typing import Protocol

from persistence.model.addresses import Form


class ChangeListener(Protocol):
    """Hears of every change to the ``data.xml`` of a document, saved or draft; that of definitions is not told.

    Its methods are called by every thread, and raise nothing: no change fails because of who hears of it.
    """

    def changing(self, form: Form, document: str) -> None:
        """A document is about to change. Its lock is held, and nobody sees anything of the change yet."""

    def changed(self, form: Form, document: str) -> None:
        """What was told before is over, and the lock released. It may have failed: before the commit or after it."""


class _Nobody:
    def changing(self, form: Form, document: str) -> None:
        pass

    def changed(self, form: Form, document: str) -> None:
        pass


NOBODY: ChangeListener = _Nobody()
"""The observer where nobody wants to hear."""


class ChangeEvents:
    """What is told while one lock is held: of every document once, however much of it changes."""

    def __init__(self, observer: ChangeListener) -> None:
        self._observer = observer
        self._told: dict[tuple[Form, str], None] = {}

    def begins(self, form: Form, document: str) -> None:
        """Tell that a document is about to change."""
        if (form, document) not in self._told:
            self._told[form, document] = None
            self._observer.changing(form, document)

    def ends(self) -> None:
        """Tell that it is over, once the lock is released."""
        for form, document in self._told:
            self._observer.changed(form, document)
