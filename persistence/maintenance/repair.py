"""What ``--repair`` does: one function for each kind of finding. No content is ever deleted.

Each is called under the lock of the folder, right after it was found there. What was never acknowledged is discarded
as the next writer would; everything else that goes out of the way goes to the quarantine.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from persistence.errors import DamagedError
from persistence.maintenance import access, listing
from persistence.maintenance.adoption import Adoption
from persistence.maintenance.contents import bears, is_whole
from persistence.maintenance.findings import Finding, Kind
from persistence.maintenance.quarantine import Quarantine
from persistence.maintenance.revisions import newest_whole, readable
from persistence.maintenance.tree import Folder
from persistence.model.instants import next_after
from persistence.model.sidecar import Sidecar, stamp, tombstone
from persistence.storage import commit, directories, files, formats, nofollow, root, sidecars, stored_revision
from persistence.storage.formats import FORMAT, LayoutFile
from persistence.storage.layout import LAYOUT, QUARANTINE, Place

_CORRECTED = "corrected the one bit that was flipped in its sidecar"


class Repair:
    """Repairs findings in the tree of one root. Methods raise ``OSError`` and ``DamagedError``."""

    def __init__(self, path: str, quarantine: Quarantine, adoption: Adoption, *, may_guess: bool) -> None:
        """``may_guess`` says whether a form version that nothing tells may be that of a new document."""
        self._root = path
        self._may_guess = may_guess
        self._quarantine = quarantine
        self._adoption = adoption
        self._of_folders: dict[Kind, Callable[[Folder, Finding, Place], str | None]] = {
            Kind.SIDECAR_UNREADABLE: self._sidecar_unreadable,
            Kind.SIDECAR_CHANGED: self._sidecar_changed,
            Kind.CONTENT_DAMAGED: self._content_damaged,
            Kind.DIGEST_WRONG: self._content_damaged,
            Kind.SIDECAR_MISSING: self._sidecar_missing,
            Kind.CONTENT_MISSING: self._content_missing,
            Kind.TORN_COPY: self._torn_copy,
            Kind.REVISION_DAMAGED: self._revision_damaged,
            Kind.UNFINISHED_COMMIT: self._recover,
            Kind.UNFINISHED_WRITE: self._recover,
            Kind.UNFINISHED_REWRITE: self._recover,
            Kind.UNFINISHED_REMOVAL: self._unfinished_removal,
            Kind.STRAY_FILE: self._quarantine_path,
            Kind.KEPT_TWICE: self._kept_twice,
            Kind.ORPHANED_HISTORY: self._orphaned_history,
            Kind.ORPHANED_ATTACHMENT: self._orphaned_attachment,
            Kind.TIMES_LOST: self._times_lost,
        }

    def of_root(self, finding: Finding) -> None:
        """Repair what is wrong with the service's own files, or on the way to a folder."""
        if finding.kind is Kind.NO_ACCESS:
            access.give(finding.path)
            return
        if finding.kind is Kind.STRAY_OWN:
            _remove(finding.path)
            return
        if finding.kind is Kind.OWN_MISSING:
            root.make_own(self._root)
            return
        if finding.kind is Kind.NOT_A_FILE:
            self._set_aside(finding)
            return
        if os.path.lexists(finding.path):
            self._quarantine.move(finding.path, finding)
        formats.write(f"{self._root}/{LAYOUT}", LayoutFile(FORMAT))
        root.make_own(self._root)

    def _set_aside(self, finding: Finding) -> None:
        """Take something out of the way of the service's own; what is in the way of the quarantine stays beside it."""
        if finding.path == f"{self._root}/{QUARANTINE}":
            files.rename(finding.path, f"{finding.path}~{time.time_ns()}")
        else:
            self._quarantine.move(finding.path, finding)

    def of_folder(self, folder: Folder, finding: Finding) -> str | None:
        """Repair one thing in a folder; returns what was done, where there is a choice."""
        if finding.kind in {Kind.NO_ACCESS, Kind.OPEN_ACCESS}:
            access.give(finding.path)
        elif finding.kind is Kind.EMPTY_DIRECTORY:
            directories.remove_if_empty(finding.path)
        elif finding.place is None:
            self._quarantine.move(finding.path, finding)
        else:
            return self._of_folders[finding.kind](folder, finding, finding.place)
        return None

    def _recover(self, folder: Folder, finding: Finding, place: Place) -> None:
        committed = stored_revision.read_sidecar(place)
        # With a tag it is the same revision encrypted anew: what it takes the place of must not be kept.
        is_other = committed is not None and not committed.deleted and committed.tag is None
        if committed is not None and is_other and files.exists(place.pending(committed.id)):
            self._save_from_overwriting(folder, finding, place, committed)
        commit.recover(place)
        directories.sync(place.directory)

    def _save_from_overwriting(self, folder: Folder, finding: Finding, place: Place, committed: Sidecar) -> None:
        """Finishing a commit replaces the content in place: usually the one before, which is in the history."""
        pending = Place(place.directory, os.path.basename(place.pending(committed.id)))
        if not os.path.lexists(place.content):
            return
        if os.path.samefile(pending.content, place.content):
            files.remove(pending.content)  # a rename of one over the other would leave both
            return
        if is_whole(place, committed) and not is_whole(pending, committed):
            self._quarantine.move(pending.content, finding)
            return
        kept = newest_whole(listing.history(folder.path), place.name, living=True)
        if kept is None or not is_whole(place, kept[1]):
            self._quarantine.keep(place.content, finding)

    def _sidecar_changed(self, _folder: Folder, _finding: Finding, place: Place) -> str:
        if not _corrected(place):
            raise DamagedError("more than a bit was changed: restore it from a backup, or take it in with --adopt PATH")
        return _CORRECTED

    def _content_damaged(self, folder: Folder, finding: Finding, place: Place) -> str:
        """Go back to the newest whole revision, which may be the current one under its second name."""
        if place.is_older:
            self._quarantine_both(folder, finding, place)
            return "moved it to .quarantine"
        newest = newest_whole(listing.history(folder.path), place.name, living=True)
        if newest is None:
            raise DamagedError("no older revision is whole: restore it from a backup, or take it in with --adopt PATH")
        self._quarantine.keep(place.content, finding)
        self._quarantine.keep(place.sidecar, finding)
        commit.reinstate(place, newest[1], newest[0].place.content)
        return f"went back to the revision of {newest[1].modified}; the damaged file is in .quarantine"

    def _revision_damaged(self, folder: Folder, finding: Finding, place: Place) -> str:
        if os.path.isfile(place.sidecar) and _corrected(place):
            return _CORRECTED
        self._quarantine_both(folder, finding, place)
        return "moved what is left of it to .quarantine"

    def _sidecar_unreadable(self, folder: Folder, finding: Finding, place: Place) -> str:
        """The content is acknowledged, what was known about it is lost: know it again, or put a tombstone there."""
        if os.path.isfile(place.sidecar) and _corrected(place):
            return _CORRECTED
        if not stat.S_ISREG(os.lstat(place.sidecar).st_mode):
            known = self._known(folder, place) if os.path.lexists(place.content) else None
            self._quarantine.move(place.sidecar, finding)
            if known is not None:
                self._adoption.adopt(folder, place, over=known)
            return "moved it to .quarantine"
        if not os.path.lexists(place.content):
            self._quarantine.keep(place.sidecar, finding)
            return self._go_back(folder, place, to_living=False)
        known = self._known(folder, place)
        if known is None and self._may_guess:
            known = self._adoption.new(folder, place)
        if known is None:
            raise DamagedError("nothing tells its form version; with --adopt it becomes that of a new document")
        self._adoption.adopt(folder, place, over=known, first=lambda: self._quarantine.keep(place.sidecar, finding))
        return f"made a new sidecar for the content, with form version {known.version}; the old one is in .quarantine"

    def _sidecar_missing(self, folder: Folder, _finding: Finding, place: Place) -> str:
        """Lost by a copying tool, say, that skips what is replaced under it."""
        older = list(readable(listing.history(folder.path), place.name))
        for _, sidecar in older:
            if not sidecar.deleted and is_whole(place, sidecar):
                commit.adopt(place, sidecar)
                return f"it is the revision of {sidecar.modified}, whose sidecar is current again"
        if not older:
            raise DamagedError("no older revision can be read: move them away, and --adopt takes the content in")
        self._adoption.adopt(folder, place, over=older[0][1])
        return f"made a new sidecar from that of {older[0][1].modified}"

    def _known(self, folder: Folder, place: Place) -> Sidecar | None:
        """What is surely true of a resource whose sidecar is lost: of an older revision, or of another file of it."""
        older = next(readable(listing.history(folder.path), place.name), None)
        if older is not None:
            return older[1]
        if folder.collection is None:
            return self._adoption.nothing_known(int(folder.name))
        for name in sorted(listing.folder(folder.path).sidecars - {place.name}):
            with suppress(DamagedError):
                sibling = stored_revision.read_sidecar(Place(folder.path, name))
                if sibling is not None:
                    return self._adoption.nothing_known(sibling.version)
        return None

    def _content_missing(self, folder: Folder, finding: Finding, place: Place) -> str:
        if os.path.lexists(place.content):
            raise DamagedError("what lies in its place is to be moved first")
        lost = stored_revision.read_sidecar(place)
        for revision, sidecar in readable(listing.history(folder.path), place.name):
            if lost is not None and sidecar.id == lost.id and is_whole(revision.place, sidecar):
                commit.reinstate(place, sidecar, revision.place.content)
                return "found the content in the history"
        self._quarantine.keep(place.sidecar, finding)
        return self._go_back(folder, place, to_living=True)

    def _go_back(self, folder: Folder, place: Place, *, to_living: bool) -> str:
        """Make the newest whole revision current; without one, the resource counts as never stored.

        Where it may have been deleted (no content, and a sidecar that says nothing) it is recorded as deleted instead:
        what somebody deleted must not come back.
        """
        newest = newest_whole(listing.history(folder.path), place.name, living=False)
        if newest is None and not os.path.lexists(place.sidecar):
            raise DamagedError("no older revision is whole")
        if newest is None:
            files.remove(place.sidecar)
            directories.sync(place.directory)
            return "nothing of it is left: it counts as never stored; its sidecar is in .quarantine"
        if newest[1].deleted or not to_living:
            self._entomb(place, newest[1])
            return f"recorded it as deleted; revisions up to {newest[1].modified} are in the history"
        commit.reinstate(place, newest[1], newest[0].place.content)
        return f"went back to the revision of {newest[1].modified}"

    def _torn_copy(self, folder: Folder, finding: Finding, place: Place) -> None:
        for _, sidecar in readable(listing.history(folder.path), place.name):
            if bears(place, sidecar) and is_whole(place, sidecar):
                self._quarantine.keep(place.sidecar, finding)
                commit.adopt(place, sidecar)
                return

    def _unfinished_removal(self, folder: Folder, finding: Finding, place: Place) -> None:
        if os.path.lexists(place.content):
            if folder.keeps_history and files.has_other_names(place.content):
                files.remove(place.content)
            else:
                self._quarantine.move(place.content, finding)
        if not folder.keeps_history:
            files.remove(place.sidecar)
        directories.sync(place.directory)

    def _kept_twice(self, _folder: Folder, finding: Finding, revision: Place) -> None:
        """The second name of the content goes; if another content has got it, that one is not deleted."""
        sidecar = stored_revision.read_sidecar(revision)
        if os.path.lexists(revision.content) and (sidecar is None or not is_whole(revision, sidecar)):
            self._quarantine.move(revision.content, finding)
        files.remove(revision.content)
        files.remove(revision.sidecar)

    def _orphaned_history(self, folder: Folder, _finding: Finding, place: Place) -> str:
        return self._go_back(folder, place, to_living=True)

    def _entomb(self, place: Place, newest: Sidecar) -> None:
        deleted = tombstone(newest, modified=next_after(newest.modified), modifier=None)
        commit.replace_sidecar(place, replace(deleted, adopted=True))

    def _times_lost(self, _folder: Folder, _finding: Finding, place: Place) -> None:
        sidecar = stored_revision.read_sidecar(place)
        if sidecar is not None:
            if not files.exists(place.pending(sidecar.id)):
                files.separate(place.content, place.pending(sidecar.id))
            descriptor = nofollow.open_file(place.content)
            try:
                files.stamp(descriptor, stamp(sidecar))
            finally:
                os.close(descriptor)

    def _orphaned_attachment(self, _folder: Folder, finding: Finding, place: Place) -> None:
        """Moved under its pending name: without its sidecar it is then a stray, and nothing put there by hand."""
        sidecar = stored_revision.read_sidecar(place)
        if sidecar is None:
            return
        pending = place.pending(sidecar.id)
        files.rename(place.content, pending)
        directories.sync(place.directory)
        self._quarantine.move(place.sidecar, finding)
        self._quarantine.move(pending, finding)

    def _quarantine_path(self, _folder: Folder, finding: Finding, _place: Place) -> None:
        self._quarantine.move(finding.path, finding)

    def _quarantine_both(self, _folder: Folder, finding: Finding, place: Place) -> None:
        # The sidecar first: a content alone is not served, a sidecar alone is damage.
        for path in (place.sidecar, place.content):
            if os.path.lexists(path):
                self._quarantine.move(path, finding)


def _corrected(place: Place) -> bool:
    """Correct a sidecar in which one bit was flipped; ``False`` where that is not what happened. Raises ``OSError``."""
    descriptor = nofollow.open_to_read(place.sidecar)
    try:
        sidecar = sidecars.corrected(files.read_small(descriptor), place.sidecar, place.address)
    finally:
        os.close(descriptor)
    if sidecar is None:
        return False
    commit.replace_sidecar(place, sidecar)
    return True


def _remove(path: str) -> None:
    if os.path.isdir(path):
        directories.remove_tree(path)
    else:
        files.remove(path)
