"""Saving a storage that is no tree into its part of a backup, which is a tree: the files that a tree would have of it.

The storage is read as it was at one moment. What has the digest and the size that the last backup has recorded is
linked to that, and is not read. Attachments whose bodies are objects in a bucket are saved as if the storage had them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from persistence.errors import ConfigurationError, DamagedError, DiskError, DiskFullError
from persistence.maintenance.backup_files import PartFiles
from persistence.maintenance.body_check import BodiesOf
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
)
from persistence.model.instants import Instant, epoch_nanoseconds
from persistence.model.sidecar import Sidecar, described
from persistence.storage import root, sidecars
from persistence.storage.layout import LAYOUT, FilePaths, Layout
from persistence.storage.managed import MaintainedDatabase
from persistence.storage.root import FORMAT, LayoutFile
from persistence.storage.storage import Readable, Revisions

_LAYOUT = Layout("")
_NEVER = 0
"""The time of ``layout.json``, which has none in the storage."""


@dataclass(slots=True)
class StorageBackup:
    """Saves a database as ``part``; ``folders`` counts the documents, drafts and versions that are done.

    ``bodies_of`` tells where the bodies of a form's attachments are, if they are not in the database.
    """

    database: MaintainedDatabase
    part: PartFiles
    bodies_of: BodiesOf
    folders: int = 0

    def run(self) -> Iterator[str | None]:
        """Save the storage: yield ``None`` for a folder that is done, and a line for each problem."""
        self.part.add_bytes(LAYOUT, root.encode_layout(LayoutFile(FORMAT)), _NEVER)
        with self.database.snapshot():
            for main in _mains(self.database.storage):
                yield from self._save(main)
                self.folders += 1
                yield None

    def _save(self, main: Address) -> Iterator[str]:
        revisions = self.database.storage
        for name in revisions.names(main):
            address = replace(main, name=name)
            try:
                listed = revisions.history(address)
                instants = [] if listed is None else [listed.instant(each) for each in range(listed.total)]
            except DamagedError as error:
                yield f"{error}; it is not saved"
                continue
            for position, instant in enumerate(instants):
                try:
                    self._save_revision(revisions, address, instant, is_current=position == 0)
                except DamagedError as error:
                    yield str(error)

    def _save_revision(self, revisions: Revisions, address: Address, instant: Instant, *, is_current: bool) -> None:
        current = _inside(address)
        place, earlier = (current, ()) if is_current else (current.revision(instant), (current.content,))
        try:
            found = revisions.read_revision(address, instant, content=False)
            if found is None:
                raise DamagedError(f"{address} of {instant} is not there")
            record, sidecar = found.sidecar, described(found.sidecar)
            beside = () if is_current else (current.sidecar,)
            data = sidecars.encode(sidecar, _LAYOUT.paths(address).address)
            self.part.add_bytes(place.sidecar, data, epoch_nanoseconds(sidecar.modified), *beside)
            if record.body is not None:
                self._save_body(address, record, place, earlier)
            elif not sidecar.deleted:
                self._save_content(revisions, address, sidecar, place, earlier)
        except DiskFullError:
            raise
        except DiskError as error:
            raise DamagedError(str(error)) from error

    def _save_content(
        self, revisions: Revisions, address: Address, sidecar: Sidecar, place: FilePaths, earlier: tuple[str, ...]
    ) -> None:
        if self.part.link_content(place.content, sidecar, *earlier):
            return
        found = revisions.read_revision(address, sidecar.modified, content=True)
        if found is None or found.file is None:
            raise DamagedError(f"the content of {address} of {sidecar.modified} is not there")
        with found.file as content:
            self.part.copy_content(place.content, content, sidecar)

    def _save_body(self, address: Address, record: Sidecar, place: FilePaths, earlier: tuple[str, ...]) -> None:
        sidecar, bodies = described(record), None
        if self.part.link_content(place.content, sidecar, *earlier):
            return
        with suppress(ConfigurationError):  # the form has no provider any more
            bodies = self.bodies_of(address.form)
        if bodies is None or isinstance(address, DefinitionAddress):
            raise DamagedError(f"the body of {address} of {record.modified} is elsewhere, and no property leads to it")
        found = bodies.find(address, record, content=True)
        if found is None:
            raise DamagedError(f"the body of {address} of {record.modified} is missing in {bodies.root}")
        with found.opened as content:
            self.part.copy_content(place.content, content, sidecar)


def _mains(storage: Readable) -> Iterator[Address]:
    for form in storage.forms():
        for version in storage.versions(form):
            yield DefinitionAddress(form, version, FORM_XHTML)
        for collection in Collection:
            for document in storage.documents(form, collection):
                yield DocumentAddress(form, collection, document, DATA_XML)


def _inside(address: Address) -> FilePaths:
    place = _LAYOUT.paths(address)
    return FilePaths(place.directory.removeprefix("/"), place.name)
