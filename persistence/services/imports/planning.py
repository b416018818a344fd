"""The plan for one document, its draft, or one version of a definition: which revisions are there, and which to place.

History is never rewritten. A revision is placed if it is newer than all that is stored of its file; one that is there
already is left, and anything else is a conflict. A document with a conflict is left as it is, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from persistence.errors import ConflictError
from persistence.model.addresses import Address, Collection, DocumentAddress
from persistence.model.instants import LAST, Instant
from persistence.model.sidecar import Sidecar
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
    """Revisions to be placed, in order. ``over`` has the id of the current revision of each file, or ``None``.

    ``known`` revisions are there already. ``renewed`` are placed as new revisions, under the time of their placing.
    ``is_exact`` says that the storage keeps all facts, and ``replaces_drafts`` that saves may remove drafts.
    """

    placed: list[ImportedRevision] = field(default_factory=list)
    over: dict[Address, str | None] = field(default_factory=dict)
    renewed: set[Address] = field(default_factory=set)
    known: int = 0
    notes: list[str] = field(default_factory=list)
    is_exact: bool = True
    replaces_drafts: bool = False


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans imports into one storage. Where it is not ``is_exact``, it gives revisions its own times and tags."""

    storage: RevisionStorage
    has_same_content: SameContent
    on_conflict: OnConflict
    is_exact: bool = True

    def plan(self, unit: ImportUnit) -> ImportPlan:
        """Compare a document or a version of a definition with what is stored."""
        plan = ImportPlan(is_exact=self.is_exact, replaces_drafts=self.on_conflict is OnConflict.NEW_REVISION)
        for address, revisions in _by_file(unit).items():
            self._plan_file(plan, address, revisions)
        plan.placed.sort(key=_order)
        self._plan_draft(plan)
        return plan

    def _plan_file(self, plan: ImportPlan, address: Address, revisions: list[ImportedRevision]) -> None:
        stored = self.storage.read(address, content=False)
        plan.over[address] = None if stored is None else stored.sidecar.id
        if not self.is_exact:
            if len(revisions) > 1:
                plan.notes.append("older revisions are left out where another service has the data")
            plan.known += len(revisions) - 1
            revisions = revisions[-1:]
        try:
            for revision in revisions:
                if stored is None or self._is_newer(revision, stored):
                    plan.placed.append(revision)
                elif self._is_known(revision, stored):
                    plan.known += 1
                else:
                    raise _conflict(address, revision, stored)
        except ConflictError:
            if self.on_conflict is not OnConflict.NEW_REVISION or not address.keeps_history:
                raise
            plan.placed = [each for each in plan.placed if each.address != address]
            plan.renewed.add(address)
            plan.placed.append(revisions[-1])

    def _is_newer(self, revision: ImportedRevision, stored: StoredRevision) -> bool:
        modified = _modified(revision)
        if modified is None or not self.is_exact or not revision.address.keeps_history:
            return False
        if not _has_own_time(revision) and self._is_same(revision, stored.sidecar.modified):
            return False
        return modified > stored.latest

    def _is_known(self, revision: ImportedRevision, stored: StoredRevision) -> bool:
        """Return whether the revision, or without a time of its own its content, is stored already.

        The real system gives its revisions times in milliseconds, or in seconds if it exports no history.
        """
        modified, current = _modified(revision), stored.sidecar.modified
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

    def _plan_draft(self, plan: ImportPlan) -> None:
        saved = [each for each in plan.placed if isinstance(each.address, DocumentAddress) and each.address.is_main]
        for revision in saved:
            address = revision.address
            if isinstance(address, DocumentAddress) and not address.is_draft:
                draft = self.storage.sidecar(address.moved(Collection.DRAFT))
                if draft is not None and not draft.deleted and self.on_conflict is not OnConflict.NEW_REVISION:
                    raise ConflictError(f"{address} has a draft here, of {draft.modified}, that a save would remove")
        newest = max(
            (modified for each in plan.placed if _is_saved(each) and (modified := _modified(each))), default=""
        )
        kept = [each for each in plan.placed if not _is_outdated(each, newest, self.storage)]
        if len(kept) < len(plan.placed):
            plan.notes.append("a draft that is older than the saved document is left out")
            plan.known += len(plan.placed) - len(kept)
            plan.placed = kept


def _by_file(unit: ImportUnit) -> dict[Address, list[ImportedRevision]]:
    first = min(
        (modified for each in unit.revisions if each.address.is_main and (modified := _modified(each))), default=None
    )
    found: dict[Address, list[ImportedRevision]] = {}
    for each in unit.revisions:
        revision = each if first is None else with_time(each, first)
        found.setdefault(revision.address, []).append(revision)
    for address, revisions in found.items():
        revisions.sort(key=lambda each: _modified(each) or LAST)
        times = [_modified(each) for each in revisions]
        if len(set(times)) < len(times):
            raise ConflictError(f"{address} has two revisions of one time, {times[0]}")
    return found


def _order(revision: ImportedRevision) -> tuple[bool, Instant, bool]:
    address = revision.address
    is_draft = isinstance(address, DocumentAddress) and address.is_draft
    return is_draft, _modified(revision) or LAST, address.is_main


def _is_saved(revision: ImportedRevision) -> bool:
    address = revision.address
    return isinstance(address, DocumentAddress) and address.is_main and not address.is_draft


def _is_outdated(revision: ImportedRevision, newest: str, storage: RevisionStorage) -> bool:
    address, modified = revision.address, _modified(revision)
    if not isinstance(address, DocumentAddress) or not address.is_draft or modified is None:
        return False
    saved = storage.sidecar(address.main.moved(Collection.DATA))
    return modified <= max(newest, "" if saved is None else saved.modified)


def _modified(revision: ImportedRevision) -> Instant | None:
    facts = revision.facts
    return facts.modified if facts.sidecar is None else facts.sidecar.modified


def _has_own_time(revision: ImportedRevision) -> bool:
    return revision.facts.sidecar is not None or revision.facts.has_own_time


def _conflict(address: Address, revision: ImportedRevision, stored: StoredRevision) -> ConflictError:
    modified = _modified(revision)
    here: Sidecar = stored.sidecar
    if modified is None or not address.keeps_history:
        return ConflictError(f"{address} has another content here, of {here.modified}")
    if modified == here.modified:
        return ConflictError(f"{address} has another revision of {modified} here")
    return ConflictError(f"{address} has a newer revision here, of {here.modified}, and lacks the one of {modified}")
