"""Inspecting one folder: findings come out, nothing is changed.

Without the folder's lock a writer at work looks like a crash; only what is found under the lock counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from persistence.errors import BadRequestError, DamagedError
from persistence.maintenance.repair import read_through
from persistence.maintenance.storage_check import BodiesOf, MarkCheck, body_faults
from persistence.maintenance.tree_walk import (
    AccessCheck,
    ContentMatch,
    Folder,
    FolderListing,
    FolderTree,
    History,
    OlderRevision,
    bears,
    compare,
    is_encrypted_for,
    is_whole,
    list_folder,
    list_history,
    newest_whole,
    readable,
    without_repetitions,
)
from persistence.model.addresses import DATA_XML, Collection
from persistence.model.sidecar import Sidecar
from persistence.model.texts import from_datetime, next_after
from persistence.storage import files, stored_revision
from persistence.storage.findings import Finding, FindingKind
from persistence.storage.layout import FilePaths
from persistence.storage.stored_revision import ChangedSidecarError, HandEdits, Integrity, StateChangedError

ABANDONED_AFTER = timedelta(days=7)  # How long attachments may wait for the first save of their document
_OF_EDITORS = ("~", "#", ".orig", ".rej", ".tmp")
_TIMES_LOST = "copied without its modification time"


@dataclass(frozen=True, slots=True)
class Inspector:
    """Inspects folders of a tree; ``deep`` reads every content and compares its digest."""

    tree: FolderTree
    bodies_of: BodiesOf
    integrity: Integrity
    marks: MarkCheck
    access: AccessCheck
    deep: bool

    def inspect(self, folder: Folder) -> list[Finding]:
        """Return all findings in a folder; there are none if it is gone meanwhile."""
        try:
            return without_repetitions(folder, self._inspect(folder))
        except FileNotFoundError:
            return []
        except PermissionError as error:
            path = str(error.filename or folder.path)
            return list(self.access.directory(path)) or [FindingKind.UNREADABLE.at(path, "Permission denied")]
        except OSError as error:
            return [FindingKind.UNREADABLE.at(folder.path, str(error.strerror))]

    def _inspect(self, folder: Folder) -> Iterator[Finding]:
        yield from self.access.directory(folder.path)
        found = list_folder(folder.path)
        if found.is_empty:
            yield FindingKind.EMPTY_DIRECTORY.at(folder.path, "nothing is stored in it")
            return
        history = list_history(folder.path) if found.has_history else History()
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


@dataclass(slots=True)
class _Inspection:
    """One inspection of a folder; ``sidecars`` has the readable ones once ``resources`` has come to its end."""

    by: Inspector
    folder: Folder
    listing: FolderListing
    history: History
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
            kept = (older for _, older in readable(self.history, place.name) if older.adopted or bears(place, older))
            if any(not older.deleted and is_whole(place, older) for older in kept):
                what = "deleted, and kept in the history already"
                yield FindingKind.UNFINISHED_REMOVAL.at(place.content, what, place)
            else:
                yield _without_sidecar(place)

    def _compared(self, place: FilePaths, sidecar: Sidecar) -> Iterator[Finding]:
        try:
            match = compare(place, sidecar, deep=self.by.deep)
        except PermissionError:
            return  # the access check has reported it
        except OSError as error:
            yield FindingKind.UNREADABLE.at(place.content, str(error.strerror))
            return
        if match is ContentMatch.ABSENT:
            yield FindingKind.CONTENT_MISSING.at(place.content, f"the content of {sidecar.modified} is missing", place)
        elif match is ContentMatch.OTHER:
            yield self._changed(place, sidecar)
        else:
            if match is ContentMatch.ROTTEN:
                yield self._lost_unless_older(FindingKind.DIGEST_WRONG, place, f"its digest is not {sidecar.digest}")
            else:
                yield from _faults(match, place, sidecar)
            is_file = sidecar.encrypted and sidecar.body is None and not place.must_be_xml
            if is_file and not is_encrypted_for(self.folder.address(place.name), place.content):
                what = "its sidecar says that it is encrypted, and it is no encrypted file of this place"
                yield FindingKind.ENCRYPTION_WRONG.at(place.content, what, place)
            yield from self._marks(place.name, place.content, sidecar)

    def _changed(self, place: FilePaths, sidecar: Sidecar) -> Finding:
        for _, older in readable(self.history, place.name):
            if bears(place, older) and is_whole(place, older):
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
        newest = newest_whole(self.history, place.name, living=True)
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

    def _revision(self, revision: OlderRevision) -> Iterator[Finding]:
        place, damaged = revision.place, FindingKind.REVISION_DAMAGED
        try:
            sidecar = stored_revision.read_sidecar(place)
            if sidecar is None:
                return
            if sidecar.modified != revision.instant:
                yield damaged.at(place.sidecar, f"its sidecar is of {sidecar.modified}", place)
                return
            match = ContentMatch.SAME if sidecar.deleted else compare(place, sidecar, deep=self.by.deep)
        except DamagedError as error:
            is_misplaced = isinstance(error, ChangedSidecarError) and error.is_misplaced
            yield (FindingKind.MISPLACED if is_misplaced else damaged).at(place.sidecar, str(error), place)
            return
        except OSError as error:
            yield FindingKind.UNREADABLE.at(place.content, str(error.strerror), place)
            return
        if match is ContentMatch.OTHER and self.by.integrity.hand_edits is HandEdits.ALL:
            return
        current = self.sidecars.get(revision.name)
        is_current = current is not None and sidecar.id == current.id
        # A refused write has kept the revision that it was to replace already. If the current content was edited
        # since, the second name is the only whole one, and stays.
        if is_current and (match is ContentMatch.ABSENT or is_whole(self.folder.paths(revision.name), sidecar)):
            yield FindingKind.KEPT_TWICE.at(place.sidecar, "the current revision, under a second name", place)
        elif match is ContentMatch.ABSENT:
            yield damaged.at(place.sidecar, "its content is missing", place)
        elif match is ContentMatch.OTHER:
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
        """Find attachments whose document was never saved."""
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


def _faults(match: ContentMatch, place: FilePaths, sidecar: Sidecar) -> Iterator[Finding]:
    if match is ContentMatch.ROTTEN:
        yield FindingKind.DIGEST_WRONG.at(place.content, f"its digest is not {sidecar.digest}", place)
    elif match is ContentMatch.TIMES_LOST:
        yield FindingKind.TIMES_LOST.at(place.content, _TIMES_LOST, place)


def _without_sidecar(place: FilePaths) -> Finding:
    if place.name.startswith("#") or place.name.endswith(_OF_EDITORS):
        return FindingKind.FOREIGN.at(place.content, "a file of an editor")
    return FindingKind.NO_SIDECAR.at(place.content, "put here by hand; it is not served", place)


def _after_colon(error: DamagedError) -> str:
    text = str(error)
    return text.partition("cannot be read: ")[2] or text.partition("is damaged: ")[2] or text
