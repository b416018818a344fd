"""The plan of a purge: the parts of one document that rules let go. Nothing is locked or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import LAST, Instant
from persistence.model.retention import RetentionPeriods, before
from persistence.model.sidecar import Sidecar
from persistence.services.naming import unnamed
from persistence.storage.managed import ManagedStorage


@dataclass(frozen=True, slots=True)
class PurgeRules:
    """The instants before which something is removed; ``None`` keeps all of its kind.

    ``revisions`` is for older revisions, but for those from before ``since``. ``tombstones`` is for deleted documents
    and attachments, by the deletion. ``drafts`` and ``orphans`` (attachments that no data names) go by the last save.
    """

    revisions: Instant | None = None
    tombstones: Instant | None = None
    drafts: Instant | None = None
    orphans: Instant | None = None
    since: Instant | None = None

    def lets_go(self, revision: Instant) -> bool:
        is_old = self.revisions is not None and revision < self.revisions
        return is_old and (self.since is None or revision >= self.since)


@dataclass(slots=True)
class PurgeTotals:
    """The number of things that a purge removes, and the bytes that it frees.

    ``revisions`` do not include those of removed documents and attachments.
    """

    revisions: int = 0
    documents: int = 0
    drafts: int = 0
    attachments: int = 0
    freed: int = 0

    def add(self, other: PurgeTotals) -> None:
        self.revisions += other.revisions
        self.documents += other.documents
        self.drafts += other.drafts
        self.attachments += other.attachments
        self.freed += other.freed

    @property
    def is_empty(self) -> bool:
        return not (self.revisions or self.documents or self.drafts or self.attachments)


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """An attachment that is removed with all its revisions; it ``is_orphan`` if no data names it."""

    address: DocumentAddress
    current: Sidecar
    older: Sequence[Instant]
    is_orphan: bool = False


@dataclass(slots=True)
class PurgePlan:
    """The parts of one document that will be removed.

    A deleted document, of which ``tombstone`` is current, is removed if ``newest`` is still the newest revision of its
    files, a draft if ``draft`` is still its newest one, and orphans among the ``files`` if the data and the draft still
    have the ``seen_ids``.
    """

    form: Form
    document: str
    older: list[tuple[DocumentAddress, Sequence[Instant]]] = field(default_factory=list)
    tombstone: Sidecar | None = None
    newest: Sidecar | None = None
    draft: Sidecar | None = None
    files: list[RemovedFile] = field(default_factory=list)
    seen_ids: tuple[str | None, ...] = ()
    totals: PurgeTotals = field(default_factory=PurgeTotals)

    @property
    def main(self) -> DocumentAddress:
        """The address of the saved data."""
        return DocumentAddress(self.form, Collection.DATA, self.document, DATA_XML)


def retention_rules(periods: RetentionPeriods, now: datetime) -> PurgeRules:
    """Return the rules for data that was kept for its whole period."""

    def before_(seconds: int | None) -> Instant | None:
        return None if seconds is None else before(now, seconds) if seconds else LAST

    return PurgeRules(
        before_(periods.history), before_(periods.tombstones), before_(periods.drafts), before_(periods.orphans)
    )


class PurgePlanning:
    """Finds the parts of one document that rules let go."""

    def __init__(self, store: ManagedStorage, rules: PurgeRules, plan: PurgePlan) -> None:
        self._store = store
        self._rules = rules
        self._plan = plan
        self._main = plan.main

    def made(self) -> PurgePlan:
        """Return the plan. Raises ``DamagedError`` where nobody knows what belongs to the document."""
        plan, rules, main = self._plan, self._rules, self._main
        draft = main.moved(Collection.DRAFT)
        newest = newest_of(self._store, draft) if rules.drafts is not None else None
        if newest is not None and _is_before(newest, rules.drafts):
            plan.draft, plan.totals.drafts = newest, 1
            plan.totals.freed += self._store.freed_by_folder(draft)
        current = self._store.sidecar(main)
        if current is not None and current.deleted and _is_before(current, rules.tombstones):
            # Attachments are saved before the data: a newer one is of a document that is being saved again.
            plan.newest = newest_of(self._store, main)
            if plan.newest is not None and _is_before(plan.newest, rules.tombstones):
                self._plan_document(current)
                return plan
        for name in self._store.names(main):
            self._plan_file(main.moved(Collection.DATA, name))
        if rules.orphans is not None:
            self._plan_orphans(current, rules.orphans)
        return plan

    def _plan_document(self, tombstone: Sidecar) -> None:
        plan = self._plan
        plan.tombstone, plan.totals.documents = tombstone, 1
        plan.totals.freed += self._store.freed_by_folder(self._main)
        for name in self._store.names(self._main):
            address = self._main.moved(Collection.DATA, name)
            if address.is_main:
                continue
            sidecar, older = self._store.sidecar(address), self._store.revisions(address)
            bodies = self._bodies(address, sidecar, older)
            if sidecar is not None and bodies is not None:
                plan.files.append(RemovedFile(address, sidecar, older))
                plan.totals.attachments += 1
                plan.totals.freed += bodies

    def _plan_file(self, address: DocumentAddress) -> None:
        sidecar = self._store.sidecar(address)
        if sidecar is None:
            return
        older = self._store.revisions(address)
        if not address.is_main and sidecar.deleted and _is_before(sidecar, self._rules.tombstones):
            self._remove(address, sidecar, older)
            return
        gone = [each for each in older if self._rules.lets_go(each) and each != sidecar.modified]
        if gone:
            self._plan.older.append((address, gone))
            self._plan.totals.revisions += len(gone)
            self._plan.totals.freed += sum(self._store.freed(address, each) for each in gone)
            if not address.is_main:
                self._plan.totals.freed += self._bodies(address, None, gone) or 0

    def _remove(
        self, address: DocumentAddress, current: Sidecar, older: Sequence[Instant], *, is_orphan: bool = False
    ) -> None:
        totals = self._plan.totals
        self._plan.files.append(RemovedFile(address, current, older, is_orphan))
        totals.attachments += 1
        totals.freed += sum(self._store.freed(address, each) for each in (None, *older))
        totals.freed += self._bodies(address, current, older) or 0

    def _bodies(self, address: DocumentAddress, current: Sidecar | None, older: Sequence[Instant]) -> int | None:
        found = [self._store.read_older(address, each, content=False) for each in older]
        records = [current, *(each.sidecar for each in found if each is not None)]
        sizes = [each.body.size for each in records if each is not None and each.body is not None]
        return sum(sizes) if sizes else None

    def _plan_orphans(self, current: Sidecar | None, cutoff: Instant) -> None:
        main, removed = self._main, {each.address for each in self._plan.files}
        self._plan.seen_ids = current_ids(self._store, main)
        found = dict[str, Sidecar]()
        for name in self._store.names(main):
            address = main.moved(Collection.DATA, name)
            sidecar = None if address.is_main or address in removed else self._store.sidecar(address)
            if sidecar is not None and not sidecar.deleted and sidecar.modified < cutoff:
                found[name] = sidecar
        if not found or (current is not None and current.deleted and current.modified >= cutoff):
            return
        is_deleted = current is not None and current.deleted
        names = set(found)
        if not is_deleted:
            names = unnamed(self._store, main, names, lambda instant: not self._rules.lets_go(instant))
        for name in sorted(names):
            address = main.moved(Collection.DATA, name)
            self._keep_older(address)
            self._remove(address, found[name], self._store.revisions(address), is_orphan=True)

    def _keep_older(self, address: DocumentAddress) -> None:
        plan = self._plan
        for each in [each for each in plan.older if each[0] == address]:
            plan.older.remove(each)
            plan.totals.revisions -= len(each[1])
            plan.totals.freed -= sum(self._store.freed(address, instant) for instant in each[1])
            plan.totals.freed -= self._bodies(address, None, each[1]) or 0


def _is_before(sidecar: Sidecar, cutoff: Instant | None) -> bool:
    return cutoff is not None and sidecar.modified < cutoff


def current_ids(store: ManagedStorage, main: DocumentAddress) -> tuple[str | None, ...]:
    """Return the ids of the current revisions of the data and the draft of a document."""
    found = (store.sidecar(main.moved(collection)) for collection in Collection)
    return tuple(None if sidecar is None else sidecar.id for sidecar in found)


def newest_of(store: ManagedStorage, main: DocumentAddress) -> Sidecar | None:
    """Return the newest revision, or tombstone, of any file of a document or draft."""
    found = (store.sidecar(main.moved(main.collection, name)) for name in store.names(main))
    return max((each for each in found if each is not None), key=lambda each: each.modified, default=None)
