"""The controls of published forms, read once for each stored revision and kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from persistence.errors import disk_errors
from persistence.forms.controls import Control, read_controls
from persistence.keeping import Kept
from persistence.limits import DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES, LARGEST_TREE
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.form_versions import DATA_FORMATS
from persistence.storage.storage import Readable
from persistence.xml.markup import may_mention

_CHUNK = 1 << 18
_ENCRYPT = b"encrypt"
"""What is in the mark of a control whose value is encrypted (spec forms 4.1)."""


@dataclass(frozen=True, slots=True)
class Marked:
    """The controls of a version whose values are encrypted: their ``paths`` by data format.

    ``values`` are the paths of those among them that take no files, in whatever format.

    ``holders`` are the same as the header of an attachment names them, in whatever format (spec forms 4.2).
    """

    paths: Mapping[str, frozenset[tuple[str, ...]]]
    holders: frozenset[str]
    values: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, controls: Iterable[Control]) -> Marked:
        """Those of some controls."""
        marked = [control for control in controls if control.is_encrypted]
        paths = {each: frozenset(control.paths[each] for control in marked) for each in DATA_FORMATS}
        values = frozenset(path for each in marked if not each.takes_files for path in each.paths.values())
        return cls(paths, frozenset("/".join(path) for each in paths.values() for path in each), values)

    def __or__(self, other: Marked) -> Marked:
        """What is marked by one of two."""
        paths = {each: self.paths[each] | other.paths[each] for each in DATA_FORMATS}
        return Marked(paths, self.holders | other.holders, self.values | other.values)


class Controls:
    """Reads definitions. As in the catalog, a mark tells whether what was read is still what is there.

    Methods raise ``DamagedError`` for a definition that cannot be read, and ``BadRequestError`` for one that is too
    large or has more controls than anyone's.
    """

    def __init__(self, store: Readable) -> None:
        self._store = store
        self._kept: Kept[tuple[Control, ...] | None] = Kept(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self._kept_marked: Kept[Marked | None] = Kept(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)

    def of(self, form: Form, version: int) -> tuple[Control, ...] | None:
        """The controls of a version of a form; ``None`` where it is not published."""
        address = DefinitionAddress(form, version, FORM_XHTML)
        return self._kept.of((address, self._store.fingerprint(address)), lambda: self._read(address))

    def marked(self, form: Form, version: int) -> Marked | None:
        """The controls that are encrypted; ``None`` where the version is not published."""
        address = DefinitionAddress(form, version, FORM_XHTML)
        return self._kept_marked.of((address, self._store.fingerprint(address)), lambda: self._read_marked(address))

    def _read(self, address: DefinitionAddress) -> tuple[Control, ...] | None:
        file = self._open(address)
        if file is None:
            return None
        with file, disk_errors(f"reading {address}"):
            data = file.read(LARGEST_TREE + 1)
        return read_controls(data)

    def _read_marked(self, address: DefinitionAddress) -> Marked | None:
        """A definition that does not mention encryption, which is most of them, needs no tree."""
        file = self._open(address)
        if file is None:
            return None
        with file, disk_errors(f"reading {address}"):
            if not may_mention(iter(partial(file.read, _CHUNK), b""), _ENCRYPT):
                return Marked.of(())
            file.seek(0)
            data = file.read(LARGEST_TREE + 1)
        return Marked.of(read_controls(data))

    def _open(self, address: DefinitionAddress) -> BinaryIO | None:
        found = self._store.read(address, content=True)
        return None if found is None else found.file
