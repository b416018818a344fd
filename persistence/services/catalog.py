"""What is published: the versions of every form with what their metadata says, each read once and kept in memory.

What one process has read for a list, the next one finds in a file.

Whether a version is still what was read is told by its mark, which every request looks at: so all workers see at once
what one of them has published, and what a person has edited.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from persistence.errors import BadRequestError, DamagedError, disk_errors
from persistence.forms.metadata import MetadataReader, read_permissions
from persistence.index.forms import FORGETFUL, Memory, Remembered, Version
from persistence.keeping import Kept
from persistence.limits import (
    MOST_CATALOG,
    PERMISSION_COSTS,
    PERMISSIONS_KEPT,
    PERMISSIONS_KEPT_BYTES,
    SALVAGED_KEPT,
    VERSIONS_KEPT,
)
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.form_versions import FormMetadata, PublishedVersion
from persistence.model.permissions import Permissions
from persistence.storage.storage import Readable
from persistence.storage.stored_revision import NOTHING_THERE, Fingerprint, StoredRevision

_FEW_FRESH = 20
"""The part of what is known, one in so many, that may be missing in the memory before it is written again."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Defined:
    """The permissions in a definition, ``None`` where it has none, and whether it was deleted."""

    permissions: Permissions | None
    is_deleted: bool


class Catalog:
    """Published versions. Methods raise ``DamagedError`` for one that cannot be read, and ``DiskError``."""

    def __init__(self, store: Readable, memory: Memory = FORGETFUL) -> None:
        self._store = store
        self._memory = memory
        self._is_recalled = False
        self._fresh = 0
        self._remembering = threading.Lock()
        self._known: dict[Form, dict[int, tuple[Fingerprint, PublishedVersion | None]]] = {}
        self._entries = 0
        self._weight = 0
        self._weighed: set[int] = set()
        self._salvaged: Kept[Defined] = Kept(SALVAGED_KEPT, PERMISSIONS_KEPT_BYTES)

    def version(self, form: Form, number: int) -> PublishedVersion | None:
        """A version of a form; ``None`` where it was never published, or was deleted."""
        known = self._marked(form, number, self._store.fingerprint(DefinitionAddress(form, number, FORM_XHTML)))
        return None if known is None or known.deleted else known

    def defined(self, form: Form, number: int) -> Defined | None:
        """The permissions of a version, also of a deleted one, and of one of whose files one is lost or broken.

        ``None`` where there is nothing of the version.
        """
        address = DefinitionAddress(form, number, FORM_XHTML)
        mark = self._store.fingerprint(address)
        if mark == NOTHING_THERE:
            return None
        try:
            known = self._marked(form, number, mark)
        except DamagedError:
            known = None
        if known is None:
            return self._salvaged.of((address, mark), lambda: self._salvage(address))
        return Defined(known.permissions, known.deleted)

    def versions(self, form: Form) -> Iterator[PublishedVersion]:
        """The versions of a form, highest first."""
        found = (self.version(form, number) for number in self._store.versions(form))
        return (published for published in found if published is not None)

    def alike(self, form: Form) -> tuple[int, ...]:
        """The highest version, were it only that it was deleted, and all others that have the permissions of it."""
        every = [(number, self.defined(form, number)) for number in self._store.versions(form)]
        defined = [(number, said.permissions) for number, said in every if said is not None]
        return tuple(number for number, permissions in defined if permissions == defined[0][1])

    def forms(self, app: str | None = None, name: str | None = None) -> Iterator[Iterator[PublishedVersion]]:
        """The versions of every form, or of those of one application or one form name; without what is damaged."""
        self._recall()
        for form in self._store.forms(app):
            if name is None or form.name == name:
                yield self.readable(form)
        self._remember()

    def readable(self, form: Form) -> Iterator[PublishedVersion]:
        """The versions of a form, highest first, without what is damaged."""
        known = self._known.get(form, {})
        for number, mark in self._store.fingerprints(form):
            found = known.get(number)
            try:
                published = found[1] if found is not None and found[0] == mark else self._marked(form, number, mark)
            except DamagedError:
                continue
            if published is not None and not published.deleted:
                yield published

    def _marked(self, form: Form, number: int, mark: Fingerprint) -> PublishedVersion | None:
        """What has this mark: as it is known, or read after the mark was taken, so that what is newer is read again."""
        if mark[0] is None:
            return None
        known = self._known.get(form, {}).get(number)
        if known is not None and known[0] == mark:
            return known[1]
        published = self._read(DefinitionAddress(form, number, FORM_XHTML))
        self._know(form, number, mark, published)
        self._fresh += 1
        return published

    def _know(self, form: Form, number: int, mark: Fingerprint, published: PublishedVersion | None) -> None:
        self._entries += 1
        self._weight += 0 if published is None else self._weigh(published)
        if self._entries > VERSIONS_KEPT or self._weight > MOST_CATALOG:
            self._known = {}
            self._weighed = set()
            self._entries = self._weight = 0
            self._memory = FORGETFUL  # what does not fit would be written again and again
        self._known.setdefault(form, {})[number] = mark, published

    def _weigh(self, published: PublishedVersion) -> int:
        """The bytes that are to be kept of a version; permissions count for the first of those that share them."""
        shared, text = id(published.permissions), published.metadata.permissions
        if text is None or shared in self._weighed:
            return published.weight
        self._weighed.add(shared)
        return published.weight + PERMISSION_COSTS * text.count("<")

    def _recall(self) -> None:
        """Know what others have read, once."""
        with self._remembering:
            if self._is_recalled:
                return
            self._is_recalled = True
            for remembered in self._memory.recall():
                form = Form(remembered.app, remembered.name)
                fresh = self._known.get(form, {})
                for version in remembered.versions:
                    if version.number not in fresh:
                        with suppress(BadRequestError):
                            self._know(form, version.number, version.mark, _recalled(form, version))

    def _remember(self) -> None:
        """Leave what is known to others, where it is worth it."""
        known = self._known
        if self._fresh * _FEW_FRESH <= self._entries or not self._remembering.acquire(blocking=False):
            return
        try:
            self._fresh = 0
            self._memory.remember(_remembered(form, versions) for form, versions in tuple(known.items()))
        finally:
            self._remembering.release()

    def _salvage(self, address: DefinitionAddress) -> Defined:
        """What the sidecar has kept, else what the content says."""
        metadata = None
        with suppress(DamagedError):
            sidecar = self._store.sidecar(address)
            metadata = None if sidecar is None else sidecar.metadata
        if metadata is None:
            file = self._store.content(address)
            if file is None:
                raise DamagedError(f"nothing tells the permissions of {address} any more")
            metadata = _parsed(address, file)
        return Defined(_permissions(address, metadata), is_deleted=False)

    def _read(self, address: DefinitionAddress) -> PublishedVersion | None:
        found = self._store.read(address, content=False)
        if found is not None and _must_be_parsed(found):
            found = self._store.read(address, content=True)
        if found is None:
            return None
        sidecar = found.sidecar
        metadata = sidecar.metadata or FormMetadata()
        if found.file is not None:
            metadata = _parsed(address, found.file)
        return PublishedVersion(
            form=address.form,
            version=address.version,
            created=sidecar.created,
            modified=sidecar.modified,
            modifier=sidecar.modifier,
            metadata=metadata,
            permissions=_permissions(address, metadata),
            deleted=sidecar.deleted,
            weight=metadata.weight,
        )


def _recalled(form: Form, version: Version) -> PublishedVersion:
    return PublishedVersion(
        form=form,
        version=version.number,
        created=version.created,
        modified=version.modified,
        modifier=version.modifier,
        metadata=version.metadata,
        permissions=_read_permissions(version.metadata),
        deleted=version.deleted,
        weight=version.metadata.weight,
    )


def _remembered(form: Form, known: Mapping[int, tuple[Fingerprint, PublishedVersion | None]]) -> Remembered:
    versions = [
        Version(
            number=number,
            mark=mark,
            created=published.created,
            modified=published.modified,
            modifier=published.modifier,
            metadata=published.metadata,
            deleted=published.deleted,
        )
        for number, (mark, published) in tuple(known.items())
        if published is not None
    ]
    return Remembered(form.app, form.name, versions)


def _must_be_parsed(found: StoredRevision) -> bool:
    """Whether the sidecar does not tell: edited by hand, or published by a version of the service that kept nothing."""
    return not found.sidecar.deleted and (found.sidecar.metadata is None or found.is_edited)


def _parsed(address: DefinitionAddress, file: BinaryIO) -> FormMetadata:
    try:
        with file, MetadataReader() as reader, disk_errors(f"reading {address}"):
            return reader.read(iter(partial(file.read, _CHUNK), b"")).metadata
    except BadRequestError as error:
        raise DamagedError(f"{address} cannot be read: {error}") from error


def _permissions(address: DefinitionAddress, metadata: FormMetadata) -> Permissions | None:
    try:
        return _read_permissions(metadata)
    except BadRequestError as error:
        raise DamagedError(f"the sidecar of {address} cannot be read: {error}") from error


def _read_permissions(metadata: FormMetadata) -> Permissions | None:
    text = metadata.permissions
    return None if text is None else _read.of(text, lambda: read_permissions(text))


_read: Kept[Permissions] = Kept(PERMISSIONS_KEPT, PERMISSIONS_KEPT_BYTES)
"""Many versions have the permissions of another: they share one value."""
