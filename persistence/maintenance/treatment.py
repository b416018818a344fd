"""Reports on findings: what was found, what its remedy has done or would do, and the quarantine for what is removed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from persistence.errors import PersistenceError
from persistence.model.instants import next_after
from persistence.storage import files
from persistence.storage.findings import Adopts, Finding, Remedy, Severity
from persistence.storage.layout import QUARANTINE, Layout, file_name

_REASONS = "reasons.jsonl"


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
        """Mend and report what a check finds; each is mended before the next one is looked for.

        ``None`` stands for a part that is done, and is passed on. It counts if the parts ``are_folders``.
        """
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
