"""Searching a form as its service does, for whoever may see everything."""

from __future__ import annotations

import time
from collections.abc import Iterable

from persistence.dialect import Dialect
from persistence.errors import BusyError, NotFoundError, disk_errors
from persistence.index.index import Index
from persistence.index.making import State
from persistence.index.work import Aim, Work
from persistence.maintenance import indexes
from persistence.maintenance.sight import Sight
from persistence.model.addresses import Form
from persistence.model.search import DraftFilter, Hits, Query, Scope
from persistence.model.versions import Searched
from persistence.services.notices import unknown_controls, unpublished_version
from persistence.services.search_scope import searched_versions

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
        self._asked = version
        self._versions = searched_versions(form, sight.properties.of(form), sight.catalog_of(form), version, dialect)

    def require_controls(self, paths: Iterable[str]) -> None:
        """Make sure that all paths are those of indexed controls, of the version whose definition counts.

        Raises:
            NotFoundError: one is not; its text has the nearest.
        """
        version, indexed = self._versions.definition.version, self._versions.index_paths or ()
        unknown = unknown_controls(self._form, version, indexed, paths)
        if unknown is not None:
            raise NotFoundError(unknown)

    def needed(self) -> Work | None:
        """The making of an index, where there is none that can be used and there are documents."""
        maker = self._index.maker(self._form)
        with disk_errors("looking at the index of", self._form):
            if maker.state() is State.READY or next(maker.source.documents(), None) is None:
                return None
        return indexes.work_on(self._sight.store, self._index, Aim.READY, self._form)

    def run(self, query: Query, drafts: DraftFilter) -> Hits:
        """What the query finds.

        Raises:
            NotFoundError: nothing is found, and the version that was asked for is not published.
            BusyError: documents are being read anew, and that takes very long.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                hits = self._index.search(self._form, Scope(self._versions.numbers, drafts), query)
            except BusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
                continue
            if hits.total == 0:
                self._require_published()
            return hits

    def _require_published(self) -> None:
        if isinstance(self._asked, int) and self._versions.definition.published is None:
            published = (each.version for each in self._versions.catalog.readable(self._form))
            raise NotFoundError(unpublished_version(self._form, self._asked, published))
