"""Looking at one folder: findings come out, nothing is changed.

Without the folder's lock a writer at work looks like a crash; what counts is what is found under the lock.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from persistence.errors import DamagedError
from persistence.model.addresses import Collection
from persistence.model.instants import from_datetime
from persistence.model.sidecar import Sidecar
from persistence.store import files, reading, writing
from persistence.store.layout import HISTORY, Place
from persistence.upkeep import listing
from persistence.upkeep.contents import Match, bears, compare, faults
from persistence.upkeep.findings import Finding, Kind
from persistence.upkeep.listing import History, Listing
from persistence.upkeep.revisions import newest_whole, readable, revisions
from persistence.upkeep.tree import Folder, Tree

ABANDONED_AFTER = timedelta(days=7)
"""Attachments may wait this long for the first save of their document."""

_FOR_OTHERS = 0o007
_OWN_FILE = 0o600
_OWN_DIRECTORY = 0o700
_OF_EDITORS = ("~", "#", ".orig", ".rej", ".tmp")


class Inspector:
    """Inspects folders of a tree; ``deep`` reads every content and compares its digest."""

    def __init__(self, tree: Tree, *, deep: bool) -> None:
        self._tree = tree
        self._deep = deep
        self._user = os.stat(tree.root).st_uid

    def inspect(self, folder: Folder) -> list[Finding]:
        """Everything there is to say about a folder; one that has gone meanwhile has nothing to say."""
        try:
            return list(self._inspect(folder))
        except FileNotFoundError:
            return []
        except PermissionError:
            return list(self._access(folder.path, _OWN_DIRECTORY)) or [_unreadable(folder.path, "Permission denied")]
        except OSError as error:
            return [_unreadable(folder.path, str(error.strerror))]

    def _inspect(self, folder: Folder) -> Iterator[Finding]:
        yield from self._access(folder.path, _OWN_DIRECTORY)
        found = listing.folder(folder.path)
        if found.is_empty:
            yield Finding(Kind.EMPTY_DIRECTORY, folder.path, "nothing is stored in it")
            return
        yield from (Finding(Kind.FOREIGN, path, what) for path, what in found.strangers)
        history = listing.history(folder.path) if found.has_history else History()
        if found.has_history and history.is_empty:
            yield Finding(Kind.EMPTY_DIRECTORY, f"{folder.path}/{HISTORY}", "there is no older revision in it")
        sidecars: dict[str, Sidecar] = {}
        for name in found.names:
            place = Place(folder.path, name)
            sidecar = None
            if name in found.sidecars:
                yield from self._access(place.sidecar, _OWN_FILE)
                try:
                    sidecar = reading.read_sidecar(place)
                except DamagedError as error:
                    yield Finding(Kind.SIDECAR_UNREADABLE, place.sidecar, _after_colon(error), place)
                except OSError as error:
                    yield _unreadable(place.sidecar, str(error.strerror))
                    continue
            if sidecar is not None:
                sidecars[name] = sidecar
            yield from self._interrupted(place, sidecar, found)
            if name not in found.sidecars or sidecar is not None:
                yield from self._content(folder, place, sidecar, found, history)
        yield from self._access_to(folder.path, history)
        yield from revisions(history, sidecars, found, deep=self._deep)
        yield from _versions(folder, sidecars)
        yield from self._orphans(folder, found, sidecars)
        if folder.collection is Collection.DRAFT:
            yield from self._outdated(folder, sidecars)

    def _interrupted(self, place: Place, sidecar: Sidecar | None, found: Listing) -> Iterator[Finding]:
        """What a crash left of a write: before its commit, or after it."""
        prepared = place.name in found.prepared
        named = writing.prepared_id(place) if prepared else None
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
            yield from self._access(place.content, _OWN_FILE)
        if sidecar is None:
            if is_there:
                yield _without_sidecar(place)
        elif sidecar.deleted:
            yield from self._buried(folder, place, history, is_there=is_there)
        elif sidecar.id not in found.pending.get(place.name, ()):
            yield from self._compared(place, sidecar, history)

    def _buried(self, folder: Folder, place: Place, history: History, *, is_there: bool) -> Iterator[Finding]:
        if not folder.keeps_history:
            yield Finding(Kind.UNFINISHED_REMOVAL, place.sidecar, "removed from a draft, but not entirely", place)
        elif is_there:
            kept = newest_whole(history, place.name, living=True)
            is_kept = kept is not None and compare(place, kept[1], deep=True) in {Match.SAME, Match.TIMES_LOST}
            if is_kept or files.has_other_names(place.content):
                yield Finding(Kind.UNFINISHED_REMOVAL, place.content, "deleted, and kept in the history already", place)
            else:
                yield _without_sidecar(place)

    def _compared(self, place: Place, sidecar: Sidecar, history: History) -> Iterator[Finding]:
        try:
            match = compare(place, sidecar, deep=self._deep)
        except OSError as error:
            yield _unreadable(place.content, str(error.strerror))
            return
        if match is Match.ABSENT:
            what = f"the content of {sidecar.modified} is missing"
            yield Finding(Kind.CONTENT_MISSING, place.content, what, place)
        elif match is Match.OTHER:
            older = next((other for _, other in readable(history, place.name) if bears(place, other)), None)
            if older is not None:
                what = f"the content is of {older.modified}, the sidecar of {sidecar.modified}"
                yield Finding(Kind.TORN_COPY, place.content, what, place)
            else:
                what = f"edited by hand since {sidecar.modified}; it is served as it is"
                yield Finding(Kind.EDITED, place.content, what, place)
        else:
            yield from faults(match, place, sidecar)

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
        """A save erases the draft. One that is older than what was saved is left from a crash in between."""
        try:
            saved = reading.read_sidecar(self._tree.main(folder, Collection.DATA))
        except DamagedError:
            return
        newest = max((sidecar.modified for sidecar in sidecars.values()), default=None)
        if saved is not None and newest is not None and newest < saved.modified:
            what = f"a draft of {newest}, older than what was saved or deleted at {saved.modified}"
            yield Finding(Kind.OUTDATED_DRAFT, folder.path, what)

    def _access_to(self, path: str, history: History) -> Iterator[Finding]:
        if history.revisions:
            yield from self._access(f"{path}/{HISTORY}", _OWN_DIRECTORY)
        for revision in history.revisions:
            for name in (revision.place.sidecar, revision.place.content):
                yield from self._access(name, _OWN_FILE)

    def _access(self, path: str, needed: int) -> Iterator[Finding]:
        """Whether the service's user, to whom the root belongs, may use a file or directory, and others may not."""
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != self._user:
            yield Finding(Kind.NO_ACCESS, path, f"it belongs to user {status.st_uid}, not {self._user}")
        elif mode & needed != needed:
            yield Finding(Kind.NO_ACCESS, path, f"its permissions are {mode:o}: the service may not use it")
        elif mode & _FOR_OTHERS:
            yield Finding(Kind.OPEN_ACCESS, path, f"its permissions are {mode:o}: every user of the machine may use it")


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


def _without_sidecar(place: Place) -> Finding:
    if place.name.startswith("#") or place.name.endswith(_OF_EDITORS):
        return Finding(Kind.FOREIGN, place.content, "a file of an editor")
    return Finding(Kind.NO_SIDECAR, place.content, "put here by hand; it is not served", place)


def _unreadable(path: str, cause: str) -> Finding:
    return Finding(Kind.UNREADABLE, path, cause)


def _after_colon(error: DamagedError) -> str:
    return str(error).partition("cannot be read: ")[2] or str(error)
