"""Commits of a transfer under the lock, flat views, outcomes, and the reports of imports and moves.

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

from persistence.errors import PersistenceError, one_line
from persistence.forms.messages import attribute, attributes_of, element, text
from persistence.index.protocol import ReportTables
from persistence.limits import MOST_AT_ONCE, MOST_NAMED, MOST_NOTES
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
    """The outcome for ``name``: a move has ``placed`` so many new revisions, with ``size`` bytes."""

    # An import has for each file the numbers of ``revisions`` that are new and that were stored already. ``form`` is
    # that of documents, new or known; one that ``lacks_owner`` came without.
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

    def of_kinds(self, *results: TransferResult) -> dict[str, dict[str, int]]:
        return {kind: {each.value: self.counts[of, each] for each in results} for of, kind in KINDS.items()}


_RESULTS = tuple(map(TransferResult, ("moved", "there", "removed", "changing", "refused")))  # those of none, too


@dataclass
class MoveReport(TransferReport):
    """Counts the outcomes of one pass; ``size`` are the bytes of contents."""

    size: int = 0

    def add(self, outcome: TransferOutcome) -> None:
        super().add(outcome)
        self.revisions += outcome.placed
        self.size += outcome.size

    def facts(self) -> dict[str, object]:
        return {**self.of_kinds(*_RESULTS), "revisions": self.revisions, "bytes": self.size}

    def line(self, *, is_dry: bool = False) -> str:
        parts = []
        for kind, counts in self.of_kinds(*_RESULTS).items():
            (_, moved), (_, there), *others = counts.items()
            more = "".join(f", {count} {name}" for name, count in others if count)
            parts.append(f"{moved} {kind} {'to be moved' if is_dry else 'moved'}, {there} there already{more}")
        return f"{'; '.join(parts)}; {self.revisions} revisions, {self.size / (1 << 20):.1f} MiB"


MOST_REMEMBERED = 1 << 18
"""Files that a report remembers, some 20 MB: one that comes again after so many others counts again."""


@dataclass
class ImportReport(TransferReport):
    """Counts files by kind and outcome, and the revisions of documents, of which ``known`` ones were stored already."""

    # A file that comes in several units, as lines may have it, counts once. ``listed`` are the first refused and
    # skipped documents, ``ownerless`` the first of those ``without_owner``.
    files: Counter[tuple[str, bool]] = field(default_factory=Counter)
    known: int = 0
    ignored: int = 0
    listed: list[TransferOutcome] = field(default_factory=list)
    ownerless: list[str] = field(default_factory=list)
    without_owner: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    _seen: dict[int, bool] = field(default_factory=dict)

    def add(self, outcome: TransferOutcome) -> None:
        super().add(outcome)
        self.ignored += outcome.result is TransferResult.IGNORED
        for address, new, known in outcome.revisions:
            is_new, is_draft = new > 0, isinstance(address, DocumentAddress) and address.is_draft
            kind = "drafts" if is_draft else KINDS[isinstance(address, DefinitionAddress)]
            kind = kind if address.is_main else "attachments"
            if kind == KINDS[False]:
                self.revisions += new
                self.known += known
            before = self._seen.get(hash(address))
            if before is None and len(self._seen) >= MOST_REMEMBERED:
                del self._seen[next(iter(self._seen))]
            if before is None or (is_new and not before):
                self._seen[hash(address)] = is_new
                self.files[kind, is_new] += 1
                self.files[kind, False] -= before is False
        if outcome.cause and len(self.listed) < MOST_NAMED:
            self.listed.append(outcome)
        self.without_owner += outcome.lacks_owner
        if outcome.lacks_owner and len(self.ownerless) < MOST_NAMED:
            self.ownerless.append(outcome.name)
        for note in outcome.notes:
            if note in self.notes or len(self.notes) < MOST_NOTES:
                self.notes[note] = self.notes.get(note, 0) + 1

    def lines(self, *, is_dry: bool) -> list[str]:
        done, lines = "would be imported" if is_dry else "imported", []
        for kind, counts in self.by_kind().items():
            if kind not in KINDS.values() and not any(counts.values()):
                continue
            others = "".join(f", {count} {name}" for name, count in list(counts.items())[2:] if count)
            lines.append(f"{kind}: {counts['imported']} {done}, {counts['unchanged']} were there already{others}")
            if kind == KINDS[False]:
                lines.append(f"revisions of documents: {self.revisions} new, {self.known} known")
        lines += [f"other files: {self.ignored} ignored"] * (self.ignored > 0)
        if self.without_owner:
            lines.append(f"documents without an owner: {self.without_owner}")
        lines += [f"note: {note} ({count} times)" for note, count in self.notes.items()]
        return lines

    def by_kind(self) -> dict[str, dict[str, int]]:
        """Return the counts of each kind of file; a document or a version is skipped or refused as a whole."""
        found = {
            kind: {"imported": self.files[kind, True], "unchanged": self.files[kind, False]}
            for kind in (*KINDS.values(), "drafts", "attachments")
        }
        for kind, counts in self.of_kinds(TransferResult.SKIPPED, TransferResult.REFUSED).items():
            found[kind] |= counts
        return found

    def facts(self) -> dict[str, object]:
        revisions = {"new": self.revisions, "known": self.known}
        notes = [{"note": note, "count": count} for note, count in self.notes.items()]
        return {
            **self.by_kind(),
            "revisions": revisions,
            "ignored": self.ignored,
            "without_owner": self.without_owner,
            "notes": notes,
        }

    def as_xml(self, *, is_dry: bool) -> bytes:
        children = [element(kind, attributes_of(counts)) for kind, counts in self.by_kind().items()]
        children.append(element("revisions", attributes_of({"new": self.revisions, "known": self.known})))
        children += [
            element(each.result.value, attribute("name", one_line(each.name)), text(each.cause)) for each in self.listed
        ]
        children += [element("without-owner", attribute("name", one_line(name))) for name in self.ownerless]
        children += [element("note", attribute("count", count), text(note)) for note, count in self.notes.items()]
        facts = {"dry-run": is_dry, "refused": self.refused, "without-owner": self.without_owner or None}
        return element("import", attributes_of({**facts, "ignored": self.ignored}), "".join(children)).encode()
