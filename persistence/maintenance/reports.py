"""Reports on a tree or a database: an overview of forms, and all that is known of one version or document.

Contents are not reported. Nothing is changed, and nobody has to wait.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, partial
from typing import BinaryIO, Self, TypeVar

from persistence.catalog import Catalog
from persistence.errors import BadRequestError, DamagedError, DeletedError, DiskError, NotFoundError
from persistence.forms.controls import Control
from persistence.limits import DAYS_COUNTED, DELETED_LISTED, MOST_OPTIONS
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.permissions import OPERATIONS, GrantCondition, Permission, Permissions, UserRole
from persistence.model.sidecar import Sidecar
from persistence.model.texts import Instant
from persistence.model.versions import PublishedVersion
from persistence.properties.properties import FormProperties, Properties
from persistence.services.rules import is_singleton, permissions_of
from persistence.services.transforms import holders_in
from persistence.storage.layout import Layout
from persistence.storage.reader import StoreReader
from persistence.storage.storage import Storage
from persistence.storage.stored_revision import Integrity, StoredRevision

_DAY = 10


# Counts of the documents of a form: living ones, deleted ones and drafts, their bytes, the last save, new ones by day.
#
# Whether a document is deleted is in its record alone, so each of them is read: some 60 microseconds for a document.


@dataclass(slots=True)
class DocumentCounts:
    """Counts of some documents; ``size`` is in bytes, with attachments and older revisions that are beside the data."""

    # ``saved`` is the instant of the last save or deletion. ``created`` counts living documents by the day of their
    # creation, of the last ``DAYS_COUNTED`` days. ``stages``, ``owners`` and ``modifiers`` are those of documents and
    # drafts; with more than ``MOST_OPTIONS`` of them some are missing.
    documents: int = 0
    deleted: int = 0
    drafts: int = 0
    size: int = 0
    saved: Instant | None = None
    created: Counter[str] = field(default_factory=Counter)
    stages: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)
    modifiers: set[str] = field(default_factory=set)

    def add(self, other: DocumentCounts) -> None:
        self.documents += other.documents
        self.deleted += other.deleted
        self.drafts += other.drafts
        self.size += other.size
        self.saved = max(filter(None, (self.saved, other.saved)), default=None)
        self.created += other.created
        self.stages |= other.stages
        self.owners |= other.owners
        self.modifiers |= other.modifiers


@dataclass(frozen=True, slots=True, order=True)
class DeletedDocument:
    """A deleted document: when, its name, of which version, by whom, and its owner."""

    when: Instant
    document: str
    version: int
    by: str = ""
    owner: str = ""


@dataclass(slots=True)
class FormCounts:
    """The counts of a form by version, 0 where nothing tells it; ``deleted`` are those deleted last, newest first."""

    of_version: dict[int, DocumentCounts] = field(default_factory=dict)
    deleted: list[DeletedDocument] = field(default_factory=list)

    @property
    def all(self) -> DocumentCounts:
        total = DocumentCounts()
        for each in self.of_version.values():
            total.add(each)
        return total


def last_days() -> list[str]:
    """Return the last ``DAYS_COUNTED`` days in UTC, today last."""
    today = datetime.now(UTC).date()
    return [str(today - timedelta(days=before)) for before in reversed(range(DAYS_COUNTED))]


def count_documents(place: TreeReader, form: Form) -> FormCounts:
    """Count the documents of a form. One that cannot be read counts as not deleted."""
    counted, first_day = FormCounts(), last_days()[0]
    deleted = list[DeletedDocument]()
    for collection in (Collection.DATA, Collection.DRAFT):
        for document in place.store.documents(form, collection):
            main = DocumentAddress(form, collection, document)
            try:
                sidecar = place.store.sidecar(main)
            except DamagedError:
                sidecar = None
            else:
                is_there = sidecar is not None or main.is_draft or bool(place.store.names(main))
                if not is_there and (place.layout is None or not os.path.isdir(place.layout.paths(main).directory)):
                    continue
            counts = counted.of_version.setdefault(0 if sidecar is None else sidecar.version, DocumentCounts())
            _count(counts, sidecar, is_draft=collection is Collection.DRAFT, first_day=first_day)
            counts.size += place.store.freed_by_folder(main)
            if sidecar is not None and sidecar.deleted:
                found = DeletedDocument(
                    sidecar.modified, document, sidecar.version, sidecar.modifier or "", sidecar.creator or ""
                )
                (heapq.heappushpop if len(deleted) >= DELETED_LISTED else heapq.heappush)(deleted, found)
    counted.deleted = sorted(deleted, reverse=True)
    return counted


def _count(counts: DocumentCounts, sidecar: Sidecar | None, *, is_draft: bool, first_day: str) -> None:
    if is_draft:
        counts.drafts += 1
    elif sidecar is not None and sidecar.deleted:
        counts.deleted += 1
    else:
        counts.documents += 1
    if sidecar is None:
        return
    counts.saved = sidecar.modified if counts.saved is None else max(counts.saved, sidecar.modified)
    if sidecar.deleted:
        return
    for known, value in (
        (counts.stages, sidecar.stage),
        (counts.owners, sidecar.creator),
        (counts.modifiers, sidecar.modifier),
    ):
        if value and len(known) <= MOST_OPTIONS:
            known.add(value)
    if not is_draft and sidecar.created >= first_day:
        counts.created[sidecar.created[:_DAY]] += 1


T = TypeVar("T")


class PermissionsSource(Enum):
    """The source of a version's permissions (spec crud 6.3)."""

    NOBODY = "open to all"
    DEFINITION = "own"
    PROPERTY = "by property"
    SWITCHED_OFF = "switched off"


def permissions_source(published: PublishedVersion, configured: FormProperties) -> PermissionsSource:
    """Return the source of the permissions of a version: its own count before those of the property."""
    if not configured.has_permissions:
        return PermissionsSource.SWITCHED_OFF
    if published.permissions is not None:
        return PermissionsSource.DEFINITION
    return PermissionsSource.NOBODY if configured.permissions is None else PermissionsSource.PROPERTY


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
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class TreeReader:
    """A storage with its catalog of forms; ``catalog_of`` a form has the definitions, also those elsewhere."""

    # ``layout`` is that of a tree, and ``None`` where there are no files. Methods raise as those of a storage.
    store: StoreReader | Storage
    layout: Layout | None
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
        """Open the tree of a root; ``definitions_root`` gives that of the tree with the definitions of a form."""
        catalog_at = cache(lambda path: Catalog(StoreReader(path, integrity)))
        root_of, store = definitions_root or (lambda _: root), StoreReader(root, integrity)
        return cls(store, Layout(store.root), properties, lambda form: catalog_at(root_of(form)))

    def attachments(self, main: Address) -> Iterator[AttachmentFacts | Unreadable]:
        """Yield the attachments of a ``form.xhtml`` or ``data.xml`` by name, without deleted ones."""
        for name in self.store.names(main):
            address = replace(main, name=name)
            found = None if address.is_main else _if_readable(name, partial(self.store.read, address, content=False))
            if isinstance(found, Unreadable):
                yield found
            elif found is not None and not found.sidecar.deleted:
                body = found.sidecar.body
                size = found.size if body is None else body.size
                yield AttachmentFacts(name, found.sidecar.content_type, size, found.sidecar.encrypted is True)

    def path_of(self, address: Address) -> str | None:
        return None if self.layout is None else self.layout.paths(address).content

    def summary(self, published: PublishedVersion) -> VersionSummary:
        """Summarize a version: its own permissions count before those of the property (spec crud 4.12, 6.3)."""
        configured = self.properties.of(published.form)
        source = permissions_source(published, configured)
        return VersionSummary(published, is_singleton(published, configured), source)

    def published(self, form: Form, number: int) -> PublishedVersion | Unreadable | None:
        """Return a version of a form; ``None`` if it was deleted, or never published."""
        return _if_readable(str(number), lambda: self.catalog_of(form).of(form, number).published)


def _if_readable(name: str, read: Callable[[], T]) -> T | Unreadable:
    try:
        return read()
    except (DamagedError, DiskError) as error:
        return Unreadable(name, str(error))


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """A published version, whether it has a single document, and the source of its permissions."""

    published: PublishedVersion
    is_singleton: bool
    permissions_source: PermissionsSource


@dataclass(frozen=True, slots=True)
class FormSummary:
    """A form: its published versions, lowest first, and the counts of its documents."""

    form: Form
    versions: tuple[VersionSummary | Unreadable, ...]
    counts: DocumentCounts


def overview(reader: TreeReader, app: str | None = None, name: str | None = None) -> Iterator[FormSummary]:
    """Yield all forms, or those of one application, or the one of a name, that have a version or a document; sorted."""
    forms = sorted(form for form in reader.store.forms(app) if name in (None, form.name))
    if app is not None and not forms:
        raise NotFoundError(f"{app if name is None else f'{app}/{name}'} does not exist")
    for form in forms:
        counted = count_documents(reader, form)
        found = (each for _, each in _published(reader, form))
        versions = tuple(each if isinstance(each, Unreadable) else reader.summary(each) for each in found)
        if versions or counted.of_version:
            yield FormSummary(form, versions, counted.all)


def _published(reader: TreeReader, form: Form) -> Iterator[tuple[int, PublishedVersion | Unreadable]]:
    for number in sorted(set(reader.store.versions(form))):
        published = reader.published(form, number)
        if published is not None:
            yield number, published


@dataclass(frozen=True, slots=True)
class VersionReport:
    """A published version: ``summary``, and what is not in an overview."""

    # ``source`` is the id of the unpublished definition that it was made from, if known. ``permissions`` are those in
    # force, ``size`` is in bytes, ``path`` is that of its file, if it has one, and ``data_format`` is the format of
    # stored data, in which the paths of controls are shown.
    summary: VersionSummary
    source: str | None
    size: int
    is_edited: bool
    permissions: Permissions | None
    others: tuple[int | Unreadable, ...]
    attachments: tuple[AttachmentFacts | Unreadable, ...]
    controls: tuple[Control, ...] | Unreadable
    data_format: str
    path: str | None

    @property
    def is_damaged(self) -> bool:
        """Return whether a part of it, or another version, cannot be read."""
        return any(isinstance(each, Unreadable) for each in (self.controls, *self.others, *self.attachments))


def report_version(reader: TreeReader, form: Form, version: int | None = None) -> VersionReport:
    """Report a version of a form, by default the highest published one."""
    number = Catalog(reader.store).latest_version(form) if version is None else version
    if number is None:
        raise NotFoundError(f"{form} has no published version")
    address = DefinitionAddress(form, number)
    found, published = reader.store.read(address, content=False), reader.catalog_of(form).of(form, number).published
    if found is not None and found.sidecar.deleted:
        by = "" if found.sidecar.modifier is None else f" by {found.sidecar.modifier}"
        raise DeletedError(f"{form}/{number} was deleted at {found.sidecar.modified}{by}")
    if found is None or published is None:
        raise NotFoundError(f"{form}/{number} does not exist")
    others = ((at, each) for at, each in _published(reader, form) if at != number)
    return VersionReport(
        reader.summary(published),
        source=found.sidecar.source,
        size=found.size,
        is_edited=found.is_edited,
        permissions=permissions_of(published, reader.properties.of(form)),
        others=tuple(each if isinstance(each, Unreadable) else at for at, each in others),
        attachments=tuple(reader.attachments(address)),
        controls=_if_readable(FORM_XHTML, lambda: Catalog(reader.store).of(form, number).controls or ()),
        data_format=reader.properties.of(form).data_format,
        path=reader.path_of(address),
    )


@dataclass(frozen=True, slots=True)
class DocumentReport:
    """A document or a draft."""

    # ``sidecar`` is that of its current revision, which may be a tombstone, and ``None`` if only attachments were
    # stored; ``size`` is that of the content as it is, in bytes. ``other`` is the newest revision of the same document
    # in the other collection. ``named`` has the names of the attachments that the data mentions, and is ``None``
    # without data. ``revisions`` are the older ones, newest first. ``path`` is that of the file, if it has one.
    address: DocumentAddress
    sidecar: Sidecar | None
    size: int
    is_edited: bool
    other: Sidecar | Unreadable | None
    attachments: tuple[AttachmentFacts | Unreadable, ...]
    named: frozenset[str] | Unreadable | None
    revisions: tuple[Sidecar | Unreadable, ...]
    path: str | None

    @property
    def is_damaged(self) -> bool:
        parts = (self.other, self.named, *self.attachments, *self.revisions)
        return any(isinstance(each, Unreadable) for each in parts)


def report_document(reader: TreeReader, address: DocumentAddress, *, with_revisions: bool = True) -> DocumentReport:
    """Report the document or draft of an address, which is that of its ``data.xml``; ``with_revisions`` older ones."""
    found, named = _current(reader, address)
    other = address.counterpart
    attachments = tuple(reader.attachments(address))
    if found is None and not attachments:
        raise NotFoundError(f"{address.folder} does not exist")
    return DocumentReport(
        address,
        sidecar=None if found is None else found.sidecar,
        size=0 if found is None else found.size,
        is_edited=found is not None and found.is_edited,
        other=_if_readable(other.collection.value, lambda: reader.store.sidecar(other)),
        attachments=attachments,
        named=named,
        revisions=tuple(_revisions(reader, address, found)) if with_revisions else (),
        path=reader.path_of(address),
    )


def _current(
    reader: TreeReader, address: DocumentAddress
) -> tuple[StoredRevision | None, frozenset[str] | Unreadable | None]:
    try:
        found = reader.store.read(address, content=True)
    except DamagedError as error:
        sidecar = reader.store.sidecar(address)
        damaged = None if sidecar is None else StoredRevision(sidecar, sidecar.etag, sidecar.size)
        return damaged, Unreadable(DATA_XML, str(error))
    return found, None if found is None or found.file is None else _named(address, found.file, found.size)


def _named(address: DocumentAddress, file: BinaryIO, size: int) -> frozenset[str] | Unreadable:
    try:
        return frozenset(holder.held.name for holder in holders_in(address, file, size))
    except (BadRequestError, DamagedError, DiskError) as error:
        return Unreadable(DATA_XML, str(error))


def _revisions(
    reader: TreeReader, address: DocumentAddress, current: StoredRevision | None
) -> Iterator[Sidecar | Unreadable]:
    for instant in reader.store.revisions(address):
        found = _if_readable(instant, partial(reader.store.read_older, address, instant, content=False))
        if isinstance(found, Unreadable):
            yield found
        elif found is not None and (current is None or found.sidecar.id != current.sidecar.id):
            yield found.sidecar


SOURCES = {
    PermissionsSource.NOBODY: "neither the definition nor a property defines any",
    PermissionsSource.DEFINITION: "by the definition",
    PermissionsSource.PROPERTY: "by property, because the definition has none",
    PermissionsSource.SWITCHED_OFF: "switched off by property",
}
_CONDITIONS = {
    GrantCondition.AUTHENTICATED: "whoever has a name",
    GrantCondition.OWNER: "owner",
    GrantCondition.GROUP_MEMBER: "group member",
    GrantCondition.TOKEN: "anyone with an access token",
    GrantCondition.UNKNOWN: "nobody, for the condition is not known here",
}


def in_words(permissions: Permissions | None) -> Iterator[str]:
    """Yield one rule a line; ``list`` is shown also if a definition only implies it (spec crud 6.2)."""
    if permissions is None:
        yield "everyone may do everything"
    elif not permissions:
        yield "nobody may do anything"
    for permission in permissions or ():
        known = [name for name in OPERATIONS if name in permission.operations]
        unknown = [f"{name} (not known here)" for name in unknown_operations(permission)]
        yield f"{whom(permission)}: {' '.join([*known, *unknown]) or 'nothing'}"


def whom(permission: Permission) -> str:
    return " and ".join(_condition(each) for each in permission.conditions) or "anyone"


def unknown_operations(permission: Permission) -> list[str]:
    return sorted(permission.operations - frozenset(OPERATIONS))


def _condition(condition: GrantCondition | UserRole) -> str:
    if isinstance(condition, GrantCondition):
        return _CONDITIONS[condition]
    return f"role {' or '.join(sorted(condition.any_of))}" if condition.any_of else "nobody, for no role is named"
