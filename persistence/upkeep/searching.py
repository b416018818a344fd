"""Searching a form as its service does, for whoever may see everything."""

from __future__ import annotations

import time

from persistence.dialect import Dialect
from persistence.errors import BusyError
from persistence.index.index import Index
from persistence.index.making import State
from persistence.index.work import Aim, Work
from persistence.model.addresses import Form
from persistence.model.search import Hits, Query, Scope, WhichDrafts
from persistence.model.versions import Searched
from persistence.service.searched import searched
from persistence.upkeep import indexes
from persistence.upkeep.sight import Sight

_PATIENCE = 600.0
"""Seconds for which it is waited for documents that are being read anew."""
_PAUSE = 0.2


class Search:
    """Searches in a form, of those versions that a request means by ``version`` (spec search 1.4).

    Methods raise ``DiskError``.
    """

    def __init__(self, sight: Sight, index: Index, dialect: Dialect, form: Form, version: int | Searched) -> None:
        """Look which versions that are.

        Raises:
            NotFoundError: there is no such form.
            BadRequestError: its name cannot be that of a directory, or it has version 1 only and another is asked for.
            DamagedError: a definition cannot be read.
        """
        indexes.require_form(sight.store, index, form)
        self._sight = sight
        self._index = index
        self._form = form
        self._versions = searched(form, version, catalog=sight.catalog, properties=sight.properties, dialect=dialect)

    def indexed(self) -> tuple[str, ...]:
        """The paths of the indexed controls, of the version whose definition counts."""
        return self._index.keys(self._form, self._versions.definition) or ()

    def needed(self) -> Work | None:
        """The making of an index, where there is none that can be used and there are documents."""
        maker = self._index.maker(self._form)
        if maker.state() is State.READY or next(maker.source.documents(), None) is None:
            return None
        return indexes.work_on(self._sight.store, self._index, Aim.READY, self._form)

    def run(self, query: Query, drafts: WhichDrafts) -> Hits:
        """What the query finds.

        Raises:
            BusyError: documents are being read anew, and that takes very long.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._index.search(self._form, Scope(self._versions.versions, drafts), query)
            except BusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
