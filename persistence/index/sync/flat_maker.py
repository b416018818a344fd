"""Making the flat views of form versions: their tables, and the rows of all documents.

Each version is made in one transaction, so no reader sees half of it. In that transaction the catalogue says that the
form has flat views: a process that changes a document meanwhile waits for it to end, and then replaces the rows of the
document; earlier changes are read. So no change is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from persistence.definitions.catalog import Catalog
from persistence.errors import BadRequestError, BusyError, DamagedError, PersistenceError, disk_errors
from persistence.forms.flat_tables import RowReader, read_flat_views
from persistence.index.flat_rows import FlatReader
from persistence.index.sources import Source
from persistence.index.sqlite import engine
from persistence.index.sync.staleness import tree_identity
from persistence.limits import LARGEST_TREE
from persistence.model.addresses import Form
from persistence.model.flat_views import FlatNaming
from persistence.storage.storage import Readable

_LONGEST_WAIT = 600.0
"""Seconds to wait for a process that makes other views."""

_CHECKPOINT = 1.0
"""Seconds to wait for those who read, so that the log can be emptied; otherwise the next one empties it."""
_ATTEMPTS = 5
_RETRY_AFTER = 5


@dataclass(frozen=True, slots=True)
class FlatMaker:
    """Makes the flat views of one form, called as ``naming`` says.

    Methods raise ``DiskError``, ``BusyError`` and the domain errors of reading a definition.
    """

    view: Readable
    catalog: Catalog
    root: str
    form: Form
    naming: FlatNaming

    @classmethod
    def of(cls, source: Source, root: str) -> Self:
        """Make the views of a source in the tree of a root."""
        return cls(source.view, source.catalog, root, source.form, source.described.naming)

    def create(self, version: int) -> None:
        """Make the views of a version by its definition, in the place of its present ones; none if it is deleted."""

        def work(catalogue: engine.FlatCatalogue) -> None:
            catalogue.request(self.form, version)
            self._make(catalogue, version)

        self._change(work)

    def drop(self, version: int) -> None:
        """Drop the views of a version if its definition is deleted."""
        if self._file.identity is not None:
            self._change(lambda catalogue: self._make(catalogue, version))

    def refill(self, version: int, *, but: str = "") -> None:
        """Read the rows of a version again, unless they are of the tree ``but``; its columns stay.

        Where its views were lost, they are made again.
        """

        def work(catalogue: engine.FlatCatalogue) -> None:
            if version not in catalogue.versions(self.form) and self._is_wanted(version):
                catalogue.request(self.form, version)
            self._make(catalogue, version, but)

        if self._file.identity is not None or self._is_wanted(version):
            self._change(work)

    def refill_all(self, *, but: str = "") -> Iterator[str]:
        """Read the rows of all versions again; yield why some cannot be made."""
        known: set[int] = set()
        if self._file.identity is not None:
            self._change(lambda catalogue: known.update(catalogue.versions(self.form)))
        for version in sorted({*known, *filter(self._is_wanted, self.catalog.storage.versions(self.form))}):
            try:
                self.refill(version, but=but)
            except PersistenceError as error:
                yield f"{self.form}, version {version}: {error}"

    @property
    def _file(self) -> engine.FlatFile:
        return engine.FlatFile(self.root)

    def _change(self, work: Callable[[engine.FlatCatalogue], None]) -> None:
        what = f"making flat views of {self.form}"
        with disk_errors(what):
            for _ in range(_ATTEMPTS):
                found = None
                try:
                    self._file.make()
                    found = self._file.identity
                    with self._file.opened(_LONGEST_WAIT) as catalogue:
                        work(catalogue)
                        catalogue.checkpoint(_CHECKPOINT)
                except engine.FLAT_FAILURES as error:
                    meaning = engine.flat_failure(error, what)
                    if not isinstance(meaning, engine.UnusableError):
                        raise meaning from error
                    self._file.discard(found)
                else:
                    if self._file.identity == found:
                        return
        raise BusyError("the file of flat views is being made again and again", _RETRY_AFTER)

    def _make(self, catalogue: engine.FlatCatalogue, version: int, but: str = "") -> None:
        """Make the tables of a version in the catalogue, and fill them, unless they are of the tree ``but``.

        Where no views can be made by its definition, the present ones are filled again, and then the cause is raised.
        """
        cause: PersistenceError | None = None
        with catalogue.changing():
            known = catalogue.versions(self.form).get(version)
            if known is None or (but and known.tree == but):
                return
            views, tag = catalogue.views(self.form, version), known.definition
            catalogue.remove(self.form, version)
            definition = self.catalog.of(self.form, version)
            found = definition.stored()
            if found is None or found.file is None:
                return
            with found.file as file, disk_errors("reading", definition.address):
                if not tag:
                    tag = found.etag
                    try:
                        stored = file.read(LARGEST_TREE + 1)
                        views = read_flat_views(stored, self.form, version, self.naming, catalogue.names())
                    except (BadRequestError, DamagedError) as error:
                        cause = error
            if views:
                catalogue.add(self.form, version, engine.CataloguedVersion(tag, tree_identity(self.root)), views)
                for rows in FlatReader(self.view, self.form, {version: RowReader(views)}).all():
                    catalogue.add_rows(rows)
        if cause is not None:
            raise cause

    def _is_wanted(self, version: int) -> bool:
        return self.catalog.of(self.form, version).has_flat_views
