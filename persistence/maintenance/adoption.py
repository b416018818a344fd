"""Adoption of files that a person put into the tree: a content without a sidecar, or one that differs from its sidecar.

The content stays, and gets a new sidecar: as a new revision of the old resource, or as a new resource under the rules
of a PUT that names no version.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from persistence.dialect import Dialect
from persistence.errors import BusyError, DamagedError
from persistence.limits import CHUNK
from persistence.maintenance.findings import Finding, Quarantine
from persistence.maintenance.folder_files import is_encrypted_for, is_whole, list_history, newest_whole, readable
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.tree import Folder
from persistence.model.addresses import Address, DefinitionAddress
from persistence.model.instants import next_after
from persistence.model.sidecar import SCHEMA, Sidecar, digest_text, fresh_id
from persistence.model.versions import FormMetadata
from persistence.services.documents import version_of_new
from persistence.services.receiving import definition_reader, type_by_name
from persistence.storage import commit, directories, files, nofollow, stored_revision
from persistence.storage.layout import FilePaths, Layout
from persistence.storage.sidecars import ChangedSidecarError
from persistence.xml.streaming import XmlCheck

_OWNERS, _OTHERS = 0o600, 0o007
_LARGEST_COMPARED = 1 << 18
"""Bytes of a content that a preview compares line by line."""
_MOST_LINES = 200
_BETWEEN_TAGS = re.compile(r">(?=<)")


@dataclass(frozen=True, slots=True)
class AdoptedContent:
    """Size, digest and form metadata of a content that was read to its end."""

    size: int
    digest: str
    metadata: FormMetadata | None


def read_through(address: Address, path: str) -> AdoptedContent:
    """Read a content to its end, and check it if it must be XML."""
    hashing, size = hashlib.sha256(), 0
    reader = definition_reader(address)
    check = reader or (XmlCheck() if address.is_main else None)
    with open(nofollow.open_file(path), "rb") as file, check or nullcontext():
        while chunk := file.read(CHUNK):
            size += len(chunk)
            hashing.update(chunk)
            if check is not None:
                check.feed(chunk)
        if check is not None:
            check.finish()
        return AdoptedContent(size, digest_text(hashing.hexdigest()), None if reader is None else reader.metadata)


@dataclass(frozen=True)
class Adoption:
    """Adopts contents in one tree, under the lock of their folder.

    ``modifier`` is the name of who adopts, if it is to be recorded.
    """

    layout: Layout
    open_reader: Callable[[], TreeReader]
    dialect: Dialect
    quarantine: Quarantine
    modifier: str | None = None

    def take_in(self, folder: Folder, finding: Finding, place: FilePaths) -> None:
        """Adopt the content of a finding, whose kind must allow it (``Adopts``)."""
        try:
            current = stored_revision.read_sidecar(place)
        except ChangedSidecarError as error:
            self._take_in_changed(folder, finding, place, error)
            return
        history = list_history(folder.path)
        if current is None or current.deleted:
            older = next(readable(history, place.name), None)
            over = current or (older[1] if older else self.new(folder, place))
            self.adopt(folder, place, over=over, first=lambda: _keep_tombstone(place, current))
            return
        kept = newest_whole(history, place.name, living=True)
        if kept is None or kept[1].id != current.id:
            # The content of the sidecar is lost, so it is no revision any more.
            self.adopt(folder, place, over=current, first=lambda: self.quarantine.keep(place.sidecar, finding))
        else:
            self.adopt(folder, place, over=current)

    def _take_in_changed(self, folder: Folder, finding: Finding, place: FilePaths, error: ChangedSidecarError) -> None:
        self.quarantine.keep(place.sidecar, finding)
        if place.is_older or (error.is_misplaced and (error.sidecar.deleted or is_whole(place, error.sidecar))):
            version = self._version(folder, place, error.sidecar)
            encrypted = error.sidecar.encrypted or None  # the checksum does not cover that it is false
            commit.replace_sidecar(place, replace(error.sidecar, version=version, adopted=True, encrypted=encrypted))
        else:
            self.adopt(folder, place, over=error.sidecar)

    def adopt(
        self, folder: Folder, place: FilePaths, *, over: Sidecar, first: Callable[[], None] = lambda: None
    ) -> None:
        """Make the content in place the revision after ``over``. Raises as ``take_in``.

        ``first`` is called once the content has passed all checks.
        """
        address = folder.address(place.name)
        before = os.lstat(place.content)
        if not stat.S_ISREG(before.st_mode):
            raise DamagedError(f"{address} is not a file")
        content = read_through(address, place.content)
        after = os.lstat(place.content)
        if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, after.st_size, after.st_mtime_ns):
            raise BusyError(f"{address} is being edited")
        first()
        over = replace(over, version=self._version(folder, place, over))
        sidecar = commit.after_twin(self.layout, address, self._next(address, content, over))
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

    def nothing_known(self, version: int) -> Sidecar:
        """Return a sidecar for the revision before the first: it has only a form version, and no owner."""
        now = next_after(None)
        return Sidecar(schema=SCHEMA, id=fresh_id(), version=version, modified=now, created=now, size=0)

    @cached_property
    def _reader(self) -> TreeReader:
        return self.open_reader()

    def new(self, folder: Folder, place: FilePaths) -> Sidecar:
        """Return ``nothing_known`` with the version that a PUT of a new resource would choose."""
        address = folder.address(place.name)
        if isinstance(address, DefinitionAddress):
            return self.nothing_known(address.version)
        return self.nothing_known(
            version_of_new(self._reader.store, self._reader.catalog_of(address.form), self.dialect, address)
        )

    def _next(self, address: Address, content: AdoptedContent, over: Sidecar) -> Sidecar:
        modified = next_after(over.modified)
        return Sidecar(
            schema=SCHEMA,
            id=fresh_id(),
            version=over.version,
            modified=modified,
            created=modified if over.deleted else over.created,
            size=content.size,
            digest=content.digest,
            content_type=over.content_type or type_by_name(address),
            stage=over.stage,
            creator=over.creator,
            group=over.group,
            organization=over.organization,
            modifier=self.modifier,
            source=over.source,
            metadata=content.metadata,
            adopted=True,
            flat_view=over.flat_view,
        )


def _keep_tombstone(place: FilePaths, tombstone: Sidecar | None) -> None:
    if tombstone is not None:
        kept = commit.keep(place, tombstone)
        try:
            directories.sync_open(kept)
        finally:
            os.close(kept)


def preview(folder: Folder, place: FilePaths) -> tuple[str, tuple[str, ...]]:
    """Compare the content of a place with the stored one: a line with size and digest, and a unified diff of XML."""
    is_changed = False
    try:
        stored = stored_revision.read_sidecar(place)
    except ChangedSidecarError as error:
        stored, is_changed = error.sidecar, True
    content = read_through(folder.address(place.name), place.content)
    before = "nothing" if stored is None or stored.deleted else f"{stored.size} bytes {stored.digest}"
    said = f"would be adopted: {before} -> {content.size} bytes {content.digest}"
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
    with open(nofollow.open_file(path), "rb") as file:
        data = file.read(_LARGEST_COMPARED + 1)
    if len(data) > _LARGEST_COMPARED:
        return None
    return _BETWEEN_TAGS.sub(">\n", data.decode("utf-8", "replace")).splitlines()
