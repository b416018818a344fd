"""What a check can find: the closed set of kinds, how serious each is, and what is done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from persistence.storage.layout import Place


class Severity(Enum):
    """How serious a finding is: something is lost or wrong; a crash left something; everything works as it is."""

    DAMAGE = "damage"
    LEFTOVER = "leftover"
    NOTICE = "notice"


class Remedy(Enum):
    """What takes care of a finding: ``--repair``, ``--adopt``, or a person."""

    REPAIR = "--repair"
    ADOPT = "--adopt"
    NONE = ""


class Adopts(Enum):
    """When ``--adopt`` takes in what was found."""

    EDITS = "with all other edits"
    MOVED = "only below a path that is named"
    NAMED = "only where the file is named"
    NEVER = ""


class Kind(Enum):
    """Every kind of finding: its name, severity, remedy, what the remedy does, and when it is adopted."""

    LAYOUT = ("layout", Severity.DAMAGE, Remedy.REPAIR, "writes layout.json anew")
    SIDECAR_UNREADABLE = (
        "sidecar-unreadable",
        Severity.DAMAGE,
        Remedy.REPAIR,
        "moves it to .quarantine, and makes a new one from what is known, or goes back to the newest whole revision",
    )
    SIDECAR_MISSING = ("sidecar-missing", Severity.DAMAGE, Remedy.REPAIR, "makes a new one from what is known")
    NOT_A_FILE = ("not-a-file", Severity.DAMAGE, Remedy.REPAIR, "moves it to .quarantine")
    CONTENT_MISSING = (
        "content-missing",
        Severity.DAMAGE,
        Remedy.REPAIR,
        "looks for the content; or goes back to the newest whole revision, and keeps the sidecar in .quarantine",
    )
    TORN_COPY = (
        "torn-copy",
        Severity.DAMAGE,
        Remedy.REPAIR,
        "puts the content's own sidecar beside it, and the other one into .quarantine",
    )
    CONTENT_DAMAGED = (
        "content-damaged",
        Severity.DAMAGE,
        Remedy.REPAIR,
        "goes back to the newest whole revision, if there is one, and keeps the damaged file in .quarantine",
        Adopts.NAMED,
    )
    DIGEST_WRONG = (
        "digest-wrong",
        Severity.DAMAGE,
        Remedy.REPAIR,
        "goes back to the newest whole revision, if there is one, and keeps the damaged file in .quarantine",
        Adopts.NAMED,
    )
    SIDECAR_CHANGED = (
        "sidecar-changed",
        Severity.DAMAGE,
        Remedy.REPAIR,
        "corrects it if one bit was flipped; else name the file to --adopt",
        Adopts.NAMED,
    )
    MISPLACED = (
        "misplaced",
        Severity.DAMAGE,
        Remedy.NONE,
        "put it back where it belongs, or name it to --adopt",
        Adopts.MOVED,
    )
    BODY_DAMAGED = ("body-damaged", Severity.DAMAGE, Remedy.NONE, "restore it from a backup of its directory")
    ENCRYPTION_WRONG = (
        "encryption-wrong",
        Severity.DAMAGE,
        Remedy.NONE,
        "put it back where it was encrypted, or restore it from a backup",
    )
    BODY_MISSING = ("body-missing", Severity.DAMAGE, Remedy.NONE, "restore it from a backup of its directory")
    VERSION_WRONG = (
        "version-wrong",
        Severity.DAMAGE,
        Remedy.NONE,
        "correct the version in the sidecar, or put the file where it belongs",
    )
    REVISION_DAMAGED = ("revision-damaged", Severity.DAMAGE, Remedy.REPAIR, "moves what is left of it to .quarantine")
    UNREADABLE = ("unreadable", Severity.DAMAGE, Remedy.NONE, "look at the disk")
    WRONG_OWNER = ("wrong-owner", Severity.DAMAGE, Remedy.NONE, "give it back with chown, as root")
    NO_ACCESS = ("no-access", Severity.DAMAGE, Remedy.REPAIR, "corrects its permissions")
    UNFINISHED_COMMIT = ("unfinished-commit", Severity.LEFTOVER, Remedy.REPAIR, "finishes it")
    UNFINISHED_WRITE = ("unfinished-write", Severity.LEFTOVER, Remedy.REPAIR, "discards it: it was never acknowledged")
    UNFINISHED_REWRITE = ("unfinished-rewrite", Severity.LEFTOVER, Remedy.REPAIR, "finishes or discards it")
    UNFINISHED_REMOVAL = ("unfinished-removal", Severity.LEFTOVER, Remedy.REPAIR, "finishes it")
    STRAY_FILE = ("stray-file", Severity.LEFTOVER, Remedy.REPAIR, "moves it to .quarantine")
    OWN_MISSING = (
        "own-missing",
        Severity.NOTICE,
        Remedy.REPAIR,
        "makes it again",
    )
    STRAY_OWN = ("stray-temporary", Severity.LEFTOVER, Remedy.REPAIR, "removes it")
    KEPT_TWICE = ("kept-twice", Severity.NOTICE, Remedy.REPAIR, "removes the second name")
    ORPHANED_HISTORY = ("orphaned-history", Severity.DAMAGE, Remedy.REPAIR, "goes back to the newest whole revision")
    ORPHANED_ATTACHMENT = ("orphaned-attachment", Severity.LEFTOVER, Remedy.REPAIR, "moves it to .quarantine")
    OUTDATED_DRAFT = ("outdated-draft", Severity.LEFTOVER, Remedy.REPAIR, "moves it to .quarantine")
    EMPTY_DIRECTORY = ("empty-directory", Severity.LEFTOVER, Remedy.REPAIR, "removes it")
    EDITED = ("edited", Severity.NOTICE, Remedy.ADOPT, "takes it in as a new revision", Adopts.EDITS)
    NO_SIDECAR = ("no-sidecar", Severity.NOTICE, Remedy.ADOPT, "takes it in as a new resource", Adopts.EDITS)
    TIMES_LOST = ("times-lost", Severity.NOTICE, Remedy.REPAIR, "gives the content its time back")
    OPEN_ACCESS = ("open-access", Severity.NOTICE, Remedy.REPAIR, "takes the permissions of others away")
    INDEX_STALE = ("index-stale", Severity.LEFTOVER, Remedy.REPAIR, "brings the index up to date")
    INDEX_NOTES = ("index-notes", Severity.LEFTOVER, Remedy.REPAIR, "takes them in")
    INDEX_WRONG = ("index-wrong", Severity.DAMAGE, Remedy.REPAIR, "gives the index up, so that it is made anew")
    INDEX_DAMAGED = ("index-damaged", Severity.DAMAGE, Remedy.REPAIR, "gives the index up, so that it is made anew")
    LINK = ("link", Severity.DAMAGE, Remedy.NONE, "mount the directory in its place, or remove the link")
    FOREIGN = ("foreign", Severity.NOTICE, Remedy.NONE, "left alone")
    BUSY = ("busy", Severity.NOTICE, Remedy.NONE, "check it again")

    def __init__(
        self, label: str, severity: Severity, remedy: Remedy, deed: str, adopts: Adopts = Adopts.NEVER
    ) -> None:
        self.label = label
        self.severity = severity
        self.remedy = remedy
        self.deed = deed
        self.adopts = adopts


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: ``path`` is absolute, ``what`` says it in half a line.

    ``place`` is the resource it belongs to, or the older revision; ``None`` where it belongs to none.
    """

    kind: Kind
    path: str
    what: str
    place: Place | None = None


class Outcome(Enum):
    """What became of a finding."""

    FOUND = "found"
    MENDED = "mended"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Report:
    """A finding with what became of it; ``said`` says what the remedy has done or would do, or why it failed.

    ``difference`` has the lines of a diff between what was stored and what would be adopted.
    """

    finding: Finding
    outcome: Outcome
    said: str = ""
    difference: tuple[str, ...] = ()
