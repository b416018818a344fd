"""The sources of an import: folders, ZIP archives and JSON lines, grouped by document.

Two hierarchies are understood: that of archives (``model/addresses.py``), and that of paths of the interface, where a
document has no version and only one revision::

    A/F/form/FILE, A/F/form/V/FILE      a file of a definition, of version 1 where none is named
    A/F/(data|draft)/DOC/FILE           a file of a document or draft

Either may begin with the path of the interface, for clients or for proxies.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import FileIO
from typing import Annotated, BinaryIO, cast
from unicodedata import normalize
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, LargeZipFile, ZipFile, ZipInfo

import msgspec

from persistence import limits
from persistence.errors import BadRequestError, PersistenceError, disk_errors
from persistence.forms.archive_metadata import ImportFacts, read_metadata
from persistence.model import texts
from persistence.model.addresses import (
    DATA_XML,
    ERRORS_ENTRY,
    FORM_XHTML,
    LATEST,
    METADATA_SUFFIX,
    PUBLIC_PREFIX,
    Address,
    ArchiveEntry,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
    parse_entry,
    times_in,
)
from persistence.model.sidecar import LARGEST_VERSION
from persistence.model.texts import Instant, without_encoding
from persistence.services.import_plans import Content, ImportedRevision, ImportSource, ImportUnit, refused
from persistence.services.purging import without_named
from persistence.services.transfers import TransferOutcome, TransferResult
from persistence.storage import files
from persistence.storage.layout import LAYOUT

_CRUD = ("crud",)
_PREFIXES = ((*PUBLIC_PREFIX.strip("/").split("/"), *_CRUD), _CRUD)
_COLLECTIONS = frozenset(each.value for each in Collection)
_LONGEST_PART = limits.LONGEST_NAME + len(METADATA_SUFFIX)

_INCOMPLETE = f"the archive is incomplete: its last entry, {ERRORS_ENTRY}, names the revisions that it lacks"

_RECOMPOSED = "the name of an attachment was composed (NFC), as the data has it"


NamedEntry = tuple[ArchiveEntry, bool]  # The revision that a name stands for, and whether the name has the form version


def named_entry(name: str) -> NamedEntry:
    parts = tuple(name.split("/")) if len(name) <= limits.LONGEST_PATH else ()
    if not all(parts) or any(part in {".", ".."} or len(part) > _LONGEST_PART for part in parts) or "\\" in name:
        raise BadRequestError("its name has empty parts, dots, backslashes, or is too long")
    with suppress(BadRequestError):
        return parse_entry(name), True  # before prefixes: an application may be called so
    prefix = next((each for each in _PREFIXES if parts[: len(each)] == each), ())
    parts, has_version = parts[len(prefix) :], True
    match parts:
        case (app, form, "form", file):
            parts = (app, form, "1", "form", LATEST, file)
        case (app, form, "form", version, file):
            parts = (app, form, version, "form", LATEST, file)
        case (app, form, collection, document, file) if collection in _COLLECTIONS:
            parts, has_version = (app, form, "1", collection, document, LATEST, file), False
    try:
        return parse_entry("/".join(parts)), has_version
    except BadRequestError as error:
        raise BadRequestError("its name is neither that of a definition nor that of a document") from error


def _may_be_added(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last == "Thumbs.db" or (last.startswith(".") and bool(last.strip(".")))  # which Windows adds to folders


class FilesSource:
    """An ``ImportSource`` of files: a ZIP archive or a folder. Their names are in memory, grouped by document."""

    def __init__(self, files: FolderFiles | ZipFiles) -> None:
        self._files = files
        self._groups: dict[Address, list[str]] = {}
        self._faults: dict[Address, TransferOutcome] = {}
        self._others: list[TransferOutcome] = []
        added, described = list[str](), set[str]()
        for count, name in enumerate(files.names(), 1):
            if count > limits.MOST_FILES:
                raise BadRequestError(f"there are more than {limits.MOST_FILES} files: import them in parts")
            if _may_be_added(name):
                added.append(name)
                described.add(name)
                continue
            if _may_be_added(name.removesuffix(METADATA_SUFFIX)):
                described.add(name)
            self._add(name)
        for name in added:
            is_facts = name.endswith(METADATA_SUFFIX)
            beside = name.removesuffix(METADATA_SUFFIX) if is_facts else f"{name}{METADATA_SUFFIX}"
            self._add(name, is_added=beside not in described)

    def count(self) -> int:
        return len(self._groups) + len(self._others)

    def units(self) -> Iterator[ImportUnit | TransferOutcome]:
        yield from self._others
        for main in sorted(self._groups, key=lambda each: isinstance(each, DocumentAddress)):
            try:
                revisions = _composed(tuple(self._revisions(self._groups[main])))
                yield self._faults.get(main) or ImportUnit(main.folder, revisions, says_owners=True)
            except PersistenceError as error:
                yield refused(main.folder, error, is_definition=isinstance(main, DefinitionAddress))

    def _add(self, name: str, *, is_added: bool = False) -> None:
        *folders, last = name.split("/")
        # A file belongs to no form if it is at the top, or was added by a tool or a system.
        is_apples = folders[:1] == ["__MACOSX"] and last.startswith("._")  # which macOS adds to archives
        is_hidden = any(part.startswith(".") and part.strip(".") for part in folders)
        if is_added or not folders or is_apples or is_hidden:
            notes = (_INCOMPLETE,) if name == ERRORS_ENTRY else ()
            self._others.append(TransferOutcome(name[: limits.LONGEST_ENTRY], TransferResult.IGNORED, notes=notes))
            return
        try:
            entry, _ = named_entry(name)
        except BadRequestError as error:
            self._others.append(refused(name, error))
            return
        main = entry.address.main
        if isinstance(main, DocumentAddress):
            main = main.moved(Collection.DATA)
        self._groups.setdefault(main, []).append(name)
        fault = self._files.fault(name)
        if fault is not None:
            outcome = refused(main.folder, f"{name}: {fault}", is_definition=isinstance(main, DefinitionAddress))
            self._faults.setdefault(main, outcome)

    def _revisions(self, names: Iterable[str]) -> Iterator[ImportedRevision]:
        contents: dict[tuple[Address, Instant | None], tuple[str, NamedEntry]] = {}
        beside: dict[tuple[Address, Instant | None], tuple[str, NamedEntry]] = {}
        for name in names:
            found = named_entry(name)
            entry = found[0]
            held, key = beside if entry.is_metadata else contents, (entry.address, entry.instant)
            if key in held:
                raise BadRequestError(f"{name}: {held[key][0]} has the same revision")
            held[key] = name, found
        for key in {**contents, **beside}:
            name, found = contents.get(key) or beside[key]
            facts = self._facts(beside[key][0]) if key in beside else ImportFacts()
            if facts.sidecar is None and key in contents:
                modified, created = self._files.times(name)
                # An archive of the real system (spec runtime 7). Those of other programs have no time of creation,
                # and their other time is not that of the revision.
                if created is not None or key in beside:
                    facts = replace(facts, modified=facts.modified or modified, created=facts.created or created)
            yield self._revision(name, found, facts, is_there=key in contents)

    def _revision(self, name: str, found: NamedEntry, facts: ImportFacts, *, is_there: bool) -> ImportedRevision:
        (entry, has_version), sidecar = found, facts.sidecar
        version = entry.version if has_version else None
        if sidecar is None:
            if not is_there:
                raise BadRequestError(f"{name}: the content for this metadata is missing")
            facts = replace(facts, modified=entry.instant or facts.modified)
            if entry.address.is_main and isinstance(entry.address, DocumentAddress):
                known = {"last modifier": facts.modifier, "time": facts.modified, "time of creation": facts.created}
                lacking = (f"form data came without a {label}" for label, value in known.items() if value is None)
                facts = replace(facts, notes=(*facts.notes, *lacking))
        elif sidecar.deleted == is_there:
            cause = "a tombstone must not have content" if is_there else "the content is missing"
            raise BadRequestError(f"{name}: {cause}")
        elif version not in (None, sidecar.version) or entry.instant not in (None, sidecar.modified):
            raise BadRequestError(f"{name}: its metadata is of another version or time")
        else:
            version = sidecar.version
        return ImportedRevision(
            name, entry.address, version, facts, partial(self._files.pieces, name) if is_there else None
        )

    def _facts(self, name: str) -> ImportFacts:
        try:
            return read_metadata(self._files.pieces(name))
        except PersistenceError as error:
            raise BadRequestError(f"{name}: {error}") from error


def _composed(revisions: tuple[ImportedRevision, ...]) -> tuple[ImportedRevision, ...]:
    """Return revisions with the names of attachments as the data beside them has them."""
    # macOS decomposes the names of files: an accent becomes a character of its own.
    names = {each.address.name for each in revisions if not each.address.is_main}
    composed = {name: other for name in names if (other := normalize("NFC", name)) not in names}
    if not composed:
        return revisions
    left = {*composed, *composed.values()}
    for each in revisions:
        if each.address.is_main and each.content is not None:
            left = without_named(each.content(), left)
    counts = Counter(composed.values())
    found = {name: to for name, to in composed.items() if name in left and to not in left and counts[to] == 1}
    return tuple(
        replace(
            each,
            address=replace(each.address, name=found[each.address.name]),
            facts=replace(each.facts, notes=(*each.facts.notes, _RECOMPOSED)),
        )
        if each.address.name in found
        else each
        for each in revisions
    )


class FolderFiles:
    """The files of a folder, by their paths below it; ``largest`` are the bytes that a content may have."""

    def __init__(self, path: str, *, largest: int) -> None:
        self._root = os.path.realpath(path)
        self._largest = largest
        if os.path.lexists(f"{self._root}/{LAYOUT}"):
            raise BadRequestError(f"{path} is a data directory: export it, or use persistence backup and restore")

    def fault(self, name: str) -> str | None:
        """Return the reason why a file cannot be read, as far as that is known without reading it."""
        try:
            status = os.lstat(f"{self._root}/{name}")
            name.encode()
        except OSError as error:
            return os.strerror(error.errno or 0)
        except UnicodeEncodeError:
            return "its name is not UTF-8"
        if not stat.S_ISREG(status.st_mode):
            return "it is a link, a pipe or a device, not a file"
        if status.st_size > self._largest:
            return f"it has {status.st_size} bytes; the limit is {self._largest}"
        return None

    def times(self, name: str) -> tuple[None, None]:  # noqa: ARG002 - an archive has some
        return None, None

    def pieces(self, name: str) -> Iterator[bytes]:
        try:
            with FileIO(files.open_file(f"{self._root}/{name}")) as file:
                yield from iter(partial(file.read, limits.CHUNK), b"")
        except OSError as error:
            raise BadRequestError(f"{name} cannot be read: {error.strerror}") from error

    def names(self, folder: str = "", levels: int = limits.DEEPEST_FOLDER) -> Iterator[str]:
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                found = sorted((each.name, each.is_dir(follow_symlinks=False)) for each in entries)
        except OSError as error:
            raise BadRequestError(f"the folder {folder or self._root} cannot be listed: {error.strerror}") from error
        for name, is_folder in found:
            path = f"{folder}/{name}" if folder else name
            if not is_folder:
                yield path
            elif levels:
                yield from self.names(path, levels - 1)
            else:
                raise BadRequestError(f"{path} is deeper than {limits.DEEPEST_FOLDER} folders")


_HERE = re.compile(r"(?:\./)+")
_UTF_8 = 0x800
_ENCRYPTED = 0x1
_UNIX = 3
_LOCAL_HEADER = 30  # Bytes before the name in the header of an entry

_NOT_READ = (BadZipFile, LargeZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)
"""Errors of ``zipfile`` for a damaged archive; ``struct.error`` becomes ``BadZipFile``."""


# zipfile reads no more of an entry than its directory says, and compares the CRC. Links, encryption, other
# compressions, overlapping entries and bombs are refused before anything is read.


class ZipFiles:
    """The files of an open, seekable ZIP file. ``most_bytes`` of its directory are read into memory."""

    def __init__(self, file: BinaryIO, most_bytes: int, *, largest: int) -> None:
        self._largest = largest
        self._file = file
        try:
            self._zip = ZipFile(cast("BinaryIO", _Measured(file, most_bytes)))
        except UnicodeDecodeError as error:
            raise BadRequestError("the archive has a name that is not UTF-8") from error
        except _NOT_READ as error:
            raise BadRequestError(f"the archive cannot be read, or was cut off: {error}") from error
        size, total, end = file.seek(0, os.SEEK_END), 0, 0
        for info in sorted(self._zip.infolist(), key=lambda each: each.header_offset):
            total += info.file_size
            if info.header_offset < end:
                raise BadRequestError(f"the entry {info.filename!r} overlaps another one")
            end = info.header_offset + _LOCAL_HEADER + info.compress_size
        if total > max(limits.LARGEST_RATIO * size, limits.FREE_OF_RATIO):
            raise BadRequestError(f"refusing an archive of {size} bytes that unpacks to {total}")
        self._entries = {_name(each): each for each in self._zip.infolist() if each.filename == each.orig_filename}

    def names(self) -> Iterator[str]:
        return (_name(each) for each in self._zip.infolist() if not each.is_dir())

    def fault(self, name: str) -> str | None:
        info = self._entries.get(name)
        if info is None:
            return "its name has a NUL"
        mode = info.external_attr >> 16
        if info.create_system == _UNIX and stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
            return "it is a link, or not a file"
        if info.flag_bits & _ENCRYPTED:
            return "it is encrypted with a password of the archive"
        if info.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
            return f"its compression, method {info.compress_type}, is not supported"
        if not info.flag_bits & _UTF_8 and not info.filename.isascii():
            return "its name is not UTF-8"
        if info.file_size > self._largest:
            return f"it has {info.file_size} bytes; the limit is {self._largest}"
        return None

    def times(self, name: str) -> tuple[Instant | None, Instant | None]:
        """Return when the revision in a file was modified, and when it was created, as far as that is known."""
        info = self._entries[name]
        with suppress(OSError, struct.error):
            self._file.seek(info.header_offset)
            name_size, extra_size = struct.unpack_from("<HH", self._file.read(_LOCAL_HEADER), _LOCAL_HEADER - 4)
            self._file.seek(name_size, os.SEEK_CUR)
            return times_in(self._file.read(extra_size))
        return None, None

    def pieces(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(self._entries[name]) as file:
                yield from iter(partial(file.read, limits.CHUNK), b"")
        except _NOT_READ as error:
            raise BadRequestError(f"{name} cannot be read: {error}") from error


def _name(info: ZipInfo) -> str:
    found = _HERE.match(info.orig_filename)
    return info.orig_filename if found is None else info.orig_filename[found.end() :]


class _Measured:
    """A file of which at most so many bytes are read at once: ``zipfile`` reads the directory in one piece."""

    def __init__(self, file: BinaryIO, most_bytes: int) -> None:
        self._file = file
        self._most = most_bytes
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > self._most:
            raise BadZipFile(f"its directory has {size} bytes, and {self._most} are read: import it in parts")
        return self._file.read(size if size >= 0 else self._most)


_Version = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_VERSION)]
_Tag = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")]
_DEFINITION = b'"definition"'


class JsonAttachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attachment in a line; ``content`` is Base64, ``holder`` the path of an element."""

    name: str
    content: bytes
    content_type: str | None = None
    holder: str | None = None


class JsonDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line: a document with its ``data``, or a version with its ``definition``; both are XML as text."""

    app: str
    form: str
    version: _Version | None = None
    document: str | None = None
    draft: bool = False
    data: str | None = None
    definition: str | None = None
    deleted: bool = False
    attachments: tuple[JsonAttachment, ...] = ()
    created: str | None = None
    modified: str | None = None
    creator: str | None = None
    group: str | None = None
    organization: tuple[str, ...] = ()
    modifier: str | None = None
    stage: str | None = None
    valid: bool | None = None
    source: str | None = None
    etag: _Tag | None = None


_decode = msgspec.json.Decoder(JsonDocument).decode


class JsonLines:
    """The ``ImportSource`` of an open, seekable file. It is read twice: definitions come first."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def count(self) -> int:
        return sum(1 for _ in self._lines())

    def units(self) -> Iterator[ImportUnit | TransferOutcome]:
        for wants_definitions in (True, False):
            for number, line in self._lines():
                name, may_define = f"line {number}", line is None or _DEFINITION in line
                if wants_definitions and not may_define:
                    continue
                try:
                    unit = _unit_of(name, _decoded(line))
                except PersistenceError as error:
                    if wants_definitions or not may_define:
                        yield refused(name, error)
                    continue
                if not may_define or unit.is_definition is wants_definitions:
                    yield unit

    def _lines(self) -> Iterator[tuple[int, bytes | None]]:
        self._file.seek(0)
        number = 0
        while line := self._read():
            number += 1
            line = line.removeprefix(BOM_UTF8) if number == 1 else line
            is_long = len(line) > limits.LONGEST_LINE
            end = line
            while is_long and not end.endswith(b"\n") and (end := self._read(limits.CHUNK)):
                continue
            if line.strip():
                yield number, None if is_long else line

    def _read(self, most: int = limits.LONGEST_LINE + 1) -> bytes:
        try:
            return self._file.readline(most)
        except OSError as error:
            raise BadRequestError(f"the file cannot be read: {error.strerror}") from error


def _decoded(line: bytes | None) -> JsonDocument:
    if line is None:
        raise BadRequestError(f"it is longer than {limits.LONGEST_LINE} bytes: import it from a folder or a ZIP file")
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadRequestError(f"it is not a valid line (docs/export.md): {error}") from error
    if found.document is None and (found.definition is None or found.data is not None or found.draft):
        raise BadRequestError("it needs a document with data, or a definition with its version")
    if found.document is not None and (found.definition is not None or (found.data is None) is not found.deleted):
        raise BadRequestError("a document needs data, unless it is deleted, and must not have a definition")
    if found.document is None and (found.version is None or found.deleted):
        raise BadRequestError("a definition needs its version, and must not be deleted")
    if found.deleted and (found.draft or found.attachments):
        raise BadRequestError("a deleted document must not have a draft or attachments")
    return found


def _unit_of(name: str, found: JsonDocument) -> ImportUnit:
    main = _address(found, DATA_XML if found.document is not None else FORM_XHTML)
    text = found.data if found.document is not None else found.definition
    facts = ImportFacts(
        created=_instant(found.created),
        modified=_instant(found.modified),
        creator=found.creator,
        group=found.group,
        organization=found.organization,
        modifier=found.modifier,
        stage=found.stage,
        valid=found.valid,
        source=found.source,
        tag=found.etag,
    )
    of_attachments = replace(facts, has_own_time=False, created=None, stage=None, valid=None, source=None, tag=None)
    content = None if text is None else _content(without_encoding(text).encode("utf-8", "surrogatepass"))
    revisions = [ImportedRevision(name, main, found.version, facts, content)]
    for attachment in found.attachments:
        own = replace(of_attachments, content_type=attachment.content_type, holder=attachment.holder)
        address = _address(found, attachment.name)
        if any(each.address == address for each in revisions):
            raise BadRequestError(f"two files have the name {attachment.name!r}")
        revisions.append(ImportedRevision(name, address, found.version, own, _content(attachment.content)))
    return ImportUnit(name, tuple(revisions))


def _address(found: JsonDocument, name: str) -> Address:
    form = Form(found.app, found.form)
    if found.document is None:
        return DefinitionAddress(form, found.version or 1, name)
    return DocumentAddress(form, Collection.DRAFT if found.draft else Collection.DATA, found.document, name)


def _content(data: bytes) -> Content:
    return partial(iter, (data,))


def _instant(text: str | None) -> Instant | None:
    if text is None:
        return None
    try:
        return texts.first_from(texts.parse_time(text, "a time"))
    except OverflowError as error:
        raise BadRequestError(f"{text!r} is after the year 9999") from error


_ZIP_BEGINS = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP_TYPES = frozenset({"application/zip", "application/x-zip-compressed"})
_JSON_TYPES = frozenset({"application/jsonl", "application/x-ndjson", "application/json-lines"})


def open_source(path: str, file: BinaryIO | None, *, largest: int) -> ImportSource:
    """Open a folder, or with ``file`` an open archive or JSON lines; ``largest`` are the bytes of a content."""
    if file is None:
        return FilesSource(FolderFiles(path, largest=largest))
    with disk_errors(f"reading {path}"):
        begin = file.read(4).removeprefix(BOM_UTF8).lstrip()
        file.seek(0)
    if begin in _ZIP_BEGINS:
        return FilesSource(ZipFiles(file, limits.LARGEST_DIRECTORY, largest=largest))
    if begin[:1] in {b"{", b"[", b""}:
        return JsonLines(file)
    raise BadRequestError("it is not a ZIP file or JSON lines")


def is_importable(content_type: str | None) -> bool:
    return _kind(content_type) in _ZIP_TYPES | _JSON_TYPES


def sent_source(file: BinaryIO, content_type: str | None, *, largest: int) -> ImportSource:
    if _kind(content_type) in _ZIP_TYPES:
        return FilesSource(ZipFiles(file, limits.LARGEST_SENT_DIRECTORY, largest=largest))
    return JsonLines(file)


def _kind(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()
