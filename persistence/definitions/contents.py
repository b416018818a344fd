"""The contents of one form version, read from storage: each part by the function that needs least."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from persistence.bounded_cache import BoundedCache
from persistence.errors import BadRequestError, DamagedError, disk_errors
from persistence.forms.controls import Control, read_controls, read_index_keys
from persistence.forms.metadata import MetadataReader, read_permissions
from persistence.forms.outline import Outline, read_outline
from persistence.forms.structure import Names
from persistence.limits import CHUNK, LARGEST_TREE, PERMISSIONS_KEPT, PERMISSIONS_KEPT_BYTES
from persistence.model.addresses import DefinitionAddress
from persistence.model.permissions import Permissions
from persistence.model.versions import FormMetadata, IndexKey, PublishedVersion
from persistence.storage.storage import Readable
from persistence.xml.markup import may_mention

ENCRYPT = b"encrypt"
"""A part of the element or class of a control whose value is encrypted (spec forms 4.1)."""

_parsed_permissions: BoundedCache[Permissions] = BoundedCache(PERMISSIONS_KEPT, PERMISSIONS_KEPT_BYTES)
"""Many versions have the permissions of another: they share one value."""


@dataclass(frozen=True, slots=True)
class EncryptedControls:
    """The controls of a version whose values are encrypted: their ``paths`` in data of any format.

    A client may send data in another format than that at rest, which must not be stored plain either; and the header of
    an attachment may name its control in any (spec forms 4.2). ``values`` are those of controls that take no files.
    """

    paths: frozenset[Names]
    values: frozenset[Names]

    @classmethod
    def of(cls, controls: Iterable[Control]) -> EncryptedControls:
        """Select the encrypted ones of some controls."""
        found = [(each, path) for each in controls if each.is_encrypted for path in each.shapes]
        return cls(
            frozenset(path for _, path in found), frozenset(path for each, path in found if not each.takes_files)
        )

    def __or__(self, other: EncryptedControls) -> EncryptedControls:
        return EncryptedControls(self.paths | other.paths, self.values | other.values)


NOTHING_ENCRYPTED = EncryptedControls(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """The indexed controls of a version, in the order of the index; none unless it ``is_published``.

    ``is_deleted`` distinguishes a deleted version from one that was never published, or cannot be read.
    """

    keys: tuple[IndexKey, ...] = ()
    is_published: bool = False
    is_deleted: bool = False


def published_from(storage: Readable, address: DefinitionAddress) -> PublishedVersion | None:
    """Read the summary of a version, also of a deleted one; ``None`` where it was never published.

    The sidecar has it, unless the definition was edited by hand or published by an old version of the service: then its
    content is parsed.
    """
    found = storage.read(address, content=False)
    if found is not None and not found.sidecar.deleted and (found.sidecar.metadata is None or found.is_edited):
        found = storage.read(address, content=True)
    if found is None:
        return None
    sidecar = found.sidecar
    metadata = sidecar.metadata or FormMetadata()
    if found.file is not None:
        metadata = _parsed_metadata(address, found.file)
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


def salvaged_permissions(storage: Readable, address: DefinitionAddress) -> Permissions | None:
    """Read the permissions of a damaged version: by its sidecar, else by its content."""
    metadata = None
    with suppress(DamagedError):
        sidecar = storage.sidecar(address)
        metadata = None if sidecar is None else sidecar.metadata
    if metadata is None:
        file = storage.content(address)
        if file is None:
            raise DamagedError(f"the permissions of {address} are lost")
        metadata = _parsed_metadata(address, file)
    return _permissions(address, metadata)


def parse_permissions(metadata: FormMetadata) -> Permissions | None:
    """Parse the permissions in metadata, once for equal ones."""
    text = metadata.permissions
    return None if text is None else _parsed_permissions.get(text, lambda: read_permissions(text))


def controls_from(
    storage: Readable, address: DefinitionAddress, *, if_mentioned: bytes = b""
) -> tuple[Control, ...] | None:
    """Read the controls of a version; ``None`` where it is not published.

    A definition that does not mention ``if_mentioned`` is not parsed, and counts as one without controls.
    """
    found = storage.read(address, content=True)
    if found is None or found.file is None:
        return None
    with found.file as file, disk_errors(f"reading {address}"):
        if if_mentioned and not may_mention(iter(partial(file.read, CHUNK), b""), if_mentioned):
            return ()
        file.seek(0)
        data = file.read(LARGEST_TREE + 1)
    return read_controls(data)


def outline_from(storage: Readable, address: DefinitionAddress, data_format: str) -> Outline | None:
    """Read the outline of data of a version in a format; ``None`` where it is not published."""
    found = storage.read(address, content=True)
    if found is None or found.file is None:
        return None
    with found.file as file, disk_errors(f"reading {address}"):
        data = file.read(LARGEST_TREE + 1)
    return read_outline(data, data_format)


def has_flat_views(storage: Readable, address: DefinitionAddress) -> bool:
    sidecar = storage.sidecar(address)
    return sidecar is not None and sidecar.flat_view


def index_keys_from(storage: Readable, address: DefinitionAddress, data_format: str) -> IndexKeys:
    """Read the indexed controls of a version, at their paths in a data format; raises only ``DiskError``."""
    try:
        found = storage.read(address, content=True)
        if found is None or found.file is None:
            return IndexKeys(is_deleted=found is not None)
        with found.file as file, disk_errors(f"reading {address}"):
            return IndexKeys(read_index_keys(file.read(LARGEST_TREE + 1), data_format), is_published=True)
    except (DamagedError, BadRequestError):
        return IndexKeys()


def _parsed_metadata(address: DefinitionAddress, file: BinaryIO) -> FormMetadata:
    try:
        with file, MetadataReader() as reader, disk_errors(f"reading {address}"):
            return reader.read(iter(partial(file.read, CHUNK), b"")).metadata
    except BadRequestError as error:
        raise DamagedError(f"{address} cannot be read: {error}") from error


def _permissions(address: DefinitionAddress, metadata: FormMetadata) -> Permissions | None:
    try:
        return parse_permissions(metadata)
    except BadRequestError as error:
        raise DamagedError(f"the sidecar of {address} cannot be read: {error}") from error
