"""Checking a tree, and taking care of what is found, folder by folder, while the service runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from persistence.dialect import Dialect
from persistence.errors import BusyError, PersistenceError, disk_errors
from persistence.index.protocol import MaintainedIndex
from persistence.maintenance import own
from persistence.maintenance.adoption import Adoption
from persistence.maintenance.bodies import BodiesOf, BodyInspector
from persistence.maintenance.findings import Adopts, Finding, Kind, Outcome, Remedy, Report, Severity
from persistence.maintenance.index_inspection import IndexInspector
from persistence.maintenance.inspection import Inspector
from persistence.maintenance.previews import preview
from persistence.maintenance.quarantine import Quarantine
from persistence.maintenance.repair import Repair
from persistence.maintenance.slices import slice_of
from persistence.maintenance.tree import Folder, Tree
from persistence.storage import files, lease, locks, owner, root
from persistence.storage.integrity import Integrity
from persistence.storage.layout import FOLDER_DEPTH, SERVICE, SIDECAR_SUFFIX
from persistence.storage.observing import Change
from persistence.storage.storage import Readable

TAKEN_IN = "took it in as it is"
"""Says what an adoption of something that counts as damage has done."""
_ROUNDS = 5
"""How often a folder is looked at again: one repair may bring another thing to light."""


@dataclass(slots=True)
class Tally:
    """What a check has seen: folders (documents, drafts, versions of definitions), and findings by severity.

    ``edits`` were made by hand, and nobody has adopted them.
    """

    folders: int = 0
    mended: int = 0
    remaining: int = 0
    edits: int = 0
    found: Counter[Severity] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Count a report. A notice is something to know, and remains only where taking care of it failed."""
        severity = report.finding.kind.severity
        self.found[severity] += 1
        self.mended += report.outcome is Outcome.MENDED
        is_open = report.outcome is Outcome.FOUND and severity is not Severity.NOTICE
        self.remaining += is_open or report.outcome is Outcome.FAILED
        self.edits += report.outcome is Outcome.FOUND and report.finding.kind.adopts is Adopts.EDITS

    def include(self, other: Tally) -> None:
        """Count what another check has seen."""
        self.folders += other.folders
        self.mended += other.mended
        self.remaining += other.remaining
        self.found += other.found


@dataclass(frozen=True, slots=True)
class Inspectors:
    """What looks at folders, and what looks at the indexes of forms."""

    folders: Inspector
    indexes: IndexInspector

    @classmethod
    def of(cls, tree: Tree, index: MaintainedIndex, bodies_of: BodiesOf, integrity: Integrity, *, deep: bool) -> Self:
        """Those of a tree; ``deep`` reads every content, and all of the index."""
        bodies = BodyInspector(bodies_of, deep=deep)
        return cls(Inspector(tree, bodies, integrity, deep=deep), IndexInspector(tree, index, deep=deep))


@dataclass(frozen=True, slots=True)
class Measures:
    """The remedies that a check applies; with ``dry_run`` it only foretells them.

    ``adopter`` is who adopts, where that is to be known. ``open_view`` opens the tree with the definitions of its data,
    when something new is adopted.
    """

    remedies: frozenset[Remedy]
    dialect: Dialect
    open_view: Callable[[], Readable]
    adopter: str | None = None
    dry_run: bool = False


class Check:
    """One check of a tree, and what is done about findings."""

    def __init__(self, tree: Tree, inspectors: Inspectors, measures: Measures) -> None:
        self.tally = Tally()
        self._tree = tree
        self._inspector = inspectors.folders
        self._indexes = inspectors.indexes
        self._remedies = measures.remedies
        self._is_dry = measures.dry_run
        self._changes = bool(measures.remedies) and not measures.dry_run
        self._file: str | None = None
        self._is_part = False
        quarantine = Quarantine(tree.root)
        self._adoption = Adoption(tree.layout, measures.open_view, measures.dialect, quarantine, measures.adopter)
        self._repair = Repair(tree.root, quarantine, self._adoption, may_guess=Remedy.ADOPT in self._remedies)

    def run(self, only: tuple[str, ...] = (), slices: frozenset[int] | None = None) -> Iterator[Report | None]:
        """Check what lies below some names; ``None`` stands for a folder that is done.

        Names that lead to one file limit what is adopted to that file, and let damage be adopted too. With ``slices``
        only folders of these are checked, and no indexes as a whole.

        Raises:
            StartupError: the tree has another format, or is not whole; or it belongs to another user or is open on
                another machine, and is to change.
            BusyError: it is being restored or upgraded.
            DiskError: the root cannot be looked at.
        """
        with disk_errors(f"data directory {self._tree.root}"), ExitStack() as stack:
            own.require_tree(self._tree)
            if self._changes:
                owner.require(self._tree.root)
            of_root = [*own.format_of(self._tree.root), *(() if only else own.missing(self._tree.root))]
            yield from self._obstacles()
            if self._changes:
                root.make_own(self._tree.root)  # a copy may have come without locks
                stack.enter_context(lease.held(self._tree.root))
            self._file, self._is_part = self._file_of(only), bool(only)
            if _is_file(self._tree.layout.own(SERVICE)):
                stack.callback(os.close, locks.share(self._tree.layout.own(SERVICE)))
            for finding in [*of_root, *(() if only else own.strays(self._tree.root))]:
                yield self._counted(self._of_root(finding))
            for item in self._tree.walk(only):
                if isinstance(item, Finding):
                    yield self._counted(self._of_root(item))
                    continue
                if slices is not None and slice_of(item) not in slices:
                    continue
                self.tally.folders += 1
                for report in self._of_folder(item):
                    yield self._counted(report)
                yield None
            for found, mend in () if slices is not None else self._indexes.of_forms(only):
                yield self._counted(self._of_index(found, mend))

    def _obstacles(self) -> Iterator[Report]:
        """Take what is in the way of the service's own files out of it, before any of them is used."""
        for finding in list(own.obstacles(self._tree.root)):
            yield self._counted(self._of_root(finding))

    def _remedy_of(self, finding: Finding) -> Remedy:
        """What this check does about a finding in a folder."""
        kind, place = finding.kind, finding.place
        if Remedy.ADOPT in self._remedies and place is not None:
            is_named = place.content == self._file
            is_below = self._is_part and (is_named or self._file is None)
            is_due = {
                Adopts.EDITS: is_named or self._file is None,
                Adopts.MOVED: is_below,
                Adopts.NAMED: is_named,
                Adopts.NEVER: False,
            }
            if is_due[kind.adopts]:
                return Remedy.ADOPT
        return Remedy.REPAIR if kind.remedy is Remedy.REPAIR and Remedy.REPAIR in self._remedies else Remedy.NONE

    def _file_of(self, names: tuple[str, ...]) -> str | None:
        """The content that names lead to, also where they are those of its sidecar; ``None`` for a directory."""
        if len(names) <= FOLDER_DEPTH:
            return None
        path = f"{self._tree.root}/{'/'.join(names)}"
        content = path.removesuffix(SIDECAR_SUFFIX)
        return content if content != path and os.path.lexists(content) else path

    def _counted(self, report: Report) -> Report:
        self.tally.add(report)
        return report

    def _of_root(self, finding: Finding) -> Report:
        return self._treated(finding, partial(self._repair.of_root, finding))

    def _of_index(self, finding: Finding, mend: Callable[[], object]) -> Report:
        return self._treated(finding, mend)

    def _treated(self, finding: Finding, mend: Callable[[], object]) -> Report:
        """Repair what is in no folder, where that is asked for."""
        if finding.kind.remedy not in self._remedies:
            return Report(finding, Outcome.FOUND)
        if self._is_dry:
            return Report(finding, Outcome.FOUND, f"would be repaired: {finding.kind.deed}")
        try:
            mend()
        except (OSError, PersistenceError) as error:
            return Report(finding, Outcome.FAILED, _cause(error))
        return Report(finding, Outcome.MENDED, finding.kind.deed)

    def _of_folder(self, folder: Folder) -> Iterator[Report]:
        if not self._inspector.inspect(folder):
            for found, mend in self._indexes.of_folder(folder):
                yield self._of_index(found, mend)
            return
        try:
            with self._tree.holding(folder) as change:
                if self._is_dry:
                    yield from (self._foretold(folder, finding) for finding in self._inspector.inspect(folder))
                else:
                    yield from self._settled(folder, change)
        except BusyError as error:
            yield Report(Finding(Kind.BUSY, folder.path, str(error)), Outcome.FOUND)

    def _settled(self, folder: Folder, change: Change) -> Iterator[Report]:
        """Take care of a folder under its lock, until there is nothing more to be done about it."""
        failed: dict[tuple[Kind, str], str] = {}
        mended = set[Finding]()
        for _ in range(_ROUNDS):
            found = self._inspector.inspect(folder)
            due = [finding for finding in found if self._remedy_of(finding) is not Remedy.NONE]
            failed.clear()
            for finding in due:
                if finding in mended:
                    failed[finding.kind, finding.path] = "it is still so afterwards"
                    continue
                if folder.collection is not None:
                    change.begins(folder.form, folder.name)
                try:
                    said = self._take_care(folder, finding)
                except (OSError, PersistenceError) as error:
                    failed[finding.kind, finding.path] = _cause(error)
                else:
                    mended.add(finding)
                    yield Report(finding, Outcome.MENDED, said)
            if len(failed) == len(due):
                break
        else:
            found = self._inspector.inspect(folder)
        for finding in found:
            cause = failed.get((finding.kind, finding.path))
            yield Report(finding, Outcome.FOUND if cause is None else Outcome.FAILED, cause or "")

    def _foretold(self, folder: Folder, finding: Finding) -> Report:
        """Say what would be done about a finding; of an adoption, how the content differs from what was stored."""
        remedy = self._remedy_of(finding)
        if remedy is Remedy.NONE:
            return Report(finding, Outcome.FOUND)
        if remedy is Remedy.REPAIR or finding.place is None:
            return Report(finding, Outcome.FOUND, f"would be repaired: {finding.kind.deed}")
        try:
            foreseen = preview(folder, finding.place)
        except (OSError, PersistenceError) as error:
            return Report(finding, Outcome.FOUND, f"would not be adopted: {_cause(error)}")
        return Report(finding, Outcome.FOUND, foreseen.said, foreseen.difference)

    def _take_care(self, folder: Folder, finding: Finding) -> str:
        """Repair or adopt; returns what was done."""
        if self._remedy_of(finding) is Remedy.ADOPT and finding.place is not None:
            self._adoption.take_in(folder, finding, finding.place)
            return finding.kind.deed if finding.kind.adopts is Adopts.EDITS else TAKEN_IN
        return self._repair.of_folder(folder, finding) or finding.kind.deed


def _is_file(path: str) -> bool:
    """Whether there is a file, itself and not a link to one; below a directory that is a link there is none."""
    try:
        os.close(files.open_file(path))
    except OSError:
        return False
    return True


def _cause(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)
