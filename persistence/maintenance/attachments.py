"""Checking a directory of attachments for strays: bodies that no record names, and what crashes have left.

Whether a record has its body is for the check of the tree that has the record (``bodies``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from persistence.errors import (
    BusyError,
    ConfigurationError,
    DamagedError,
    PersistenceError,
    StartupError,
    disk_errors,
)
from persistence.maintenance import access, listing, own
from persistence.maintenance.access import Access
from persistence.maintenance.check import Tally
from persistence.maintenance.findings import Finding, Kind, Outcome, Remedy, Report
from persistence.maintenance.quarantine import Quarantine
from persistence.maintenance.tree import Folder, Tree
from persistence.model.addresses import DATA_XML, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import LARGEST_VERSION, Sidecar
from persistence.storage import directories, files, owner, stored_revision
from persistence.storage.attachment_bodies import FileBodies
from persistence.storage.layout import HISTORY, Place, file_name, is_file_name, pending_of, revision_of

RootOf = Callable[[Form], str | None]
"""Says which root has the records of a form's bodies; ``None`` where the properties lead to another directory."""


@dataclass(slots=True)
class _Records:
    """The records of a document's attachments: the names of their bodies by version, as they are below it.

    ``doubtful`` are names of which records cannot be read. ``current`` are the living current revisions by name.
    """

    named: set[tuple[int, str]] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    current: dict[str, Sidecar] = field(default_factory=dict)
    older: dict[str, Sidecar] = field(default_factory=dict)

    def add(self, name: str, record: Sidecar) -> None:
        """Add a current revision. A write that was refused may have kept its body in the history already."""
        if _has_body(record):
            self.current[name] = record
            self.named |= {(record.version, name), (record.version, f"{file_name(record.modified)}.{name}")}


class AttachmentsCheck:
    """One check of the directory ``base``; ``remedies`` say what is done about findings.

    ``trees`` are those that can be used, by their roots: of documents in others nothing is said, for without their
    records every body would look like a stray.
    """

    def __init__(
        self, base: str, root_of: RootOf, trees: Mapping[str, Tree], remedies: frozenset[Remedy], lock_timeout: float
    ) -> None:
        """Raises ``StartupError`` where there is no such directory."""
        self.tally = Tally()
        self.tree = Tree(base, lock_timeout=lock_timeout)
        if not os.path.isdir(self.tree.root):
            raise StartupError(f"there is no directory {self.tree.root} for attachments")
        self._root_of = root_of
        self._trees = trees
        self._remedies = remedies
        self._quarantine = Quarantine(self.tree.root)
        self._unrouted: Form | None = None
        user = next((owner.of(root) for root in trees), None)
        self._access = Access(self.tree.root, user)

    def run(self, only: tuple[str, ...] = ()) -> Iterator[Report | None]:
        """Check what lies below some names; ``None`` stands for a document that is done.

        Raises:
            DiskError: the directory cannot be looked at.
        """
        with disk_errors(f"directory of attachments {self.tree.root}"):
            for finding in () if only else own.strays(self.tree.root):
                yield self._settled(finding, None)
            for item in self.tree.walk(only):
                if isinstance(item, Finding):
                    yield self._settled(item, None)
                    continue
                yield from self._of_document(item)
                self.tally.folders += 1
                yield None

    def _of_document(self, folder: Folder) -> Iterator[Report]:
        if folder.collection is None:
            yield self._settled(Finding(Kind.FOREIGN, folder.path, "bodies of definitions are not kept here"), None)
            return
        try:
            root = self._root_of(folder.form)
        except (ConfigurationError, StartupError):  # no provider has the form any more
            root = None
        if root is None:
            if folder.form != self._unrouted:  # once for each form: they come one after the other
                self._unrouted = folder.form
                path = os.path.dirname(os.path.dirname(folder.path))
                what = "no property leads here from this form: nobody looks for these bodies"
                yield self._settled(Finding(Kind.FOREIGN, path, what), None)
            return
        tree = self._trees.get(root)
        if tree is None or not self._inspect(folder, tree):
            return
        try:
            with tree.holding(folder):  # without it a writer at work looks like a crash
                for finding in self._inspect(folder, tree):
                    yield self._settled(finding, _Document(tree, folder))
        except BusyError as error:
            yield self._settled(Finding(Kind.BUSY, folder.path, str(error)), None)

    def _settled(self, finding: Finding, document: _Document | None) -> Report:
        report = Report(finding, Outcome.FOUND)
        if finding.kind.remedy in self._remedies:
            try:
                self._repair(finding, document)
            except (OSError, PersistenceError) as error:
                cause = str(error.strerror) if isinstance(error, OSError) else str(error)
                report = Report(finding, Outcome.FAILED, cause)
            else:
                report = Report(finding, Outcome.MENDED, finding.kind.deed)
        self.tally.add(report)
        return report

    def _repair(self, finding: Finding, document: _Document | None) -> None:
        if not files.exists(finding.path):
            return  # what took care of another finding took care of this
        if finding.kind in {Kind.NO_ACCESS, Kind.OPEN_ACCESS}:
            access.give(finding.path)
        elif finding.kind is Kind.EMPTY_DIRECTORY:
            directories.remove_if_empty(finding.path)
        elif finding.kind is Kind.STRAY_OWN:
            directories.remove_tree(finding.path)
        elif finding.kind in {Kind.UNFINISHED_COMMIT, Kind.UNFINISHED_WRITE} and document is not None:
            document.finish(self.tree.root)
        else:
            self._quarantine.move(finding.path, finding)

    def _inspect(self, folder: Folder, tree: Tree) -> list[Finding]:
        try:
            records = _records(folder, tree)
            return access.without_repetitions(folder, self._of_versions(folder, records))
        except FileNotFoundError:
            return []
        except OSError as error:
            path = str(error.filename or folder.path)
            is_here = isinstance(error, PermissionError) and path.startswith(f"{self.tree.root}/")
            return [Finding(Kind.NO_ACCESS if is_here else Kind.UNREADABLE, path, str(error.strerror))]

    def _of_versions(self, folder: Folder, records: _Records) -> Iterator[Finding]:
        yield from self._access.to_directory(folder.path)
        is_empty = True
        with os.scandir(folder.path) as entries:
            for entry in entries:
                is_empty = False
                if entry.is_symlink():
                    yield Finding(Kind.LINK, entry.path, "a symbolic link; the service does not follow it")
                elif not entry.is_dir() or not _is_version(entry.name):
                    yield Finding(Kind.FOREIGN, entry.path, "not the directory of a version")
                else:
                    yield from self._of_version(entry.path, int(entry.name), records)
        if is_empty:
            yield Finding(Kind.EMPTY_DIRECTORY, folder.path, "nothing is stored in it")

    def _of_version(self, path: str, version: int, records: _Records) -> Iterator[Finding]:
        yield from self._access.to_directory(path)
        is_empty = True
        with os.scandir(path) as entries:
            for entry in entries:
                is_empty = False
                if entry.name == HISTORY and entry.is_dir(follow_symlinks=False):
                    yield from self._access.to_directory(entry.path)
                    with os.scandir(entry.path) as older:
                        for each in older:
                            yield from self._of_body(each, version, records, is_older=True)
                else:
                    yield from self._of_body(entry, version, records, is_older=False)
        if is_empty:
            yield Finding(Kind.EMPTY_DIRECTORY, path, "nothing is stored in it")

    def _of_body(
        self, entry: os.DirEntry[str], version: int, records: _Records, *, is_older: bool
    ) -> Iterator[Finding]:
        """What is to say of something in the directory of a version, or in the history there."""
        pending = pending_of(entry.name)
        name = entry.name if pending is None else pending[0]
        is_name = is_file_name(name) if not is_older else revision_of(name) is not None
        if entry.is_symlink():
            yield Finding(Kind.FOREIGN, entry.path, "a symbolic link; the service does not follow it")
        elif not entry.is_file(follow_symlinks=False) or not is_name:
            yield Finding(Kind.FOREIGN, entry.path, "a name that the service does not give")
        elif pending is not None:
            yield from self._of_pending(entry.path, pending, version, records, is_older=is_older)
        else:
            yield from self._access.to_file(entry.path)
            if (version, name) not in records.named and name not in records.doubtful:
                yield Finding(Kind.STRAY_FILE, entry.path, "a body that no record names")

    def _of_pending(
        self, path: str, pending: tuple[str, str], version: int, records: _Records, *, is_older: bool
    ) -> Iterator[Finding]:
        name, content_id = pending
        if name in records.doubtful:
            return
        record = (records.older if is_older else records.current).get(name)
        if record is not None and record.version == version and record.id.startswith(content_id):
            yield Finding(Kind.UNFINISHED_COMMIT, path, "committed, but not yet under its name")
        else:
            yield Finding(Kind.UNFINISHED_WRITE, path, "interrupted before its commit")


@dataclass(frozen=True, slots=True)
class _Document:
    """A document of a tree, whose lock is held while what crashes have left of its bodies is finished or removed."""

    tree: Tree
    folder: Folder

    def finish(self, base: str) -> None:
        """Finish or remove it in a directory of attachments; raises ``OSError`` and ``DamagedError``."""
        main = self.folder.address(DATA_XML)
        if isinstance(main, DocumentAddress):
            FileBodies(base).finish(main, self._record)

    def _record(self, address: DocumentAddress, instant: Instant | None) -> Sidecar | None:
        place = self.tree.layout.place(address)
        return stored_revision.read_sidecar(place if instant is None else place.revision(instant))


def _records(folder: Folder, tree: Tree) -> _Records:
    """What the tree says of a document's attachments; raises ``OSError``."""
    path = tree.layout.place(folder.address(DATA_XML)).directory
    records = _Records()
    try:
        found = listing.folder(path)
    except (FileNotFoundError, NotADirectoryError):
        return records
    for name in found.sidecars:
        record = _read(Place(path, name))
        if record is None:
            records.doubtful.add(name)
        else:
            records.add(name, record)
    for revision in listing.history(path).revisions:
        record = _read(revision.place)
        if record is None:
            records.doubtful.add(revision.place.name)
        elif _has_body(record):
            records.older[revision.place.name] = record
            records.named.add((record.version, revision.place.name))
    return records


def _read(place: Place) -> Sidecar | None:
    """A record, if it can be read."""
    try:
        return stored_revision.read_sidecar(place)
    except (DamagedError, OSError):
        return None


def _has_body(record: Sidecar) -> bool:
    """Whether the body of a revision may be elsewhere: one that was taken over has a record that does not say so."""
    return not record.deleted and (record.body is not None or record.size == 0)


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and not name.startswith("0") and int(name) <= LARGEST_VERSION
