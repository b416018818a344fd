"""The flat views of a file tree, kept up to date with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from persistence.closable import Closable, closed
from persistence.errors import DiskError, disk_errors
from persistence.forms.flat_tables import RowReader
from persistence.index.sources import Source, flat_rows
from persistence.index.sqlite import engine
from persistence.index.sync.rebuild import SMALL, FlatMaker, FlatTask, IndexJob, JobProcesses
from persistence.index.sync.staleness import tree_identity
from persistence.model.addresses import Form
from persistence.processes import Child
from persistence.storage.reader import StoreReader

_PATIENCE = 1.0
"""Seconds for which changes wait for a process that makes views: they, and later ones of the form, are tried again."""


class FlatViews(Closable):
    """The flat views of the tree of a root. A ``ReportTables``. Methods raise ``DiskError`` and ``BusyError``."""

    # It owns a connection to their file, and processes. ``defined_elsewhere`` gives forms with definitions in another
    # tree.
    def __init__(
        self, root: str, source_of: Callable[[Form], Source], defined_elsewhere: Callable[[], Iterable[Form]] = tuple
    ) -> None:
        self._root = os.path.realpath(root)
        self._source_of = source_of
        self._defined_elsewhere = defined_elsewhere
        self._file = engine.FlatFile(self._root)
        self._lock = threading.Lock()
        self._kept: _KeptCatalogue | None = None
        self._is_closed = False
        self._processes = JobProcesses()
        self._restoring: Child | None = None
        self._restored: engine.FileIdentity | None = None
        self._is_asked = False

    def close(self) -> None:
        self._processes.close()
        with self._lock:
            self._is_closed = True
            self._close()

    def create(self, form: Form, version: int) -> None:
        view = self._source_of(form).view
        if sum(1 for _ in islice(view.documents(form), SMALL + 1)) <= SMALL:
            FlatMaker(self._source_of(form), self._root).make(version, is_new=True)
        elif not self._processes.run(IndexJob(self._root, flat=(self.task(form, version, is_new=True),))):
            raise DiskError("the flat views could not be made; the log says why")
        self.restore()

    def drop(self, form: Form, version: int) -> None:
        FlatMaker(self._source_of(form), self._root).make(version)

    def refresh(self, form: Form, documents: Iterable[str]) -> None:
        """Replace the rows of documents; do nothing where the form has no views."""
        # If the file turns out to be damaged, everything is read again (``restore``).
        with self._using(f"bringing the flat views up to date of {form}", form) as kept:
            if kept is None or not kept.catalogue.versions(form):
                return
            with kept.catalogue.changing():
                versions = kept.catalogue.versions(form)
                views = {version: kept.catalogue.views(form, version) for version in versions}
                readers = {version: RowReader(of_version) for version, of_version in views.items()}
                source = self._source_of(form)
                every = [view for of_version in views.values() for view in of_version]
                for document in documents:
                    kept.catalogue.remove_rows(every, document)
                    rows = flat_rows(source.view, form, readers, document)
                    if rows is not None:
                        kept.catalogue.add_rows(rows)

    def restore(self) -> None:
        """Start a process that makes the views again which may be out of date, after a power cut, for instance."""
        # If the file is lost, these are all views that the sidecars of definitions ask for; they are read once.
        if self._file.identity is None and not self._is_asked:
            self._is_asked = True
            catalogs = ((form, self._source_of(form).catalog) for form in self._forms())
            if any(
                catalog.of(form, version).has_flat_views
                for form, catalog in catalogs
                for version in catalog.storage.versions(form)
            ):
                self._file.make()
        with self._using("looking at the flat views") as kept:
            if kept is None:
                return
            tree, catalogue = tree_identity(self._root), kept.catalogue
            if catalogue.is_complete and catalogue.is_of(tree):
                return
            if self._restoring is not None and self._restoring.poll() is None and self._restored == kept.identity:
                return
            forms = catalogue.forms() if catalogue.is_complete else self._forms()
            tasks = tuple(self.task(form, but=tree) for form in forms)
            self._restoring, self._restored = self._processes.begin(IndexJob(self._root, flat=tasks)), kept.identity

    def _forms(self) -> Iterable[Form]:
        return {*StoreReader(self._root).forms(), *self._defined_elsewhere()}

    @contextmanager
    def _using(self, action: str, form: Form | None = None) -> Iterator[_KeptCatalogue | None]:
        """Use the connection of this process for a block; ``None`` where there is no file."""
        # A damaged file is replaced by an empty one; where only the views of ``form`` are wrong, their rows are marked
        # to be read again. ``restore`` does the rest.
        with self._lock, disk_errors(action):
            if self._is_closed:
                raise closed("the file of flat views")
            engine.require_space(self._root)
            found, is_fresh = self._file.identity, False
            try:
                kept = self._opened(found)
            except engine.FLAT_FAILURES as error:
                self._repair(engine.flat_failure(error, action), found, form)
                found, is_fresh = self._file.identity, True
                kept = self._opened(found)
            try:
                yield kept
            except engine.FLAT_FAILURES as error:
                self._close()
                self._repair(engine.flat_failure(error, action), found, form)
            else:
                if not is_fresh:
                    return
        self.restore()

    def _repair(self, error: Exception, found: engine.FileIdentity | None, form: Form | None) -> None:
        match error:
            case engine.InconsistentError() if form is not None:
                with suppress(engine.UnusableError), self._file.opened() as catalogue:
                    catalogue.doubt(form)
                    return
            case engine.InconsistentError() | engine.UnusableError():
                pass
            case _:
                raise error
        self._file.discard(found)
        self._file.make()

    def _opened(self, found: engine.FileIdentity | None) -> _KeptCatalogue | None:
        kept = self._kept
        if kept is not None and kept.identity != found:
            self._close()
            kept = None
        if kept is None and found is not None:
            kept = self._kept = _KeptCatalogue(self._file.opened(_PATIENCE), found)
        return kept

    def _close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.catalogue.close()

    def task(self, form: Form, version: int | None = None, *, but: str = "", is_new: bool = False) -> FlatTask:
        return FlatTask(self._source_of(form).described, version, but, is_new)


class _KeptCatalogue(NamedTuple):
    """A catalogue that stays open: as long as one does, others can read the file without being allowed to write."""

    catalogue: engine.FlatCatalogue
    identity: engine.FileIdentity
