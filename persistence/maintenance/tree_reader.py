"""Reading a tree for reports, and an overview of its forms: nothing is changed, and nobody has to wait."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Self

from persistence.definitions.catalog import Catalog
from persistence.errors import DamagedError, DiskError, NotFoundError, disk_errors
from persistence.maintenance.folder_files import list_folder
from persistence.model.addresses import DATA_XML, Address, Collection, DocumentAddress, Form
from persistence.model.form_versions import PublishedVersion
from persistence.properties.properties import Properties
from persistence.services.singleton import is_singleton
from persistence.storage.integrity import Integrity
from persistence.storage.layout import Layout, is_escaped, unescape
from persistence.storage.reader import StoreReader


class PermissionsSource(Enum):
    """The source of a version's permissions (spec crud 6.3)."""

    NOBODY = "open to all"
    DEFINITION = "own"
    PROPERTY = "by property"
    SWITCHED_OFF = "switched off"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The name of something that cannot be read, and the cause."""

    name: str
    cause: str


@dataclass(frozen=True, slots=True)
class AttachmentFacts:
    """A file beside a definition or form data; ``size`` is in bytes, ``content_type`` that of its PUT."""

    name: str
    content_type: str | None
    size: int


@dataclass(frozen=True, slots=True)
class TreeReader:
    """A tree with its catalog of forms; ``catalog_of`` a form has the definitions of its data, also those elsewhere.

    Methods raise as those of ``Store``.
    """

    store: StoreReader
    layout: Layout
    properties: Properties
    catalog_of: Callable[[Form], Catalog]

    @classmethod
    def of(
        cls,
        root: str,
        properties: Properties,
        definitions_root: Callable[[Form], str] | None = None,
        integrity: Integrity | None = None,
    ) -> Self:
        """Open the tree of a root; ``definitions_root`` gives that of the tree with the definitions of a form.

        Raises:
            StartupError: there is none, it has another format, or it is incomplete.
            DiskError: it cannot be looked at.
        """
        integrity = integrity or Integrity()
        store = StoreReader(root, integrity)
        own = Catalog(store)

        @cache
        def catalog_at(there: str) -> Catalog:
            return own if there in (root, store.root) else Catalog(StoreReader(there, integrity))

        def catalog_of(form: Form) -> Catalog:
            return own if definitions_root is None else catalog_at(definitions_root(form))

        return cls(store, Layout(store.root), properties, catalog_of)

    def attachments(self, main: Address) -> Iterator[AttachmentFacts | Unreadable]:
        """Yield the attachments of a ``form.xhtml`` or ``data.xml`` by name, without deleted ones."""
        place = self.layout.place(main)
        with disk_errors(f"listing the attachments of {main}"), suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(list_folder(place.directory).sidecars - {place.name}):
                address = replace(main, name=unescape(name))
                try:
                    found = self.store.read(address, content=False)
                except (DamagedError, DiskError) as error:
                    yield Unreadable(address.name, str(error))
                    continue
                if found is not None and not found.sidecar.deleted:
                    body = found.sidecar.body
                    size = found.size if body is None else body.size
                    yield AttachmentFacts(address.name, found.sidecar.content_type, size)

    def permissions_source(self, published: PublishedVersion) -> PermissionsSource:
        """Return the source of a version's permissions: its own count before those of the property."""
        configured = self.properties.of(published.form)
        if not configured.has_permissions:
            return PermissionsSource.SWITCHED_OFF
        if published.permissions is not None:
            return PermissionsSource.DEFINITION
        return PermissionsSource.NOBODY if configured.permissions is None else PermissionsSource.PROPERTY

    def is_singleton(self, published: PublishedVersion) -> bool:
        """Return whether a version has a single document, as it says, else as the property says (spec crud 4.12)."""
        return is_singleton(published, self.properties.of(published.form))


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """A published version, and the source of its permissions."""

    published: PublishedVersion
    is_singleton: bool
    permissions: PermissionsSource


@dataclass(frozen=True, slots=True)
class FormSummary:
    """A form: its published versions, lowest first, and the numbers of its documents, deleted documents and drafts.

    An unreadable document counts as not deleted.
    """

    form: Form
    versions: tuple[VersionSummary | Unreadable, ...]
    documents: int
    deleted: int
    drafts: int


def overview(reader: TreeReader, app: str | None = None) -> Iterator[FormSummary]:
    """Yield all forms, or those of one application, that have a version or a document; sorted.

    Raises:
        NotFoundError: there is no such application.
        BadAddressError: its name cannot be a directory.
        DiskError: the tree cannot be listed.
    """
    if app is not None and not os.path.isdir(reader.layout.application(app)):
        raise NotFoundError(f"{app} does not exist")
    for form in sorted(reader.store.forms(app), key=lambda form: (form.app, form.name)):
        documents = Counter(_is_deleted(reader, form, each) for each in _documents(reader, form, Collection.DATA))
        drafts = sum(1 for _ in _documents(reader, form, Collection.DRAFT))
        versions = tuple(_versions(reader, form))
        if versions or documents or drafts:
            yield FormSummary(form, versions, documents[False], documents[True], drafts)


def _versions(reader: TreeReader, form: Form) -> Iterator[VersionSummary | Unreadable]:
    for number in sorted(set(reader.store.versions(form))):
        try:
            published = reader.catalog_of(form).of(form, number).published
        except (DamagedError, DiskError) as error:
            yield Unreadable(str(number), str(error))
            continue
        if published is not None:
            yield VersionSummary(published, reader.is_singleton(published), reader.permissions_source(published))


def _documents(reader: TreeReader, form: Form, collection: Collection) -> Iterator[str]:
    """Yield the names of the documents that have a directory: there may be very many."""
    with disk_errors(f"counting the documents of {form}"):
        try:
            entries = os.scandir(reader.layout.documents(form, collection))
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            yield from (unescape(entry.name) for entry in entries if entry.is_dir() and is_escaped(entry.name))


def _is_deleted(reader: TreeReader, form: Form, document: str) -> bool:
    try:
        sidecar = reader.store.sidecar(DocumentAddress(form, Collection.DATA, document, DATA_XML))
    except DamagedError:
        return False
    return sidecar is not None and sidecar.deleted
