"""Findings of a check: damage, leftovers of crashes and notices, each of a kind with a severity and a remedy.

A report says what a remedy has done or would do; the quarantine keeps what is removed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

import msgspec

from persistence.errors import PersistenceError
from persistence.model.texts import next_after
from persistence.storage import files
from persistence.storage.layout import QUARANTINE, FilePaths, Layout, file_name


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

    def at(
        self, path: str, what: str, place: FilePaths | None = None, *, mend: Callable[[], object] | None = None
    ) -> Finding:
        return Finding(self, path, what, place, mend)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: ``path`` is absolute, ``what`` is half a line."""

    kind: FindingKind
    path: str
    what: str
    place: FilePaths | None = None  # the resource or older revision that it belongs to, if any
    mend: Callable[[], object] | None = field(default=None, compare=False)  # ``None`` if it cannot be done here
    is_lost: bool = False  # the remedy would find nothing to go back to

    @property
    def remedy(self) -> Remedy:
        return Remedy.NONE if self.is_lost else self.kind.remedy

    @property
    def deed(self) -> str:
        return _ADOPT_OR_RESTORE if self.is_lost else self.kind.deed

    def mended_by(self, mend: Callable[[Finding], object]) -> Finding:
        return replace(self, mend=partial(mend, self))


_REASONS = "reasons.jsonl"


class Outcome(Enum):
    """The outcome of a remedy; ``FOUND`` if none was applied."""

    FOUND = "found"
    MENDED = "mended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Report:
    """A finding with its outcome."""

    finding: Finding
    outcome: Outcome
    said: str = ""  # what the remedy did or would do, or why it failed
    difference: tuple[str, ...] = ()  # lines of a diff between the stored content and the one to be adopted


@dataclass(slots=True)
class FindingTotals:
    """How many folders a check has seen, and findings by severity; ``edits`` by hand were not adopted."""

    folders: int = 0
    mended: int = 0
    remaining: int = 0
    edits: int = 0
    found: Counter[Severity] = field(default_factory=Counter)

    @property
    def numbers(self) -> dict[str, int]:
        """Return the totals as ``check --json`` prints them."""
        found = {severity.value: self.found[severity] for severity in Severity}
        return {
            "folders": self.folders,
            **found,
            "mended": self.mended,
            "remaining": self.remaining,
            "edits": self.edits,
        }

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
        self.folders += other.folders
        self.mended += other.mended
        self.remaining += other.remaining
        self.edits += other.edits
        self.found += other.found


@dataclass(slots=True)
class Treatment:
    """The remedies that a check applies, or only foretells if it ``is_dry``; ``totals`` counts the outcomes."""

    remedies: frozenset[Remedy] = frozenset()
    is_dry: bool = False
    totals: FindingTotals = field(default_factory=FindingTotals)

    def reports(self, found: Iterable[Finding | Report | None], *, are_folders: bool = True) -> Iterator[Report | None]:
        """Mend and report what a check finds; each is mended before the next one is looked for."""
        # ``None`` stands for a part that is done, and is passed on. It counts if the parts ``are_folders``.
        for each in found:
            if each is None:
                self.totals.folders += are_folders
                yield None
            else:
                yield self.totals.add(self._mended(each) if isinstance(each, Finding) else each)

    def _mended(self, finding: Finding) -> Report:
        deed = finding.kind.deed
        if finding.mend is None or finding.kind.remedy not in self.remedies:
            return Report(finding, Outcome.FOUND)
        if self.is_dry:
            return Report(finding, Outcome.FOUND, f"would be repaired: {deed}")
        try:
            finding.mend()
        except (OSError, PersistenceError) as error:
            return Report(finding, Outcome.FAILED, cause_of(error))
        return Report(finding, Outcome.MENDED, deed)


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
