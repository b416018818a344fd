"""What a tree is looked at with by those who only want to know: nothing is changed, and nobody has to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Self

from persistence.definitions.catalog import Catalog
from persistence.errors import DamagedError, DiskError, disk_errors
from persistence.index.sources import NOTHING_ELSEWHERE, Elsewhere
from persistence.maintenance import listing
from persistence.model.addresses import Address, Form
from persistence.model.form_versions import PublishedVersion
from persistence.properties.properties import Properties
from persistence.services.singleton import is_singleton
from persistence.storage.integrity import Integrity
from persistence.storage.layout import Layout, unescape
from persistence.storage.reader import StoreReader


class Origin(Enum):
    """Who defines the permissions of a version (spec crud 6.3)."""

    NOBODY = "open to all"
    DEFINITION = "own"
    PROPERTY = "by property"
    SWITCHED_OFF = "switched off"


@dataclass(frozen=True, slots=True)
class Faulty:
    """Something that is there and cannot be read: its name, and why."""

    name: str
    cause: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file beside a definition or form data; ``size`` is in bytes, ``content_type`` what its PUT said."""

    name: str
    content_type: str | None
    size: int


@dataclass(frozen=True, slots=True)
class Sight:
    """A tree, and what tells of its forms; ``catalog_of`` a form has the definitions of its data, wherever they are.

    Methods raise what those of ``Store`` do.
    """

    store: StoreReader
    layout: Layout
    properties: Properties
    catalog_of: Callable[[Form], Catalog]

    @classmethod
    def of(cls, root: str, properties: Properties, elsewhere: Elsewhere = NOTHING_ELSEWHERE) -> Self:
        """Look at the tree of a root; of its forms tell also the definitions that are ``elsewhere``.

        Raises:
            StartupError: there is none, it has another format, or it is not whole.
            DiskError: it cannot be looked at.
        """
        store = StoreReader(root, Integrity(elsewhere.hand_edits))
        own = Catalog(store)

        @cache
        def other(there: str) -> Catalog:
            return Catalog(StoreReader(there, Integrity(elsewhere.hand_edits)))

        def catalog_of(form: Form) -> Catalog:
            there = elsewhere.root(form)
            return other(there) if there else own

        return cls(store, Layout(store.root), properties, catalog_of)

    def attachments(self, main: Address) -> Iterator[Attachment | Faulty]:
        """The files that are stored beside a ``form.xhtml`` or ``data.xml``, by name; without deleted ones."""
        place = self.layout.place(main)
        with disk_errors(f"listing the attachments of {main}"), suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(listing.folder(place.directory).sidecars - {place.name}):
                yield from self._attachment(replace(main, name=unescape(name)))

    def _attachment(self, address: Address) -> Iterator[Attachment | Faulty]:
        try:
            found = self.store.read(address, content=False)
        except (DamagedError, DiskError) as error:
            yield Faulty(address.name, str(error))
            return
        if found is not None and not found.sidecar.deleted:
            body = found.sidecar.body
            yield Attachment(address.name, found.sidecar.content_type, found.size if body is None else body.size)

    def origin(self, published: PublishedVersion) -> Origin:
        """Who defines the permissions of a version: its own count before those of the property."""
        configured = self.properties.of(published.form)
        if not configured.has_permissions:
            return Origin.SWITCHED_OFF
        if published.permissions is not None:
            return Origin.DEFINITION
        return Origin.NOBODY if configured.permissions is None else Origin.PROPERTY

    def is_singleton(self, published: PublishedVersion) -> bool:
        """Whether a version has one document: as it says, else as the property says (spec crud 4.12)."""
        return is_singleton(published, self.properties.of(published.form))
