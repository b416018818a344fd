"""What is published: the versions of every form with what their metadata says, each read once and kept in memory.

Whether a version is still what was read is told by its mark, which every request looks at: so all workers see at once
what one of them has published, and what a person has edited.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from persistence.errors import BadRequestError, DamagedError, disk_errors
from persistence.forms import permissions
from persistence.forms.metadata import MetadataReader
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.metadata import FormMetadata
from persistence.model.permissions import Permissions
from persistence.model.published import Published
from persistence.store.reading import Found, Mark
from persistence.store.store import Store

_MOST_KNOWN = 1 << 15
_CHUNK = 1 << 16


class Catalog:
    """Published versions. Methods raise ``DamagedError`` for one that cannot be read, and ``DiskError``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[Form, int], tuple[Mark, Published | None]] = {}

    def version(self, form: Form, number: int) -> Published | None:
        """A version of a form; ``None`` where it was never published, or was deleted."""
        key = form, number
        address = DefinitionAddress(form, number, FORM_XHTML)
        mark = self._store.mark(address)
        known = self._known.get(key)
        if known is not None and known[0] == mark:
            return known[1]
        # Read after the mark was taken: what is newer than its mark is only read once more.
        published = self._read(address)
        if mark[0] is not None:  # names of forms that are not there come from requests, and there is no end of them
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = mark, published
        return published

    def versions(self, form: Form) -> Iterator[Published]:
        """The versions of a form, highest first."""
        found = (self.version(form, number) for number in self._store.versions(form))
        return (published for published in found if published is not None)

    def forms(self, app: str | None = None) -> Iterator[Iterator[Published]]:
        """The versions of every form, or of those of one application; without what is damaged."""
        for form in self._store.forms(app):
            yield self._readable(form)

    def _readable(self, form: Form) -> Iterator[Published]:
        for number in self._store.versions(form):
            with suppress(DamagedError):
                published = self.version(form, number)
                if published is not None:
                    yield published

    def _read(self, address: DefinitionAddress) -> Published | None:
        found = self._store.read(address, content=False)
        if found is not None and _must_be_parsed(found):
            found = self._store.read(address, content=True)
        if found is None or found.sidecar.deleted:
            return None
        sidecar = found.sidecar
        metadata = sidecar.metadata or FormMetadata()
        if found.file is not None:
            metadata = _parsed(address, found.file)
        return Published(
            form=address.form,
            version=address.version,
            created=sidecar.created,
            modified=sidecar.modified,
            modifier=sidecar.modifier,
            metadata=metadata,
            permissions=_permissions(address, metadata),
        )


def _must_be_parsed(found: Found) -> bool:
    """Whether the sidecar does not tell: edited by hand, or published by a version of the service that kept nothing."""
    return not found.sidecar.deleted and (found.sidecar.metadata is None or found.etag != found.sidecar.id)


def _parsed(address: DefinitionAddress, file: BinaryIO) -> FormMetadata:
    try:
        with file, MetadataReader() as reader, disk_errors(f"reading {address}"):
            while piece := file.read(_CHUNK):
                reader.feed(piece)
            reader.finish()
            return reader.metadata
    except BadRequestError as error:
        raise DamagedError(f"{address} cannot be read: {error}") from error


def _permissions(address: DefinitionAddress, metadata: FormMetadata) -> Permissions | None:
    if metadata.permissions is None:
        return None
    try:
        return permissions.from_xml(metadata.permissions)
    except BadRequestError as error:
        raise DamagedError(f"the sidecar of {address} cannot be read: {error}") from error
