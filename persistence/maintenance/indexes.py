"""The indexes of a tree, as commands and checks use them: rebuilds, searches by an administrator, comparison."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager

from persistence.crypto import EncryptionKeys
from persistence.dialect import Dialect
from persistence.errors import BusyError, NotFoundError, disk_errors
from persistence.index.protocol import RebuildAim, SearchIndex
from persistence.index.sync.rebuild import IndexJob
from persistence.index.sync.updater import TreeIndex
from persistence.maintenance.reports import TreeReader
from persistence.model.addresses import Form
from persistence.model.queries import DraftFilter, Hits, Query, Scope
from persistence.model.versions import Searched
from persistence.services.searching import searched_versions, unknown_controls, unpublished_version
from persistence.storage import owner, root
from persistence.storage.layout import SERVICE, Layout
from persistence.storage.locks import Lease, LockFile
from persistence.storage.reader import StoreReader

_PATIENCE = 600.0  # Seconds to wait for documents that are being indexed
_PAUSE = 0.2


@contextmanager
def writable_tree(path: str) -> Iterator[StoreReader]:
    """Open a tree to write its index; it cannot be restored or upgraded during the block."""
    view = StoreReader(path)
    with ExitStack() as stack:
        with disk_errors(f"data directory {view.root}"):
            owner.require(view.root)
            root.make_own(view.root)  # a copy may have come without
            stack.enter_context(LockFile(Layout(view.root).own(SERVICE)).shared())
            stack.enter_context(closing(Lease(view.root)))
        yield view


def plan(
    view: StoreReader, index: TreeIndex, aim: RebuildAim, form: Form | None = None, version: int | None = None
) -> IndexJob:
    if form is None:
        return index.job(sorted(view.forms()), aim)
    require_form(view, index, form)
    if version is not None and version not in index.versions(form):
        raise NotFoundError(f"{form} has no version {version}")
    return index.job((form,), aim, version)


def rebuild_without_trace(view: StoreReader, index: TreeIndex, form: Form) -> None:
    """Rebuild the index of a form, so that no value that is not there any more stays in a file of it."""
    plan(view, index, RebuildAim.REBUILT, form).run(lambda _: None)
    index.sweep(form)


def require_form(view: StoreReader, index: TreeIndex, form: Form) -> None:
    """Check that a form has data or a definition in the tree, or a definition elsewhere."""
    if form not in view.forms(form.app) and not index.has_definition(form):
        raise NotFoundError(f"{form} does not exist")


class FormSearch:
    """Searches a form for an administrator, who may see everything, in the versions of a request (spec search 1.4)."""

    def __init__(
        self, reader: TreeReader, index: SearchIndex, dialect: Dialect, form: Form, version: int | Searched
    ) -> None:
        self._index = index
        self._form = form
        self._versions = searched_versions(form, reader.properties.of(form), reader.catalog_of(form), version, dialect)

    def require_controls(self, paths: Iterable[str]) -> None:
        """Check that all paths are those of indexed controls, by the definition that counts for the search."""
        indexed = self._versions.index_paths or ()
        unknown = unknown_controls(self._form, self._versions.definition.version, indexed, paths)
        if unknown is not None:
            raise NotFoundError(unknown)

    def run(self, query: Query, drafts: DraftFilter, keys: EncryptionKeys | None = None) -> Hits:
        self._versions.require_ranges(query.controls)
        if keys is not None and self._versions.configured.finds_encrypted:
            query = keys.ring().with_tokens(query, self._form)
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                hits = self._index.search(self._form, Scope(self._versions.numbers, drafts), query)
                break
            except BusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
        asked = self._versions.asked
        if hits.total == 0 and isinstance(asked, int) and self._versions.definition.published is None:
            published = (each.version for each in self._versions.catalog.published(self._form, skips_damaged=True))
            raise NotFoundError(unpublished_version(self._form, asked, published))
        return hits
