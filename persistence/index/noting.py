"""What tells the index of changes by whoever has none at hand: a command that looks after the tree."""

from __future__ import annotations

import os
from contextlib import suppress

from persistence.closable import Closable
from persistence.index.pending import Pending
from persistence.model.addresses import Form
from persistence.storage import files
from persistence.storage.layout import PENDING, Layout

_AT_ONCE = 100
"""Documents after which the notes are left to the service, which would look at all of them with every search."""


class Noting(Closable):
    """Notes which documents change, one after another, and leaves them for whoever searches next to take in.

    What cannot be noted makes the form's index void, so that it is made anew.
    """

    def __init__(self, root: str) -> None:
        self._layout = Layout(os.path.realpath(root))
        self._pending = Pending(self._layout.own(PENDING))
        self._void: set[Form] = set()
        self._count = 0

    def changing(self, form: Form, document: str) -> None:
        """Note a document, before it changes."""
        try:
            self._pending.note(form, document)
        except OSError:
            self._void.add(form)
            self._forget(form)

    def changed(self, form: Form, document: str) -> None:  # noqa: ARG002 - what an observer is told
        """Leave it to the service; where it is not noted, the index may have been made anew before it changed."""
        if form in self._void:
            self._forget(form)
        self._count += 1
        if self._count % _AT_ONCE == 0:
            self.leave()

    def leave(self) -> None:
        """Leave all that is noted to others, this process too: nothing is changed any more."""
        with suppress(OSError):
            self._pending.leave()

    def close(self) -> None:
        """Leave what is noted to others; nothing is noted any more."""
        self._pending.close()

    def _forget(self, form: Form) -> None:
        with suppress(OSError):
            files.remove(self._layout.current_index(form))
