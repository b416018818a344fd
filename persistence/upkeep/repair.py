"""What ``--repair`` does: one function for each kind of finding. No content is ever deleted.

Each is called under the lock of the folder, right after it was found there. What was never acknowledged is discarded
as the next writer would; everything else that goes out of the way goes to the quarantine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from persistence.errors import DamagedError
from persistence.model.instants import next_after
from persistence.model.sidecar import Sidecar, stamp, tombstone
from persistence.store import files, formats, mending, reading, root, writing
from persistence.store.formats import FORMAT, LayoutFile
from persistence.store.layout import LAYOUT, Place
from persistence.upkeep import listing
from persistence.upkeep.adoption import Adoption
from persistence.upkeep.contents import bears, is_whole
from persistence.upkeep.findings import Finding, Kind
from persistence.upkeep.quarantine import Quarantine
from persistence.upkeep.revisions import newest_whole, readable
from persistence.upkeep.tree import Folder

_FOR_OTHERS = 0o007


class Repair:
    """Repairs findings in the tree of one root. Methods raise ``OSError`` and ``DamagedError``."""

    def __init__(self, path: str, quarantine: Quarantine, adoption: Adoption) -> None:
        self._root = path
        self._quarantine = quarantine
        self._adoption = adoption
        self._of_folders: dict[Kind, Callable[[Folder, Finding, Place], None]] = {
            Kind.SIDECAR_UNREADABLE: self._sidecar_unreadable,
            Kind.CONTENT_MISSING: self._content_missing,
            Kind.TORN_COPY: self._torn_copy,
            Kind.REVISION_DAMAGED: self._quarantine_both,
            Kind.UNFINISHED_COMMIT: self._recover,
            Kind.UNFINISHED_WRITE: self._recover,
            Kind.UNFINISHED_REMOVAL: self._unfinished_removal,
            Kind.STRAY_FILE: self._quarantine_path,
            Kind.KEPT_TWICE: self._kept_twice,
            Kind.ORPHANED_HISTORY: self._orphaned_history,
            Kind.ORPHANED_ATTACHMENT: self._quarantine_both,
            Kind.TIMES_LOST: self._times_lost,
        }

    def of_root(self, finding: Finding) -> None:
        """Repair what is wrong with the service's own files."""
        if finding.kind is Kind.STRAY_OWN:
            _remove(finding.path)
            return
        if os.path.lexists(finding.path):
            self._quarantine.move(finding.path, finding)
        formats.write(f"{self._root}/{LAYOUT}", LayoutFile(FORMAT))
        root.make_own(self._root)

    def of_folder(self, folder: Folder, finding: Finding) -> None:
        """Repair one thing in a folder."""
        if finding.kind in {Kind.NO_ACCESS, Kind.OPEN_ACCESS}:
            _give_access(finding.path, os.stat(self._root))
        elif finding.kind is Kind.EMPTY_DIRECTORY:
            files.remove_if_empty(finding.path)
        elif finding.place is None:
            self._quarantine.move(finding.path, finding)
        else:
            self._of_folders[finding.kind](folder, finding, finding.place)

    def _recover(self, _folder: Folder, _finding: Finding, place: Place) -> None:
        writing.recover(place)
        files.sync_directory(place.directory)

    def _sidecar_unreadable(self, folder: Folder, finding: Finding, place: Place) -> None:
        """The content is acknowledged, what was known about it is lost: make it known again, or bury it."""
        if not os.path.lexists(place.content):
            self._quarantine.keep(place.sidecar, finding)
            self._go_back(folder, place, to_living=False)
            return
        known = self._known(folder, place)
        if known is None:
            raise DamagedError("its form version is not known: move the sidecar away, and --adopt takes the content in")
        self._quarantine.keep(place.sidecar, finding)
        self._adoption.adopt(folder, place, over=known)

    def _known(self, folder: Folder, place: Place) -> Sidecar | None:
        """What is surely true of a resource whose sidecar is lost: of an older revision, or of another file of it."""
        older = next(readable(listing.history(folder.path), place.name), None)
        if older is not None:
            return older[1]
        if folder.collection is None:
            return self._adoption.nothing_known(int(folder.name))
        for name in sorted(listing.folder(folder.path).sidecars - {place.name}):
            with suppress(DamagedError):
                sibling = reading.read_sidecar(Place(folder.path, name))
                if sibling is not None:
                    return self._adoption.nothing_known(sibling.version)
        return None

    def _content_missing(self, folder: Folder, finding: Finding, place: Place) -> None:
        lost = reading.read_sidecar(place)
        for revision, sidecar in readable(listing.history(folder.path), place.name):
            if lost is not None and sidecar.id == lost.id and is_whole(revision.place, sidecar):
                mending.reinstate(place, sidecar, revision.place.content)
                return
        self._quarantine.keep(place.sidecar, finding)
        self._go_back(folder, place, to_living=True)

    def _go_back(self, folder: Folder, place: Place, *, to_living: bool) -> None:
        """Make the newest whole revision current; without one, the resource counts as never stored.

        Where it may have been deleted (no content, and a sidecar that says nothing) it is recorded as deleted instead:
        what somebody deleted must not come back.
        """
        newest = newest_whole(listing.history(folder.path), place.name, living=False)
        if newest is None:
            files.remove(place.sidecar)  # it is in the quarantine
            files.sync_directory(place.directory)
        elif newest[1].deleted or not to_living:
            self._entomb(place, newest[1])
        else:
            mending.reinstate(place, newest[1], newest[0].place.content)

    def _torn_copy(self, folder: Folder, finding: Finding, place: Place) -> None:
        for _, sidecar in readable(listing.history(folder.path), place.name):
            if bears(place, sidecar):
                self._quarantine.keep(place.sidecar, finding)
                mending.adopt(place, sidecar)
                return

    def _unfinished_removal(self, folder: Folder, finding: Finding, place: Place) -> None:
        if os.path.lexists(place.content):
            if folder.keeps_history and files.has_other_names(place.content):
                files.remove(place.content)
            else:
                self._quarantine.move(place.content, finding)
        if not folder.keeps_history:
            files.remove(place.sidecar)
        files.sync_directory(place.directory)

    def _kept_twice(self, _folder: Folder, _finding: Finding, revision: Place) -> None:
        files.remove(revision.content)
        files.remove(revision.sidecar)

    def _orphaned_history(self, folder: Folder, _finding: Finding, place: Place) -> None:
        newest = next(readable(listing.history(folder.path), place.name), None)
        if newest is not None:
            self._entomb(place, newest[1])

    def _entomb(self, place: Place, newest: Sidecar) -> None:
        mending.entomb(place, tombstone(newest, modified=next_after(newest.modified), modifier=None))

    def _times_lost(self, _folder: Folder, _finding: Finding, place: Place) -> None:
        sidecar = reading.read_sidecar(place)
        if sidecar is not None:
            files.stamp(place.content, stamp(sidecar))

    def _quarantine_path(self, _folder: Folder, finding: Finding, _place: Place) -> None:
        self._quarantine.move(finding.path, finding)

    def _quarantine_both(self, _folder: Folder, finding: Finding, place: Place) -> None:
        # The sidecar first: a content alone is not served, a sidecar alone is damage.
        for path in (place.sidecar, place.content):
            if os.path.lexists(path):
                self._quarantine.move(path, finding)


def _remove(path: str) -> None:
    if os.path.isdir(path):
        files.remove_tree(path)
    else:
        files.remove(path)


def _give_access(path: str, owner: os.stat_result) -> None:
    status = os.lstat(path)
    if status.st_uid != owner.st_uid:
        files.set_owner(path, owner.st_uid, owner.st_gid)
    needed = files.DIRECTORY_MODE if stat.S_ISDIR(status.st_mode) else files.FILE_MODE
    files.set_mode(path, (stat.S_IMODE(status.st_mode) & ~_FOR_OTHERS) | (needed & 0o700))
