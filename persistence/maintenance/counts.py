"""Counts of the documents of a form: living ones, deleted ones and drafts, their bytes, the last save, new ones by day.

Whether a document is deleted is in its record alone, so each of them is read: some 60 microseconds for a document.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from persistence.errors import DamagedError
from persistence.limits import DAYS_COUNTED, DELETED_LISTED
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.storage.managed import ManagedStorage
from persistence.storage.reader import StoreReader

_DAY = 10


class CountedPlace(Protocol):
    """A place whose documents are counted. Methods raise as those of a storage."""

    @property
    def store(self) -> StoreReader | ManagedStorage:
        """Its storage."""

    def has_directory(self, main: DocumentAddress) -> bool:
        """Return whether a document has a directory, even without a sidecar in it."""


@dataclass(slots=True)
class DocumentCounts:
    """Counts of some documents; ``size`` is in bytes, with attachments and older revisions that are beside the data.

    ``saved`` is the instant of the last save or deletion. ``created`` counts living documents by the day of their
    creation, of the last ``DAYS_COUNTED`` days.
    """

    documents: int = 0
    deleted: int = 0
    drafts: int = 0
    size: int = 0
    saved: Instant | None = None
    created: Counter[str] = field(default_factory=Counter)

    def add(self, other: DocumentCounts) -> None:
        """Add the counts of other documents, but for the days."""
        self.documents += other.documents
        self.deleted += other.deleted
        self.drafts += other.drafts
        self.size += other.size
        self.saved = max(filter(None, (self.saved, other.saved)), default=None)


@dataclass(frozen=True, slots=True, order=True)
class DeletedDocument:
    """A deleted document: when, its name, of which version, and by whom."""

    when: Instant
    document: str
    version: int
    by: str = ""


@dataclass(slots=True)
class FormCounts:
    """The counts of a form: of all its documents, and by version, which is 0 where nothing tells it.

    ``deleted`` are the documents that were deleted last, the newest first.
    """

    of_version: dict[int, DocumentCounts] = field(default_factory=dict)
    deleted: list[DeletedDocument] = field(default_factory=list)

    @property
    def all(self) -> DocumentCounts:
        """The counts of all versions together."""
        total = DocumentCounts()
        for each in self.of_version.values():
            total.add(each)
        return total


def last_days() -> list[str]:
    """Return the last ``DAYS_COUNTED`` days in UTC, today last."""
    today = datetime.now(UTC).date()
    return [str(today - timedelta(days=before)) for before in reversed(range(DAYS_COUNTED))]


def count_documents(place: CountedPlace, form: Form) -> FormCounts:
    """Count the documents of a form. One that cannot be read counts as not deleted."""
    counted, first_day = FormCounts(), last_days()[0]
    deleted = list[DeletedDocument]()
    for collection in (Collection.DATA, Collection.DRAFT):
        for document in place.store.documents(form, collection):
            main = DocumentAddress(form, collection, document, DATA_XML)
            is_there, sidecar = _looked_at(place, main)
            if not is_there:
                continue
            counts = counted.of_version.setdefault(0 if sidecar is None else sidecar.version, DocumentCounts())
            _count(counts, sidecar, is_draft=collection is Collection.DRAFT, first_day=first_day)
            counts.size += place.store.freed_by_folder(main)
            if sidecar is not None and sidecar.deleted:
                found = DeletedDocument(sidecar.modified, document, sidecar.version, sidecar.modifier or "")
                (heapq.heappushpop if len(deleted) >= DELETED_LISTED else heapq.heappush)(deleted, found)
    counted.deleted = sorted(deleted, reverse=True)
    return counted


def _looked_at(place: CountedPlace, main: DocumentAddress) -> tuple[bool, Sidecar | None]:
    try:
        sidecar = place.store.sidecar(main)
    except DamagedError:
        return True, None
    is_there = sidecar is not None or main.is_draft or bool(place.store.names(main)) or place.has_directory(main)
    return is_there, sidecar


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
    if not (is_draft or sidecar.deleted) and sidecar.created >= first_day:
        counts.created[sidecar.created[:_DAY]] += 1
