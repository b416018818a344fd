"""The names in an archive of forms and data, a ZIP file (spec crud 8.4)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import UTC, datetime

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_PATH
from persistence.model import instants
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.instants import Instant

LATEST = "latest"
METADATA_SUFFIX = ".metadata.xml"
ERRORS_ENTRY = "export-errors.txt"
"""The entry, always the last one, that names what could not be exported: a line each."""

_TIMESTAMP = 0x5455
_MODIFIED, _ACCESSED, _CREATED = 1, 2, 4
_DEFINITIONS = "form"
_WITHOUT_COLONS = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)[_\uf022\uf03a](\d\d)[_\uf022\uf03a](\d\d(?:\.\d+)?Z)", re.ASCII)
"""An instant as it is named on Windows, and by the mappings of file servers for macOS and Windows."""
_VERSION = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_ATTACHMENT = ".attachment"
"""Ends the name of an entry whose file is called as the metadata of another one would be."""


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A revision of a file in an archive, or with ``is_metadata`` its facts; ``instant`` is ``None`` for the latest.

    ::

        A/F/V/form/latest/FILE              a file of a definition, and form/<instant>/FILE an older revision of it
        A/F/V/data/DOC/<instant>/data.xml   each revision of a document; ``latest`` in an archive without a history
        A/F/V/data/DOC/latest/FILE          an attachment, and data/DOC/<instant>/FILE an older revision of it
        A/F/V/draft/DOC/latest/FILE         a draft, with its ``data.xml``
        <entry>.metadata.xml                the facts of the entry beside it; alone: it was deleted at that time
    """

    address: Address
    version: int
    instant: Instant | None
    is_metadata: bool = False

    @property
    def path(self) -> str:
        address = self.address
        holder = (
            (_DEFINITIONS,) if isinstance(address, DefinitionAddress) else (address.collection.value, address.document)
        )
        moment = LATEST if self.instant is None else self.instant
        file = address.name + _ATTACHMENT if _looks_like_metadata(address.name) else address.name
        names = (address.form.app, address.form.name, str(self.version), *holder, moment, file)
        return "/".join(names) + (METADATA_SUFFIX if self.is_metadata else "")


def entry_of(
    address: Address, version: int, modified: Instant, *, is_current: bool, has_history: bool = True
) -> ArchiveEntry:
    """Return the entry of a revision: that of saved form data has its instant where the archive has a history."""
    is_dated = has_history and isinstance(address, DocumentAddress) and address.is_main and not address.is_draft
    return ArchiveEntry(address, version, modified if is_dated or not is_current else None)


def parse_entry(path: str) -> ArchiveEntry:
    """Read the name of an entry; instants may be written in any way that requests may write them.

    Whether a tree can keep the names in it, its layout decides.
    """
    parts = path.split("/") if len(path) <= LONGEST_PATH else []
    if not all(parts):
        raise _invalid_entry(path)
    match parts:
        case [app, form_name, number, *holder, moment, file] if _VERSION.fullmatch(number):
            form, version = Form(app, form_name), int(number)
        case _:
            raise _invalid_entry(path)
    is_metadata = file.endswith(METADATA_SUFFIX) and file != METADATA_SUFFIX
    name = file.removesuffix(METADATA_SUFFIX) if is_metadata else file
    if _looks_like_metadata(name):
        name = name.removesuffix(_ATTACHMENT)
    address: Address
    match holder:
        case [kind] if kind == _DEFINITIONS:
            address = DefinitionAddress(form, version, name)
        case ["data" | "draft" as collection, document]:
            address = DocumentAddress(form, Collection(collection), document, name)
        case _:
            raise _invalid_entry(path)
    return ArchiveEntry(address, version, None if moment == LATEST else _instant(moment, path), is_metadata)


def extended_timestamps(modified: Instant, created: Instant) -> tuple[bytes, bytes]:
    """Return the extra fields with the times of an entry in seconds; empty where a time does not fit.

    The first is for the header before the content, the second, without the time of creation, for the directory. The
    archives of the real system have the times of ``latest`` entries there alone (spec runtime 7).
    """
    seconds = [instants.epoch_seconds(each) for each in (modified, created)]
    if not all(-(1 << 31) <= each < 1 << 31 for each in seconds):
        return b"", b""
    flags = _MODIFIED | _CREATED
    return struct.pack("<HHBll", _TIMESTAMP, 9, flags, *seconds), struct.pack("<HHBl", _TIMESTAMP, 5, flags, seconds[0])


def times_in(extra: bytes) -> tuple[Instant | None, Instant | None]:
    """Return the times of modification and creation in the extra fields of an entry, as far as they are there."""
    while len(extra) >= 4:  # noqa: PLR2004 - the number of a field and its length
        number, size = struct.unpack_from("<HH", extra)
        field, extra = extra[4 : 4 + size], extra[4 + size :]
        if number == _TIMESTAMP and field:
            at, found = 1, dict[int, Instant]()
            for flag in (_MODIFIED, _ACCESSED, _CREATED):
                if field[0] & flag and len(field) >= at + 4:
                    (seconds,) = struct.unpack_from("<l", field, at)
                    found[flag] = instants.from_datetime(datetime.fromtimestamp(seconds, UTC))
                    at += 4
            return found.get(_MODIFIED), found.get(_CREATED)
    return None, None


def _instant(moment: str, path: str) -> Instant:
    without_colons = _WITHOUT_COLONS.fullmatch(moment)
    try:
        text = moment if without_colons is None else ":".join(without_colons.groups())
        return instants.from_datetime(instants.parse_time(text, "the time"))
    except BadRequestError as error:
        raise _invalid_entry(path) from error


def _invalid_entry(path: str) -> BadRequestError:
    return BadRequestError(f"{path[:LONGEST_PATH]!r} is not the name of a revision in an archive")


def _looks_like_metadata(name: str) -> bool:
    while name.endswith(_ATTACHMENT):
        name = name.removesuffix(_ATTACHMENT)
    return name.endswith(METADATA_SUFFIX)
