"""Checking what is not in a tree: bodies of attachments, objects in buckets, and databases."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

from persistence.errors import BadRequestError, BusyError, ConfigurationError, DamagedError, StartupError, disk_errors
from persistence.maintenance import tree_walk
from persistence.maintenance.findings import (
    Finding,
    FindingKind,
    FindingTotals,
    MarkCheck,
    Quarantine,
    Remedy,
    Report,
    Treatment,
)
from persistence.maintenance.repair import repair_path
from persistence.maintenance.tree_walk import (
    AccessCheck,
    Folder,
    FolderTree,
    History,
    is_version,
    list_folder,
    list_history,
    readable,
    without_repetitions,
)
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.s3.body_references import StrayObject, stray_objects
from persistence.storage import files, owner, stored_revision
from persistence.storage.attachments import BodiesReader, FileBodies
from persistence.storage.layout import HISTORY, FilePaths, file_name, is_file_name, next_content_of, revision_of
from persistence.storage.storage import MaintainedDatabase, Readable, Storage, StorageFault
from persistence.storage.stored_revision import StoredRevision, digest_of_open

if TYPE_CHECKING:
    from persistence.s3.object_bodies import ObjectBodies


class BodyFinder(Protocol):
    """Bodies that are no files of this machine."""

    @property
    def root(self) -> str:
        """The place as it is shown."""

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """Return the body of a record; see ``Bodies``."""


BodiesOf = Callable[[Form], BodiesReader | BodyFinder | None]
"""Returns the bodies of a form's attachments, if they have a place that is known."""

RootOf = Callable[[Form], str | None]
"""Returns the root with the records of a form's bodies; ``None`` if the properties lead to another directory."""

_LINK = "a symbolic link; the service does not follow it"
_EMPTY = "nothing is stored in it"


def body_faults(
    bodies_of: BodiesOf, folder: Folder, current: Mapping[str, Sidecar], history: History, *, deep: bool
) -> Iterator[Finding]:
    """Find fault with a document's bodies by its records; ``deep`` reads each and compares its digest."""
    for name, sidecar in current.items():
        older = ((revision.place, record) for revision, record in readable(history, name))
        for place, record in ((folder.paths(name), sidecar), *older):
            if record.body is not None and not record.deleted:
                with suppress(ConfigurationError):  # the form has no provider any more
                    bodies = bodies_of(folder.form)
                    fault = None if bodies is None else body_fault(bodies, folder.address(name), record, deep=deep)
                    if fault is not None:
                        yield fault[0].at(place.content, fault[1], place)


def body_fault(
    bodies: BodiesReader | BodyFinder, address: Address, record: Sidecar, *, deep: bool
) -> tuple[FindingKind, str] | None:
    """Find fault with the body of a record; ``deep`` reads it and compares its digest."""
    body, where = record.body, bodies.root
    if body is None or isinstance(address, DefinitionAddress):
        return None
    try:
        found = bodies.find(address, record, content=deep or isinstance(bodies, BodiesReader))
        if found is None:
            return FindingKind.BODY_MISSING, f"the body of {record.modified} is not in {where}"
        with closing(found):
            if found.size != body.size:
                return FindingKind.BODY_DAMAGED, f"its body has {found.size} bytes, and not {body.size}, in {where}"
            if (deep or found.is_edited) and digest_of_open(found.opened) != body.digest:
                return FindingKind.BODY_DAMAGED, f"the digest of its body is not {body.digest} in {where}"
    except DamagedError as error:
        return FindingKind.BODY_DAMAGED, f"{error} in {where}"
    except OSError as error:
        return FindingKind.UNREADABLE, f"its body in {where}: {error.strerror}"
    return None


@dataclass(slots=True)
class _Records:
    # `named` has version and path of each body; `doubtful` are the names of unreadable records.
    """The records of a document's attachments; ``named`` has version and path of each body, below the document.

    ``doubtful`` are the names of unreadable records. ``current`` and ``older`` are living revisions by name.
    """

    named: set[tuple[int, str]] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    current: dict[str, Sidecar] = field(default_factory=dict)
    older: dict[str, Sidecar] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Folder, tree: FolderTree) -> _Records:
        path = tree.layout.paths(folder.address(DATA_XML)).directory
        records = cls()
        try:
            found = list_folder(path)
        except (FileNotFoundError, NotADirectoryError):
            return records
        for name in found.sidecars:
            if (record := records._read(FilePaths(path, name))) is not None:
                records.current[name] = record
                # A write that was refused may have kept its body in the history already.
                records.named |= {(record.version, name), (record.version, f"{file_name(record.modified)}.{name}")}
        for revision in list_history(path).revisions:
            if (record := records._read(revision.place)) is not None:
                records.older[revision.place.name] = record
                records.named.add((record.version, revision.place.name))
        return records

    def _read(self, place: FilePaths) -> Sidecar | None:
        record = None
        with suppress(DamagedError, OSError):
            record = stored_revision.read_sidecar(place)
        if record is None:
            self.doubtful.add(place.name)
            return None
        return record if not record.deleted and (record.body is not None or record.size == 0) else None


class AttachmentsCheck:
    """One check of a directory of attachments for bodies without a record, and what crashes have left."""

    # Documents of other trees than `trees` are skipped: without their records every body would look like a stray.
    def __init__(
        self,
        base: str,
        root_of: RootOf,
        trees: Mapping[str, FolderTree],
        remedies: frozenset[Remedy],
        lock_timeout: float,
    ) -> None:
        self._treatment = Treatment(remedies)
        self.totals = self._treatment.totals
        self.tree = FolderTree(base, lock_timeout=lock_timeout)
        if not os.path.isdir(self.tree.root):
            raise StartupError(f"there is no directory {self.tree.root} for attachments")
        self._root_of = root_of
        self._trees = trees
        self._quarantine = Quarantine(self.tree.root)
        self._unrouted: Form | None = None
        user = next((owner.of(root) for root in trees), None)
        self._access = AccessCheck(self.tree.root, user)

    def run(self, only: tuple[str, ...] = ()) -> Iterator[Report | None]:
        """Check the documents below some names; yield ``None`` for a document that is done."""
        with disk_errors(f"directory of attachments {self.tree.root}"):
            for finding in () if only else tree_walk.strays(self.tree.layout):
                yield self._settle(finding)
            for item in self.tree.walk(only):
                if isinstance(item, Finding):
                    yield self._settle(item)
                    continue
                yield from self._document(item)
                self.totals.folders += 1
                yield None

    def _document(self, folder: Folder) -> Iterator[Report]:
        if folder.collection is None:
            yield self._settle(FindingKind.FOREIGN.at(folder.path, "bodies of definitions are not kept here"))
            return
        try:
            root = self._root_of(folder.form)
        except (ConfigurationError, StartupError):  # the form has no provider any more
            root = None
        if root is None and folder.form != self._unrouted:  # reported once for each form: its folders are adjacent
            self._unrouted = folder.form
            path = os.path.dirname(os.path.dirname(folder.path))
            what = "no property leads here from this form: nobody looks for these bodies"
            yield self._settle(FindingKind.FOREIGN.at(path, what))
        tree = self._trees.get(root or "")
        if tree is None or not self._inspect(folder, tree):
            return
        try:
            with tree.locked(folder):  # without the lock a writer at work looks like a crash
                for finding in self._inspect(folder, tree):
                    yield self._settle(finding, partial(self._finish, tree, folder))
        except BusyError as error:
            yield self._settle(FindingKind.BUSY.at(folder.path, str(error)))

    def _settle(self, finding: Finding, finish: Callable[[], None] | None = None) -> Report:
        return self._treatment.apply(finding, partial(self._repair, finding, finish))

    def _repair(self, finding: Finding, finish: Callable[[], None] | None) -> None:
        if not files.exists(finding.path):
            return  # the repair of another finding took care of it
        if finding.kind in {FindingKind.UNFINISHED_COMMIT, FindingKind.UNFINISHED_WRITE} and finish is not None:
            finish()
        else:
            repair_path(finding, self._quarantine)

    def _finish(self, tree: FolderTree, folder: Folder) -> None:
        def read(address: DocumentAddress, instant: Instant | None) -> Sidecar | None:
            place = tree.layout.paths(address)
            return stored_revision.read_sidecar(place if instant is None else place.revision(instant))

        main = folder.address(DATA_XML)
        if isinstance(main, DocumentAddress):
            FileBodies(self.tree.root).finish(main, read)

    def _inspect(self, folder: Folder, tree: FolderTree) -> list[Finding]:
        try:
            return without_repetitions(folder, self._versions(folder, _Records.of(folder, tree)))
        except FileNotFoundError:
            return []
        except OSError as error:
            path = str(error.filename or folder.path)
            is_here = isinstance(error, PermissionError) and path.startswith(f"{self.tree.root}/")
            kind = FindingKind.NO_ACCESS if is_here else FindingKind.UNREADABLE
            return [kind.at(path, str(error.strerror))]

    def _versions(self, folder: Folder, records: _Records) -> Iterator[Finding]:
        yield from self._access.directory(folder.path)
        for entry in (entries := _entries(folder.path)):
            if entry.is_symlink():
                yield FindingKind.LINK.at(entry.path, _LINK)
            elif not entry.is_dir() or not is_version(entry.name):
                yield FindingKind.FOREIGN.at(entry.path, "not the directory of a version")
            else:
                yield from self._version(entry.path, int(entry.name), records)
        if not entries:
            yield FindingKind.EMPTY_DIRECTORY.at(folder.path, _EMPTY)

    def _version(self, path: str, version: int, records: _Records) -> Iterator[Finding]:
        yield from self._access.directory(path)
        for entry in (entries := _entries(path)):
            if entry.name == HISTORY and entry.is_dir(follow_symlinks=False):
                yield from self._access.directory(entry.path)
                for each in _entries(entry.path):
                    yield from self._body(each, version, records, is_older=True)
            else:
                yield from self._body(entry, version, records, is_older=False)
        if not entries:
            yield FindingKind.EMPTY_DIRECTORY.at(path, _EMPTY)

    def _body(self, entry: os.DirEntry[str], version: int, records: _Records, *, is_older: bool) -> Iterator[Finding]:
        content = next_content_of(entry.name)
        name = entry.name if content is None else content[0]
        is_name = revision_of(name) is not None if is_older else is_file_name(name)
        if entry.is_symlink():
            yield FindingKind.FOREIGN.at(entry.path, _LINK)
        elif not entry.is_file(follow_symlinks=False) or not is_name:
            yield FindingKind.FOREIGN.at(entry.path, "a name that the service does not give")
        elif content is None:
            yield from self._access.file(entry.path)
            if (version, name) not in records.named and name not in records.doubtful:
                yield FindingKind.STRAY_FILE.at(entry.path, "a body that no record names")
        elif name not in records.doubtful:
            record = (records.older if is_older else records.current).get(name)
            if record is not None and record.version == version and record.id.startswith(content[1]):
                yield FindingKind.UNFINISHED_COMMIT.at(entry.path, "committed, but not yet under its name")
            else:
                yield FindingKind.UNFINISHED_WRITE.at(entry.path, "interrupted before its commit")


def _entries(path: str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return list(entries)


RecordsOf = Callable[[Form], str | None]
"""Returns the tree or database with the records of a form's bodies; ``None`` if the properties lead elsewhere."""


# Objects in a bucket that no record names, and their removal.
#
# Nothing is removed for a form of which there are no records at all: whoever checks with the wrong data directory would
# otherwise lose every body in the bucket.


class ObjectsCheck:
    """One check of a place in an object store for objects without a record; those that are young are left alone."""

    # Objects of other places than `places` are skipped: without their records every object would look like a stray.
    def __init__(
        self, bodies: ObjectBodies, records_of: RecordsOf, places: Mapping[str, Readable], remedies: frozenset[Remedy]
    ) -> None:
        self._bodies = bodies
        self._records_of = records_of
        self._places = places
        self._treatment = Treatment(remedies)
        self.totals = self._treatment.totals
        self._known = cache(self._is_known)

    def run(self, below: str = "") -> Iterator[Report | None]:
        """Check the objects below the names of a key; yield ``None`` for each that is in order."""
        for each in stray_objects(self._bodies, self._main_of, below.strip("/")):
            if each is None:
                yield None
                continue
            finding = self._finding(each)
            yield self._treatment.apply(finding, partial(self._bodies.objects.remove, [each.found.key]))

    def _finding(self, stray: StrayObject) -> Finding:
        path = f"{self._bodies.place}/{stray.found.key}"
        if stray.reference is None:
            return FindingKind.FOREIGN.at(path, "a key that the service does not give")
        form = stray.reference.address.form
        if self._place(form) is None:
            return FindingKind.FOREIGN.at(path, "no property leads here from this form: nobody looks for these bodies")
        if not self._known(form):
            return FindingKind.FOREIGN.at(path, f"there are no records of {form}: is it the right data directory?")
        return FindingKind.STRAY_OBJECT.at(path, "a body that no record names, stored more than an hour ago")

    def _main_of(self, form: Form) -> Readable | None:
        # Where no property leads here, any place does: what it names is in order.
        place = self._place(form)
        return next(iter(self._places.values()), None) if place is None else self._places.get(place)

    def _place(self, form: Form) -> str | None:
        try:
            return self._records_of(form)
        except (ConfigurationError, StartupError):  # the form has no provider any more
            return None

    def _is_known(self, form: Form) -> bool:
        main = self._main_of(form)
        return main is not None and form in main.forms(form.app)


_KINDS: Mapping[StorageFault, FindingKind] = {
    StorageFault.UNREADABLE: FindingKind.ROW_UNREADABLE,
    StorageFault.ROW_WRONG: FindingKind.ROW_WRONG,
    StorageFault.CONTENT_WRONG: FindingKind.CONTENT_WRONG,
    StorageFault.NO_CURRENT: FindingKind.NO_CURRENT,
    StorageFault.ORDER_WRONG: FindingKind.ORDER_WRONG,
    StorageFault.BODY_MISSING: FindingKind.BODY_MISSING,
    StorageFault.BODY_WRONG: FindingKind.BODY_DAMAGED,
    StorageFault.STRAY_CONTENT: FindingKind.STRAY_CONTENT,
    StorageFault.IN_USE_UNCLAIMED: FindingKind.IN_USE_UNCLAIMED,
    StorageFault.OVERDUE: FindingKind.OVERDUE,
    StorageFault.INDEX_WRONG: FindingKind.INDEX_ROWS,
    StorageFault.TOTAL_WRONG: FindingKind.TOTAL_WRONG,
}


_OF_FORM, _OF_FOLDER, _OF_FILE = 2, 4, 5
"""The numbers of names in a path: ``APP/FORM/data/DOCUMENT/FILE`` or ``APP/FORM/form/VERSION/FILE``."""

_DEFINITIONS = "form"
_FOLDERS = {_DEFINITIONS, *(each.value for each in Collection)}


@dataclass(slots=True)
class StorageCheck:
    """One check of a database; with ``is_dry`` remedies are only foretold, and ``is_deep`` reads every content.

    ``bodies_of`` tells where the bodies of a form's attachments are, if they are not in the database. ``marks`` judges
    contents by the marks of definitions.
    """

    database: MaintainedDatabase
    bodies_of: BodiesOf
    marks: MarkCheck
    remedies: frozenset[Remedy] = frozenset()
    is_dry: bool = False
    is_deep: bool = False
    totals: FindingTotals = field(default_factory=FindingTotals)

    def run(self, parts: Sequence[tuple[str, ...]] = ((),)) -> Iterator[Report | None]:
        """Check the database once: yield its findings below some names, and ``None`` for a folder that is done."""
        if not parts:
            return
        treatment = Treatment(self.remedies, self.is_dry, self.totals)

        def judged(address: DocumentAddress, record: Sidecar) -> tuple[StorageFault, str] | None:
            return self._body_fault(address, record) if _is_within(str(address), parts) else None

        for found in self.database.inspect(self.is_deep, judged):
            if found is None:
                self.totals.folders += 1
                yield None
            elif _is_within(found.place, parts):
                finding = Finding(_KINDS[found.fault], found.place, found.what)
                yield treatment.apply(finding, found.mend or _nothing)
        for finding in self.marks.of_storage(self.database.storage, is_deep=self.is_deep):
            if _is_within(finding.path, parts):
                yield treatment.apply(finding, _nothing)

    def part(self, path: str) -> tuple[str, ...]:
        """Return the names of a path, as in a tree."""
        names = tuple(path.strip("/").split("/"))
        if not _has(self.database.storage, names):
            raise BadRequestError(f"{path} is not in the database")
        return names

    def _body_fault(self, address: DocumentAddress, record: Sidecar) -> tuple[StorageFault, str] | None:
        try:
            bodies = self.bodies_of(address.form)
        except ConfigurationError:  # the form has no provider any more
            return None
        if bodies is None:
            return StorageFault.BODY_MISSING, f"of {record.modified}: no property leads to its body"
        found = body_fault(bodies, address, record, deep=self.is_deep)
        if found is None:
            return None
        kind = StorageFault.BODY_MISSING if found[0] is FindingKind.BODY_MISSING else StorageFault.BODY_WRONG
        return kind, found[1]

    def count(self) -> int:
        """Count the documents, drafts and versions of definitions."""
        storage = self.database.storage
        return sum(
            sum(1 for _ in storage.versions(form))
            + sum(1 for collection in Collection for _ in storage.documents(form, collection))
            for form in storage.forms()
        )


def _is_within(place: str, parts: Sequence[tuple[str, ...]]) -> bool:
    names = tuple(place.split("/"))
    return any(names[: len(part)] == part for part in parts)


def _has(storage: Storage, names: tuple[str, ...]) -> bool:
    forms = [form for form in storage.forms() if (form.app, form.name)[: len(names)] == names[:_OF_FORM]]
    if len(names) <= _OF_FORM or not forms:
        return bool(forms)
    form, kind = forms[0], names[_OF_FORM]
    if len(names) > _OF_FILE or kind not in _FOLDERS:
        return False
    if len(names) < _OF_FOLDER:
        found = storage.versions(form) if kind == _DEFINITIONS else storage.documents(form, Collection(kind))
        return any(True for _ in found)
    main = _main(form, kind, names[_OF_FOLDER - 1])
    if main is None or len(names) == _OF_FILE:
        return main is not None and storage.history(replace(main, name=names[-1])) is not None
    return bool(storage.names(main)) or storage.history(main) is not None


def _main(form: Form, kind: str, folder: str) -> Address | None:
    if kind != _DEFINITIONS:
        return DocumentAddress(form, Collection(kind), folder, DATA_XML)
    return DefinitionAddress(form, int(folder), FORM_XHTML) if folder.isascii() and folder.isdecimal() else None


def _nothing() -> None:
    """Raise ``DamagedError``: kinds that have no remedy are never repaired."""
    raise DamagedError("nothing can repair it")
