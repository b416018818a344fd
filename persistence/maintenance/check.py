"""Checking a tree and its indexes, and repairing findings, folder by folder, while the service runs.

A tree too large for one night is checked deeply in slices, the one checked longest ago first. A slice has the folders
of one of the 256 lock stripes, so it needs neither a list nor memory. A small file in the root has the instants.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial

import msgspec

from persistence.dialect import Dialect
from persistence.errors import BusyError, DiskError, NotFoundError, PersistenceError, StartupError, disk_errors
from persistence.index.protocol import (
    Discrepancy,
    IndexAudit,
    IndexFault,
    MaintainedIndex,
    RebuildAim,
    RebuildJob,
    SearchIndex,
)
from persistence.maintenance import tree_walk
from persistence.maintenance.findings import (
    Adopts,
    Finding,
    FindingKind,
    MarkCheck,
    Outcome,
    Quarantine,
    Remedy,
    Report,
    Treatment,
    cause_of,
)
from persistence.maintenance.inspection import Inspector
from persistence.maintenance.repair import Adoption, Repair, preview
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.storage_check import BodiesOf
from persistence.maintenance.tree_walk import FORM_DEPTH, Folder, FolderTree
from persistence.model.addresses import Collection, Form
from persistence.model.instants import Instant, next_after
from persistence.model.queries import DraftFilter, Hits, Query, Scope
from persistence.model.versions import Searched
from persistence.services.access import searched_versions
from persistence.services.searching import unknown_controls, unpublished_version
from persistence.storage import files, owner, root
from persistence.storage.layout import (
    CHECKED,
    FOLDER_DEPTH,
    INDEX,
    SERVICE,
    SIDECAR_SUFFIX,
    Layout,
    is_escaped,
    unescape,
)
from persistence.storage.locks import STRIPES, Lease, LockFile, stripe
from persistence.storage.reader import StoreReader
from persistence.storage.storage import ChangeEvents
from persistence.storage.stored_revision import Integrity

_PATIENCE = 600.0  # Seconds to wait for documents that are being indexed
_PAUSE = 0.2
_ABANDONED_AFTER = 60.0  # Seconds that the service may take to find the notes of a killed process


@contextmanager
def writable_tree(path: str) -> Iterator[StoreReader]:
    """Open a tree to write its index; it cannot be restored or upgraded during the block."""
    view = StoreReader(path)
    with ExitStack() as stack:
        with disk_errors(f"data directory {view.root}"):
            owner.require(view.root)
            root.make_own(view.root)  # a copy may have come without
            stack.enter_context(LockFile(Layout(view.root).own(SERVICE)).shared())
            stack.enter_context(closing(Lease(view.root)))
        yield view


def plan(
    view: StoreReader, index: MaintainedIndex, aim: RebuildAim, form: Form | None = None, version: int | None = None
) -> RebuildJob:
    if form is None:
        return index.job(sorted(view.forms(), key=lambda form: (form.app, form.name)), aim)
    require_form(view, index, form)
    if version is not None and version not in index.versions(form):
        raise NotFoundError(f"{form} has no version {version}")
    return index.job((form,), aim, version)


def rebuild_without_trace(view: StoreReader, index: MaintainedIndex, form: Form) -> None:
    """Rebuild the index of a form, so that no value that is not there any more stays in a file of it."""
    plan(view, index, RebuildAim.REBUILT, form).run(lambda _: None)
    with disk_errors("removing what the index had of", form):
        for path in index.stray_files(form):
            files.remove(path)


def require_form(view: StoreReader, index: MaintainedIndex, form: Form) -> None:
    """Check that a form has data or a definition in the tree, or a definition elsewhere."""
    if form not in view.forms(form.app) and not index.has_definition(form):
        raise NotFoundError(f"{form} does not exist")


class FormSearch:
    """Searches a form for an administrator, who may see everything, in the versions of a request (spec search 1.4)."""

    def __init__(
        self, reader: TreeReader, index: SearchIndex, dialect: Dialect, form: Form, version: int | Searched
    ) -> None:
        self._index = index
        self._form = form
        self._asked = version
        self._versions = searched_versions(form, reader.properties.of(form), reader.catalog_of(form), version, dialect)

    def require_controls(self, paths: Iterable[str]) -> None:
        """Check that all paths are those of indexed controls, by the definition that counts for the search."""
        indexed = self._versions.index_paths or ()
        unknown = unknown_controls(self._form, self._versions.definition.version, indexed, paths)
        if unknown is not None:
            raise NotFoundError(unknown)

    def run(self, query: Query, drafts: DraftFilter) -> Hits:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                hits = self._index.search(self._form, Scope(self._versions.numbers, drafts), query)
                break
            except BusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
        if hits.total == 0 and isinstance(self._asked, int) and self._versions.definition.published is None:
            published = (each.version for each in self._versions.catalog.published(self._form, skips_damaged=True))
            raise NotFoundError(unpublished_version(self._form, self._asked, published))
        return hits


Remediable = tuple[Finding, Callable[[], object]]  # A finding with its repair


class IndexInspector:
    """Compares the indexes of a tree with it; ``deep`` reads every document again, and all of the index."""

    # A document with another finding is not compared, because its repair updates the index. A user who may not write
    # the tree compares nothing: opening an index would leave files beside it.
    def __init__(self, tree: FolderTree, index: MaintainedIndex, *, deep: bool) -> None:
        self._tree = tree
        self._index = index
        self._deep = deep
        self._directory = tree.layout.own(INDEX)
        self._form: Form | None = None
        self._audit: IndexAudit | None = None

    def of_folder(self, folder: Folder) -> Iterator[Remediable]:
        """Find wrong rows of a document or draft."""
        if self._is_possible and folder.collection is not None:
            yield from self._of_document(folder.form, folder.name, is_draft=folder.collection is Collection.DRAFT)

    def of_forms(self, only: tuple[str, ...]) -> Iterator[Remediable]:
        """Find fault with the indexes of the forms below some names, and with what lies beside them."""
        if not self._is_possible or len(only) > FORM_DEPTH:
            return
        for app in _names(self._directory, only[:1]):
            for name in _names(f"{self._directory}/{app}", only[1:2]):
                yield from self._of_form(Form(unescape(app), unescape(name)))
        self._close()
        if not only:
            with disk_errors("looking what the index has still to take in"):
                for path in self._index.orphaned(_ABANDONED_AFTER):
                    what = "a process that has ended has noted changes, and nobody has taken them in"
                    yield FindingKind.INDEX_NOTES.at(path, what), self._index.recover

    @cached_property
    def _is_possible(self) -> bool:
        try:
            StoreReader(self._tree.root)
        except StartupError:
            return False
        is_own = owner.of(self._tree.root) == os.geteuid()
        return os.path.isdir(self._directory) and is_own and os.access(self._directory, os.W_OK)

    def _of_form(self, form: Form) -> Iterator[Remediable]:
        path = self._tree.layout.index(form)
        if not os.path.isdir(self._tree.layout.form(form)):
            finding = FindingKind.STRAY_OWN.at(path, "the index of a form that is gone")
            yield finding, partial(files.remove_tree, path)
            return
        with disk_errors("looking at the index of", form):
            left = self._index.stray_files(form)
        for each in left:
            yield FindingKind.STRAY_OWN.at(each, "left by who was killed making an index"), partial(files.remove, each)
        audit = self._audit_of(form)
        for compare in (audit.throughout, audit.counts) if self._deep else (audit.counts,):
            yield from self._found(form, path, compare())
        for document, is_draft in audit.names():
            if not os.path.lexists(self._document(form, document, is_draft=is_draft)):
                yield from self._of_document(form, document, is_draft=is_draft)

    def _of_document(self, form: Form, document: str, *, is_draft: bool) -> Iterator[Remediable]:
        audit, path = self._audit_of(form), self._document(form, document, is_draft=is_draft)
        try:
            found = audit.document(document, is_draft=is_draft)
            if found is None and self._deep:
                found = audit.contents(document, is_draft=is_draft)
        except BusyError:  # it is being written
            return
        except DiskError as error:
            yield FindingKind.UNREADABLE.at(path, str(error)), lambda: None
            return
        yield from self._found(form, path, found, document)

    def _found(
        self, form: Form, path: str, found: Discrepancy | None, document: str | None = None
    ) -> Iterator[Remediable]:
        invalidate = partial(self._index.invalidate, form)
        if found is None:
            return
        if found.fault is IndexFault.STALE and document is not None:
            yield FindingKind.INDEX_STALE.at(path, found.message), partial(self._index.update, form, [document])
        elif found.fault is IndexFault.WRONG:
            yield FindingKind.INDEX_WRONG.at(path, found.message), invalidate
        else:
            yield FindingKind.INDEX_DAMAGED.at(self._tree.layout.index(form), found.message), invalidate

    def _audit_of(self, form: Form) -> IndexAudit:
        """Return the audit of a form; only one is open, because the tree is walked form by form."""
        if self._audit is None or self._form != form:
            self._close()
            self._form, self._audit = form, self._index.audit(form)
        return self._audit

    def _close(self) -> None:
        if self._audit is not None:
            self._audit.close()
            self._audit = None

    def _document(self, form: Form, document: str, *, is_draft: bool) -> str:
        return self._tree.layout.document(form, Collection.DRAFT if is_draft else Collection.DATA, document)


def _names(directory: str, only: tuple[str, ...]) -> list[str]:
    names = files.names_in(directory)
    return sorted(name for name in names if is_escaped(name) and (not only or name == only[0]))


ADOPTED_AS_IS = "took it in as it is"  # The outcome of adopting damage
_ROUNDS = 5  # How often a folder is inspected again: one repair may bring another fault to light
_CAUTION = 0.5  # The share of the remaining time that is planned for, because slices differ in size
_NEVER = Instant("")
_LARGEST_RECORD = 1 << 16
ALL_SLICES = frozenset(range(STRIPES))


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The scope of a check, and the remedies that it applies; with ``dry_run`` it only foretells them.

    ``integrity`` distinguishes edits by hand from damage. ``bodies_of`` returns the directory with the bodies of a
    form. ``open_reader`` opens the tree together with the definitions of its data, when these are needed.
    ``adopter`` is the user to be recorded as who adopts. ``deep`` reads every content, and all of the index.
    """

    dialect: Dialect
    integrity: Integrity
    bodies_of: BodiesOf
    open_reader: Callable[[], TreeReader]
    remedies: frozenset[Remedy] = frozenset()
    adopter: str | None = None
    dry_run: bool = False
    deep: bool = False


class Check:
    """One check of a tree, with the remedies for its findings."""

    def __init__(self, tree: FolderTree, index: MaintainedIndex, options: CheckOptions) -> None:
        self._treatment = Treatment(options.remedies, options.dry_run)
        self.totals = self._treatment.totals
        self._tree = tree
        reader = cache(options.open_reader)
        marks = MarkCheck(lambda form: reader().catalog_of(form))
        self._inspector = Inspector(tree, options.bodies_of, options.integrity, marks, deep=options.deep)
        self._indexes = IndexInspector(tree, index, deep=options.deep)
        self._remedies = options.remedies
        self._changes = bool(options.remedies) and not options.dry_run
        self._file: str | None = None
        self._is_part = False
        quarantine = Quarantine(tree.root)
        self._adoption = Adoption(tree.layout, options.open_reader, options.dialect, quarantine, options.adopter)
        self._repair = Repair(tree.layout, quarantine, self._adoption, may_guess=Remedy.ADOPT in self._remedies)

    def run(self, only: tuple[str, ...] = (), slices: frozenset[int] | None = None) -> Iterator[Report | None]:
        """Check what is below some names, or the folders of ``slices``; yield ``None`` for each that is done."""
        # Names of one file limit adoption to that file, and let damage be adopted, too.
        layout = self._tree.layout
        with disk_errors(f"data directory {layout.root}"), ExitStack() as stack:
            tree_walk.require_tree(self._tree)
            if self._changes:
                owner.require(layout.root)
            of_root = [*tree_walk.check_format(layout), *(() if only else tree_walk.missing(layout))]
            for finding in list(tree_walk.obstacles(layout)):  # before any of these files is used
                yield self._treat_in_root(finding)
            if self._changes:
                root.make_own(layout.root)  # a copy may have come without locks
                stack.enter_context(closing(Lease(layout.root)))
            self._file, self._is_part = self._file_of(only), bool(only)
            if _is_file(layout.own(SERVICE)):
                stack.enter_context(LockFile(layout.own(SERVICE)).shared())
            for finding in [*of_root, *(() if only else tree_walk.strays(layout))]:
                yield self._treat_in_root(finding)
            yield from self._walk(only, slices)
            for found, mend in () if slices is not None else self._indexes.of_forms(only):
                yield self._treatment.apply(found, mend)

    def _walk(self, only: tuple[str, ...], slices: frozenset[int] | None) -> Iterator[Report | None]:
        for item in self._tree.walk(only):
            if isinstance(item, Finding):
                yield self._treat_in_root(item)
            elif slices is None or stripe(item.scope) in slices:
                self.totals.folders += 1
                yield from self._check(item)
                yield None

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

    def _treat_in_root(self, finding: Finding) -> Report:
        return self._treatment.apply(finding, partial(self._repair.of_root, finding))

    def _check(self, folder: Folder) -> Iterator[Report]:
        if not self._inspector.inspect(folder):
            for found, mend in self._indexes.of_folder(folder):
                yield self._treatment.apply(found, mend)
            return
        try:
            with self._tree.locked(folder) as change:
                if self._treatment.is_dry:
                    for finding in self._inspector.inspect(folder):
                        yield self.totals.add(self._foretell(folder, finding))
                else:
                    yield from map(self.totals.add, self._settle(folder, change))
        except BusyError as error:
            yield self.totals.add(Report(FindingKind.BUSY.at(folder.path, str(error)), Outcome.FOUND))

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
                    done = self._take_care(folder, finding)
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

    def _take_care(self, folder: Folder, finding: Finding) -> str:
        if self._remedy_of(finding) is Remedy.ADOPT and finding.place is not None:
            self._adoption.take_in(folder, finding, finding.place)
            return finding.kind.deed if finding.kind.adopts is Adopts.EDITS else ADOPTED_AS_IS
        return self._repair.of_folder(folder, finding) or finding.kind.deed

    def _foretell(self, folder: Folder, finding: Finding) -> Report:
        """Report the remedy that would be applied; for an adoption, with the difference from the stored content."""
        remedy = self._remedy_of(finding)
        if remedy is Remedy.NONE:
            return Report(finding, Outcome.FOUND)
        if remedy is Remedy.REPAIR or finding.place is None:
            return Report(finding, Outcome.FOUND, f"would be repaired: {finding.kind.deed}")
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
    seconds: float, slices: Slices, check: Callable[[frozenset[int]], Iterator[Report | None]]
) -> Iterator[Report | None]:
    """Check as many slices as a time budget allows, but at least one, to its end."""
    # Each call of `check` walks the whole tree, so it gets as many slices at once as there seems to be time for.
    end, due, count = time.monotonic() + seconds, slices.oldest_first(), 1
    while due:
        batch, due = frozenset(due[:count]), due[count:]
        began, started = next_after(None), time.monotonic()
        for report in check(batch):
            yield report
            if report is None and len(batch) > 1 and time.monotonic() > end:
                return
        slices.record(batch, began)
        left = end - time.monotonic()
        if left <= 0:
            return
        per_slice = (time.monotonic() - started) / len(batch)
        count = max(1, int(left * _CAUTION / max(per_slice, 1e-9)))
