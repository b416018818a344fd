"""Events before and after a document changes: the index must not become stale unnoticed."""

from __future__ import annotations

from typing import Protocol

from persistence.model.addresses import Form


class ChangeListener(Protocol):
    """Listens to every change of the ``data.xml`` of a document, saved or draft. Changes of definitions are not told.

    Its methods are called by every thread, and raise nothing: no change fails because of its listener.
    """

    def changing(self, form: Form, document: str) -> None:
        """A document is about to change. Its lock is held, and nobody sees anything of the change yet.

        Raises:
            BusyError: the listener was closed; the document must not change.
        """

    def changed(self, form: Form, document: str) -> None:
        """A change that was told is over, and the lock released. It may have failed: before the commit or after it."""


class _Nobody:
    def changing(self, form: Form, document: str) -> None:
        pass

    def changed(self, form: Form, document: str) -> None:
        pass


NOBODY: ChangeListener = _Nobody()
"""The listener where nobody wants to hear."""


class ChangeEvents:
    """The events of one lock: of every document one, however much of it changes."""

    def __init__(self, listener: ChangeListener) -> None:
        self._listener = listener
        self._told: dict[tuple[Form, str], None] = {}

    def begins(self, form: Form, document: str) -> None:
        """Tell that a document is about to change."""
        if (form, document) not in self._told:
            self._listener.changing(form, document)
            self._told[form, document] = None  # a listener that refuses hears nothing of the end either

    def ends(self) -> None:
        """Tell that it is over, once the lock is released."""
        for form, document in self._told:
            self._listener.changed(form, document)
