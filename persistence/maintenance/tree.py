"""The tree as maintenance walks it: folder by folder, however many there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from persistence.errors import BadRequestError
from persistence.maintenance.findings import Finding, FindingKind
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.sidecar import LARGEST_VERSION
from persistence.storage import files, owner
from persistence.storage.layout import (
    ARRIVED_DRAFTS,
    ARRIVING,
    BODIES,
    CHECKED,
    FOLDER_DEPTH,
    INDEX,
    LAYOUT,
    LEASES,
    LOCKS,
    OTHERS,
    PAGES,
    QUARANTINE,
    RESTORED,
    SERVE,
    SPOOL,
    TRASH,
    FilePaths,
    Layout,
    is_escaped,
    is_unfinished_own,
    unescape,
)
from persistence.storage.locks import Locks, stripe
from persistence.storage.storage import NOBODY, ChangeEvents, ChangeListener

OWN = {
    LAYOUT,
    ARRIVED_DRAFTS,
    ARRIVING,
    BODIES,
    CHECKED,
    LOCKS,
    LEASES,
    PAGES,
    RESTORED,
    SPOOL,
    TRASH,
    SERVE,
    QUARANTINE,
    INDEX,
}
"""The names in a root that are the service's own."""

_OF_GIT = ".git"
"""Begins the names that git uses; no application's name begins with a dot."""
_DEFINITIONS = "form"
_COLLECTIONS = {_DEFINITIONS: None, **{collection.value: collection for collection in Collection}}
FORM_DEPTH = 2
"""The number of names that lead to a form."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory of resources: a document, a draft, or a version of a definition; ``path`` is absolute."""

    path: str
    form: Form
    collection: Collection | None
    name: str

    def address(self, name: str) -> Address:
        """Return the address of the resource with a file name."""
        if self.collection is None:
            return DefinitionAddress(self.form, int(self.name), unescape(name))
        return DocumentAddress(self.form, self.collection, self.name, unescape(name))

    def paths(self, name: str) -> FilePaths:
        return FilePaths(self.path, name)

    @property
    def main(self) -> str:
        """The file name of the definition or the data; the other resources are its attachments."""
        return FORM_XHTML if self.collection is None else DATA_XML

    @property
    def scope(self) -> tuple[str, ...]:
        """The names that are locked while a resource in it changes."""
        return self.address(self.main).scope

    @property
    def keeps_history(self) -> bool:
        """Return whether older revisions are kept here."""
        return self.collection is not Collection.DRAFT


class FolderTree:
    """The folders of one root, and their locks; ``lock_timeout`` is in seconds.

    ``listener`` hears of the documents that are changed while their folder is locked.
    """

    def __init__(self, root: str, *, lock_timeout: float, listener: ChangeListener = NOBODY) -> None:
        self.root = os.path.realpath(root)
        self.layout = Layout(self.root)
        self._is_own = os.path.isdir(self.root) and owner.of(self.root) == os.geteuid()
        self._locks = Locks(self.root, lock_timeout, create=self._is_own)
        self._listener = listener

    @contextmanager
    def locked(self, folder: Folder) -> Iterator[ChangeEvents]:
        """Keep writers out of a folder for a block, which tells the change what it changes.

        Nobody writes in a tree that lacks the lock file.
        """
        change = ChangeEvents(self._listener)
        lock = self.layout.own(LOCKS) if self._is_own else self.layout.lock(stripe(folder.scope))
        has_locks = files.exists(lock) and not os.path.islink(lock)
        try:
            if has_locks:
                with self._locks.document(folder.scope):
                    yield change
            else:
                yield change
        finally:
            change.ends()

    def inside(self, path: str) -> str:
        """Return a path relative to the root, as people read it."""
        return os.path.relpath(path, self.root)

    def parts(self, path: str) -> tuple[str, ...]:
        """Return the names between the root and a path, which is relative to the root or to the current directory."""
        for candidate in (os.path.join(self.root, path), os.path.abspath(path)):
            relative = os.path.relpath(candidate, self.root)
            is_inside = relative.split(os.sep)[0] != os.pardir
            may_be_deleted = relative.count(os.sep) >= FOLDER_DEPTH and os.path.isdir(os.path.dirname(candidate))
            if is_inside and (os.path.lexists(candidate) or may_be_deleted):
                return () if relative == os.curdir else tuple(relative.split(os.sep))
        raise BadRequestError(f"{path} is not in the data directory")

    def walk(self, only: tuple[str, ...] = ()) -> Iterator[Folder | Finding]:
        """Yield every folder below some names, and a finding for what is on the way and not the service's."""
        return self._below(self.root, (), only)

    def count(self, only: tuple[str, ...] = ()) -> int:
        """Count the folders that ``walk`` will find."""
        return sum(isinstance(item, Folder) for item in self.walk(only))

    def folder_in(self, collection: Collection, folder: Folder) -> Folder:
        """Return the folder of the same document in another collection."""
        return Folder(self.layout.document(folder.form, collection, folder.name), folder.form, collection, folder.name)

    def _below(self, path: str, names: tuple[str, ...], only: tuple[str, ...]) -> Iterator[Folder | Finding]:
        """Walk a directory, to which ``names`` lead: definitions first, then drafts, then data.

        Adopted data gets the version of the definitions that are there. A draft that is saved meanwhile is met in one
        of the collections, and not missed in both.
        """
        entries = self._directories(path, only[:1])
        is_definition = names[2:] == (_DEFINITIONS,)
        for entry in sorted(entries, key=_collection_order) if len(names) == FORM_DEPTH else entries:
            name = os.path.basename(entry.path)
            if isinstance(entry, Finding):
                is_other_link = entry.kind is FindingKind.LINK and is_definition and not is_version(name)
                yield _foreign(entry.path, entry.what) if is_other_link else entry
            elif len(names) == FORM_DEPTH and name not in _COLLECTIONS:
                yield _foreign(entry.path, "no collection of a form has this name")
            elif is_definition and not is_version(name):
                yield _foreign(entry.path, "not the number of a version")
            elif len(names) + 1 < FOLDER_DEPTH:
                yield from self._below(entry.path, (*names, name), only[1:])
            else:
                app, form, collection = names
                yield Folder(entry.path, Form(unescape(app), unescape(form)), _COLLECTIONS[collection], unescape(name))

    def _directories(self, path: str, only: tuple[str, ...]) -> Iterator[os.DirEntry[str] | Finding]:
        try:
            entries = os.scandir(path)
        except FileNotFoundError:
            return
        except PermissionError:
            yield FindingKind.NO_ACCESS.at(path, "the service may not use it; what is in it was not looked at")
            return
        except OSError as error:
            yield FindingKind.UNREADABLE.at(path, str(error.strerror))
            return
        with entries:
            for entry in entries:
                if (only and entry.name != only[0]) or (path == self.root and _is_own(entry)):
                    continue
                if entry.is_symlink() and is_escaped(entry.name):
                    yield FindingKind.LINK.at(entry.path, "a symbolic link; the service does not follow it")
                elif not entry.is_dir(follow_symlinks=False):
                    yield _foreign(entry.path, "a file where only directories are")
                elif not is_escaped(entry.name):
                    yield _foreign(entry.path, "a name that the service does not give")
                else:
                    yield entry


def _collection_order(entry: os.DirEntry[str] | Finding) -> int:
    first = (_DEFINITIONS, Collection.DRAFT.value)
    name = os.path.basename(entry.path)
    return first.index(name) if name in first else len(first)


def is_version(name: str) -> bool:
    """Return whether a file name is the number of a version."""
    return name.isascii() and name.isdigit() and not name.startswith("0") and int(name) <= LARGEST_VERSION


def _is_own(entry: os.DirEntry[str]) -> bool:
    if entry.name in OWN or entry.name in OTHERS or entry.name.startswith(_OF_GIT):
        return True
    return is_unfinished_own(entry.name) and not entry.is_dir(follow_symlinks=False)


def _foreign(path: str, what: str) -> Finding:
    return FindingKind.FOREIGN.at(path, what)
