"""Reading a tree: addresses in, revisions and lists of them out. Nothing is changed or made."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO

from persistence.bounded_cache import BoundedCache
from persistence.errors import DamagedError, as_disk_error, disk_errors
from persistence.limits import HISTORIES_KEPT, HISTORIES_KEPT_BYTES
from persistence.model.addresses import FORM_XHTML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import ListedRevision, Sidecar
from persistence.model.texts import Instant, is_in_calendar
from persistence.storage import files, layout, root, stored_revision
from persistence.storage.layout import SIDECAR_SUFFIX, FilePaths, Layout
from persistence.storage.storage import NO_REVISIONS, RevisionList, StateMark
from persistence.storage.stored_revision import SETTLED, Fingerprint, Integrity, StoredRevision, fingerprint_of

_STEP = len("0000-00-00T00-00-00.000Z\n")
_LENGTH = _STEP - 1
_INSTANTS = re.compile(rb"(?:%b\n)*+" % layout.INSTANT_IN_NAME.pattern.encode())


# The revisions of a resource in a tree, the older ones by the names in its .history.
#
# There may be tens of thousands of names, so little is done for each, and the instants are kept as one text. A list is
# cached for the state of its directory, which changes with every name in it. Sidecars are read a page at a time.


def older_instants(paths: FilePaths) -> str:
    """Return the instants of the older revisions of a file, the newest first, on a line each."""
    try:
        names = os.listdir(os.fsencode(paths.history))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return instants_text(names, os.fsencode(paths.name))


def instants_text(names: Iterable[bytes], name: bytes) -> str:
    """Return the instants of the older revisions of a file whose sidecars are among these names: see above."""
    end = b".%s%s" % (name, SIDECAR_SUFFIX.encode())
    length = _LENGTH + len(end)
    found = sorted((each[:_LENGTH] for each in names if len(each) == length and each.endswith(end)), reverse=True)
    lines = bytearray(b"".join(each + b"\n" for each in found))
    days = {each[:10] for each in found}
    if not _INSTANTS.fullmatch(lines) or not all(
        is_in_calendar(Instant(f"{day.decode()}T00:00:00.000Z")) for day in days
    ):
        valid = (each for each in found if each.isascii() and layout.instant_of(each.decode()) is not None)
        lines = bytearray(b"".join(each + b"\n" for each in valid))
    for at in (13, 16):
        lines[at::_STEP] = b":" * (len(lines) // _STEP)
    return lines.decode("ascii")


class StoreReader:
    """The files below one root, to be read: no directory is made, no lock taken, and no writer blocked."""

    def __init__(self, path: str, integrity: Integrity | None = None) -> None:
        self.root = os.path.realpath(path)
        with disk_errors(f"data directory {self.root}"):
            root.require(self.root)
        self._layout = Layout(self.root)
        self._integrity = integrity or Integrity()
        self._histories = BoundedCache[str](HISTORIES_KEPT, HISTORIES_KEPT_BYTES)  # Those that were asked for last

    def sidecar(self, address: Address) -> Sidecar | None:
        paths = self._layout.paths(address)
        with disk_errors("reading", address):
            sidecar = stored_revision.read_sidecar(paths)
            if sidecar is None:
                self._require_tree()
        return sidecar

    def read(self, address: Address, instant: Instant | None = None, *, content: bool) -> StoredRevision | None:
        paths = self._layout.paths(address)
        try:
            # The current one first: a writer keeps it in the history before it replaces it, so that looking there
            # afterwards finds a revision that has just stopped being current.
            found = stored_revision.read(paths, self._integrity, content=content)
            if found is None:
                self._require_tree()
            elif instant is not None and found.sidecar.modified != instant:
                found.close()
                return stored_revision.read(paths.revision(instant), self._integrity, content=content)
        except OSError as error:
            raise as_disk_error(error, "reading", address) from error
        return found

    def content(self, address: Address) -> BinaryIO | None:
        paths = self._layout.paths(address)
        with disk_errors("reading", address):
            return stored_revision.content(paths)

    def fingerprint(self, address: Address) -> Fingerprint:
        paths = self._layout.paths(address)
        try:
            return fingerprint_of(paths.sidecar, paths.content)
        except OSError as error:
            raise as_disk_error(error, "looking at", address) from error

    def fingerprints(self, form: Form) -> tuple[tuple[int, Fingerprint], ...]:
        directory = self._layout.versions(form)
        with disk_errors("looking at the versions of", form):
            mains = [(number, f"{directory}/{number}/{FORM_XHTML}") for number in _numbers(directory)]
            return tuple((number, fingerprint_of(path + SIDECAR_SUFFIX, path)) for number, path in mains)

    def history(self, address: Address) -> RevisionList:
        paths = self._layout.paths(address)
        # The current one first, as in ``read``.
        current = self.sidecar(address)
        if current is None:
            return NO_REVISIONS
        with disk_errors("listing the older revisions of", address):
            older, newer = self._older(paths), 0
        # Those that writers have added meanwhile are newer, and left out.
        while older[newer * _STEP : newer * _STEP + _LENGTH] >= current.modified:
            newer += 1

        def instant(position: int) -> Instant:
            begin = (newer + position - 1) * _STEP
            return Instant(older[begin : begin + _LENGTH]) if position else current.modified

        def load(begin: int, end: int) -> list[ListedRevision]:
            found = [ListedRevision(current.modified, current)] if begin == 0 and end else []
            for position in range(max(begin, 1), end):
                try:
                    with disk_errors("reading", address):
                        sidecar = stored_revision.read_sidecar(paths.revision(instant(position)))
                except DamagedError:
                    found.append(ListedRevision(instant(position), None))
                else:
                    found += [] if sidecar is None else [ListedRevision(instant(position), sidecar)]
            return found

        return RevisionList(1 + len(older) // _STEP - newer, instant, load)

    def _older(self, paths: FilePaths) -> str:
        """Return the instants of the older revisions of a file now, the newest first, on a line each."""
        # A directory that was changed within the last two seconds may change again under the same times.
        try:
            state = os.stat(paths.history)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        changed = max(state.st_mtime_ns, state.st_ctime_ns)
        if time.time_ns() - changed <= SETTLED:
            return older_instants(paths)
        key = (paths.content, state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
        return self._histories.get(key, lambda: older_instants(paths))

    def forms(self, app: str | None = None) -> Iterator[Form]:
        with disk_errors("listing the forms"):
            self._require_tree()
            names = [app] if app is not None else (name for name in _names(self.root) if name not in layout.OTHERS)
            for name in names:
                yield from (Form(name, form) for form in _names(self._layout.application(name)))

    def versions(self, form: Form) -> Iterator[int]:
        with disk_errors("listing the versions of", form):
            numbers = _numbers(self._layout.versions(form))
            if not numbers:
                self._require_tree()
            yield from numbers

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        with disk_errors(f"listing the documents of {form}"):
            self._require_tree()
            yield from _names(self._layout.documents(form, collection))

    def documents_and_drafts(self, form: Form) -> Iterator[str]:
        saved = set[str]()
        for document in self.documents(form):
            saved.add(document)
            yield document
        for document in self.documents(form, Collection.DRAFT):
            if document not in saved:
                yield document

    def marks(self, form: Form) -> Iterator[StateMark]:
        for version in self.versions(form):
            yield self._mark(DefinitionAddress(form, version))
        for document in self.documents_and_drafts(form):
            yield self._mark(DocumentAddress(form, Collection.DATA, document))

    def sidecars(self, main: Address) -> Iterator[tuple[str, Instant, Sidecar]]:
        for name in self.names(main):
            address = replace(main, name=name)
            listed = self.history(address)
            read = [(name, each.instant, each.sidecar) for each in reversed(listed.every()) if each.sidecar is not None]
            if len(read) < listed.total:
                raise DamagedError(f"a sidecar of {address} cannot be read")
            yield from read

    def _mark(self, main: Address) -> StateMark:
        # Every commit puts a sidecar in place by a rename, and so changes the times of its directory. A purge of older
        # revisions changes those of the history alone.
        paths = self._layout.paths(main)
        directories, found = [paths.directory, paths.history], list[os.stat_result | None]()
        if isinstance(main, DocumentAddress):
            directories.append(self._layout.document(main.form, Collection.DRAFT, main.document))
        with disk_errors("looking at", main):
            for path in directories:
                try:
                    found.append(os.stat(path, follow_symlinks=False))
                except (FileNotFoundError, NotADirectoryError):
                    found.append(None)
        newest = max((each.st_ctime_ns for each in found if each is not None), default=0)
        times = [
            "-" if each is None else f"{each.st_dev}.{each.st_ino}.{each.st_mtime_ns}.{each.st_ctime_ns}"
            for each in found
        ]
        return StateMark(
            main,
            " ".join(times) if newest < time.time_ns() - SETTLED else "",
            is_sum=False,
            has_saved=found[0] is not None,
            has_draft=isinstance(main, DocumentAddress) and found[-1] is not None,
        )

    def _require_tree(self) -> None:
        # An unmounted disk leaves an empty directory, also under a service that runs.
        path = self._layout.own(layout.LAYOUT)
        try:
            os.lstat(path)
        except FileNotFoundError:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path) from None

    def names(self, main: Address) -> list[str]:
        directory = self._layout.paths(main).directory
        with disk_errors("listing", main):
            sidecars = (name for name in files.names_in(directory) if name.endswith(SIDECAR_SUFFIX))
            found = (name.removesuffix(SIDECAR_SUFFIX) for name in sidecars)
            return sorted(self._name(main, name) for name in found if layout.is_file_name(name))

    def _name(self, main: Address, file: str) -> str:
        if not layout.is_shortened(file):
            return layout.unescape(file)
        sidecar = stored_revision.read_sidecar(self._layout.paths(replace(main, name=file)))
        return file if sidecar is None or sidecar.name is None else sidecar.name

    def has_unfinished(self, main: DocumentAddress) -> bool:
        paths = self._layout.paths(main)
        with disk_errors("listing", main):
            return next(stored_revision.incomplete_writes(paths), None) is not None

    def read_older(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        paths = self._layout.paths(address).revision(instant)
        with disk_errors("reading", address):
            return stored_revision.read(paths, self._integrity, content=content)

    def is_older_name_of(self, address: Address, instant: Instant, content_id: str) -> bool:
        # A killed write leaves one.
        paths = self._layout.paths(address).revision(instant)
        with disk_errors("reading", address):
            sidecar = stored_revision.read_sidecar(paths)
        return sidecar is not None and sidecar.id == content_id

    def freed(self, address: Address, instant: Instant | None) -> int:
        paths = self._layout.paths(address)
        paths = paths if instant is None else paths.revision(instant)
        total = 0
        with disk_errors("looking at", address):
            for path in (paths.content, paths.sidecar):
                with suppress(FileNotFoundError):
                    status = os.lstat(path)
                    total += status.st_size if status.st_nlink == 1 else 0  # another name keeps it
        return total

    def freed_by_folder(self, main: DocumentAddress) -> int:
        # Only files all of whose names are in the directory are freed.
        found = dict[int, tuple[int, os.stat_result]]()
        with disk_errors("looking at", main):
            for path in files.below(self._layout.paths(main).directory):
                with suppress(FileNotFoundError):
                    status = os.lstat(path)
                    found[status.st_ino] = found.get(status.st_ino, (0, status))[0] + 1, status
        return sum(status.st_size for names, status in found.values() if names >= status.st_nlink)

    def revisions(self, address: Address) -> list[Instant]:
        with disk_errors("listing the older revisions of", address):
            return [Instant(each) for each in older_instants(self._layout.paths(address)).splitlines()]


def _numbers(directory: str) -> list[int]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted([int(name) for name in names if name.isascii() and name.isdigit()], reverse=True)


def _names(directory: str) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        for entry in entries:
            if layout.is_escaped(entry.name):
                yield layout.unescape(entry.name)
