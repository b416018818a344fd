"""What those use of a tree who keep nothing in it: its locks, and room for what is on its way."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import partial

from persistence.errors import disk_errors
from persistence.storage.layout import CREATIONS, ELSEWHERE_LOCKS, SPOOL, Layout
from persistence.storage.locks import Locks
from persistence.storage.root import make_own
from persistence.storage.uploads import Upload


class Holding:
    """Below the root of a tree that was opened already; ``lock_timeout`` is in seconds.

    Documents elsewhere have locks of their own: who is slow there keeps nobody here from writing.
    """

    def __init__(self, root: str, *, lock_timeout: float) -> None:
        self._layout = Layout(os.path.realpath(root))
        make_own_again = partial(make_own, self._layout.root)
        self._documents = Locks(self._layout.own(ELSEWHERE_LOCKS), lock_timeout, missing=make_own_again)
        self._creations = Locks(self._layout.own(CREATIONS), lock_timeout, missing=make_own_again)

    def upload(self) -> Upload:
        """Begin to receive a content; raises ``DiskError``."""
        with disk_errors("receiving a body"):
            return Upload(self._layout.root, self._layout.own(SPOOL))

    def writing(self, scope: tuple[str, ...]) -> AbstractContextManager[None]:
        """Hold the lock of a scope for a block; raises ``BusyError`` and ``OSError``."""
        return self._documents.holding(scope)

    def creating(self, scope: tuple[str, ...]) -> AbstractContextManager[None]:
        """Hold the lock for creating in a scope, while that of a document is held; raises as ``writing`` does."""
        return self._creations.holding(scope)
