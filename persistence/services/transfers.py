"""Commits of a transfer under the lock, flat views, and outcomes, as imports and moves count.

A unit is a document with its draft, or a version of a definition, by its saved ``data.xml`` or its ``form.xhtml``. A
transfer receives the revisions of a unit aside and compares them with their digests. Then it stores them in batches
under the lock of the unit, in the order of their times: so a reader sees the unit as it was at some time, and what was
interrupted goes on when it is called again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from persistence.errors import PersistenceError
from persistence.index.protocol import ReportTables
from persistence.limits import MOST_AT_ONCE
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.storage.commit import Upload
from persistence.storage.storage import Readable, Revisions, Writing
from persistence.storage.stored_revision import StoredRevision


def mains_of(storage: Readable, form: Form) -> Iterator[Address]:
    for version in storage.versions(form):
        yield DefinitionAddress(form, version)
    for collection in Collection:
        for document in storage.documents(form, collection):
            yield DocumentAddress(form, collection, document)


_T = TypeVar("_T")


def batches(copies: Iterable[_T], begins: Callable[[list[_T], _T], bool]) -> Iterator[list[_T]]:
    """Cut what is stored under one lock each: a batch that is full, or with which the next one ``begins`` another."""
    batch: list[_T] = []
    for each in copies:
        if batch and (len(batch) == MOST_AT_ONCE or begins(batch, each)):
            yield batch
            batch = []
        batch.append(each)
    yield batch


def store_next(  # noqa: PLR0913 - each is another part of a commit
    writer: Writing,
    address: Address,
    upload: Upload | None,
    known: dict[Address, str | None],
    *,
    described: Sidecar | Callable[[StoredRevision | None], Sidecar],
    changed: PersistenceError,
) -> Sidecar:
    """Store an upload as the next revision of a file, or without one a tombstone."""
    # ``known`` has the content ids of the current revisions of files, as the plan has seen them: where another one is
    # there, ``changed`` is raised. ``described`` is the sidecar, or returns it over the current revision.
    over = writer.current(address)
    if (None if over is None else over.sidecar.id) != known.get(address):
        raise changed
    sidecar = described if isinstance(described, Sidecar) else described(over)
    if upload is None:
        stored = writer.delete(address, sidecar, over=over)
    else:
        stored = writer.commit(address, sidecar, upload, over=over)
    known[address] = stored.id
    return stored


def update_views(reports: ReportTables, storage: Revisions, main: DefinitionAddress) -> None:
    """Make the flat views of a version that should have some, and drop those of a deleted one."""
    stored = storage.sidecar(main)
    if stored is not None and stored.deleted:
        reports.drop(main.form, main.version)
    elif stored is not None and stored.flat_view:
        reports.create(main.form, main.version)


class TransferResult(Enum):
    """The result for a document, a version of a definition, or another file of a source."""

    IMPORTED = "imported"
    UNCHANGED = "unchanged"  # all of an import was stored already
    SKIPPED = "skipped"
    IGNORED = "ignored"
    MOVED = "moved"
    THERE = "there"  # all of a move was in the destination already
    REMOVED = "removed"
    CHANGING = "changing"  # left to the last pass of a move
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TransferOutcome:
    """The outcome for ``name``: ``placed`` revisions are new, with ``size`` bytes."""

    # An import does not measure. It has for each file the numbers of ``revisions`` that are new and that were stored
    # already. ``form`` is that of documents, new or known; one that ``lacks_owner`` came without.
    name: str
    result: TransferResult
    is_definition: bool = False
    placed: int = 0
    size: int = 0
    revisions: tuple[tuple[Address, int, int], ...] = ()
    cause: str = ""
    notes: tuple[str, ...] = ()
    lacks_owner: bool = False
    form: Form | None = None


KINDS = {True: "definitions", False: "documents"}


@dataclass
class TransferReport:
    """Counts outcomes: documents and definitions by result, and revisions."""

    counts: Counter[tuple[bool, TransferResult]] = field(default_factory=Counter)
    revisions: int = 0

    def add(self, outcome: TransferOutcome) -> None:
        self.counts[outcome.is_definition, outcome.result] += 1

    @property
    def refused(self) -> int:
        return sum(self.counts[is_definition, TransferResult.REFUSED] for is_definition in KINDS)
