"""Reading what the saved documents of a form have in its flat views."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from persistence.errors import BadRequestError, DamagedError, disk_errors
from persistence.forms.flat_tables import Cell, RowReader
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.flat_views import FlatView
from persistence.storage.storage import Readable

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Filled:
    """The rows of a document by the name of the view; ``metadata`` are the values of ``METADATA_COLUMNS``."""

    views: tuple[FlatView, ...]
    metadata: tuple[Cell, ...]
    rows: Mapping[str, list[tuple[Cell, ...]]]


class Documents:
    """The saved documents of one form, read by the views of its versions.

    Methods raise ``DiskError``, and ``BusyError`` where writers were always in the way.
    """

    def __init__(self, view: Readable, form: Form, views: Mapping[int, tuple[FlatView, ...]]) -> None:
        self._view = view
        self._form = form
        self._views = views
        self._readers = {version: RowReader(of_version) for version, of_version in views.items()}

    def all(self) -> Iterator[Filled]:
        """Every document of the versions, in no order."""
        for document in self._view.documents(self._form):
            filled = self.read(document)
            if filled is not None:
                yield filled

    def read(self, document: str) -> Filled | None:
        """A document; ``None`` where there is none, or where it is of another version.

        One that is damaged counts as none, and ``check`` tells of it. One that cannot be taken apart has no values.
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
                rows = reader.read(iter(partial(os.read, file.fileno(), _CHUNK), b""))
            except BadRequestError:  # edited by hand, or too large for tables
                rows = {view.name: [] for view in views}
                rows[views[0].name] = [(None,) * len(views[0].columns)]
        metadata = document, sidecar.created, sidecar.modified, sidecar.modifier
        return Filled(views, metadata, rows)
