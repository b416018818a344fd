"""The controls of published forms, read once for each stored revision and kept in memory."""

from __future__ import annotations

from functools import lru_cache

from persistence.errors import disk_errors
from persistence.forms.controls import Control, read_controls
from persistence.forms.trees import LARGEST
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.store.reading import Mark
from persistence.store.storage import Readable

_MOST_KEPT = 256


class Controls:
    """Reads definitions. As in the catalog, a mark tells whether what was read is still what is there."""

    def __init__(self, store: Readable) -> None:
        self._store = store
        self._kept = lru_cache(_MOST_KEPT)(self._read)

    def of(self, form: Form, version: int) -> tuple[Control, ...] | None:
        """The controls of a version of a form; ``None`` where it is not published.

        Raises:
            DamagedError: it cannot be read.
            BadRequestError: it is too large, or has more controls than anyone's.
        """
        address = DefinitionAddress(form, version, FORM_XHTML)
        return self._kept(address, self._store.mark(address))

    def _read(self, address: DefinitionAddress, _mark: Mark) -> tuple[Control, ...] | None:
        found = self._store.read(address, content=True)
        if found is None or found.file is None:
            return None
        with found.file as file, disk_errors(f"reading {address}"):
            data = file.read(LARGEST + 1)
        return read_controls(data)
