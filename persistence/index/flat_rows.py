"""The rows that documents have in the flat views of their versions, read from what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from persistence.errors import BadRequestError, DamagedError, disk_errors
from persistence.forms.flat_tables import Cell, RowReader
from persistence.limits import CHUNK
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.flat_views import FlatView
from persistence.storage.storage import Readable


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """The rows of a document by the name of the view; ``metadata`` are the values of ``METADATA_COLUMNS``."""

    version: int
    views: tuple[FlatView, ...]
    metadata: tuple[Cell, ...]
    rows: Mapping[str, list[tuple[Cell, ...]]]


class FlatReader:
    """Reads the rows of the saved documents of one form, by the readers of its versions.

    Methods raise ``DiskError``, and ``BusyError`` where writers were always in the way.
    """

    def __init__(self, view: Readable, form: Form, readers: Mapping[int, RowReader]) -> None:
        self._view = view
        self._form = form
        self._readers = readers

    def all(self) -> Iterator[DocumentRows]:
        """Yield the rows of every document of the versions, in no order."""
        return (rows for rows in map(self.read, self._view.documents(self._form)) if rows is not None)

    def read(self, document: str) -> DocumentRows | None:
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
            try:
                rows = reader.read(iter(partial(file.read, CHUNK), b""))
            except BadRequestError:  # edited by hand, or too large for tables
                rows = {view.name: [] for view in reader.views}
                rows[reader.views[0].name] = [(None,) * len(reader.views[0].columns)]
        metadata = document, sidecar.created, sidecar.modified, sidecar.modifier
        return DocumentRows(sidecar.version, reader.views, metadata, rows)
