"""Looking at one folder: findings come out, nothing is changed.

Without the folder's lock a writer at work looks like a crash; what counts is what is found under the lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from persistence.errors import BadRequestError, DamagedError
from persistence.maintenance import access, listing
from persistence.maintenance.access import Access
from persistence.maintenance.adoption import read_through
from persistence.maintenance.bodies import BodyInspector
from persistence.maintenance.contents import Match, bears, compare, faults, is_whole
from persistence.maintenance.encrypted import is_encrypted_for
from persistence.maintenance.findings import Finding, Kind
from persistence.maintenance.listing import History, Listing
from persistence.maintenance.revisions import newest_whole, readable, revisions
from persistence.maintenance.tree import Folder, Tree
from persistence.model.addresses import Collection
from persistence.model.instants import from_datetime, next_after
from persistence.model.sidecar import Sidecar
from persistence.storage import commit, stored_revision
from persistence.storage import sidecars as sidecars_of
from persistence.storage.integrity import Integrity, StateChangedError, Verdict
from persistence.storage.layout import HISTORY, Place
from persistence.storage.sidecars import ChangedSidecarError

ABANDONED_AFTER = timedelta(days=7)
"""Attachments may wait this long for the first save of their document."""

_OF_EDITORS = ("~", "#", ".orig", ".rej", ".tmp")


class Inspector:
    """Inspects folders of a tree; ``deep`` reads every content and compares its digest.

    ``integrity`` tells edits by hand from damage, as the service does.
    """

    def __init__(self, tree: Tree, bodies: BodyInspector, integrity: Integrity, *, deep: bool) -> None:
        self._tree = tree
        self._integrity = integrity
        self._bodies = bodies
        self._deep = deep
        self._access = Access(tree.root)

    def inspect(self, folder: Folder) -> list[Finding]:
        """Everything there is to say about a folder; one that has gone meanwhile has nothing to say."""
        try:
            return access.without_repetitions(folder, self._inspect(folder))
        except FileNotFoundError:
            return []
        except PermissionError as error:
            path = str(error.filename or folder.path)
            return list(self._access.to_directory(path)) or [_unreadable(path, "Permission denied")]
        except OSError as error:
            return [_unreadable(folder.path, str(error.strerror))]

    def _inspect(self, folder: Folder) -> Iterator[Finding]:
        yield from self._access.to_directory(folder.path)
        found = listing.folder(folder.path)
        if found.is_empty:
            yield Finding(Kind.EMPTY_DIRECTORY, folder.path, "nothing is stored in it")
            return
        history = listing.history(folder.path) if found.has_history else History()
        yield from _strange(folder, found, history)
        yield from self._access.to_history(folder, history)
        if found.has_history and history.is_empty:
            yield Finding(Kind.EMPTY_DIRECTORY, f"{folder.path}/{HISTORY}", "there is no older revision in it")
        sidecars: dict[str, Sidecar] = {}
        for name in found.names:
            place = Place(folder.path, name)
            if name in found.sidecars:
                yield from self._access.to_file(place.sidecar)
                try:
                    sidecars[name] = _read(place)
                except DamagedError as error:
                    yield _damaged_sidecar(place, error, found, history)
                except PermissionError:
                    continue  # said above
                except OSError as error:
                    yield _unreadable(place.sidecar, str(error.strerror))
                    continue
            sidecar = sidecars.get(name)
            yield from self._interrupted(place, sidecar, found)
            if name not in found.sidecars or sidecar is not None:
                yield from self._content(folder, place, sidecar, found, history)
        yield from revisions(history, sidecars, found, deep=self._deep, integrity=self._integrity)
        yield from self._bodies.of_folder(folder, sidecars, history)
        yield from _versions(folder, sidecars)
        yield from self._orphans(folder, found, sidecars)
        if folder.collection is Collection.DRAFT:
            yield from self._outdated(folder, sidecars)

    def _interrupted(self, place: Place, sidecar: Sidecar | None, found: Listing) -> Iterator[Finding]:
        """What a crash left of a write: before its commit, or after it."""
        prepared = place.name in found.prepared
        named = commit.prepared_id(place) if prepared else None
        if prepared:
            yield Finding(Kind.UNFINISHED_WRITE, place.prepared, "interrupted before its commit", place)
        for content_id in found.pending.get(place.name, ()):
            path = place.pending(content_id)
            if sidecar is not None and not sidecar.deleted and content_id == sidecar.id:
                yield Finding(Kind.UNFINISHED_COMMIT, path, "committed, but not yet under its name", place)
            elif content_id != named:
                yield Finding(Kind.STRAY_FILE, path, "a content that no sidecar names", place)

    def _content(
        self, folder: Folder, place: Place, sidecar: Sidecar | None, found: Listing, history: History
    ) -> Iterator[Finding]:
        is_there = place.name in found.contents
        if is_there:
            yield from self._access.to_file(place.content)
        if sidecar is None:
            if is_there and history.of(place.name):
                what = "there are older revisions, but no sidecar to the current content"
                yield Finding(Kind.SIDECAR_MISSING, place.content, what, place)
            elif is_there:
                yield _without_sidecar(place)
        elif sidecar.deleted:
            yield from self._buried(folder, place, history, is_there=is_there)
        elif sidecar.id not in found.pending.get(place.name, ()):
            yield from self._compared(folder, place, sidecar, history)

    def _buried(self, folder: Folder, place: Place, history: History, *, is_there: bool) -> Iterator[Finding]:
        if not folder.keeps_history:
            yield Finding(Kind.UNFINISHED_REMOVAL, place.sidecar, "removed from a draft, but not entirely", place)
        elif is_there:
            # With the stamp of a revision a crash or a copy has left it; a person gives it another time.
            # An edit by hand is kept as a copy, which has another time.
            kept = (older for _, older in readable(history, place.name) if older.adopted or bears(place, older))
            if any(not older.deleted and is_whole(place, older) for older in kept):
                yield Finding(Kind.UNFINISHED_REMOVAL, place.content, "deleted, and kept in the history already", place)
            else:
                yield _without_sidecar(place)

    def _compared(self, folder: Folder, place: Place, sidecar: Sidecar, history: History) -> Iterator[Finding]:
        try:
            match = compare(place, sidecar, deep=self._deep)
        except PermissionError:
            return  # said already
        except OSError as error:
            yield _unreadable(place.content, str(error.strerror))
            return
        if match is Match.ABSENT:
            what = f"the content of {sidecar.modified} is missing"
            yield Finding(Kind.CONTENT_MISSING, place.content, what, place)
        elif match is Match.OTHER:
            yield self._changed(folder, place, sidecar, history)
        else:
            whole = _newest_whole(history, place) if match is Match.ROTTEN else ""
            yield from faults(match, place, sidecar, whole)
            yield from _encryption(folder, place, sidecar)

    def _changed(self, folder: Folder, place: Place, sidecar: Sidecar, history: History) -> Finding:
        """A content that is not the sidecar's: another revision's, damaged, or edited by a person."""
        for _, older in readable(history, place.name):
            if bears(place, older) and is_whole(place, older):
                what = f"the content is of {older.modified}, the sidecar of {sidecar.modified}"
                return Finding(Kind.TORN_COPY, place.content, what, place)
        try:
            verdict = self._integrity.judge(place, sidecar, place.content, os.lstat(place.content))
        except StateChangedError:
            return Finding(Kind.BUSY, place.content, "it is being changed")
        except DamagedError as error:
            what = f"{_after_colon(error)}; {_newest_whole(history, place)}"
            return Finding(Kind.CONTENT_DAMAGED, place.content, what, place)
        if verdict is Verdict.SAME:
            return Finding(Kind.TIMES_LOST, place.content, "copied without its modification time", place)
        what = f"edited by hand since {sidecar.modified}; it is served as it is"
        try:
            read_through(folder.address(place.name), place.content)
        except BadRequestError as error:  # XML that is none, or a definition that would not be published
            what = f"{what}, but {error}"
        return Finding(Kind.EDITED, place.content, what, place)

    def _orphans(self, folder: Folder, found: Listing, sidecars: dict[str, Sidecar]) -> Iterator[Finding]:
        if folder.main in found.sidecars or folder.main in found.names:
            return
        oldest = from_datetime(datetime.now(UTC) - ABANDONED_AFTER)
        for name, sidecar in sidecars.items():
            if not sidecar.deleted and sidecar.modified < oldest:
                place = Place(folder.path, name)
                what = f"an attachment of {sidecar.modified}; there was never a {folder.main}"
                yield Finding(Kind.ORPHANED_ATTACHMENT, place.content, what, place)

    def _outdated(self, folder: Folder, sidecars: dict[str, Sidecar]) -> Iterator[Finding]:
        """A save erases the draft. One that is older than what was saved is left from a crash in between.

        Where the save is of the future, the clock was wrong, and the draft may be the newer of the two.
        """
        try:
            saved = stored_revision.read_sidecar(self._tree.main(folder, Collection.DATA))
        except DamagedError:
            return
        newest = max((sidecar.modified for sidecar in sidecars.values()), default=None)
        if saved is None or saved.adopted or newest is None:
            return  # an adopted revision erases no draft, whatever its time
        if newest < saved.modified <= next_after(None):
            what = f"a draft of {newest}, older than what was saved or deleted at {saved.modified}"
            yield Finding(Kind.OUTDATED_DRAFT, folder.path, what)


def _encryption(folder: Folder, place: Place, sidecar: Sidecar) -> Iterator[Finding]:
    """What cannot be decrypted, because it was encrypted for another place or has lost its header."""
    address = folder.address(place.name)
    if (
        sidecar.encrypted
        and sidecar.body is None
        and not address.is_main
        and not is_encrypted_for(address, place.content)
    ):
        what = "its sidecar says that it is encrypted, and it is no encrypted file of this place"
        yield Finding(Kind.ENCRYPTION_WRONG, place.content, what, place)


def _versions(folder: Folder, sidecars: Mapping[str, Sidecar]) -> Iterator[Finding]:
    """A definition has the version of its directory, an attachment that of its document."""
    if folder.collection is None:
        expected = int(folder.name)
    elif folder.main in sidecars:
        expected = sidecars[folder.main].version
    else:
        return
    for name, sidecar in sidecars.items():
        if sidecar.version != expected:
            place = Place(folder.path, name)
            what = f"its sidecar says version {sidecar.version}; it belongs to version {expected}"
            yield Finding(Kind.VERSION_WRONG, place.sidecar, what, place)


def _read(place: Place) -> Sidecar:
    sidecar = stored_revision.read_sidecar(place)
    if sidecar is None:
        raise FileNotFoundError(place.sidecar)  # gone since it was listed; under the lock nothing goes
    return sidecar


def _damaged_sidecar(place: Place, error: DamagedError, found: Listing, history: History) -> Finding:
    """A sidecar that cannot be read; a JSON file that belongs to nothing and is like no sidecar is somebody's own."""
    if isinstance(error, ChangedSidecarError):
        kind = Kind.MISPLACED if error.is_misplaced else Kind.SIDECAR_CHANGED
        return Finding(kind, place.sidecar, error.cause, place)
    if place.name not in found.contents and not history.of(place.name) and sidecars_of.is_other_json(place.sidecar):
        return Finding(Kind.FOREIGN, place.sidecar, f"no sidecar; as an attachment it would be {place.name}%2Ejson")
    return Finding(Kind.SIDECAR_UNREADABLE, place.sidecar, _after_colon(error), place)


def _newest_whole(history: History, place: Place) -> str:
    """The newest whole older revision of a resource, as a finding names it."""
    newest = newest_whole(history, place.name, living=True)
    return "no older revision is whole" if newest is None else f"the newest whole revision is of {newest[1].modified}"


def _without_sidecar(place: Place) -> Finding:
    if place.name.startswith("#") or place.name.endswith(_OF_EDITORS):
        return Finding(Kind.FOREIGN, place.content, "a file of an editor")
    return Finding(Kind.NO_SIDECAR, place.content, "put here by hand; it is not served", place)


def _strange(folder: Folder, found: Listing, history: History) -> Iterator[Finding]:
    """What is not the service's, and what is in its way."""
    yield from (Finding(Kind.FOREIGN, path, what) for path, what in found.strangers)
    yield from (_not_a_file(path) for path in (*found.obstacles, *history.obstacles))
    for name in sorted(found.others):
        yield from _other(folder, Place(folder.path, name), found)


def _other(folder: Folder, place: Place, found: Listing) -> Iterator[Finding]:
    """What is to say of something that is no file and has a name that a content can have."""
    if place.name == folder.main or place.name in found.sidecars:
        yield _not_a_file(place.content)
    else:
        yield Finding(Kind.FOREIGN, place.content, "neither a file nor the history")


def _not_a_file(path: str) -> Finding:
    return Finding(Kind.NOT_A_FILE, path, "no file, where only a file of the service may be")


def _unreadable(path: str, cause: str) -> Finding:
    return Finding(Kind.UNREADABLE, path, cause)


def _after_colon(error: DamagedError) -> str:
    text = str(error)
    return text.partition("cannot be read: ")[2] or text.partition("is damaged: ")[2] or text
