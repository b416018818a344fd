"""The plan of an import for one document with its draft, or one version of a definition.

History is never rewritten. A revision is placed if it is newer than all stored revisions of its file; one that is not,
and is not stored, is a conflict. A document with a conflict is left as it is, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from persistence.errors import ConflictError
from persistence.model.addresses import Address, Collection, DocumentAddress
from persistence.model.instants import LAST, Instant
from persistence.services.imports.revisions import ImportedRevision, ImportUnit, with_time
from persistence.storage.storage import RevisionStorage
from persistence.storage.stored_revision import StoredRevision


class OnConflict(Enum):
    """The way to treat a document that differs here: refuse it, skip it, or store the newest as a new revision."""

    REFUSE = "refuse"
    SKIP = "skip"
    NEW_REVISION = "new-revision"


SameContent = Callable[[ImportedRevision, StoredRevision], bool]
"""Returns whether an open revision, which it closes, has the content of one in the source, encrypted or not."""


@dataclass(slots=True)
class ImportPlan:
    """The plan of an import into one storage, which if not ``is_exact`` gives revisions its own times and tags.

    ``placed`` are new revisions, in order, those of ``renewed`` files with a new time. ``known`` revisions are stored
    already. ``over`` has the id of the current revision of each file.
    """

    storage: RevisionStorage
    has_same_content: SameContent
    on_conflict: OnConflict
    is_exact: bool = True
    placed: list[ImportedRevision] = field(default_factory=list)
    over: dict[Address, str | None] = field(default_factory=dict)
    renewed: set[Address] = field(default_factory=set)
    known: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def replaces_drafts(self) -> bool:
        return self.on_conflict is OnConflict.NEW_REVISION

    def add(self, unit: ImportUnit) -> None:
        """Compare a document or a version of a definition with the storage."""
        for address, revisions in _by_file(unit).items():
            self._add_file(address, revisions)
        self.placed.sort(key=_order)
        self._leave_out_drafts()

    def _add_file(self, address: Address, revisions: list[ImportedRevision]) -> None:
        stored = self.storage.read(address, content=False)
        self.over[address] = None if stored is None else stored.sidecar.id
        if not self.is_exact:
            if len(revisions) > 1:
                self.notes.append("older revisions are left out where another service has the data")
            self.known += len(revisions) - 1
            revisions = revisions[-1:]
        try:
            for revision in revisions:
                if stored is None or self._is_newer(revision, stored):
                    self.placed.append(revision)
                elif self._is_known(revision, stored):
                    self.known += 1
                else:
                    raise _conflict(address, revision, stored)
        except ConflictError:
            if not self.replaces_drafts or not address.keeps_history:
                raise
            self.placed = [each for each in self.placed if each.address != address]
            self.renewed.add(address)
            self.placed.append(revisions[-1])

    def _is_newer(self, revision: ImportedRevision, stored: StoredRevision) -> bool:
        modified = revision.modified
        if modified is None or not self.is_exact or not revision.address.keeps_history:
            return False
        if not _has_own_time(revision) and self._is_same(revision, stored.sidecar.modified):
            return False
        return modified > stored.latest

    def _is_known(self, revision: ImportedRevision, stored: StoredRevision) -> bool:
        """Return whether the revision, or without a time of its own its content, is stored already.

        The real system gives its revisions times in milliseconds, or in seconds if it exports no history.
        """
        modified, current = revision.modified, stored.sidecar.modified
        if modified is None or not _has_own_time(revision) or not self.is_exact:
            return self._is_same(revision, current)
        is_second = modified == Instant(f"{current[:19]}.000Z")
        return self._is_same(revision, modified) or (is_second and self._is_same(revision, current))

    def _is_same(self, revision: ImportedRevision, instant: Instant) -> bool:
        found = self._read(revision.address, instant, content=False)
        if found is None:
            return False
        if found.sidecar.deleted or revision.content is None:
            return found.sidecar.deleted and revision.content is None
        tag = revision.facts.sidecar.etag if revision.facts.sidecar is not None else None
        if tag is not None and self.is_exact:
            return found.etag == tag
        opened = self._read(revision.address, instant, content=True)
        return opened is not None and self.has_same_content(revision, opened)

    def _read(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        current = self.storage.read(address, content=content)
        if current is None or current.sidecar.modified == instant:
            return current
        current.close()
        return self.storage.read_revision(address, instant, content=content)

    def _leave_out_drafts(self) -> None:
        newest = ""
        for revision in self.placed:
            address = revision.address
            if isinstance(address, DocumentAddress) and address.is_main and not address.is_draft:
                newest = max(newest, revision.modified or "")
                draft = self.storage.sidecar(address.moved(Collection.DRAFT))
                if draft is not None and not draft.deleted and not self.replaces_drafts:
                    raise ConflictError(f"{address} has a draft here, of {draft.modified}, that a save would remove")
        kept = [each for each in self.placed if not _is_outdated(each, newest, self.storage)]
        if len(kept) < len(self.placed):
            self.notes.append("a draft that is older than the saved document is left out")
            self.known += len(self.placed) - len(kept)
            self.placed = kept


def _by_file(unit: ImportUnit) -> dict[Address, list[ImportedRevision]]:
    first = min(
        (modified for each in unit.revisions if each.address.is_main and (modified := each.modified)), default=None
    )
    found: dict[Address, list[ImportedRevision]] = {}
    for each in unit.revisions:
        revision = each if first is None else with_time(each, first)
        found.setdefault(revision.address, []).append(revision)
    for address, revisions in found.items():
        revisions.sort(key=lambda each: each.modified or LAST)
        times = [each.modified for each in revisions]
        if len(set(times)) < len(times):
            raise ConflictError(f"{address} has two revisions of one time, {times[0]}")
    return found


def _order(revision: ImportedRevision) -> tuple[bool, Instant, bool]:
    address = revision.address
    is_draft = isinstance(address, DocumentAddress) and address.is_draft
    return is_draft, revision.modified or LAST, address.is_main


def _is_outdated(revision: ImportedRevision, newest: str, storage: RevisionStorage) -> bool:
    address, modified = revision.address, revision.modified
    if not isinstance(address, DocumentAddress) or not address.is_draft or modified is None:
        return False
    saved = storage.sidecar(address.main.moved(Collection.DATA))
    return modified <= max(newest, "" if saved is None else saved.modified)


def _has_own_time(revision: ImportedRevision) -> bool:
    return revision.facts.sidecar is not None or revision.facts.has_own_time


def _conflict(address: Address, revision: ImportedRevision, stored: StoredRevision) -> ConflictError:
    modified, here = revision.modified, stored.sidecar
    if modified is None or not address.keeps_history:
        return ConflictError(f"{address} has another content here, of {here.modified}")
    if modified == here.modified:
        return ConflictError(f"{address} has another revision of {modified} here")
    return ConflictError(f"{address} has a newer revision here, of {here.modified}, and lacks the one of {modified}")
