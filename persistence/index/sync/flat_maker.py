"""Making the flat views of form versions: their tables, and the rows of all documents.

Each version is made in one transaction, so no reader sees half of it. In that transaction the catalogue says that the
form has flat views: a process that changes a document meanwhile waits for it to end, and then replaces the rows of the
document; earlier changes are read. So no change is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

from persistence.definitions.catalog import Catalog
from persistence.errors import BadRequestError, BusyError, DamagedError, PersistenceError, disk_errors
from persistence.forms.flat_tables import RowReader, read_flat_views
from persistence.index.sources import Source
from persistence.index.sqlite import engine
from persistence.index.sync.staleness import tree_identity
from persistence.limits.definitions import LARGEST_TREE
from persistence.limits.requests import CHUNK
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.flat_views import FlatNaming, FlatView
from persistence.storage.storage import Readable

_LONGEST_WAIT = 600.0
"""Seconds to wait for a process that makes other views."""

_CHECKPOINT = 1.0
"""Seconds to wait for those who read, so that the log can be emptied; otherwise the next one empties it."""
_ATTEMPTS = 5
_RETRY_AFTER = 5


class FlatReader:
    """Reads the rows of the saved documents of one form, by the views of its versions.

    Methods raise ``DiskError``, and ``BusyError`` where writers were always in the way.
    """

    def __init__(self, view: Readable, form: Form, views: Mapping[int, tuple[FlatView, ...]]) -> None:
        self._view = view
        self._form = form
        self._views = views
        self._readers = {version: RowReader(of_version) for version, of_version in views.items()}

    def all(self) -> Iterator[engine.FlatRows]:
        """Yield the rows of every document of the versions, in no order."""
        return (rows for rows in map(self.read, self._view.documents(self._form)) if rows is not None)

    def read(self, document: str) -> engine.FlatRows | None:
        """Return the rows of a document; ``None`` where there is none, or where it belongs to another version.

        A damaged document counts as none, and ``check`` reports it. One that cannot be parsed has no values.
        """
        address = DocumentAddress(self._form, Collection.DATA, document, DATA_XML)
        try:
            found = self._view.read(address, content=True)
        except DamagedError:
            return None
        if found is None or found.file is None:
            return None
        sidecar = found.sidecar
        with found.file as file, disk_errors("reading", address):
            reader = self._readers.get(sidecar.version)
            if reader is None:
                return None
            views = self._views[sidecar.version]
            try:
                rows = reader.read(iter(partial(os.read, file.fileno(), CHUNK), b""))
            except BadRequestError:  # edited by hand, or too large for tables
                rows = {view.name: [] for view in views}
                rows[views[0].name] = [(None,) * len(views[0].columns)]
        return engine.FlatRows(views, (document, sidecar.created, sidecar.modified, sidecar.modifier), rows)


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
        """Do some work by a connection to the file, which is made if it is missing or unusable."""
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
                for rows in FlatReader(self.view, self.form, {version: views}).all():
                    catalogue.add_rows(rows)
        if cause is not None:
            raise cause

    def _is_wanted(self, version: int) -> bool:
        """Return whether flat views of a version were asked for."""
        return self.catalog.of(self.form, version).has_flat_views
