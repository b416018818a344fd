"""Checking what is not in a tree: bodies of attachments, objects in buckets, databases, and marks of values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, takewhile
from typing import TYPE_CHECKING, BinaryIO

from persistence import errors
from persistence.catalog import NOTHING_ENCRYPTED, Catalog
from persistence.crypto import is_bound
from persistence.forms.controls import unusable_marks
from persistence.forms.encryption import EncryptionSurvey
from persistence.limits import CHUNK, LARGEST_TREE
from persistence.maintenance import tree_walk
from persistence.maintenance.repair import repair_path
from persistence.model.addresses import DATA_XML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.model.texts import Instant
from persistence.s3.body_references import BodyReference, stray_objects
from persistence.services.transfers import mains_of
from persistence.storage import files, owner, stored_revision
from persistence.storage.attachments import BodiesReader, FileBodies
from persistence.storage.findings import Finding, FindingKind, Quarantine
from persistence.storage.layout import HISTORY, FilePaths, file_name, is_file_name, next_content_of, revision_of
from persistence.storage.storage import MaintainedDatabase, Readable, Storage
from persistence.storage.stored_revision import digest_of_open

if TYPE_CHECKING:
    from persistence.s3.object_bodies import ObjectBodies

    FoundBodies = BodiesReader | ObjectBodies | None

PlaceOf = Callable[[Form], str | None]
"""Returns the tree or database with the records of a form's bodies; ``None`` if the properties lead elsewhere."""

_LINK = "a symbolic link; the service does not follow it"
_EMPTY = "nothing is stored in it"
_UNROUTED = "no property leads here from this form: nobody looks for these bodies"


@dataclass(slots=True)
class _Records:
    """The records of a document's attachments; ``named`` has version and path of each body, below the document."""

    # ``doubtful`` are the names of unreadable records. ``current`` and ``older`` are living revisions by name.
    named: set[tuple[int, str]] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    current: dict[str, Sidecar] = field(default_factory=dict)
    older: dict[str, Sidecar] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: tree_walk.Folder, tree: tree_walk.FolderTree) -> _Records:
        path = tree.layout.paths(folder.address(DATA_XML)).directory
        records = cls()
        try:
            found = tree_walk.list_folder(path)
        except (FileNotFoundError, NotADirectoryError):
            return records
        for name in found.sidecars:
            if (record := records._read(FilePaths(path, name))) is not None:
                records.current[name] = record
                # A write that was refused may have kept its body in the history already.
                records.named |= {(record.version, name), (record.version, f"{file_name(record.modified)}.{name}")}
        for revision in tree_walk.list_history(path).revisions:
            if (record := records._read(revision.place)) is not None:
                records.older[revision.place.name] = record
                records.named.add((record.version, revision.place.name))
        return records

    def _read(self, place: FilePaths) -> Sidecar | None:
        record = None
        with suppress(errors.DamagedError, OSError):
            record = stored_revision.read_sidecar(place)
        if record is None:
            self.doubtful.add(place.name)
            return None
        return record if not record.deleted and (record.body is not None or record.size == 0) else None


class AttachmentsCheck:
    """One check of a directory of attachments for bodies without a record, and what crashes have left."""

    # Documents of other trees than `trees` are skipped: without their records every body would look like a stray.
    def __init__(
        self, base: str, root_of: PlaceOf, trees: Mapping[str, tree_walk.FolderTree], lock_timeout: float
    ) -> None:
        self.tree = tree_walk.FolderTree(base, lock_timeout=lock_timeout)
        if not os.path.isdir(self.tree.root):
            raise errors.StartupError(f"there is no directory {self.tree.root} for attachments")
        self._root_of = root_of
        self._trees = trees
        self._quarantine = Quarantine(self.tree.root)
        self._unrouted: Form | None = None
        user = next((owner.of(root) for root in trees), None)
        self._access = tree_walk.AccessCheck(self.tree.root, user)

    def findings(self, parts: Sequence[tuple[str, ...]] = ((),)) -> Iterator[Finding | None]:
        """Check the documents below some names; yield ``None`` for a document that is done."""
        with errors.disk_errors(f"directory of attachments {self.tree.root}"):
            for only in parts:
                for finding in () if only else tree_walk.strays(self.tree.layout):
                    yield finding.mended_by(self._repair)
                for item in self.tree.walk(only):
                    if isinstance(item, Finding):
                        yield item.mended_by(self._repair)
                    else:
                        yield from self._document(item)
                        yield None

    def _document(self, folder: tree_walk.Folder) -> Iterator[Finding]:
        if folder.collection is None:
            yield FindingKind.FOREIGN.at(folder.path, "bodies of definitions are not kept here")
            return
        try:
            root = self._root_of(folder.form)
        except (errors.ConfigurationError, errors.StartupError):  # the form has no provider any more
            root = None
        if root is None and folder.form != self._unrouted:  # reported once for each form: its folders are adjacent
            self._unrouted = folder.form
            path = os.path.dirname(os.path.dirname(folder.path))
            yield FindingKind.FOREIGN.at(path, _UNROUTED)
        tree = self._trees.get(root or "")
        if tree is None or not self._inspect(folder, tree):
            return
        try:
            with tree.locked(folder):  # without the lock a writer at work looks like a crash
                for finding in self._inspect(folder, tree):
                    is_unfinished = finding.kind in {FindingKind.UNFINISHED_COMMIT, FindingKind.UNFINISHED_WRITE}
                    finish = partial(self._finish, tree, folder)
                    yield finding.mended_by(finish if is_unfinished else self._repair)
        except errors.BusyError as error:
            yield FindingKind.BUSY.at(folder.path, str(error))

    def _repair(self, finding: Finding) -> None:
        if files.exists(finding.path):  # else the repair of another finding took care of it
            repair_path(finding, self._quarantine)

    def _finish(self, tree: tree_walk.FolderTree, folder: tree_walk.Folder, finding: Finding) -> None:
        def read(address: DocumentAddress, instant: Instant | None) -> Sidecar | None:
            place = tree.layout.paths(address)
            return stored_revision.read_sidecar(place if instant is None else place.revision(instant))

        main = folder.address(DATA_XML)
        if isinstance(main, DocumentAddress) and files.exists(finding.path):
            FileBodies(self.tree.root).finish(main, read)

    def _inspect(self, folder: tree_walk.Folder, tree: tree_walk.FolderTree) -> list[Finding]:
        try:
            return tree_walk.without_repetitions(folder, self._versions(folder, _Records.of(folder, tree)))
        except FileNotFoundError:
            return []
        except OSError as error:
            path = str(error.filename or folder.path)
            is_here = isinstance(error, PermissionError) and path.startswith(f"{self.tree.root}/")
            kind = FindingKind.NO_ACCESS if is_here else FindingKind.UNREADABLE
            return [kind.at(path, str(error.strerror))]

    def _versions(self, folder: tree_walk.Folder, records: _Records) -> Iterator[Finding]:
        yield from self._access.directory(folder.path)
        for entry in (entries := _entries(folder.path)):
            if entry.is_symlink():
                yield FindingKind.LINK.at(entry.path, _LINK)
            elif not entry.is_dir() or not tree_walk.is_version(entry.name):
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


# Objects in a bucket that no record names, and their removal.
#
# Nothing is removed for a form of which there are no records at all: whoever checks with the wrong data directory would
# otherwise lose every body in the bucket.


class ObjectsCheck:
    """One check of a place in an object store for objects without a record; those that are young are left alone."""

    # Objects of other places than `places` are skipped: without their records every object would look like a stray.
    def __init__(self, bodies: ObjectBodies, records_of: PlaceOf, places: Mapping[str, Readable]) -> None:
        self._bodies = bodies
        self._records_of = records_of
        self._places = places
        self._known = cache(self._is_known)

    def findings(self, parts: Sequence[tuple[str, ...]] = ((),)) -> Iterator[Finding | None]:
        """Check the objects below the names of keys; yield ``None`` for each that is in order."""
        for part in parts:
            for each in stray_objects(self._bodies, self._main_of, "/".join(part)):
                yield None if each is None else self._finding(*each)

    def _finding(self, key: str, reference: BodyReference | None) -> Finding:
        path = f"{self._bodies.place}/{key}"
        if reference is None:
            return FindingKind.FOREIGN.at(path, "a key that the service does not give")
        form = reference.address.form
        if self._place(form) is None:
            return FindingKind.FOREIGN.at(path, _UNROUTED)
        if not self._known(form):
            return FindingKind.FOREIGN.at(path, f"there are no records of {form}: is it the right data directory?")
        remove = partial(self._bodies.objects.remove, [key])
        return FindingKind.STRAY_OBJECT.at(
            path, "a body that no record names, stored more than an hour ago", mend=remove
        )

    def _main_of(self, form: Form) -> Readable | None:
        # Where no property leads here, any place does: what it names is in order.
        place = self._place(form)
        return next(iter(self._places.values()), None) if place is None else self._places.get(place)

    def _place(self, form: Form) -> str | None:
        try:
            return self._records_of(form)
        except (errors.ConfigurationError, errors.StartupError):  # the form has no provider any more
            return None

    def _is_known(self, form: Form) -> bool:
        main = self._main_of(form)
        return main is not None and form in main.forms(form.app)


_OF_FORM, _OF_FOLDER, _OF_FILE = 2, 4, 5
"""The numbers of names in a path: ``APP/FORM/data/DOCUMENT/FILE`` or ``APP/FORM/form/VERSION/FILE``."""

_DEFINITIONS = "form"
_FOLDERS = {_DEFINITIONS, *(each.value for each in Collection)}


@dataclass(frozen=True, slots=True)
class StorageCheck:
    """One check of a database; ``is_deep`` reads every content."""

    # ``bodies_of`` tells where the bodies of a form's attachments are, if they are not in the database. ``marks``
    # judges contents by the marks of definitions.
    database: MaintainedDatabase
    bodies_of: BodiesOf
    marks: MarkCheck
    is_deep: bool = False

    def findings(self, parts: Sequence[tuple[str, ...]] = ((),)) -> Iterator[Finding | None]:
        """Check the database once: yield its findings below some names, and ``None`` for a folder that is done."""
        if not parts:
            return

        def judged(address: DocumentAddress, record: Sidecar) -> tuple[FindingKind, str] | None:
            if not _is_within(str(address), parts):
                return None
            try:
                bodies = self.bodies_of(address.form)
            except errors.ConfigurationError:  # the form has no provider any more
                return None
            if bodies is None:
                return FindingKind.BODY_MISSING, f"of {record.modified}: no property leads to its body"
            fault = body_fault(bodies, address, record, deep=self.is_deep)
            if fault is None or fault[0] is FindingKind.BODY_MISSING:
                return fault
            return FindingKind.BODY_DAMAGED, fault[1]

        marks = self.marks.of_storage(self.database.storage, is_deep=self.is_deep)
        for found in chain(self.database.inspect(self.is_deep, judged), marks):
            if found is None or _is_within(found.path, parts):
                yield found

    def part(self, path: str) -> tuple[str, ...]:
        names = tuple(path.strip("/").split("/"))
        if not _has(self.database.storage, names):
            raise errors.BadRequestError(f"{path} is not in the database")
        return names

    def count(self) -> int:
        storage = self.database.storage
        return sum(1 for form in storage.forms() for _ in mains_of(storage, form))


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
    folder = names[_OF_FOLDER - 1]
    if kind != _DEFINITIONS:
        main: Address = DocumentAddress(form, Collection(kind), folder)
    elif folder.isascii() and folder.isdecimal():
        main = DefinitionAddress(form, int(folder))
    else:
        return False
    if len(names) == _OF_FILE:
        return storage.history(replace(main, name=names[-1])).total > 0
    return bool(storage.names(main)) or storage.history(main).total > 0


# Judging what is stored by its record and the marks of definitions: bodies in other places, and values in contents.


BodiesOf = Callable[[Form], "FoundBodies"]
"""Returns the bodies of a form's attachments, if they have a place that is known."""


def body_faults(
    bodies_of: BodiesOf,
    folder: tree_walk.Folder,
    current: Mapping[str, Sidecar],
    history: tree_walk.History,
    *,
    deep: bool,
) -> Iterator[Finding]:
    """Find fault with a document's bodies by its records; ``deep`` reads each and compares its digest."""
    for name, sidecar in current.items():
        older = ((revision.place, record) for revision, record in tree_walk.readable(history, name))
        for place, record in ((folder.paths(name), sidecar), *older):
            if record.body is not None and not record.deleted:
                with suppress(errors.ConfigurationError):  # the form has no provider any more
                    bodies = bodies_of(folder.form)
                    fault = None if bodies is None else body_fault(bodies, folder.address(name), record, deep=deep)
                    if fault is not None:
                        yield fault[0].at(place.content, fault[1], place)


def body_fault(
    bodies: BodiesReader | ObjectBodies, address: Address, record: Sidecar, *, deep: bool
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
    except errors.DamagedError as error:
        return FindingKind.BODY_DAMAGED, f"{error} in {where}"
    except OSError as error:
        return FindingKind.UNREADABLE, f"its body in {where}: {error.strerror}"
    return None


_KINDS = {True: FindingKind.MARK_NOT_ENCRYPTING, False: FindingKind.MARK_NOT_INDEXING}


# Marks of definitions that have no effect, and what is stored in plain text although a definition marks it.
#
# Both are from before such definitions were refused, or from a definition that was published again with other marks.
# Encrypted values that were replaced or removed are found as far as that shows without a key.


@dataclass(frozen=True, slots=True)
class MarkCheck:
    """Judges contents by the marks of definitions, which ``catalog_of`` has; unreadable ones have other findings."""

    catalog_of: Callable[[Form], Catalog]

    def faults(
        self, address: Address, sidecar: Sidecar, file: BinaryIO, *, is_deep: bool
    ) -> list[tuple[FindingKind, str]]:
        """Find fault with the content of a main resource. Data is read if the check ``is_deep``."""
        with suppress(errors.PersistenceError):
            if isinstance(address, DefinitionAddress):
                return [
                    (_KINDS[each.is_encryption], each.cause) for each in unusable_marks(file.read(LARGEST_TREE + 1))
                ]
            if is_deep:
                return self._values(address, sidecar, file)
        return []

    def _values(self, address: DocumentAddress, sidecar: Sidecar, file: BinaryIO) -> list[tuple[FindingKind, str]]:
        controls = self.catalog_of(address.form).of(address.form, sidecar.version).encrypted or NOTHING_ENCRYPTED
        if not controls.paths and not sidecar.encrypted:
            return []
        bound = 0

        def note(value: str, *_: object) -> bool:
            nonlocal bound
            bound += is_bound(value)
            return True

        survey = EncryptionSurvey(controls.paths, controls.values, note, lambda _, labelled: labelled)
        found = survey.read(iter(partial(file.read, CHUNK), b""))
        faults = []
        if bound and found.seal is None:
            faults.append((FindingKind.ENCRYPTION_WRONG, f"of {sidecar.modified}: its encrypted values have no seal"))
        elif sidecar.encrypted and not (found.values or sidecar.adopted):
            what = f"of {sidecar.modified}: no value is encrypted, and its sidecar says that some are"
            faults.append((FindingKind.ENCRYPTION_WRONG, what))
        if count := found.plain + found.plain_files:
            what = f"of {sidecar.modified}: {count} plain where version {sidecar.version} marks controls as encrypted"
            faults.append((FindingKind.VALUE_PLAIN, what))
        return faults

    def of_storage(self, storage: Storage, *, is_deep: bool) -> Iterator[Finding]:
        """Yield the findings in a storage that has no files."""
        for form in storage.forms():
            for main in takewhile(lambda each: is_deep or isinstance(each, DefinitionAddress), mains_of(storage, form)):
                yield from self._of_resource(storage, main, is_deep=is_deep)

    def _of_resource(self, storage: Storage, address: Address, *, is_deep: bool) -> Iterator[Finding]:
        older: Sequence[Instant] = ()
        if not isinstance(address, DefinitionAddress):
            with suppress(errors.DamagedError):
                older = storage.revisions(address)
        for instant in (None, *older):
            with suppress(errors.PersistenceError):
                found = storage.read(address, instant, content=True)
                if found is not None and found.file is not None:
                    with found.file as file:
                        for kind, what in self.faults(address, found.sidecar, file, is_deep=is_deep):
                            yield kind.at(f"{address.folder}/{address.name}", what)
