"""Looking at the older revisions of a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from persistence.errors import DamagedError
from persistence.maintenance.contents import Match, compare, faults, is_whole
from persistence.maintenance.findings import Finding, Kind
from persistence.maintenance.listing import History, Listing, Revision
from persistence.model.sidecar import Sidecar
from persistence.storage import stored_revision
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.layout import Place
from persistence.storage.sidecars import ChangedSidecarError


def readable(history: History, name: str) -> Iterator[tuple[Revision, Sidecar]]:
    """The older revisions of a resource whose sidecars can be read, newest first."""
    for revision in history.of(name):
        try:
            sidecar = stored_revision.read_sidecar(revision.place)
        except (DamagedError, OSError):
            continue
        if sidecar is not None:
            yield revision, sidecar


def newest_whole(history: History, name: str, *, living: bool) -> tuple[Revision, Sidecar] | None:
    """The newest older revision of a resource that is all there, by its digest; only with content if ``living``."""
    for revision, sidecar in readable(history, name):
        if not (living and sidecar.deleted) and is_whole(revision.place, sidecar):
            return revision, sidecar
    return None


def revisions(
    history: History, sidecars: Mapping[str, Sidecar], found: Listing, *, deep: bool, integrity: Integrity
) -> Iterator[Finding]:
    """What is to say about the older revisions in a folder; ``sidecars`` are the current ones."""
    yield from (Finding(Kind.FOREIGN, path, what) for path, what in history.strangers)
    for path in history.strays:
        yield Finding(Kind.STRAY_FILE, path, "an older content without a sidecar")
    for place in history.rewritten.values():
        yield Finding(Kind.UNFINISHED_REWRITE, place.content, "encrypting it anew was interrupted", place)
    orphans = set[str]()
    for revision in history.revisions:
        if revision.place.name in history.rewritten:
            continue
        yield from _revision(revision, sidecars.get(revision.name), deep=deep, integrity=integrity)
        if revision.name not in found.sidecars and revision.name not in found.contents:
            orphans.add(revision.name)
    for name in sorted(orphans):
        newest = history.of(name)[0]
        folder = newest.place.directory.rpartition("/")[0]
        what = f"there are older revisions, up to {newest.instant}, but nothing current"
        yield Finding(Kind.ORPHANED_HISTORY, f"{folder}/{name}", what, Place(folder, name))


def _revision(revision: Revision, current: Sidecar | None, *, deep: bool, integrity: Integrity) -> Iterator[Finding]:
    place = revision.place
    try:
        sidecar = stored_revision.read_sidecar(place)
        if sidecar is None:
            return
        if sidecar.modified != revision.instant:
            yield Finding(Kind.REVISION_DAMAGED, place.sidecar, f"its sidecar is of {sidecar.modified}", place)
            return
        match = Match.SAME if sidecar.deleted else compare(place, sidecar, deep=deep)
    except DamagedError as error:
        is_misplaced = isinstance(error, ChangedSidecarError) and error.is_misplaced
        kind = Kind.MISPLACED if is_misplaced else Kind.REVISION_DAMAGED
        yield Finding(kind, place.sidecar, str(error), place)
        return
    except OSError as error:
        yield Finding(Kind.UNREADABLE, place.content, str(error.strerror), place)
        return
    if match is Match.OTHER and integrity.hand_edits is HandEdits.ALL:
        return
    yield from _compared(place, sidecar, current, match)


def _compared(place: Place, sidecar: Sidecar, current: Sidecar | None, match: Match) -> Iterator[Finding]:
    is_current = current is not None and sidecar.id == current.id
    # A refused write has kept the revision it was to replace already. Where the current content was edited since, the
    # second name is the only whole one, and stays.
    if is_current and (match is Match.ABSENT or is_whole(_current(place), sidecar)):
        yield Finding(Kind.KEPT_TWICE, place.sidecar, "the current revision, under a second name", place)
    elif match is Match.ABSENT:
        yield Finding(Kind.REVISION_DAMAGED, place.sidecar, "its content is missing", place)
    elif match is Match.OTHER:
        yield Finding(Kind.REVISION_DAMAGED, place.content, "its content is not the one its sidecar tells of", place)
    else:
        yield from faults(match, place, sidecar)


def _current(revision: Place) -> Place:
    """Where the resource of an older revision lies."""
    return Place(revision.directory.rpartition("/")[0], revision.name.partition("Z.")[2])
