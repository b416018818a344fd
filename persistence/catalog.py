"""The catalog of definitions: the snapshot of each form version, and the lists of published versions.

A request for a snapshot compares fingerprints, with two ``stat`` calls: so all workers see at once what one of them has
published, and what a person has edited.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, BinaryIO, TypeVar

from persistence.bounded_cache import BoundedCache, size_of
from persistence.errors import BadRequestError, DamagedError, disk_errors
from persistence.forms.controls import Control, Outline, read_controls, read_index_keys, read_outline
from persistence.forms.definition_metadata import MetadataReader, read_permissions
from persistence.forms.definition_tree import Names
from persistence.limits import (
    CHUNK,
    LARGEST_TREE,
    MOST_CATALOG,
    PERMISSION_COSTS,
    PERMISSIONS_KEPT,
    PERMISSIONS_KEPT_BYTES,
    VERSIONS_KEPT,
)
from persistence.model.addresses import DefinitionAddress, Form
from persistence.model.permissions import Permissions
from persistence.model.versions import FormMetadata, IndexKey, PublishedVersion
from persistence.storage.storage import Readable
from persistence.storage.stored_revision import NOTHING_THERE, Fingerprint, StoredRevision
from persistence.xml import may_mention

ENCRYPT = b"encrypt"  # A part of the element or class of a control whose value is encrypted (spec forms 4.1)

T = TypeVar("T")

_parsed_permissions: BoundedCache[Permissions] = BoundedCache(PERMISSIONS_KEPT, PERMISSIONS_KEPT_BYTES)
"""Many versions have the permissions of another: they share one value."""


@dataclass(frozen=True, slots=True)
class EncryptedControls:
    """The controls of a version whose values are encrypted: their ``paths`` in data of any format."""

    # A client may send data in another format than that at rest, which must not be stored plain either; and the header
    # of an attachment may name its control in any (spec forms 4.2). ``values`` are those of controls that take no
    # files, ``indexed`` those among them that are indexed.
    paths: frozenset[Names]
    values: frozenset[Names]
    indexed: frozenset[Names] = frozenset()

    @classmethod
    def of(cls, controls: Iterable[Control]) -> EncryptedControls:
        found = [(each, path) for each in controls if each.is_encrypted for path in each.shapes]
        values = [(each, path) for each, path in found if not each.takes_files]
        return cls(
            frozenset(path for _, path in found),
            frozenset(path for _, path in values),
            frozenset(path for each, path in values if each.is_indexed),
        )

    def __or__(self, other: EncryptedControls) -> EncryptedControls:
        return EncryptedControls(self.paths | other.paths, self.values | other.values, self.indexed | other.indexed)


NOTHING_ENCRYPTED = EncryptedControls(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """The indexed controls of a version, in the order of the index; none unless it ``is_published``."""

    # ``is_deleted`` distinguishes a deleted version from one that was never published, or cannot be read.
    keys: tuple[IndexKey, ...] = ()
    is_published: bool = False
    is_deleted: bool = False


def published_from(storage: Readable, address: DefinitionAddress) -> PublishedVersion | None:
    """Read the summary of a version, also of a deleted one; ``None`` where it was never published."""
    # The sidecar has it, unless the definition was edited by hand, or published by an old version: then it is parsed.
    found = storage.read(address, content=False)
    if found is not None and not found.sidecar.deleted and (found.sidecar.metadata is None or found.is_edited):
        found = storage.read(address, content=True)
    if found is None:
        return None
    sidecar, file = found.sidecar, found.file
    metadata = (sidecar.metadata or FormMetadata()) if file is None else _parsed_metadata(address, file)
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


def _content_of(storage: Readable, address: DefinitionAddress, read: Callable[[BinaryIO], T]) -> T | None:
    found = storage.read(address, content=True)
    if found is None or found.file is None:
        return None
    with found.file as file, disk_errors(f"reading {address}"):
        return read(file)


def _controls_in(file: BinaryIO, *, if_encrypted: bool = False) -> tuple[Control, ...]:
    """Read controls; ``if_encrypted`` none of a definition that does not mention encryption."""
    if if_encrypted and not may_mention(iter(partial(file.read, CHUNK), b""), ENCRYPT):
        return ()
    file.seek(0)
    return read_controls(file.read(LARGEST_TREE + 1))


def _parsed_metadata(address: DefinitionAddress, file: BinaryIO) -> FormMetadata:
    try:
        with file, MetadataReader() as reader, disk_errors(f"reading {address}"):
            return reader.read(iter(partial(file.read, CHUNK), b"")).metadata
    except BadRequestError as error:
        raise DamagedError(f"{address} cannot be read: {error}") from error


def _permissions(address: DefinitionAddress, metadata: FormMetadata) -> Permissions | None:
    text = metadata.permissions
    try:
        return None if text is None else _parsed_permissions.get(text, lambda: read_permissions(text))
    except BadRequestError as error:
        raise DamagedError(f"the sidecar of {address} cannot be read: {error}") from error


_CONTROLS = "controls"


class Definition:
    """A form version as it was stored when the catalog was asked: one value, passed to all code that decides by it."""

    # Each part is read when it is first asked for, and cached. Properties raise ``DamagedError`` for a definition that
    # cannot be read, and ``DiskError``. ``parts`` are those that were read, and ``weight`` their bytes of memory.
    __slots__ = ("_catalog", "address", "fingerprint", "form", "is_stored", "parts", "version", "weight")

    def __init__(self, address: DefinitionAddress, fingerprint: Fingerprint, catalog: Catalog) -> None:
        self.address = address
        self.form = address.form
        self.version = address.version
        self.fingerprint = fingerprint
        self.is_stored = fingerprint != NOTHING_THERE  # it was ever published; a deleted one was
        self.weight = 0
        self._catalog = catalog
        self.parts: dict[str, Any] = {}

    @property
    def published(self) -> PublishedVersion | None:
        known = self.summary
        return None if known is None or known.deleted else known

    @property
    def summary(self) -> PublishedVersion | None:
        if self.fingerprint[0] is None:
            return None
        return self._part("summary", published_from, self._catalog.weigh)

    @property
    def permissions(self) -> Permissions | None:
        """The permissions that the definition gives on its data."""
        # Data of a version that was deleted, or never published, has those of the version published last (spec crud
        # 5.2). Where none is left, the deleted one decides: its data must not become readable because the form is gone.
        is_published, own = self.own_permissions()
        if is_published:
            return own
        latest = max(self._catalog.published(self.form), key=attrgetter("modified"), default=None)
        return own if latest is None else latest.permissions

    def own_permissions(self) -> tuple[bool, Permissions | None]:
        """Return whether this very version is published, and its permissions, also of a deleted or damaged one."""
        try:
            known = self.summary
        except DamagedError:
            known = None
        if known is not None:
            return not known.deleted, known.permissions
        return (True, self._part("salvaged", salvaged_permissions)) if self.is_stored else (False, None)

    @property
    def controls(self) -> tuple[Control, ...] | None:
        """The controls; ``None`` where the version is not published. Raises as ``encrypted``."""
        return self._part(_CONTROLS, partial(_content_of, read=_controls_in))

    @property
    def encrypted(self) -> EncryptedControls | None:
        """The encrypted controls; ``None`` if not published. Raises ``BadRequestError`` for too large a definition."""
        return self._part("encrypted", self._read_encrypted)

    def outline(self, data_format: str) -> Outline | None:
        """Return the outline for a format; ``None`` where the version is not published. Raises as ``encrypted``."""

        def read(file: BinaryIO) -> Outline:
            return read_outline(file.read(LARGEST_TREE + 1), data_format)

        return self._part(f"outline {data_format}", partial(_content_of, read=read))

    def index_keys(self, data_format: str) -> IndexKeys:
        """Return the indexed controls, at their paths in a data format; raises only ``DiskError``."""
        if not self.is_stored:
            return IndexKeys()

        def read(storage: Readable, address: DefinitionAddress) -> IndexKeys:
            try:
                keys = _content_of(
                    storage, address, lambda file: read_index_keys(file.read(LARGEST_TREE + 1), data_format)
                )
                is_deleted = keys is None and storage.sidecar(address) is not None
            except (DamagedError, BadRequestError):
                return IndexKeys()
            return IndexKeys(keys or (), keys is not None, is_deleted)

        return self._part(data_format, read)

    def known_index_keys(self, data_format: str) -> IndexKeys | None:
        """Return the indexed controls if nothing must be read for them."""
        return self.parts.get(data_format) if self.is_stored else IndexKeys()

    @property
    def has_flat_views(self) -> bool:
        """True if flat views of its data were asked for; false for a definition that cannot be read."""

        def read(storage: Readable, address: DefinitionAddress) -> bool:
            sidecar = storage.sidecar(address)
            return sidecar is not None and sidecar.flat_view

        try:
            return self._part("flat views", read)
        except DamagedError:
            return False

    def is_current(self) -> bool:
        """Return whether this is still the published definition; ``False`` where it is not published, or not known."""
        known = self.parts.get("summary")
        if known is None or known.deleted:
            return False
        return self._catalog.storage.fingerprint(self.address) == self.fingerprint

    def stored(self) -> StoredRevision | None:
        return self._catalog.storage.read(self.address, content=True)

    def _read_encrypted(self, storage: Readable, address: DefinitionAddress) -> EncryptedControls | None:
        read = partial(_controls_in, if_encrypted=True)
        controls = self.controls if _CONTROLS in self.parts else _content_of(storage, address, read)
        if controls:  # it was parsed
            self._part(_CONTROLS, lambda *_: controls)
        return None if controls is None else EncryptedControls.of(controls)

    def _part(
        self, name: str, read: Callable[[Readable, DefinitionAddress], T], weigh: Callable[[T], int] = size_of
    ) -> T:
        if name not in self.parts:
            found = read(self._catalog.storage, self.address)
            self.parts[name] = found
            self._catalog.grown(self, weigh(found))
        part: T = self.parts[name]
        return part


@dataclass(slots=True)
class _KnownForm:
    """The cached snapshots of a form by version, and which of them were ``listed`` for some fingerprints."""

    versions: dict[int, Definition] = field(default_factory=dict)
    listed: tuple[tuple[tuple[int, Fingerprint], ...], tuple[PublishedVersion, ...]] = ((), ())


_UNKNOWN_FORM = _KnownForm()  # Stands for every form without a cached snapshot


class Catalog:
    """The definitions of one storage, a cached snapshot for each version; with too many, or too large ones, all go."""

    def __init__(self, storage: Readable) -> None:
        self.storage = storage
        self._lock = threading.Lock()
        self._known: dict[Form, _KnownForm] = {}
        self._count = 0
        self._weight = 0
        self._weighed: set[int] = set()

    def of(self, form: Form, version: int) -> Definition:
        """Return the snapshot of a version, also of one that does not exist."""
        known = self._known.get(form, _UNKNOWN_FORM).versions.get(version)
        address = DefinitionAddress(form, version) if known is None else known.address
        fingerprint = self.storage.fingerprint(address)
        if known is not None and known.fingerprint == fingerprint:
            return known
        return self._at(address, fingerprint)

    def latest(self, form: Form) -> Definition | None:
        found = (self.of(form, number) for number in self.storage.versions(form))
        return next((definition for definition in found if definition.published is not None), None)

    def latest_version(self, form: Form) -> int | None:
        """Return the number of the highest published version by its sidecar, also of a damaged one."""
        for version in self.storage.versions(form):
            sidecar = self.storage.sidecar(DefinitionAddress(form, version))
            if sidecar is not None and not sidecar.deleted:
                return version
        return None

    def same_permissions(self, form: Form) -> tuple[int, ...]:
        """Return the highest version, even a deleted one, and all others that have the same permissions."""
        every = (self.of(form, number) for number in self.storage.versions(form))
        defined = [(each.version, each.own_permissions()[1]) for each in every if each.is_stored]
        return tuple(number for number, permissions in defined if permissions == defined[0][1])

    def forms(
        self, app: str | None = None, name: str | None = None
    ) -> Iterator[tuple[Form, Iterator[PublishedVersion]]]:
        for form in self.storage.forms(app):
            if name is None or form.name == name:
                yield form, self.published(form, skips_damaged=True)

    def published(self, form: Form, *, skips_damaged: bool = False) -> Iterator[PublishedVersion]:
        fingerprints = tuple(self.storage.fingerprints(form))
        known = self._known.get(form)
        if known is not None and known.listed[0] == fingerprints:
            return iter(known.listed[1])
        return self._published(form, fingerprints, skips_damaged=skips_damaged)

    def _published(
        self, form: Form, fingerprints: tuple[tuple[int, Fingerprint], ...], *, skips_damaged: bool
    ) -> Iterator[PublishedVersion]:
        found, is_damaged = [], False
        for number, fingerprint in fingerprints:
            try:
                published = self._at(DefinitionAddress(form, number), fingerprint).published
            except DamagedError:
                if not skips_damaged:
                    raise
                is_damaged = True
                continue
            if published is not None:
                found.append(published)
                yield published
        known = self._known.get(form)
        if known is not None and not is_damaged:
            known.listed = fingerprints, tuple(found)

    def grown(self, definition: Definition, size: int) -> None:
        """Count the bytes of a part that was read, if the definition is still cached."""
        with self._lock:
            if self._known.get(definition.form, _UNKNOWN_FORM).versions.get(definition.version) is definition:
                definition.weight += size
                self._weight += size
                self._bound(definition)

    def weigh(self, published: PublishedVersion | None) -> int:
        """Return the bytes of a summary; shared permissions count for the first that has them."""
        if published is None:
            return 0
        shared, text = id(published.permissions), published.metadata.permissions
        if text is None or shared in self._weighed:
            return published.weight
        self._weighed.add(shared)
        return published.weight + PERMISSION_COSTS * text.count("<")

    def _at(self, address: DefinitionAddress, fingerprint: Fingerprint) -> Definition:
        known = self._known.get(address.form, _UNKNOWN_FORM).versions.get(address.version)
        if known is not None and known.fingerprint == fingerprint:
            return known
        definition = Definition(address, fingerprint, self)
        if definition.is_stored:
            with self._lock:
                versions = self._known.setdefault(definition.form, _KnownForm()).versions
                replaced = versions.get(definition.version)
                versions[definition.version] = definition
                self._count += replaced is None
                self._weight += definition.weight - (0 if replaced is None else replaced.weight)
                self._bound(definition)
        return definition

    def _bound(self, newest: Definition) -> None:
        if self._count > VERSIONS_KEPT or self._weight > MOST_CATALOG:
            self._known = {newest.form: _KnownForm()}
            self._known[newest.form].versions[newest.version] = newest
            self._count = 1
            self._weight = newest.weight
            self._weighed = set()
