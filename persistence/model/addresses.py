"""Addresses of resources (spec seed, rule 4; spec forms 6.7), and their names in an archive (spec crud 8.4)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import quote, unquote

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_PATH
from persistence.model import texts
from persistence.model.texts import Instant

SERVICE_PREFIX = "/fr/service"  # The path of all services of the form runtime
PUBLIC_PREFIX = f"{SERVICE_PREFIX}/persistence"  # The path of the interface that reads and writes forms

_CRUD = f"{PUBLIC_PREFIX}/crud/"
DATA_XML = "data.xml"
FORM_XHTML = "form.xhtml"
DESIGNER_FORM = "builder"
LIBRARY_FORM = "library"  # The form that holds the section templates of an application

DESIGNER_VERSION = 1  # The only version of the designer's own data (seed, Versioning 5)


class Collection(Enum):
    """The two collections of form data: saved data, and drafts written by autosave."""

    DATA = "data"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True, order=True)
class Form:
    """A form: application name and form name."""

    app: str
    name: str

    def __str__(self) -> str:
        return f"{self.app}/{self.name}"


@dataclass(frozen=True, slots=True)
class DefinitionAddress:
    """One file of one version of a form definition: with ``is_main`` the definition itself, else an attachment."""

    form: Form
    version: int
    name: str = FORM_XHTML
    is_main: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_main", self.name == FORM_XHTML)

    @property
    def main(self) -> DefinitionAddress:
        return self if self.is_main else replace(self, name=FORM_XHTML)

    @property
    def folder(self) -> str:
        """The path of the version, as people read it."""
        return f"{self.form}/form/{self.version}"

    @property
    def keeps_history(self) -> bool:
        """Return True: published definitions are journaled (spec crud 4.4)."""
        return True

    @property
    def scope(self) -> tuple[str, ...]:
        """The unit that a writer locks: all versions of the form, because ``next`` depends on all of them."""
        return (self.form.app, self.form.name, "form")

    def __str__(self) -> str:
        return f"{self.form}/form/{self.name} version {self.version}"


@dataclass(frozen=True, slots=True)
class DocumentAddress:
    """One file of a document, saved or draft: with ``is_main`` the form data itself, else an attachment."""

    form: Form
    collection: Collection
    document: str
    name: str = DATA_XML
    is_main: bool = field(init=False, repr=False, compare=False)
    is_draft: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_main", self.name == DATA_XML)
        object.__setattr__(self, "is_draft", self.collection is Collection.DRAFT)

    @property
    def main(self) -> DocumentAddress:
        return self if self.is_main else replace(self, name=DATA_XML)

    @property
    def folder(self) -> str:
        """The path of the document or draft, as people read it."""
        return f"{self.form}/{self.collection.value}/{self.document}"

    @property
    def counterpart(self) -> DocumentAddress:
        """The ``data.xml`` of the draft of a saved document, and of the saved document of a draft."""
        other = Collection.DATA if self.is_draft else Collection.DRAFT
        return DocumentAddress(self.form, other, self.document)

    @property
    def keeps_history(self) -> bool:
        """Return whether old revisions are kept: a draft has one only, and leaves no trace (spec crud 4.11)."""
        return not self.is_draft

    @property
    def scope(self) -> tuple[str, ...]:
        """The unit that a writer locks: the document with its draft, because saving one removes the other."""
        return (self.form.app, self.form.name, "data", self.document)

    def moved(self, collection: Collection, name: str | None = None) -> DocumentAddress:
        return replace(self, collection=collection, name=name or self.name)

    def __str__(self) -> str:
        return f"{self.folder}/{self.name}"


Address = DefinitionAddress | DocumentAddress


@dataclass(frozen=True, slots=True)
class AttachmentRef:
    """The attachment that a holder path names: of a document, or without ``collection`` of any version of a form."""

    form: Form
    collection: Collection | None
    document: str
    name: str

    def is_of(self, address: DocumentAddress) -> bool:
        return (self.form, self.collection, self.document) == (address.form, address.collection, address.document)


def parse_holder_path(text: str) -> AttachmentRef | None:
    """Read the text of an element; return ``None`` where it is not the path of an attachment."""
    path = text.strip()
    if not path.startswith(_CRUD) or len(path) > LONGEST_PATH:
        return None
    try:
        parts = [unquote(part, errors="strict") for part in path[len(_CRUD) :].partition("?")[0].split("/")]
    except UnicodeDecodeError:  # no resource is called so
        return None
    if parts[-1] in ("", DATA_XML, FORM_XHTML):
        return None
    match parts:
        case [app, form, "form", name]:
            return AttachmentRef(Form(app, form), None, "", name)
        case [app, form, "data" | "draft" as collection, document, name]:
            return AttachmentRef(Form(app, form), Collection(collection), document, name)
    return None


def definition_holder_path(form: Form, name: str) -> str:
    app, form_name, file = (quote(part, safe="") for part in (form.app, form.name, name))
    return f"{_CRUD}{app}/{form_name}/form/{file}"


def document_holder_path(address: DocumentAddress) -> str:
    names = (address.form.app, address.form.name, address.collection.value, address.document, address.name)
    return _CRUD + "/".join(quote(name, safe="") for name in names)


@dataclass(frozen=True, slots=True)
class TokenSubject:
    """The one document that an access token is for, in one version of its form."""

    form: Form
    version: int
    document: str


LATEST = "latest"
METADATA_SUFFIX = ".metadata.xml"
ERRORS_ENTRY = "export-errors.txt"  # The entry, always the last one, that names what could not be exported: a line each

_TIMESTAMP = 0x5455
_MODIFIED, _ACCESSED, _CREATED = 1, 2, 4
_DEFINITIONS = "form"
_WITHOUT_COLONS = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)[_\uf022\uf03a](\d\d)[_\uf022\uf03a](\d\d(?:\.\d+)?Z)", re.ASCII)
"""An instant as it is named on Windows, and by the mappings of file servers for macOS and Windows."""
_VERSION = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_ATTACHMENT = ".attachment"  # Ends the name of an entry whose file is called as the metadata of another one would be


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
    """Read the name of an entry; instants may be written in any way that requests may write them."""
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
    instant = None
    if moment != LATEST:
        without_colons = _WITHOUT_COLONS.fullmatch(moment)
        text = moment if without_colons is None else ":".join(without_colons.groups())
        try:
            instant = texts.from_datetime(texts.parse_time(text, "the time"))
        except BadRequestError as error:
            raise _invalid_entry(path) from error
    return ArchiveEntry(address, version, instant, is_metadata)


def extended_timestamps(modified: Instant, created: Instant) -> tuple[bytes, bytes]:
    """Return the extra fields with the times of an entry in seconds; empty where a time does not fit."""
    # The first is for the header before the content, the second, without the time of creation, for the directory. The
    # archives of the real system have the times of ``latest`` entries there alone (spec runtime 7).
    seconds = [texts.epoch_seconds(each) for each in (modified, created)]
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
                    found[flag] = texts.from_epoch(seconds)
                    at += 4
            return found.get(_MODIFIED), found.get(_CREATED)
    return None, None


def _invalid_entry(path: str) -> BadRequestError:
    return BadRequestError(f"{path[:LONGEST_PATH]!r} is not the name of a revision in an archive")


def _looks_like_metadata(name: str) -> bool:
    while name.endswith(_ATTACHMENT):
        name = name.removesuffix(_ATTACHMENT)
    return name.endswith(METADATA_SUFFIX)
