"""Repair and adoption: one function for each kind of finding. No content is ever deleted.

Each is called under the lock of the folder, right after the finding. What was never acknowledged is discarded, as the
next writer would do; everything else that has to go is moved to the quarantine.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO

from msgspec.structs import replace

from persistence.dialect import Dialect
from persistence.errors import BusyError, DamagedError
from persistence.limits import CHUNK
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.tree_walk import (
    Folder,
    bears,
    give_access,
    is_encrypted_for,
    is_whole,
    list_folder,
    list_history,
    newest_whole,
    readable,
)
from persistence.model.addresses import Address, DefinitionAddress
from persistence.model.sidecar import SCHEMA, HashedPieces, Sidecar, fresh_id, stamp, tombstone
from persistence.model.texts import next_after
from persistence.model.versions import FormMetadata
from persistence.services.codec import definition_reader, type_by_name
from persistence.services.documents import version_of_new
from persistence.storage import commit, files, root, stored_revision
from persistence.storage.findings import Finding, FindingKind, Quarantine
from persistence.storage.layout import LAYOUT, QUARANTINE, FilePaths, Layout
from persistence.storage.root import FORMAT, LayoutFile
from persistence.storage.stored_revision import ChangedSidecarError
from persistence.xml import XmlCheck

_OWNERS, _OTHERS = 0o600, 0o007
_LARGEST_COMPARED = 1 << 18  # Bytes of a content that a preview compares line by line
_MOST_LINES = 200
_BETWEEN_TAGS = re.compile(r">(?=<)")


# Adoption of files that a person put into the tree: a content without a sidecar, or one that differs from its sidecar.
#
# The content stays, and gets a new sidecar: as a new revision of the old resource, or as a new resource under the rules
# of a PUT that names no version.


def read_through(address: Address, path: str) -> tuple[int, str, FormMetadata | None]:
    """Read a content to its end, and check it if it must be XML; return its size, digest and form metadata."""
    reader = definition_reader(address)
    check = reader or (XmlCheck() if address.is_main else None)
    with open(files.open_file(path), "rb") as file:
        pieces = HashedPieces(iter(partial(file.read, CHUNK), b""))
        if check is not None:
            check.read(pieces)
        else:
            deque(pieces, maxlen=0)
        return pieces.size, pieces.digest, None if reader is None else reader.metadata


@dataclass(frozen=True, slots=True)
class Adoption:
    """Adopts contents in one tree, under the lock of their folder; ``modifier`` is recorded as who adopts."""

    layout: Layout
    reader: Callable[[], TreeReader]
    dialect: Dialect
    quarantine: Quarantine
    modifier: str | None = None

    def take_in(self, folder: Folder, finding: Finding, place: FilePaths) -> None:
        """Adopt the content of a finding, whose kind must allow it (``Adopts``)."""
        try:
            current = stored_revision.read_sidecar(place)
        except ChangedSidecarError as error:
            changed = error.sidecar
            self.quarantine.keep(place.sidecar, finding)
            if place.is_older or (error.is_misplaced and (changed.deleted or is_whole(place, changed))):
                version = self._version(folder, place, changed)
                encrypted = changed.encrypted or None  # the checksum does not cover that it is false
                commit.replace_sidecar(place, replace(changed, version=version, adopted=True, encrypted=encrypted))
            else:
                self.adopt(folder, place, over=changed)
            return
        if current is None or current.deleted:
            over = current or self.known_or_new(folder, place)
            self.adopt(folder, place, over=over, first=lambda: _keep_tombstone(place, current))
            return
        kept = newest_whole(list_history(folder.path), place.name, living=True)
        if kept is None or kept[1].id != current.id:
            # The content of the sidecar is lost, so it is no revision any more.
            self.adopt(folder, place, over=current, first=lambda: self.quarantine.keep(place.sidecar, finding))
        else:
            self.adopt(folder, place, over=current)

    def adopt(
        self, folder: Folder, place: FilePaths, *, over: Sidecar, first: Callable[[], None] = lambda: None
    ) -> None:
        """Make the content in place the revision after ``over``; ``first`` is called when it has passed all checks."""
        address = folder.address(place.name)
        before = os.lstat(place.content)
        if not stat.S_ISREG(before.st_mode):
            raise DamagedError(f"{address} is not a file")
        size, digest, metadata = read_through(address, place.content)
        after = os.lstat(place.content)
        if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, after.st_size, after.st_mtime_ns):
            raise BusyError(f"{address} is being edited")
        first()
        modified = next_after(over.modified)
        following = Sidecar(
            schema=SCHEMA,
            id=fresh_id(),
            version=self._version(folder, place, over),
            modified=modified,
            created=modified if over.deleted else over.created,
            size=size,
            digest=digest,
            content_type=over.content_type or type_by_name(address),
            stage=over.stage,
            creator=over.creator,
            group=over.group,
            organization=over.organization,
            modifier=self.modifier,
            source=over.source,
            metadata=metadata,
            adopted=True,
            flat_view=over.flat_view,
        )
        sidecar = commit.after_twin(self.layout, address, following)
        commit.adopt(place, replace(sidecar, encrypted=is_encrypted_for(address, place.content) or None))
        files.set_mode(place.content, (stat.S_IMODE(before.st_mode) | _OWNERS) & ~_OTHERS)

    @staticmethod
    def _version(folder: Folder, place: FilePaths, over: Sidecar) -> int:
        if folder.collection is None:
            return int(folder.name)
        main = folder.paths(folder.main)
        if place.name != main.name and not place.is_older:
            with suppress(DamagedError):
                document = stored_revision.read_sidecar(main)
                return over.version if document is None else document.version
        return over.version

    def known(self, folder: Folder, place: FilePaths) -> Sidecar | None:
        """Return the newest older sidecar, else one with the version that a file of the same document tells, if any."""
        older = next(readable(list_history(folder.path), place.name), None)
        if older is not None:
            return older[1]
        if folder.collection is None:
            return _before_the_first(int(folder.name))
        for name in sorted(list_folder(folder.path).sidecars - {place.name}):
            with suppress(DamagedError):
                sibling = stored_revision.read_sidecar(folder.paths(name))
                if sibling is not None:
                    return _before_the_first(sibling.version)
        return None

    def known_or_new(self, folder: Folder, place: FilePaths) -> Sidecar:
        """Return what is known, else a sidecar with the version that a PUT of a new document would choose."""
        known, address = self.known(folder, place), folder.address(place.name)
        if known is not None:
            return known
        if isinstance(address, DefinitionAddress):
            return _before_the_first(address.version)
        catalog = self.reader().catalog_of(address.form)
        return _before_the_first(version_of_new(self.reader().store, catalog, self.dialect, address))


def _before_the_first(version: int) -> Sidecar:
    """Return a sidecar for the revision before the first: it has only a form version, and no owner."""
    now = next_after(None)
    return Sidecar(schema=SCHEMA, id=fresh_id(), version=version, modified=now, created=now, size=0)


def _keep_tombstone(place: FilePaths, tombstone: Sidecar | None) -> None:
    if tombstone is not None:
        with files.closing(commit.keep(place, tombstone)) as kept:
            files.sync_open(kept)


def preview(folder: Folder, place: FilePaths) -> tuple[str, tuple[str, ...]]:
    """Compare the content of a place with the stored one: a line with size and digest, and a unified diff of XML."""
    is_changed = False
    try:
        stored = stored_revision.read_sidecar(place)
    except ChangedSidecarError as error:
        stored, is_changed = error.sidecar, True
    size, digest, _ = read_through(folder.address(place.name), place.content)
    before = "nothing" if stored is None or stored.deleted else f"{stored.size} bytes {stored.digest}"
    said = f"would be adopted: {before} -> {size} bytes {digest}"
    if stored is not None and is_changed:
        # permissions depend on these, so an administrator is to look at them first
        facts = {"version": stored.version, "creator": stored.creator, "group": stored.group, "stage": stored.stage}
        known = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        said = f"{said}; its sidecar says: {known}"
    if not place.must_be_xml or stored is None or stored.deleted:
        return said, ()
    return said, tuple(_difference(folder, place, stored))


def _difference(folder: Folder, place: FilePaths, stored: Sidecar) -> Iterator[str]:
    kept = newest_whole(list_history(folder.path), place.name, living=True)
    if kept is None:
        yield "no older revision to compare with is left"
        return
    old, new = _lines(kept[0].place.content), _lines(place.content)
    name = f"stored at {stored.modified}" if kept[1].id == stored.id else f"revision of {kept[1].modified}"
    if old is None or new is None:
        yield f"too large to be compared with the {name}"
        return
    lines = list(difflib.unified_diff(old, new, name, "as it is", lineterm="", n=1))
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"... and {len(lines) - _MOST_LINES} more lines"


def _lines(path: str) -> list[str] | None:
    with open(files.open_file(path), "rb") as file:
        data = file.read(_LARGEST_COMPARED + 1)
    if len(data) > _LARGEST_COMPARED:
        return None
    return _BETWEEN_TAGS.sub(">\n", data.decode("utf-8", "replace")).splitlines()


def repair_path(finding: Finding, quarantine: Quarantine) -> None:
    """Repair a finding by its path alone. Raises ``OSError``."""
    if finding.kind in {FindingKind.NO_ACCESS, FindingKind.OPEN_ACCESS}:
        give_access(finding.path)
    elif finding.kind is FindingKind.EMPTY_DIRECTORY:
        files.remove_if_empty(finding.path)
    elif finding.kind in {FindingKind.STRAY_OWN, FindingKind.LEASE_UNREADABLE}:
        (files.remove_tree if os.path.isdir(finding.path) else files.remove)(finding.path)
    else:
        quarantine.move(finding.path, finding)


class Repair:
    """Repairs findings in the tree of one root. Methods raise ``OSError`` and ``DamagedError``."""

    def __init__(self, layout: Layout, quarantine: Quarantine, adoption: Adoption, *, may_guess: bool) -> None:
        self._layout = layout
        self._may_guess = may_guess
        self._quarantine = quarantine
        self._adoption = adoption
        self._repairs: dict[FindingKind, Callable[[Folder, Finding, FilePaths], str | None]] = {
            FindingKind.SIDECAR_UNREADABLE: self._sidecar_unreadable,
            FindingKind.CONTENT_DAMAGED: self._content_damaged,
            FindingKind.DIGEST_WRONG: self._content_damaged,
            FindingKind.SIDECAR_MISSING: self._sidecar_missing,
            FindingKind.CONTENT_MISSING: self._content_missing,
            FindingKind.TORN_COPY: self._torn_copy,
            FindingKind.REVISION_DAMAGED: self._revision_damaged,
            FindingKind.UNFINISHED_COMMIT: self._recover,
            FindingKind.UNFINISHED_WRITE: self._recover,
            FindingKind.UNFINISHED_REWRITE: self._recover,
            FindingKind.UNFINISHED_REMOVAL: self._unfinished_removal,
            FindingKind.KEPT_TWICE: self._kept_twice,
            FindingKind.ORPHANED_HISTORY: lambda folder, _, place: self._go_back(folder, place, to_living=True),
            FindingKind.ORPHANED_ATTACHMENT: self._orphaned_attachment,
            FindingKind.TIMES_LOST: self._times_lost,
        }

    def of_root(self, finding: Finding) -> None:
        """Repair the service's own files, or what is on the way to a folder."""
        if finding.kind is FindingKind.OWN_MISSING:
            root.make_own(self._layout.root)
        elif finding.kind is FindingKind.NOT_A_FILE and finding.path == self._layout.own(QUARANTINE):
            files.rename(finding.path, f"{finding.path}~{time.time_ns()}")
        elif finding.kind is not FindingKind.LAYOUT:
            repair_path(finding, self._quarantine)
        else:
            if os.path.lexists(finding.path):
                self._quarantine.move(finding.path, finding)
            root.write_layout(self._layout.own(LAYOUT), LayoutFile(FORMAT))
            root.make_own(self._layout.root)

    def of_folder(self, folder: Folder, finding: Finding) -> str | None:
        """Repair a finding in a folder; return what was done if the kind does not tell."""
        if finding.place is not None and finding.kind in self._repairs:
            return self._repairs[finding.kind](folder, finding, finding.place)
        repair_path(finding, self._quarantine)
        return None

    def _recover(self, folder: Folder, finding: Finding, place: FilePaths) -> None:
        committed = stored_revision.read_sidecar(place)
        # With a tag it is the same revision, encrypted with another key: the content it replaces must not be kept.
        is_other = committed is not None and not committed.deleted and committed.tag is None
        if committed is not None and is_other and files.exists(place.next_content(committed.id)):
            self._save_from_overwriting(folder, finding, place, committed)
        commit.recover(place)
        files.sync_directory(place.directory)

    def _save_from_overwriting(self, folder: Folder, finding: Finding, place: FilePaths, committed: Sidecar) -> None:
        following = FilePaths(place.directory, os.path.basename(place.next_content(committed.id)))
        if not os.path.lexists(place.content):
            return
        if os.path.samefile(following.content, place.content):
            files.remove(following.content)  # a rename of one over the other would leave both
            return
        if is_whole(place, committed) and not is_whole(following, committed):
            self._quarantine.move(following.content, finding)
            return
        kept = newest_whole(list_history(folder.path), place.name, living=True)
        if kept is None or not is_whole(place, kept[1]):
            self._quarantine.keep(place.content, finding)

    def _content_damaged(self, folder: Folder, finding: Finding, place: FilePaths) -> str:
        if place.is_older:
            self._quarantine_both(finding, place)
            return "moved it to .quarantine"
        newest = newest_whole(list_history(folder.path), place.name, living=True)
        if newest is None:
            raise DamagedError("no older revision is whole: restore it from a backup, or take it in with --adopt PATH")
        self._quarantine.keep(place.content, finding)
        self._quarantine.keep(place.sidecar, finding)
        commit.reinstate(place, newest[1], newest[0].place.content)
        return f"went back to the revision of {newest[1].modified}; the damaged file is in .quarantine"

    def _revision_damaged(self, _folder: Folder, finding: Finding, place: FilePaths) -> str:
        self._quarantine_both(finding, place)
        return "moved what is left of it to .quarantine"

    def _sidecar_unreadable(self, folder: Folder, finding: Finding, place: FilePaths) -> str:
        has_content = os.path.lexists(place.content)
        if not stat.S_ISREG(os.lstat(place.sidecar).st_mode):
            known = self._adoption.known(folder, place) if has_content else None
            self._quarantine.move(place.sidecar, finding)
            if known is not None:
                self._adoption.adopt(folder, place, over=known)
            return "moved it to .quarantine"
        if not has_content:
            self._quarantine.keep(place.sidecar, finding)
            return self._go_back(folder, place, to_living=False)
        known = (self._adoption.known_or_new if self._may_guess else self._adoption.known)(folder, place)
        if known is None:
            raise DamagedError("nothing tells its form version; with --adopt it becomes that of a new document")
        self._adoption.adopt(folder, place, over=known, first=lambda: self._quarantine.keep(place.sidecar, finding))
        return f"made a new sidecar for the content, with form version {known.version}; the old one is in .quarantine"

    def _sidecar_missing(self, folder: Folder, _finding: Finding, place: FilePaths) -> str:
        older = list(readable(list_history(folder.path), place.name))
        for _, sidecar in older:
            if not sidecar.deleted and is_whole(place, sidecar):
                commit.adopt(place, sidecar)
                return f"it is the revision of {sidecar.modified}, whose sidecar is current again"
        if not older:
            raise DamagedError("no older revision can be read: move them away, and --adopt takes the content in")
        self._adoption.adopt(folder, place, over=older[0][1])
        return f"made a new sidecar from that of {older[0][1].modified}"

    def _content_missing(self, folder: Folder, finding: Finding, place: FilePaths) -> str:
        if os.path.lexists(place.content):
            raise DamagedError("move the file in its place first")
        lost = stored_revision.read_sidecar(place)
        for revision, sidecar in readable(list_history(folder.path), place.name):
            if lost is not None and sidecar.id == lost.id and is_whole(revision.place, sidecar):
                commit.reinstate(place, sidecar, revision.place.content)
                return "found the content in the history"
        self._quarantine.keep(place.sidecar, finding)
        return self._go_back(folder, place, to_living=True)

    def _go_back(self, folder: Folder, place: FilePaths, *, to_living: bool) -> str:
        # If the resource may have been deleted (no content, a sidecar that says nothing), it is recorded as deleted:
        # what somebody deleted must not come back. Without a whole revision, it counts as never stored.
        newest = newest_whole(list_history(folder.path), place.name, living=False)
        if newest is None and not os.path.lexists(place.sidecar):
            raise DamagedError("no older revision is whole")
        if newest is None:
            files.remove(place.sidecar)
            files.sync_directory(place.directory)
            return "nothing of it is left: it counts as never stored; its sidecar is in .quarantine"
        if newest[1].deleted or not to_living:
            deleted = tombstone(newest[1], modified=next_after(newest[1].modified), modifier=None)
            commit.replace_sidecar(place, replace(deleted, adopted=True))
            return f"recorded it as deleted; revisions up to {newest[1].modified} are in the history"
        commit.reinstate(place, newest[1], newest[0].place.content)
        return f"went back to the revision of {newest[1].modified}"

    def _torn_copy(self, folder: Folder, finding: Finding, place: FilePaths) -> None:
        for _, sidecar in readable(list_history(folder.path), place.name):
            if bears(place, sidecar) and is_whole(place, sidecar):
                self._quarantine.keep(place.sidecar, finding)
                commit.adopt(place, sidecar)
                return

    def _unfinished_removal(self, folder: Folder, finding: Finding, place: FilePaths) -> None:
        if os.path.lexists(place.content):
            if folder.keeps_history and files.has_other_names(place.content):
                files.remove(place.content)
            else:
                self._quarantine.move(place.content, finding)
        if not folder.keeps_history:
            files.remove(place.sidecar)
        files.sync_directory(place.directory)

    def _kept_twice(self, _folder: Folder, finding: Finding, revision: FilePaths) -> None:
        sidecar = stored_revision.read_sidecar(revision)
        if os.path.lexists(revision.content) and (sidecar is None or not is_whole(revision, sidecar)):
            self._quarantine.move(revision.content, finding)
        files.remove(revision.content)
        files.remove(revision.sidecar)

    def _times_lost(self, _folder: Folder, _finding: Finding, place: FilePaths) -> None:
        sidecar = stored_revision.read_sidecar(place)
        if sidecar is None:
            return
        if not files.exists(place.next_content(sidecar.id)):
            files.separate(place.content, place.next_content(sidecar.id))
        with FileIO(files.open_file(place.content)) as file:
            files.stamp(file.fileno(), stamp(sidecar))

    def _orphaned_attachment(self, _folder: Folder, finding: Finding, place: FilePaths) -> None:
        sidecar = stored_revision.read_sidecar(place)
        if sidecar is None:
            return
        next_content = place.next_content(sidecar.id)
        files.rename(place.content, next_content)
        files.sync_directory(place.directory)
        self._quarantine.move(place.sidecar, finding)
        self._quarantine.move(next_content, finding)

    def _quarantine_both(self, finding: Finding, place: FilePaths) -> None:
        # The sidecar first: a content alone is not served, a sidecar alone is damage.
        for path in (place.sidecar, place.content):
            if os.path.lexists(path):
                self._quarantine.move(path, finding)
