"""Files of a source by their names, grouped by document: the revision that each holds.

Two hierarchies are understood: that of archives (``model/archives.py``), and that of paths of the interface, where a
document has no version and only one revision::

    A/F/form/FILE, A/F/form/V/FILE      a file of a definition, of version 1 where none is named
    A/F/(data|draft)/DOC/FILE           a file of a document or draft

Either may begin with the path of the interface, for clients or for proxies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol
from unicodedata import normalize

from persistence.errors import BadRequestError, PersistenceError
from persistence.forms.archive_metadata import ArchiveMetadata, read_metadata
from persistence.limits import LONGEST_ENTRY, LONGEST_NAME, LONGEST_PATH, MOST_FILES
from persistence.model.addresses import PUBLIC_PREFIX, Address, Collection, DefinitionAddress, DocumentAddress
from persistence.model.archives import ERRORS_ENTRY, LATEST, METADATA_SUFFIX, ArchiveEntry, parse_entry
from persistence.model.instants import Instant
from persistence.services.imports.revisions import (
    NO_FACTS,
    Content,
    ImportedRevision,
    ImportFacts,
    ImportOutcome,
    ImportResult,
    ImportUnit,
    refused,
)
from persistence.services.naming import without_named

_CRUD = ("crud",)
_PREFIXES = ((*PUBLIC_PREFIX.strip("/").split("/"), *_CRUD), _CRUD)
_DEFINITIONS = "form"
_COLLECTIONS = frozenset(each.value for each in Collection)
_OF_DEFINITION = 3
"""The parts of a key of definitions: application, form and version."""
_FIRST = "1"
_LONGEST_PART = LONGEST_NAME + len(METADATA_SUFFIX)
_PREVIEWS = "Thumbs.db"
"""A file that Windows adds to folders."""
_APPLE = "__MACOSX"
"""A folder that macOS adds to archives."""

_INCOMPLETE = f"the archive is incomplete: its last entry, {ERRORS_ENTRY}, names the revisions that it lacks"

_RECOMPOSED = "the name of an attachment was composed (NFC), as the data has it"

_Key = tuple[str, ...]


class SourceFiles(Protocol):
    """The files of an archive or a folder, by their paths below it."""

    def names(self) -> Iterator[str]:
        """Yield the paths of all files."""

    def fault(self, name: str) -> str | None:
        """Return the reason why a file cannot be read, as far as that is known without reading it."""

    def content(self, name: str) -> Content:
        """Return the content of a file, which is not opened yet."""

    def times(self, name: str) -> tuple[Instant | None, Instant | None]:
        """Return when the revision in a file was modified, and when it was created, as far as that is known."""


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """The revision that a name stands for, and whether the name has the form version."""

    entry: ArchiveEntry
    has_version: bool

    @property
    def key(self) -> _Key:
        """Return the same key for all files of one document, or of one version of a definition."""
        address = self.entry.address
        if isinstance(address, DefinitionAddress):
            return (address.form.app, address.form.name, str(address.version))
        return (address.form.app, address.form.name, Collection.DATA.value, address.document)

    @property
    def unit_name(self) -> str:
        address = self.entry.address
        if isinstance(address, DefinitionAddress):
            return f"{address.form}/{_DEFINITIONS}/{address.version}"
        return f"{address.form}/{Collection.DATA.value}/{address.document}"


def named_entry(name: str) -> NamedEntry:
    """Read the name of a file in either hierarchy."""
    parts = tuple(name.split("/")) if len(name) <= LONGEST_PATH else ()
    if not all(parts) or any(part in {".", ".."} or len(part) > _LONGEST_PART for part in parts) or "\\" in name:
        raise BadRequestError("its name has empty parts, dots, backslashes, or is too long")
    with suppress(BadRequestError):
        return NamedEntry(parse_entry(name), has_version=True)  # before prefixes: an application may be called so
    prefix = next((each for each in _PREFIXES if parts[: len(each)] == each), ())
    parts = parts[len(prefix) :]
    match parts:
        case (app, form, "form", file):
            return NamedEntry(_parsed(app, form, _FIRST, _DEFINITIONS, LATEST, file), has_version=True)
        case (app, form, "form", version, file):
            return NamedEntry(_parsed(app, form, version, _DEFINITIONS, LATEST, file), has_version=True)
        case (app, form, collection, document, file) if collection in _COLLECTIONS:
            entry = _parsed(app, form, _FIRST, collection, document, LATEST, file)
            return NamedEntry(entry, has_version=False)
    return NamedEntry(_parsed(*parts), has_version=True)


def _parsed(*parts: str) -> ArchiveEntry:
    try:
        return parse_entry("/".join(parts))
    except BadRequestError as error:
        raise BadRequestError("its name is neither that of a definition nor that of a document") from error


def is_ignored(name: str) -> bool:
    """Return whether a file belongs to no form: it is at the top, or was added by a tool or a system."""
    *folders, last = name.split("/")
    is_apples = folders[:1] == [_APPLE] and last.startswith("._")
    return not folders or is_apples or any(part.startswith(".") and part.strip(".") for part in folders)


def _may_be_added(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last == _PREVIEWS or (last.startswith(".") and bool(last.strip(".")))


class FilesSource:
    """An ``ImportSource`` of files: a ZIP archive or a folder. Their names are in memory, grouped by document."""

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._groups: dict[_Key, list[str]] = {}
        self._faults: dict[_Key, ImportOutcome] = {}
        self._others: list[ImportOutcome] = []
        added, described = list[str](), set[str]()
        for count, name in enumerate(files.names(), 1):
            if count > MOST_FILES:
                raise BadRequestError(f"there are more than {MOST_FILES} files: import them in parts")
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

    def definitions(self) -> Iterator[ImportUnit | ImportOutcome]:
        yield from self._others
        yield from (self._unit(key) for key in self._groups if len(key) == _OF_DEFINITION)

    def documents(self) -> Iterator[ImportUnit | ImportOutcome]:
        yield from (self._unit(key) for key in self._groups if len(key) != _OF_DEFINITION)

    def _add(self, name: str, *, is_added: bool = False) -> None:
        if is_added or is_ignored(name):
            notes = (_INCOMPLETE,) if name == ERRORS_ENTRY else ()
            self._others.append(ImportOutcome(name[:LONGEST_ENTRY], ImportResult.IGNORED, notes=notes))
            return
        try:
            found = named_entry(name)
        except BadRequestError as error:
            self._others.append(refused(name, error))
            return
        self._groups.setdefault(found.key, []).append(name)
        fault = self._files.fault(name)
        if fault is not None:
            is_definition = isinstance(found.entry.address, DefinitionAddress)
            outcome = refused(found.unit_name, f"{name}: {fault}", is_definition=is_definition)
            self._faults.setdefault(found.key, outcome)

    def _unit(self, key: _Key) -> ImportUnit | ImportOutcome:
        fault = self._faults.get(key)
        if fault is not None:
            return fault
        entries = [(name, named_entry(name)) for name in self._groups[key]]
        first = entries[0][1]
        try:
            return ImportUnit(first.unit_name, _composed(tuple(self._revisions(entries))), says_owners=True)
        except PersistenceError as error:
            is_definition = isinstance(first.entry.address, DefinitionAddress)
            return refused(first.unit_name, error, is_definition=is_definition)

    def _revisions(self, entries: Iterable[tuple[str, NamedEntry]]) -> Iterator[ImportedRevision]:
        contents: dict[tuple[Address, Instant | None], tuple[str, NamedEntry]] = {}
        beside: dict[tuple[Address, Instant | None], tuple[str, NamedEntry]] = {}
        for name, found in entries:
            held, key = beside if found.entry.is_metadata else contents, (found.entry.address, found.entry.instant)
            if key in held:
                raise BadRequestError(f"{name}: {held[key][0]} has the same revision")
            held[key] = name, found
        for key in {**contents, **beside}:
            name, found = contents.get(key) or beside[key]
            facts = self._facts(beside[key][0]) if key in beside else NO_FACTS
            if facts.sidecar is None and key in contents:
                facts = self._timed(facts, name, is_described=key in beside)
            yield self._revision(name, found, facts, is_there=key in contents)

    def _timed(self, facts: ImportFacts, name: str, *, is_described: bool) -> ImportFacts:
        """Return facts with the times in an archive of the real system (spec runtime 7).

        Archives of other programs have no time of creation, and their other time is not that of the revision.
        """
        modified, created = self._files.times(name)
        if created is None and not is_described:
            return facts
        return replace(facts, modified=facts.modified or modified, created=facts.created or created)

    def _revision(self, name: str, found: NamedEntry, facts: ImportFacts, *, is_there: bool) -> ImportedRevision:
        entry, sidecar = found.entry, facts.sidecar
        version = entry.version if found.has_version else None
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
        return ImportedRevision(name, entry.address, version, facts, self._files.content(name) if is_there else None)

    def _facts(self, name: str) -> ImportFacts:
        try:
            return _facts_of(read_metadata(self._files.content(name)()))
        except PersistenceError as error:
            raise BadRequestError(f"{name}: {error}") from error


def _composed(revisions: tuple[ImportedRevision, ...]) -> tuple[ImportedRevision, ...]:
    """Return revisions with the names of attachments as the data beside them has them.

    macOS decomposes the names of files: an accent becomes a character of its own.
    """
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


def _facts_of(read: ArchiveMetadata) -> ImportFacts:
    notes = tuple(f"the element <{name}> of the metadata is not known, and left out" for name in read.unknown)
    if read.sidecar is not None:
        return ImportFacts(sidecar=read.sidecar, is_decrypted=read.is_decrypted, notes=notes)
    foreign = read.foreign
    return ImportFacts(
        created=foreign.created,
        modified=foreign.modified,
        creator=foreign.creator,
        group=foreign.group,
        organization=foreign.organization,
        modifier=foreign.modifier,
        stage=foreign.stage,
        content_type=foreign.content_type,
        notes=notes,
    )
