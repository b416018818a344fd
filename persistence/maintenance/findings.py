"""Findings of a check: their kinds, severity and remedy, the quarantine, and notes of runs and needed keys."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import BinaryIO, TypeVar

import msgspec

from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.crypto.value_cipher import is_bound
from persistence.definitions.catalog import NOTHING_ENCRYPTED, Catalog
from persistence.errors import DiskError, PersistenceError, disk_errors
from persistence.forms.controls import unusable_marks
from persistence.forms.encryption import EncryptionSurvey
from persistence.limits import CHUNK, LARGEST_TREE
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.instants import Instant, next_after
from persistence.model.sidecar import Sidecar
from persistence.storage import files, root
from persistence.storage.layout import PAGES, QUARANTINE, FilePaths, Layout, file_name
from persistence.storage.storage import Storage

_REASONS = "reasons.jsonl"


class Severity(Enum):
    """How serious a finding is: data is lost or wrong; a crash left something; all works as it is."""

    DAMAGE = "damage"
    LEFTOVER = "leftover"
    NOTICE = "notice"


class Remedy(Enum):
    """The option that takes care of a finding; ``NONE`` leaves it to a person."""

    REPAIR = "--repair"
    ADOPT = "--adopt"
    NONE = ""


class Adopts(Enum):
    """When ``--adopt`` takes in a content."""

    EDITS = "with all other edits"
    MOVED = "only below a path that is named"
    NAMED = "only where the file is named"
    NEVER = ""


_DAMAGE, _LEFTOVER, _NOTICE = Severity
_REPAIR, _ADOPT, _NONE = Remedy
_GO_BACK = "goes back to the newest whole revision, if there is one, and keeps the damaged file in .quarantine"
_RESTORE = "restore it from a backup of its directory"
_RESTORE_DOCUMENT = "restore the document from a backup"
_QUARANTINE = "moves it to .quarantine"
_REBUILD = "gives the index up, so that it is rebuilt"
_NEW_SIDECAR = (
    "moves it to .quarantine, and makes a new one from what is known, or goes back to the newest whole revision"
)
_OWN_SIDECAR = "puts the content's own sidecar beside it, and the other one into .quarantine"
_ADOPT_OR_RESTORE = "restore it from a backup, or name the file to --adopt"
_CORRECT_VERSION = "correct the version in the sidecar, or put the file where it belongs"
_PUBLISH = "publish the form with the mark in a control whose bind leads to an element"
_PUT_BACK = "put it back where it was encrypted, or restore it from a backup"
_FIND_CONTENT = "looks for the content; or goes back to the newest whole revision, and keeps the sidecar in .quarantine"


class FindingKind(Enum):
    """Every kind of finding: its label, severity, remedy, what the remedy does, and when it is adopted."""

    LAYOUT = ("layout", _DAMAGE, _REPAIR, "writes layout.json again")
    SIDECAR_UNREADABLE = ("sidecar-unreadable", _DAMAGE, _REPAIR, _NEW_SIDECAR)
    SIDECAR_MISSING = ("sidecar-missing", _DAMAGE, _REPAIR, "makes a new one from what is known")
    NOT_A_FILE = ("not-a-file", _DAMAGE, _REPAIR, _QUARANTINE)
    CONTENT_MISSING = ("content-missing", _DAMAGE, _REPAIR, _FIND_CONTENT)
    TORN_COPY = ("torn-copy", _DAMAGE, _REPAIR, _OWN_SIDECAR)
    CONTENT_DAMAGED = ("content-damaged", _DAMAGE, _REPAIR, _GO_BACK, Adopts.NAMED)
    DIGEST_WRONG = ("digest-wrong", _DAMAGE, _REPAIR, _GO_BACK, Adopts.NAMED)
    SIDECAR_CHANGED = ("sidecar-changed", _DAMAGE, _NONE, _ADOPT_OR_RESTORE, Adopts.NAMED)
    MISPLACED = ("misplaced", _DAMAGE, _NONE, "put it back where it belongs, or name it to --adopt", Adopts.MOVED)
    BODY_DAMAGED = ("body-damaged", _DAMAGE, _NONE, _RESTORE)
    ENCRYPTION_WRONG = ("encryption-wrong", _DAMAGE, _NONE, _PUT_BACK)
    KEY_MISSING = ("key-missing", _DAMAGE, _NONE, "put the file of the keys back from where a copy of it is kept")
    MARK_NOT_ENCRYPTING = ("mark-not-encrypting", _DAMAGE, _NONE, _PUBLISH)
    VALUE_PLAIN = ("value-plain", _LEFTOVER, _NONE, "persistence reencrypt encrypts it")
    MARK_NOT_INDEXING = ("mark-not-indexing", _NOTICE, _NONE, _PUBLISH)
    BODY_MISSING = ("body-missing", _DAMAGE, _NONE, _RESTORE)
    VERSION_WRONG = ("version-wrong", _DAMAGE, _NONE, _CORRECT_VERSION)
    REVISION_DAMAGED = ("revision-damaged", _DAMAGE, _REPAIR, "moves what is left of it to .quarantine")
    UNREADABLE = ("unreadable", _DAMAGE, _NONE, "look at the disk")
    WRONG_OWNER = ("wrong-owner", _DAMAGE, _NONE, "give it back with chown, as root")
    NO_ACCESS = ("no-access", _DAMAGE, _REPAIR, "corrects its permissions")
    UNFINISHED_COMMIT = ("unfinished-commit", _LEFTOVER, _REPAIR, "finishes it")
    UNFINISHED_WRITE = ("unfinished-write", _LEFTOVER, _REPAIR, "discards it: it was never acknowledged")
    UNFINISHED_REWRITE = ("unfinished-rewrite", _LEFTOVER, _REPAIR, "finishes or discards it")
    UNFINISHED_REMOVAL = ("unfinished-removal", _LEFTOVER, _REPAIR, "finishes it")
    STRAY_FILE = ("stray-file", _LEFTOVER, _REPAIR, _QUARANTINE)
    STRAY_OBJECT = ("stray-object", _LEFTOVER, _REPAIR, "removes it from its bucket")
    OWN_MISSING = ("own-missing", _NOTICE, _REPAIR, "makes it again")
    STRAY_OWN = ("stray-temporary", _LEFTOVER, _REPAIR, "removes it")
    LEASE_UNREADABLE = ("lease-unreadable", _DAMAGE, _REPAIR, "removes it: then nobody has leased the document")
    KEPT_TWICE = ("kept-twice", _NOTICE, _REPAIR, "removes the second name")
    ORPHANED_HISTORY = ("orphaned-history", _DAMAGE, _REPAIR, "goes back to the newest whole revision")
    ORPHANED_ATTACHMENT = ("orphaned-attachment", _LEFTOVER, _REPAIR, _QUARANTINE)
    OUTDATED_DRAFT = ("outdated-draft", _LEFTOVER, _REPAIR, _QUARANTINE)
    EMPTY_DIRECTORY = ("empty-directory", _LEFTOVER, _REPAIR, "removes it")
    EDITED = ("edited", _NOTICE, _ADOPT, "takes it in as a new revision", Adopts.EDITS)
    NO_SIDECAR = ("no-sidecar", _NOTICE, _ADOPT, "takes it in as a new resource", Adopts.EDITS)
    TIMES_LOST = ("times-lost", _NOTICE, _REPAIR, "gives the content its time back")
    OPEN_ACCESS = ("open-access", _NOTICE, _REPAIR, "takes the permissions of others away")
    INDEX_STALE = ("index-stale", _LEFTOVER, _REPAIR, "brings the index up to date")
    INDEX_NOTES = ("index-notes", _LEFTOVER, _REPAIR, "takes them in")
    INDEX_WRONG = ("index-wrong", _DAMAGE, _REPAIR, _REBUILD)
    INDEX_DAMAGED = ("index-damaged", _DAMAGE, _REPAIR, _REBUILD)
    ROW_UNREADABLE = ("row-unreadable", _DAMAGE, _NONE, _RESTORE_DOCUMENT)
    ROW_WRONG = ("row-wrong", _DAMAGE, _NONE, _RESTORE_DOCUMENT)
    CONTENT_WRONG = ("content-wrong", _DAMAGE, _NONE, _RESTORE_DOCUMENT)
    NO_CURRENT = ("no-current", _DAMAGE, _REPAIR, "makes the newest revision the current one")
    ORDER_WRONG = ("order-wrong", _DAMAGE, _NONE, _RESTORE_DOCUMENT)
    STRAY_CONTENT = ("stray-content", _LEFTOVER, _REPAIR, "removes it")
    IN_USE_UNCLAIMED = ("in-use-unclaimed", _DAMAGE, _REPAIR, "keeps it")
    OVERDUE = ("overdue-contents", _LEFTOVER, _REPAIR, "removes them")
    INDEX_ROWS = ("index-rows", _DAMAGE, _REPAIR, "writes the rows of the document again")
    TOTAL_WRONG = ("total-wrong", _DAMAGE, _REPAIR, "counts again")
    LINK = ("link", _DAMAGE, _NONE, "mount the directory in its place, or remove the link")
    FOREIGN = ("foreign", _NOTICE, _NONE, "left alone")
    BUSY = ("busy", _NOTICE, _NONE, "check it again")

    def __init__(
        self, label: str, severity: Severity, remedy: Remedy, deed: str, adopts: Adopts = Adopts.NEVER
    ) -> None:
        self.label = label
        self.severity = severity
        self.remedy = remedy
        self.deed = deed
        self.adopts = adopts

    def at(self, path: str, what: str, place: FilePaths | None = None) -> Finding:
        return Finding(self, path, what, place)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: ``path`` is absolute, ``what`` is half a line.

    ``place`` is the resource or older revision that it belongs to; ``None`` if it belongs to none.
    """

    kind: FindingKind
    path: str
    what: str
    place: FilePaths | None = None


class Outcome(Enum):
    """The outcome of a remedy; ``FOUND`` if none was applied."""

    FOUND = "found"
    MENDED = "mended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Report:
    """A finding with its outcome; ``said`` describes what the remedy did or would do, or why it failed.

    ``difference`` has the lines of a diff between the stored content and the one to be adopted.
    """

    finding: Finding
    outcome: Outcome
    said: str = ""
    difference: tuple[str, ...] = ()


@dataclass(slots=True)
class FindingTotals:
    """How many folders a check has seen, and findings by severity; ``edits`` by hand were not adopted."""

    folders: int = 0
    mended: int = 0
    remaining: int = 0
    edits: int = 0
    found: Counter[Severity] = field(default_factory=Counter)

    def add(self, report: Report) -> Report:
        """Count a report and return it. A notice remains only if taking care of it failed."""
        kind, outcome = report.finding.kind, report.outcome
        self.found[kind.severity] += 1
        self.mended += outcome is Outcome.MENDED
        is_open = outcome is Outcome.FOUND and kind.severity is not Severity.NOTICE
        self.remaining += is_open or outcome is Outcome.FAILED
        self.edits += outcome is Outcome.FOUND and kind.adopts is Adopts.EDITS
        return report

    def include(self, other: FindingTotals) -> None:
        """Add the counts of another check."""
        self.folders += other.folders
        self.mended += other.mended
        self.remaining += other.remaining
        self.edits += other.edits
        self.found += other.found


@dataclass(slots=True)
class Treatment:
    """The remedies that a check applies, or only foretells if it ``is_dry``; ``totals`` counts the outcomes."""

    remedies: frozenset[Remedy]
    is_dry: bool = False
    totals: FindingTotals = field(default_factory=FindingTotals)

    def apply(self, finding: Finding, mend: Callable[[], object]) -> Report:
        """Repair a finding, if repairs are asked for."""
        if finding.kind.remedy not in self.remedies:
            return self.totals.add(Report(finding, Outcome.FOUND))
        if self.is_dry:
            return self.totals.add(Report(finding, Outcome.FOUND, f"would be repaired: {finding.kind.deed}"))
        try:
            mend()
        except (OSError, PersistenceError) as error:
            return self.totals.add(Report(finding, Outcome.FAILED, cause_of(error)))
        return self.totals.add(Report(finding, Outcome.MENDED, finding.kind.deed))


def cause_of(error: Exception) -> str:
    """Return the cause of a failure, without the path for an error of the system."""
    return str(error.strerror) if isinstance(error, OSError) else str(error)


class Quarantine:
    """The directory of one run in ``.quarantine``, made when a file comes in, under the path it had, with a reason."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._directory = f"{Layout(root).own(QUARANTINE)}/{file_name(next_after(None))}"

    def move(self, path: str, finding: Finding) -> None:
        """Move a file or directory in. Raises ``OSError``."""
        self._note(finding, files.move_away(path, self._inside(path)))

    def keep(self, path: str, finding: Finding) -> None:
        """Give a file a second name here, before another one takes its name. Raises ``OSError``."""
        target = self._inside(path)
        files.ensure(os.path.dirname(target))
        files.keep_as(path, target)
        files.sync_directory(os.path.dirname(target))
        self._note(finding, target)

    def _inside(self, path: str) -> str:
        inside = os.path.relpath(path, self._root)
        if inside.split(os.sep)[0] == _REASONS:  # an application, which would take the name of the file below
            inside = f"%{inside}"
        return f"{self._directory}/{inside}"

    def _note(self, finding: Finding, target: str) -> None:
        note = {
            "kind": finding.kind.label,
            "what": finding.what,
            "was": os.path.relpath(finding.path, self._root),
            "is": os.path.relpath(target, self._root),
        }
        files.append(f"{self._directory}/{_REASONS}", msgspec.json.encode(note) + b"\n")


R = TypeVar("R", bound=msgspec.Struct)


# Records of the last check and the last backup, for those who look after the service: when, and what came of it.
#
# They are beside what the pages keep, in the directory of the default tree, or of this instance if that is a database.
# One that cannot be written costs only itself: what was done is done.


class LastCheck(msgspec.Struct, frozen=True):
    """A check of everything: what it has seen and found. ``edits`` were made by hand and not adopted."""

    at: Instant
    folders: int
    damage: int
    leftover: int
    notice: int
    mended: int
    remaining: int
    edits: int
    seconds: float
    is_deep: bool

    @classmethod
    def of(cls, totals: FindingTotals, seconds: float, *, is_deep: bool) -> LastCheck:
        """Return the record of a check that has just ended."""
        return cls(
            next_after(None),
            totals.folders,
            damage=totals.found[Severity.DAMAGE],
            leftover=totals.found[Severity.LEFTOVER],
            notice=totals.found[Severity.NOTICE],
            mended=totals.mended,
            remaining=totals.remaining,
            edits=totals.edits,
            seconds=round(seconds, 1),
            is_deep=is_deep,
        )


class LastBackup(msgspec.Struct, frozen=True):
    """A backup, at ``path``: the documents, drafts and form versions in it, and damaged files or missing parts."""

    at: Instant
    path: str
    folders: int
    problems: int
    missing: int


def record(home: str, run: msgspec.Struct) -> None:
    """Keep a record in a home directory in place of the one before."""
    with suppress(OSError, PersistenceError):
        root.ensure_pages(home)
        files.write_durably(_note_path(home, type(run)), msgspec.json.encode(run))


def last(home: str, kind: type[R]) -> R | None:
    """Return the record of a kind; ``None`` where there is none that can be read."""
    with disk_errors("looking for the last run"):
        try:
            with files.closing(files.open_to_read(_note_path(home, kind))) as descriptor:
                return msgspec.json.decode(files.read_small(descriptor), type=kind)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None


def _note_path(home: str, kind: type[msgspec.Struct]) -> str:
    return f"{Layout(home).own(PAGES)}/{kind.__name__}.json"


# The encryption keys that what is stored needs: the ids of all that the service has had, until they are retired.
#
# Only reading everything would show which key is needed for what. So the ids are noted when a service has a key, which
# is before it encrypts with it, and backups have them: a restore and a start then say which ones are missing.


class NeededKeys(msgspec.Struct, frozen=True):
    """The ids of the keys, in order."""

    ids: tuple[str, ...]


def needed(home: str) -> frozenset[str]:
    """Return the ids that are noted in a home directory; none where they cannot be read."""
    with suppress(DiskError):
        return _noted(home)
    return frozenset()


def _noted(home: str) -> frozenset[str]:
    found = last(home, NeededKeys)
    return frozenset(() if found is None else found.ids)


def note(home: str, ids: Iterable[str]) -> None:
    """Note that keys may be needed; where that cannot be written or read, nothing happens."""
    with suppress(DiskError):
        known, new = _noted(home), frozenset(ids)
        if not new <= known:
            record(home, NeededKeys(tuple(sorted(known | new))))


def note_all(home: str, keys: EncryptionKeys) -> None:
    """Note all keys that are there; none where they cannot be read."""
    with suppress(PersistenceError):
        note(home, keys.ring().keys)


def forget(home: str, key_id: str) -> None:
    """Forget a key with which nothing is encrypted any more."""
    record(home, NeededKeys(tuple(sorted(needed(home) - {key_id}))))


def missing(ids: Iterable[str], keys: EncryptionKeys) -> list[str]:
    """Return those of some ids whose keys are not there; none where the keys cannot be read, as others say then."""
    wanted = frozenset(ids)
    try:
        return sorted(wanted - keys.ring().keys.keys()) if wanted else []
    except PersistenceError:
        return []


def count_missing(home: str, keys: EncryptionKeys) -> int:
    """Return the number of noted keys that are missing."""
    return len(missing(needed(home), keys))


def remark(home: str, path: str, keys: EncryptionKeys, wanted: Iterable[str] | None = None) -> str | None:
    """Return a line about keys, ``wanted`` or noted ones, that are missing from their file at a path, if any are."""
    ids = missing(needed(home) if wanted is None else wanted, keys)
    if not ids:
        return None
    what, it = (f"key {ids[0]} is", "it") if len(ids) == 1 else (f"keys {', '.join(ids)} are", "them")
    place = "the environment" if keys.are_given else path
    return f"the encryption {what} not in {place}: nobody can read what is encrypted with {it}"


_KINDS = {True: FindingKind.MARK_NOT_ENCRYPTING, False: FindingKind.MARK_NOT_INDEXING}


# Marks of definitions that have no effect, and what is stored in plain text although a definition marks it.
#
# Both are from before such definitions were refused, or from a definition that was published again with other marks.
# Encrypted values that were replaced or removed are found as far as that shows without a key.


@dataclass(frozen=True, slots=True)
class MarkCheck:
    """Judges contents by the marks of definitions, which ``catalog_of`` has; unreadable ones have other findings."""

    catalog_of: Callable[[Form], Catalog]

    def faults(
        self, address: Address, sidecar: Sidecar, file: BinaryIO, *, is_deep: bool
    ) -> list[tuple[FindingKind, str]]:
        """Find fault with the content of a main resource. Data is read if the check ``is_deep``."""
        with suppress(PersistenceError):
            if isinstance(address, DefinitionAddress):
                return [
                    (_KINDS[each.is_encryption], each.cause) for each in unusable_marks(file.read(LARGEST_TREE + 1))
                ]
            if is_deep:
                return self._values(address, sidecar, file)
        return []

    def _values(self, address: DocumentAddress, sidecar: Sidecar, file: BinaryIO) -> list[tuple[FindingKind, str]]:
        controls = self.catalog_of(address.form).of(address.form, sidecar.version).encrypted or NOTHING_ENCRYPTED
        if not controls.paths and not sidecar.encrypted:
            return []
        bound = 0

        def note(value: str) -> bool:
            nonlocal bound
            bound += is_bound(value)
            return True

        with EncryptionSurvey(controls.paths, controls.values, note, lambda _, labelled: labelled) as survey:
            found = survey.read(iter(partial(file.read, CHUNK), b""))
        faults = []
        if bound and found.seal is None:
            faults.append((FindingKind.ENCRYPTION_WRONG, f"of {sidecar.modified}: its encrypted values have no seal"))
        elif sidecar.encrypted and not (found.values or sidecar.adopted):
            what = f"of {sidecar.modified}: no value is encrypted, and its sidecar says that some are"
            faults.append((FindingKind.ENCRYPTION_WRONG, what))
        if count := found.plain + found.plain_files:
            what = f"of {sidecar.modified}: {count} plain where version {sidecar.version} marks controls as encrypted"
            faults.append((FindingKind.VALUE_PLAIN, what))
        return faults

    def of_storage(self, storage: Storage, *, is_deep: bool) -> Iterator[Finding]:
        """Yield the findings in a storage that has no files."""
        for form in storage.forms():
            for version in storage.versions(form):
                yield from self._of_resource(storage, DefinitionAddress(form, version, FORM_XHTML), is_deep=is_deep)
            for collection in Collection if is_deep else ():
                for document in storage.documents(form, collection):
                    address = DocumentAddress(form, collection, document, DATA_XML)
                    yield from self._of_resource(storage, address, is_deep=is_deep)

    def _of_resource(self, storage: Storage, address: Address, *, is_deep: bool) -> Iterator[Finding]:
        older = () if isinstance(address, DefinitionAddress) else storage.revisions(address)
        for instant in (None, *older):
            with suppress(PersistenceError):
                found = (
                    storage.read(address, content=True)
                    if instant is None
                    else storage.read_revision(address, instant, content=True)
                )
                if found is not None and found.file is not None:
                    with found.file as file:
                        for kind, what in self.faults(address, found.sidecar, file, is_deep=is_deep):
                            yield kind.at(_path(address), what)


def _path(address: Address) -> str:
    if isinstance(address, DefinitionAddress):
        return f"{address.form}/form/{address.version}/{address.name}"
    return str(address)
