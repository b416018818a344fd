"""Checking a tree and its indexes, and repairing findings, folder by folder, while the service runs.

A tree too large for one night is checked deeply in slices, the one checked longest ago first. A slice has the folders
of one of the 256 lock stripes, so it needs neither a list nor memory. A small file in the root has the instants.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, partial

import msgspec

from persistence.dialect import Dialect
from persistence.errors import BusyError, PersistenceError, disk_errors
from persistence.index.sources import DocumentName
from persistence.index.sync.updater import TreeIndex
from persistence.maintenance import tree_walk
from persistence.maintenance.inspection import Inspector
from persistence.maintenance.repair import Adoption, Repair, preview
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.storage_check import BodiesOf, MarkCheck
from persistence.maintenance.tree_walk import FORM_DEPTH, Folder, FolderTree
from persistence.model.addresses import Collection
from persistence.model.texts import Instant, next_after
from persistence.storage import files, owner, root
from persistence.storage.findings import (
    Adopts,
    Finding,
    FindingKind,
    Outcome,
    Quarantine,
    Remedy,
    Report,
    Treatment,
    cause_of,
)
from persistence.storage.layout import CHECKED, FOLDER_DEPTH, SERVICE, SIDECAR_SUFFIX, Layout
from persistence.storage.locks import STRIPES, Lease, LockFile, stripe
from persistence.storage.storage import ChangeEvents
from persistence.storage.stored_revision import Integrity

ADOPTED_AS_IS = "took it in as it is"  # The outcome of adopting damage
_ROUNDS = 5  # How often a folder is inspected again: one repair may bring another fault to light
_CAUTION = 0.5  # The share of the remaining time that is planned for, because slices differ in size
_NEVER = Instant("")
_LARGEST_RECORD = 1 << 16
ALL_SLICES = frozenset(range(STRIPES))
Parts = Sequence[tuple[str, ...]]
"""Parts of a place, each as the names that lead to it: ``((),)`` is all of it."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The scope of the check of a tree.

    ``integrity`` distinguishes edits by hand from damage. ``bodies_of`` returns the directory with the bodies of a
    form. ``open_reader`` opens the tree together with the definitions of its data, when these are needed.
    ``adopter`` is the user to be recorded as who adopts. ``deep`` reads every content, and all of the index.
    """

    dialect: Dialect
    integrity: Integrity
    bodies_of: BodiesOf
    open_reader: Callable[[], TreeReader]
    adopter: str | None = None
    deep: bool = False


class TreeCheck:
    """One check of a tree. What needs the lock of its folder is mended here, by the remedies of the ``treatment``."""

    def __init__(self, tree: FolderTree, index: TreeIndex, options: CheckOptions, treatment: Treatment) -> None:
        self._tree = tree
        self._treatment = treatment
        self._remedies = treatment.remedies
        self._changes = bool(treatment.remedies) and not treatment.is_dry
        reader = cache(options.open_reader)
        marks = MarkCheck(lambda form: reader().catalog_of(form))
        access = tree_walk.AccessCheck(tree.root)
        self._inspector = Inspector(tree, options.bodies_of, options.integrity, marks, access, options.deep)
        self._index = index
        self._deep = options.deep
        self._file: str | None = None
        self._is_part = False
        quarantine = Quarantine(tree.root)
        self._adoption = Adoption(tree.layout, reader, options.dialect, quarantine, options.adopter)
        self._repair = Repair(tree.layout, quarantine, self._adoption, may_guess=Remedy.ADOPT in self._remedies)

    def findings(self, parts: Parts = ((),), slices: frozenset[int] | None = None) -> Iterator[Finding | Report | None]:
        """Check some parts, or only the folders of ``slices``; yield ``None`` for each folder that is done."""
        for part in parts:
            yield from self._part(part, slices)

    def _part(self, only: tuple[str, ...], slices: frozenset[int] | None) -> Iterator[Finding | Report | None]:
        # Names of one file limit adoption to that file, and let damage be adopted, too.
        layout, of_root = self._tree.layout, self._repair.of_root
        with disk_errors(f"data directory {layout.root}"), ExitStack() as stack:
            tree_walk.require_tree(self._tree)
            if self._changes:
                owner.require(layout.root)
            own = [*tree_walk.check_format(layout), *(() if only else tree_walk.missing(layout))]
            for finding in list(tree_walk.obstacles(layout)):  # before any of these files is used
                yield finding.mended_by(of_root)
            if self._changes:
                root.make_own(layout.root)  # a copy may have come without locks
                stack.enter_context(closing(Lease(layout.root)))
            self._file, self._is_part = self._file_of(only), bool(only)
            if _is_file(layout.own(SERVICE)):
                stack.enter_context(LockFile(layout.own(SERVICE)).shared())
            for finding in [*own, *(() if only else tree_walk.strays(layout))]:
                yield finding.mended_by(of_root)
            for item in self._tree.walk(only):
                if isinstance(item, Finding):
                    yield item.mended_by(of_root)
                elif slices is None or stripe(item.scope) in slices:
                    yield from self._folder(item)
                    yield None
            if slices is None and len(only) <= FORM_DEPTH:
                yield from self._index.check.of_forms(only, deep=self._deep)

    def _file_of(self, names: tuple[str, ...]) -> str | None:
        if len(names) <= FOLDER_DEPTH:
            return None
        path = self._tree.layout.own("/".join(names))
        content = path.removesuffix(SIDECAR_SUFFIX)
        return content if content != path and os.path.lexists(content) else path

    def _remedy_of(self, finding: Finding) -> Remedy:
        kind, place = finding.kind, finding.place
        if Remedy.ADOPT in self._remedies and place is not None:
            is_named = place.content == self._file
            is_due = {
                Adopts.EDITS: is_named or self._file is None,
                Adopts.MOVED: self._is_part and (is_named or self._file is None),
                Adopts.NAMED: is_named,
                Adopts.NEVER: False,
            }
            if is_due[kind.adopts]:
                return Remedy.ADOPT
        return Remedy.REPAIR if kind.remedy is Remedy.REPAIR and Remedy.REPAIR in self._remedies else Remedy.NONE

    def _folder(self, folder: Folder) -> Iterator[Finding | Report]:
        if not self._inspector.inspect(folder):
            # One with another finding is not compared: its repair updates the index.
            if folder.collection is not None:
                name = DocumentName(folder.name, folder.collection is Collection.DRAFT)
                yield from self._index.check.of_document(folder.form, name, deep=self._deep)
            return
        try:
            with self._tree.locked(folder) as change:
                if self._treatment.is_dry:
                    for finding in self._inspector.inspect(folder):
                        yield self._foretell(folder, finding)
                else:
                    yield from self._settle(folder, change)
        except BusyError as error:
            yield FindingKind.BUSY.at(folder.path, str(error))

    def _settle(self, folder: Folder, change: ChangeEvents) -> Iterator[Report]:
        failed: dict[tuple[FindingKind, str], str] = {}
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
                    if self._remedy_of(finding) is Remedy.ADOPT and finding.place is not None:
                        self._adoption.take_in(folder, finding, finding.place)
                        done = finding.kind.deed if finding.kind.adopts is Adopts.EDITS else ADOPTED_AS_IS
                    else:
                        done = self._repair.of_folder(folder, finding) or finding.kind.deed
                except (OSError, PersistenceError) as error:
                    failed[finding.kind, finding.path] = cause_of(error)
                else:
                    mended.add(finding)
                    yield Report(finding, Outcome.MENDED, done)
            if len(failed) == len(due):
                break
        else:
            found = self._inspector.inspect(folder)
        for finding in found:
            cause = failed.get((finding.kind, finding.path))
            yield Report(finding, Outcome.FOUND if cause is None else Outcome.FAILED, cause or "")

    def _foretell(self, folder: Folder, finding: Finding) -> Finding | Report:
        """Return a finding with its repair, or report its adoption, with the difference from the stored content."""
        remedy = self._remedy_of(finding)
        if remedy is Remedy.REPAIR:
            return finding.mended_by(partial(self._repair.of_folder, folder))
        if remedy is Remedy.NONE or finding.place is None:
            return finding
        try:
            return Report(finding, Outcome.FOUND, *preview(folder, finding.place))
        except (OSError, PersistenceError) as error:
            return Report(finding, Outcome.FOUND, f"would not be adopted: {cause_of(error)}")


def _is_file(path: str) -> bool:
    try:
        os.close(files.open_file(path))
    except OSError:
        return False
    return True


class _CheckedFile(msgspec.Struct, frozen=True):
    slices: list[str]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The oldest deep check of a slice, ``None`` without any, and how many slices were never checked deeply."""

    oldest: Instant | None
    never: int
    slices: int = STRIPES


class Slices:
    """The instants at which the slices of a tree were last checked deeply. Methods raise ``OSError``."""

    def __init__(self, root: str) -> None:
        self._path = Layout(root).own(CHECKED)
        self._checked = self._read()

    def coverage(self) -> Coverage:
        """Return how old the checks are."""
        known = [Instant(checked) for checked in self._checked if checked != _NEVER]
        return Coverage(min(known, default=None), len(self._checked) - len(known))

    def record(self, slices: frozenset[int], began: Instant) -> None:
        """Record that slices were checked, beginning at an instant."""
        for each in slices:
            self._checked[each] = began
        files.write_durably(self._path, msgspec.json.encode(_CheckedFile(list(self._checked))) + b"\n")

    def oldest_first(self) -> list[int]:
        """Return all slices, those never checked first."""
        return sorted(range(STRIPES), key=lambda each: self._checked[each])

    def _read(self) -> list[str]:
        try:
            with open(files.open_to_read(self._path), "rb") as file:
                checked = msgspec.json.decode(file.read(_LARGEST_RECORD), type=_CheckedFile).slices
        except (FileNotFoundError, msgspec.DecodeError):
            checked = []
        return checked if len(checked) == STRIPES else [_NEVER] * STRIPES


def within(
    seconds: float, slices: Slices, check: Callable[[frozenset[int]], Iterator[Finding | Report | None]]
) -> Iterator[Finding | Report | None]:
    """Check as many slices as a time budget allows, but at least one, to its end."""
    # Each call of `check` walks the whole tree, so it gets as many slices at once as there seems to be time for.
    end, due, count = time.monotonic() + seconds, slices.oldest_first(), 1
    while due:
        batch, due = frozenset(due[:count]), due[count:]
        began, started = next_after(None), time.monotonic()
        for found in check(batch):
            yield found
            if found is None and len(batch) > 1 and time.monotonic() > end:
                return
        slices.record(batch, began)
        left = end - time.monotonic()
        if left <= 0:
            return
        per_slice = (time.monotonic() - started) / len(batch)
        count = max(1, int(left * _CAUTION / max(per_slice, 1e-9)))
