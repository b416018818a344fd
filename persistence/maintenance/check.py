"""Looking at the folders of a tree and its indexes, and repairing findings, while the service runs.

A tree too large for one night is checked deeply in slices, the one checked longest ago first. A slice has the folders
of one of the 256 lock stripes, so it needs neither a list nor memory. A small file in the root has the instants.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial

import msgspec

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, BusyError, DamagedError, PersistenceError, disk_errors
from persistence.index.sources import DocumentName
from persistence.index.sync.index_check import IndexCheck
from persistence.index.sync.updater import TreeIndex
from persistence.maintenance import tree_walk
from persistence.maintenance.repair import Adoption, Repair, preview, read_through
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.storage_check import BodiesOf, MarkCheck, body_faults
from persistence.model.addresses import DATA_XML, Collection
from persistence.model.sidecar import Sidecar
from persistence.model.texts import Instant, from_datetime, next_after
from persistence.storage import files, owner, root, stored_revision
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
from persistence.storage.layout import CHECKED, FOLDER_DEPTH, SERVICE, SIDECAR_SUFFIX, FilePaths, Layout
from persistence.storage.locks import STRIPES, Lease, LockFile, stripe
from persistence.storage.storage import ChangeEvents
from persistence.storage.stored_revision import ChangedSidecarError, HandEdits, Integrity, StateChangedError

# Inspecting one folder: findings come out, nothing is changed.
#
# Without the folder's lock a writer at work looks like a crash; only what is found under the lock counts.


ABANDONED_AFTER = timedelta(days=7)  # How long attachments may wait for the first save of their document
_OF_EDITORS = ("~", "#", ".orig", ".rej", ".tmp")
_TIMES_LOST = "copied without its modification time"


@dataclass(slots=True)
class _Inspection:
    """One inspection of a folder; ``sidecars`` has the readable ones once ``resources`` has come to its end."""

    by: TreeCheck
    folder: tree_walk.Folder
    listing: tree_walk.FolderListing
    history: tree_walk.History
    sidecars: dict[str, Sidecar] = field(default_factory=dict)

    def resources(self) -> Iterator[Finding]:
        for name in self.listing.names:
            place, has_sidecar = self.folder.paths(name), name in self.listing.sidecars
            if has_sidecar:
                yield from self.by.access.file(place.sidecar)
                try:
                    sidecar = stored_revision.read_sidecar(place)
                except DamagedError as error:
                    yield self._damaged_sidecar(place, error)
                except PermissionError:
                    continue  # the access check has reported it
                except OSError as error:
                    yield FindingKind.UNREADABLE.at(place.sidecar, str(error.strerror))
                    continue
                else:
                    if sidecar is None:
                        continue  # gone since it was listed; under the lock nothing goes
                    self.sidecars[name] = sidecar
            yield from self._interrupted(place, self.sidecars.get(name))
            if not has_sidecar or name in self.sidecars:
                yield from self._content(place, self.sidecars.get(name))

    def _interrupted(self, place: FilePaths, sidecar: Sidecar | None) -> Iterator[Finding]:
        named = None
        if place.name in self.listing.next_sidecars:
            named = stored_revision.next_id(place)
            yield FindingKind.UNFINISHED_WRITE.at(place.next_sidecar, "interrupted before its commit", place)
        for content_id in self.listing.next_contents.get(place.name, ()):
            path = place.next_content(content_id)
            if sidecar is not None and not sidecar.deleted and content_id == sidecar.id:
                yield FindingKind.UNFINISHED_COMMIT.at(path, "committed, but not yet under its name", place)
            elif content_id != named:
                yield FindingKind.STRAY_FILE.at(path, "a content that no sidecar names", place)

    def _content(self, place: FilePaths, sidecar: Sidecar | None) -> Iterator[Finding]:
        is_there = place.name in self.listing.contents
        if is_there:
            yield from self.by.access.file(place.content)
        if sidecar is None:
            if is_there and self.history.of(place.name):
                what = "there are older revisions, but no sidecar to the current content"
                yield FindingKind.SIDECAR_MISSING.at(place.content, what, place)
            elif is_there:
                yield _without_sidecar(place)
        elif sidecar.deleted:
            yield from self._tombstone(place, is_there=is_there)
        elif sidecar.id not in self.listing.next_contents.get(place.name, ()):
            yield from self._compared(place, sidecar)

    def _tombstone(self, place: FilePaths, *, is_there: bool) -> Iterator[Finding]:
        if not self.folder.keeps_history:
            yield FindingKind.UNFINISHED_REMOVAL.at(place.sidecar, "removed from a draft, but not entirely", place)
        elif is_there:
            # With the stamp of a revision a crash or a copy has left it; a person gives it another time.
            # An edit by hand is kept as a copy, which has another time.
            kept = (
                older
                for _, older in tree_walk.readable(self.history, place.name)
                if older.adopted or tree_walk.bears(place, older)
            )
            if any(not older.deleted and tree_walk.is_whole(place, older) for older in kept):
                what = "deleted, and kept in the history already"
                yield FindingKind.UNFINISHED_REMOVAL.at(place.content, what, place)
            else:
                yield _without_sidecar(place)

    def _compared(self, place: FilePaths, sidecar: Sidecar) -> Iterator[Finding]:
        try:
            match = tree_walk.compare(place, sidecar, deep=self.by.deep)
        except PermissionError:
            return  # the access check has reported it
        except OSError as error:
            yield FindingKind.UNREADABLE.at(place.content, str(error.strerror))
            return
        if match is tree_walk.ContentMatch.ABSENT:
            yield FindingKind.CONTENT_MISSING.at(place.content, f"the content of {sidecar.modified} is missing", place)
        elif match is tree_walk.ContentMatch.OTHER:
            yield self._changed(place, sidecar)
        else:
            if match is tree_walk.ContentMatch.ROTTEN:
                yield self._lost_unless_older(FindingKind.DIGEST_WRONG, place, f"its digest is not {sidecar.digest}")
            else:
                yield from _faults(match, place, sidecar)
            is_file = sidecar.encrypted and sidecar.body is None and not place.must_be_xml
            if is_file and not tree_walk.is_encrypted_for(self.folder.address(place.name), place.content):
                what = "its sidecar says that it is encrypted, and it is no encrypted file of this place"
                yield FindingKind.ENCRYPTION_WRONG.at(place.content, what, place)
            yield from self._marks(place.name, place.content, sidecar)

    def _changed(self, place: FilePaths, sidecar: Sidecar) -> Finding:
        for _, older in tree_walk.readable(self.history, place.name):
            if tree_walk.bears(place, older) and tree_walk.is_whole(place, older):
                what = f"the content is of {older.modified}, the sidecar of {sidecar.modified}"
                return FindingKind.TORN_COPY.at(place.content, what, place)
        try:
            is_same = self.by.integrity.judge(place, sidecar, place.content, os.lstat(place.content))
        except (StateChangedError, FileNotFoundError):
            return FindingKind.BUSY.at(place.content, "it is being changed")
        except DamagedError as error:
            return self._lost_unless_older(FindingKind.CONTENT_DAMAGED, place, _after_colon(error))
        if is_same:
            return FindingKind.TIMES_LOST.at(place.content, _TIMES_LOST, place)
        what = f"edited by hand since {sidecar.modified}; it is served as it is"
        try:
            read_through(self.folder.address(place.name), place.content)
        except BadRequestError as error:  # no XML, or a definition that would not be published
            what = f"{what}, but {error}"
        return FindingKind.EDITED.at(place.content, what, place)

    def _lost_unless_older(self, kind: FindingKind, place: FilePaths, what: str) -> Finding:
        newest = tree_walk.newest_whole(self.history, place.name, living=True)
        if newest is None:
            return replace(kind.at(place.content, f"{what}; no older revision is whole", place), is_lost=True)
        return kind.at(place.content, f"{what}; the newest whole revision is of {newest[1].modified}", place)

    def _marks(self, name: str, path: str, sidecar: Sidecar) -> Iterator[Finding]:
        if name != self.folder.main or (self.folder.collection is not None and not self.by.deep):
            return
        try:
            with open(files.open_file(path), "rb") as file:
                found = self.by.marks.faults(self.folder.address(name), sidecar, file, is_deep=self.by.deep)
        except PermissionError:
            return  # the access check has reported it
        yield from (kind.at(path, what) for kind, what in found)

    def _damaged_sidecar(self, place: FilePaths, error: DamagedError) -> Finding:
        if isinstance(error, ChangedSidecarError):
            kind = FindingKind.MISPLACED if error.is_misplaced else FindingKind.SIDECAR_CHANGED
            return kind.at(place.sidecar, error.cause, place)
        is_alone = place.name not in self.listing.contents and not self.history.of(place.name)
        if is_alone and stored_revision.is_other_json(place.sidecar):
            what = f"no sidecar; as an attachment it would be {place.name}%2Ejson"
            return FindingKind.FOREIGN.at(place.sidecar, what)
        return FindingKind.SIDECAR_UNREADABLE.at(place.sidecar, _after_colon(error), place)

    def revisions(self) -> Iterator[Finding]:
        yield from (FindingKind.FOREIGN.at(path, what) for path, what in self.history.strangers)
        for path in self.history.strays:
            yield FindingKind.STRAY_FILE.at(path, "an older content without a sidecar")
        for place in self.history.rewritten.values():
            yield FindingKind.UNFINISHED_REWRITE.at(
                place.content, "re-encrypting it, or purging it, was interrupted", place
            )
        orphans = set[str]()
        for revision in self.history.revisions:
            if revision.place.name not in self.history.rewritten:
                yield from self._revision(revision)
                if revision.name not in self.listing.sidecars and revision.name not in self.listing.contents:
                    orphans.add(revision.name)
        for name in sorted(orphans):
            what = f"there are older revisions, up to {self.history.of(name)[0].instant}, but nothing current"
            yield FindingKind.ORPHANED_HISTORY.at((place := self.folder.paths(name)).content, what, place)

    def _revision(self, revision: tree_walk.OlderRevision) -> Iterator[Finding]:
        place, damaged = revision.place, FindingKind.REVISION_DAMAGED
        try:
            sidecar = stored_revision.read_sidecar(place)
            if sidecar is None:
                return
            if sidecar.modified != revision.instant:
                yield damaged.at(place.sidecar, f"its sidecar is of {sidecar.modified}", place)
                return
            match = (
                tree_walk.ContentMatch.SAME if sidecar.deleted else tree_walk.compare(place, sidecar, deep=self.by.deep)
            )
        except DamagedError as error:
            is_misplaced = isinstance(error, ChangedSidecarError) and error.is_misplaced
            yield (FindingKind.MISPLACED if is_misplaced else damaged).at(place.sidecar, str(error), place)
            return
        except OSError as error:
            yield FindingKind.UNREADABLE.at(place.content, str(error.strerror), place)
            return
        if match is tree_walk.ContentMatch.OTHER and self.by.integrity.hand_edits is HandEdits.ALL:
            return
        current = self.sidecars.get(revision.name)
        is_current = current is not None and sidecar.id == current.id
        # A refused write has kept the revision that it was to replace already. If the current content was edited
        # since, the second name is the only whole one, and stays.
        if is_current and (
            match is tree_walk.ContentMatch.ABSENT or tree_walk.is_whole(self.folder.paths(revision.name), sidecar)
        ):
            yield FindingKind.KEPT_TWICE.at(place.sidecar, "the current revision, under a second name", place)
        elif match is tree_walk.ContentMatch.ABSENT:
            yield damaged.at(place.sidecar, "its content is missing", place)
        elif match is tree_walk.ContentMatch.OTHER:
            yield damaged.at(place.content, "its content is not the one its sidecar tells of", place)
        else:
            yield from _faults(match, place, sidecar)
            if self.folder.collection is not None and not sidecar.deleted:
                yield from self._marks(revision.name, place.content, sidecar)

    def versions(self) -> Iterator[Finding]:
        main = self.sidecars.get(self.folder.main)
        expected = int(self.folder.name) if self.folder.collection is None else main and main.version
        for name, sidecar in self.sidecars.items():
            if expected is not None and sidecar.version != expected:
                what = f"its sidecar says version {sidecar.version}; it belongs to version {expected}"
                yield FindingKind.VERSION_WRONG.at((place := self.folder.paths(name)).sidecar, what, place)

    def orphans(self) -> Iterator[Finding]:
        main, oldest = self.folder.main, from_datetime(datetime.now(UTC) - ABANDONED_AFTER)
        found = {} if main in self.listing.names else self.sidecars
        for name, sidecar in found.items():
            if not sidecar.deleted and sidecar.modified < oldest:
                what = f"an attachment of {sidecar.modified}; there was never a {main}"
                yield FindingKind.ORPHANED_ATTACHMENT.at((place := self.folder.paths(name)).content, what, place)

    def outdated(self) -> Iterator[Finding]:
        """Find a draft that is older than the saved data: saving erases the draft, and a crash came in between."""
        # If the save is of the future, the clock was wrong. An adopted revision erases no draft, whatever its time.
        try:
            saved = stored_revision.read_sidecar(self.by.tree.folder_in(Collection.DATA, self.folder).paths(DATA_XML))
        except DamagedError:
            return
        newest = max((sidecar.modified for sidecar in self.sidecars.values()), default=None)
        if saved is None or saved.adopted or newest is None:
            return
        if newest < saved.modified <= next_after(None):
            what = f"a draft of {newest}, older than what was saved or deleted at {saved.modified}"
            yield FindingKind.OUTDATED_DRAFT.at(self.folder.path, what)


def _faults(match: tree_walk.ContentMatch, place: FilePaths, sidecar: Sidecar) -> Iterator[Finding]:
    if match is tree_walk.ContentMatch.ROTTEN:
        yield FindingKind.DIGEST_WRONG.at(place.content, f"its digest is not {sidecar.digest}", place)
    elif match is tree_walk.ContentMatch.TIMES_LOST:
        yield FindingKind.TIMES_LOST.at(place.content, _TIMES_LOST, place)


def _without_sidecar(place: FilePaths) -> Finding:
    if place.name.startswith("#") or place.name.endswith(_OF_EDITORS):
        return FindingKind.FOREIGN.at(place.content, "a file of an editor")
    return FindingKind.NO_SIDECAR.at(place.content, "put here by hand; it is not served", place)


def _after_colon(error: DamagedError) -> str:
    text = str(error)
    return text.partition("cannot be read: ")[2] or text.partition("is damaged: ")[2] or text


ADOPTED_AS_IS = "took it in as it is"  # The outcome of adopting damage
_ROUNDS = 5  # How often a folder is inspected again: one repair may bring another fault to light
_CAUTION = 0.5  # The share of the remaining time that is planned for, because slices differ in size
_NEVER = Instant("")
_LARGEST_RECORD = 1 << 16
ALL_SLICES = frozenset(range(STRIPES))


@dataclass(eq=False)
class TreeCheck:
    """One check of a tree. What needs the lock of its folder is mended here, by the remedies of the ``treatment``."""

    # ``integrity`` distinguishes edits by hand from damage. ``bodies_of`` returns the directory with the bodies of a
    # form. ``open_reader`` opens the tree together with the definitions of its data, when these are needed. ``adopter``
    # is the user to be recorded as who adopts. ``deep`` reads every content, and all of the index.
    tree: tree_walk.FolderTree
    index: TreeIndex
    dialect: Dialect
    integrity: Integrity
    bodies_of: BodiesOf
    open_reader: Callable[[], TreeReader]
    treatment: Treatment
    adopter: str | None = None
    deep: bool = False

    def __post_init__(self) -> None:
        self._index_check = IndexCheck(self.index)
        self._file: str | None = None
        self._is_part = False
        reader, quarantine = cache(self.open_reader), Quarantine(self.tree.root)
        self.marks = MarkCheck(lambda form: reader().catalog_of(form))
        self.access = tree_walk.AccessCheck(self.tree.root)
        self._remedies = self.treatment.remedies
        self._adoption = Adoption(self.tree.layout, reader, self.dialect, quarantine, self.adopter)
        self._repair = Repair(self.tree.layout, quarantine, self._adoption, may_guess=Remedy.ADOPT in self._remedies)

    def findings(
        self, parts: tree_walk.Parts = ((),), slices: frozenset[int] | None = None
    ) -> Iterator[Finding | Report | None]:
        """Check some parts, or only the folders of ``slices``; yield ``None`` for each folder that is done."""
        for part in parts:
            yield from self._part(part, slices)

    def _part(self, only: tuple[str, ...], slices: frozenset[int] | None) -> Iterator[Finding | Report | None]:
        # Names of one file limit adoption to that file, and let damage be adopted, too.
        layout, of_root = self.tree.layout, self._repair.of_root
        changes = bool(self._remedies) and not self.treatment.is_dry
        with disk_errors(f"data directory {layout.root}"), ExitStack() as stack:
            tree_walk.require_tree(self.tree)
            if changes:
                owner.require(layout.root)
            own = [*tree_walk.check_format(layout), *(() if only else tree_walk.missing(layout))]
            for finding in list(tree_walk.obstacles(layout)):  # before any of these files is used
                yield finding.mended_by(of_root)
            if changes:
                root.make_own(layout.root)  # a copy may have come without locks
                stack.enter_context(closing(Lease(layout.root)))
            self._file, self._is_part = self._file_of(only), bool(only)
            if _is_file(layout.own(SERVICE)):
                stack.enter_context(LockFile(layout.own(SERVICE)).shared())
            for finding in [*own, *(() if only else tree_walk.strays(layout))]:
                yield finding.mended_by(of_root)
            for item in self.tree.walk(only):
                if isinstance(item, Finding):
                    yield item.mended_by(of_root)
                elif slices is None or stripe(item.scope) in slices:
                    yield from self._folder(item)
                    yield None
            if slices is None and len(only) <= tree_walk.FORM_DEPTH:
                yield from self._index_check.of_forms(only, deep=self.deep)

    def _inspect(self, folder: tree_walk.Folder) -> list[Finding]:
        """Return all findings in a folder; there are none if it is gone meanwhile."""
        try:
            return tree_walk.without_repetitions(folder, self._inspected(folder))
        except FileNotFoundError:
            return []
        except PermissionError as error:
            path = str(error.filename or folder.path)
            return list(self.access.directory(path)) or [FindingKind.UNREADABLE.at(path, "Permission denied")]
        except OSError as error:
            return [FindingKind.UNREADABLE.at(folder.path, str(error.strerror))]

    def _inspected(self, folder: tree_walk.Folder) -> Iterator[Finding]:
        yield from self.access.directory(folder.path)
        found = tree_walk.list_folder(folder.path)
        if found.is_empty:
            yield FindingKind.EMPTY_DIRECTORY.at(folder.path, "nothing is stored in it")
            return
        history = tree_walk.list_history(folder.path) if found.has_history else tree_walk.History()
        yield from (FindingKind.FOREIGN.at(path, what) for path, what in found.strangers)
        obstacles, others = [*found.obstacles, *history.obstacles], list[str]()
        for name in sorted(found.others):
            is_in_the_way = name == folder.main or name in found.sidecars
            (obstacles if is_in_the_way else others).append(folder.paths(name).content)
        for path in obstacles:
            yield FindingKind.NOT_A_FILE.at(path, "no file, where only a file of the service may be")
        yield from (FindingKind.FOREIGN.at(path, "neither a file nor the history") for path in others)
        yield from self.access.history(folder, history)
        if found.has_history and history.is_empty:
            yield FindingKind.EMPTY_DIRECTORY.at(folder.paths("").history, "there is no older revision in it")
        inspection = _Inspection(self, folder, found, history)
        yield from inspection.resources()
        yield from inspection.revisions()
        yield from body_faults(self.bodies_of, folder, inspection.sidecars, history, deep=self.deep)
        yield from inspection.versions()
        yield from inspection.orphans()
        if folder.collection is Collection.DRAFT:
            yield from inspection.outdated()

    def _file_of(self, names: tuple[str, ...]) -> str | None:
        if len(names) <= FOLDER_DEPTH:
            return None
        path = self.tree.layout.own("/".join(names))
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

    def _folder(self, folder: tree_walk.Folder) -> Iterator[Finding | Report]:
        if not self._inspect(folder):
            # One with another finding is not compared: its repair updates the index.
            if folder.collection is not None:
                name = DocumentName(folder.name, folder.collection is Collection.DRAFT)
                yield from self._index_check.of_document(folder.form, name, deep=self.deep)
            return
        try:
            with self.tree.locked(folder) as change:
                if self.treatment.is_dry:
                    for finding in self._inspect(folder):
                        yield self._foretell(folder, finding)
                else:
                    yield from self._settle(folder, change)
        except BusyError as error:
            yield FindingKind.BUSY.at(folder.path, str(error))

    def _settle(self, folder: tree_walk.Folder, change: ChangeEvents) -> Iterator[Report]:
        failed: dict[tuple[FindingKind, str], str] = {}
        mended = set[Finding]()
        for _ in range(_ROUNDS):
            found = self._inspect(folder)
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
            found = self._inspect(folder)
        for finding in found:
            cause = failed.get((finding.kind, finding.path))
            yield Report(finding, Outcome.FOUND if cause is None else Outcome.FAILED, cause or "")

    def _foretell(self, folder: tree_walk.Folder, finding: Finding) -> Finding | Report:
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
        known = [Instant(checked) for checked in self._checked if checked != _NEVER]
        return Coverage(min(known, default=None), len(self._checked) - len(known))

    def record(self, slices: frozenset[int], began: Instant) -> None:
        for each in slices:
            self._checked[each] = began
        files.write_durably(self._path, msgspec.json.encode({"slices": self._checked}) + b"\n")

    def oldest_first(self) -> list[int]:
        return sorted(range(STRIPES), key=lambda each: self._checked[each])

    def _read(self) -> list[str]:
        try:
            with open(files.open_to_read(self._path), "rb") as file:
                checked = msgspec.json.decode(file.read(_LARGEST_RECORD), type=dict[str, list[str]])["slices"]
        except (FileNotFoundError, msgspec.DecodeError, KeyError):
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
