"""Searching a form as its service does, for whoever may see everything."""

from __future__ import annotations

import time
from collections.abc import Iterable

from persistence.dialect import Dialect
from persistence.errors import BusyError, NotFoundError
from persistence.index.protocol import MaintainedIndex, RebuildAim, RebuildJob
from persistence.maintenance import indexes
from persistence.maintenance.sight import Sight
from persistence.model.addresses import Form
from persistence.model.search import Hits, Query, Scope, WhichDrafts
from persistence.model.versions import Searched
from persistence.services.notices import unknown_controls, unpublished_version
from persistence.services.searched import searched

_PATIENCE = 600.0
"""Seconds for which it is waited for documents that are being read anew."""
_PAUSE = 0.2


class Search:
    """Searches in a form, of those versions that a request means by ``version`` (spec search 1.4).

    Methods raise ``DiskError``.
    """

    def __init__(
        self, sight: Sight, index: MaintainedIndex, dialect: Dialect, form: Form, version: int | Searched
    ) -> None:
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
        self._versions = searched(form, version, catalog=sight.catalog, properties=sight.properties, dialect=dialect)

    def require_controls(self, paths: Iterable[str]) -> None:
        """Make sure that all paths are those of indexed controls, of the version whose definition counts.

        Raises:
            NotFoundError: one is not; its text has the nearest.
        """
        version = self._versions.definition
        indexed = self._index.keys(self._form, version) or ()
        unknown = unknown_controls(self._form, version, indexed, paths)
        if unknown is not None:
            raise NotFoundError(unknown)

    def needed(self) -> RebuildJob | None:
        """Return the making of an index, where there is none that can be used and there are documents."""
        if self._index.is_ready(self._form):
            return None
        return indexes.job_on(self._sight.store, self._index, RebuildAim.READY, self._form)

    def run(self, query: Query, drafts: WhichDrafts) -> Hits:
        """What the query finds.

        Raises:
            NotFoundError: nothing is found, and the version that was asked for is not published.
            BusyError: documents are being read anew, and that takes very long.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                hits = self._index.search(self._form, Scope(self._versions.versions, drafts), query)
            except BusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
                continue
            if hits.total == 0:
                self._require_published()
            return hits

    def _require_published(self) -> None:
        if isinstance(self._asked, int) and self._sight.catalog.version(self._form, self._asked) is None:
            published = (each.version for each in self._sight.catalog.readable(self._form))
            raise NotFoundError(unpublished_version(self._form, self._asked, published))
