"""Purging the data of one tree: old revisions, deleted documents, drafts, and attachments that nothing names.

What is to go is found without a lock. Then it is removed in steps, each under the lock of its document and only if the
document is as it was found, so no other document waits, and a crash loses nothing but the rest of the purge.
The current revision of a living document always stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from persistence.errors import PersistenceError
from persistence.limits.documents import PURGE_PAUSE, PURGED_AT_ONCE
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import LAST, Instant, one_later
from persistence.model.retention import RetentionPeriods, before
from persistence.model.sidecar import Sidecar
from persistence.properties.property_table import TREE
from persistence.providers.provider import Route
from persistence.services.naming import unnamed
from persistence.storage.split_attachments import BodiesOf, RevisionRewriter, SplitStorage
from persistence.storage.storage import RevisionStorage, Writing
from persistence.storage.store import Store


@dataclass(frozen=True, slots=True)
class PurgeRules:
    """The instants before which something is old enough to go; ``None`` keeps all of its kind.

    ``revisions`` is for older revisions, by their own instants. ``tombstones`` is for deleted documents and attachments
    with all their history, by the instant of the deletion. ``drafts`` is for drafts, by their last save. ``orphans`` is
    for attachments of deleted documents and those that no revision of the data names, by their last save.
    """

    revisions: Instant | None = None
    tombstones: Instant | None = None
    drafts: Instant | None = None
    orphans: Instant | None = None


@dataclass(slots=True)
class PurgeTally:
    """The number of things that a purge removes, or would remove, and the bytes that it frees.

    Revisions are counted apart from those of documents and attachments that go with all their history.
    """

    revisions: int = 0
    documents: int = 0
    drafts: int = 0
    attachments: int = 0
    freed: int = 0

    def add(self, other: PurgeTally) -> None:
        """Add another one."""
        self.revisions += other.revisions
        self.documents += other.documents
        self.drafts += other.drafts
        self.attachments += other.attachments
        self.freed += other.freed

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is to go."""
        return not (self.revisions or self.documents or self.drafts or self.attachments)


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """An attachment that goes with all its revisions; ``current`` is its newest one.

    It ``is_orphan`` if it goes because no data names it.
    """

    address: DocumentAddress
    current: Sidecar
    older: Sequence[Instant]
    is_orphan: bool = False


@dataclass(slots=True)
class PurgePlan:
    """The parts of one document that are to go.

    ``older`` has the older revisions of files. ``tombstone`` is that of a deleted document that goes, and ``draft`` the
    newest revision of a draft that goes. ``files`` are attachments that go; orphans only as long as the ``witnesses``
    are the current revisions of the data and the draft.
    """

    form: Form
    document: str
    older: list[tuple[DocumentAddress, Sequence[Instant]]] = field(default_factory=list)
    tombstone: Sidecar | None = None
    draft: Sidecar | None = None
    files: list[RemovedFile] = field(default_factory=list)
    witnesses: tuple[str | None, ...] = ()
    tally: PurgeTally = field(default_factory=PurgeTally)

    @property
    def main(self) -> DocumentAddress:
        """The address of the saved data."""
        return DocumentAddress(self.form, Collection.DATA, self.document, DATA_XML)


class TreePurge:
    """Purges documents of one tree. Methods raise the errors of ``Store``."""

    def __init__(self, store: Store, bodies_of: BodiesOf) -> None:
        self._store = store
        self._bodies_of = bodies_of
        self._rewriter = RevisionRewriter(store, bodies_of)

    def documents(self, form: Form) -> Iterator[str]:
        """Yield the documents of a form, and the drafts of those that were never saved."""
        saved = set[str]()
        for document in self._store.documents(form):
            saved.add(document)
            yield document
        for document in self._store.documents(form, Collection.DRAFT):
            if document not in saved:
                yield document

    def forms(self, app: str | None) -> list[Form]:
        """Return the forms of the tree, or of an application in it, in order."""
        return sorted(self._store.forms(app), key=lambda form: (form.app, form.name))

    def discard(self, main: DocumentAddress, tombstone: Sidecar) -> None:
        """Remove a deleted document with all that is left of it, as long as the tombstone is its current revision."""
        rules = PurgeRules(tombstones=one_later(tombstone.modified))
        self._carry_out(_Planning(self._store, rules, PurgePlan(main.form, main.document)).made())

    def has(self, form: Form, document: str) -> bool:
        """Return whether there is anything of a document, or a draft of it."""
        mains = (DocumentAddress(form, collection, document, DATA_XML) for collection in Collection)
        return any(self._store.names(main) for main in mains)

    def plan(self, form: Form, document: str, rules: PurgeRules) -> PurgePlan:
        """Return the parts of a document that rules let go; nothing is changed.

        Raises:
            DamagedError: a sidecar or a revision cannot be read, so that nobody knows what belongs to it.
        """
        return _Planning(self._store, rules, PurgePlan(form, document)).made()

    def purge(self, form: Form, document: str, rules: PurgeRules) -> PurgeTally:
        """Remove the parts of a document that rules let go, and what crashes have left; return what is gone.

        Raises:
            DamagedError: as ``plan``; nothing more is removed.
        """
        for collection in Collection:
            self._rewriter.finish(DocumentAddress(form, collection, document, DATA_XML))
        plan = self.plan(form, document, rules)
        if not plan.tally.is_empty:
            self._carry_out(plan)
        return plan.tally

    def storage_of(self, form: Form) -> RevisionStorage:
        """Return the storage of a form's data, with the bodies of its attachments from wherever they are."""
        bodies = self._bodies_of(form)
        return self._store if bodies is None else SplitStorage(self._store, bodies)

    def _carry_out(self, plan: PurgePlan) -> None:
        """Do what a plan says, as far as nobody has changed the document meanwhile; correct its tally."""
        storage = self.storage_of(plan.form)
        for address, instants in plan.older:
            remove_older(storage, address, instants)
        for each in plan.files:
            if not self._remove_file(storage, plan, each):
                plan.tally.attachments -= 1
        if plan.tombstone is not None and not self._discard(storage, plan, plan.tombstone):
            plan.tally.documents = 0
        if plan.draft is not None and not self._discard_draft(storage, plan, plan.draft):
            plan.tally.drafts = 0

    def _remove_file(self, storage: RevisionStorage, plan: PurgePlan, file: RemovedFile) -> bool:
        def is_as_found() -> bool:
            return not file.is_orphan or _witnesses(self._store, plan.main) == plan.witnesses

        return remove_file(storage, file, is_as_found)

    def _discard(self, storage: RevisionStorage, plan: PurgePlan, tombstone: Sidecar) -> bool:
        with storage.writing(plan.main) as writer:
            current = writer.current(plan.main)
            if current is None or current.sidecar.id != tombstone.id:
                return False
            writer.discard_document(plan.form, plan.document)
            return True

    def _discard_draft(self, storage: RevisionStorage, plan: PurgePlan, newest: Sidecar) -> bool:
        draft = plan.main.moved(Collection.DRAFT)
        with storage.writing(draft) as writer:
            found = _newest(self._store, draft)
            if found is None or found.id != newest.id:
                return False
            writer.discard_draft(plan.form, plan.document)
            return True


def _batches(instants: Sequence[Instant]) -> Iterator[Sequence[Instant]]:
    """Yield some instants at a time, with a pause between them, in which others get the lock of the document."""
    for begin in range(0, len(instants), PURGED_AT_ONCE):
        if begin:
            time.sleep(PURGE_PAUSE)
        yield instants[begin : begin + PURGED_AT_ONCE]


def remove_older(storage: RevisionStorage, address: DocumentAddress, instants: Sequence[Instant]) -> int:
    """Remove older revisions, not too many while the lock is held at a time; return how many there were."""
    count = 0
    for some in _batches(instants):
        with storage.writing(address) as writer:
            count += writer.remove_older(address, some)
    return count


def remove_file(storage: RevisionStorage, file: RemovedFile, is_as_found: Callable[[], bool] = lambda: True) -> bool:
    """Remove an attachment with all its revisions, if it ``is_as_found`` under the lock; the older ones go first."""
    address = file.address
    for some in _batches(file.older):
        with storage.writing(address) as writer:
            if not is_as_found():
                return False
            writer.remove_older(address, some)
    with storage.writing(address) as writer:
        current = writer.current(address)
        if current is None or current.sidecar.id != file.current.id or not is_as_found():
            return False
        writer.remove_current(address, over=current)
        return True


def forget_history(route: Route, writer: Writing, address: DocumentAddress) -> None:
    """Remove what a deletion has kept, where a form keeps no history; the lock is held.

    Another service does so by its own properties. More than a deletion has kept is for a purge.
    """
    if route.properties.keeps_history or route.properties.route.data.kind != TREE:
        return
    history = route.storage.history(address)
    if history is not None:
        end = min(history.total, PURGED_AT_ONCE)
        writer.remove_older(address, [history.instant(position) for position in range(1, end)])


def retention_rules(periods: RetentionPeriods, now: datetime) -> PurgeRules:
    """Return the rules by which the data of a form goes that is kept no longer."""

    def before_(seconds: int | None) -> Instant | None:
        return None if seconds is None else before(now, seconds) if seconds else LAST

    return PurgeRules(
        before_(periods.history), before_(periods.tombstones), before_(periods.drafts), before_(periods.orphans)
    )


class _Planning:
    """Finds what is to go of one document."""

    def __init__(self, store: Store, rules: PurgeRules, plan: PurgePlan) -> None:
        self._store = store
        self._rules = rules
        self._plan = plan
        self._main = plan.main

    def made(self) -> PurgePlan:
        plan, rules, main = self._plan, self._rules, self._main
        draft = main.moved(Collection.DRAFT)
        newest = _newest(self._store, draft) if rules.drafts is not None else None
        if newest is not None and _is_before(newest, rules.drafts):
            plan.draft, plan.tally.drafts = newest, 1
            plan.tally.freed += self._store.freed_by_folder(draft)
        current = self._store.sidecar(main)
        if current is not None and current.deleted and _is_before(current, rules.tombstones):
            self._whole(current)
            return plan
        for name in self._store.names(main):
            self._file(main.moved(Collection.DATA, name))
        if rules.orphans is not None:
            self._orphans(current, rules.orphans)
        return plan

    def _whole(self, tombstone: Sidecar) -> None:
        """Let a deleted document go; bodies that are elsewhere go with their records, before it."""
        plan = self._plan
        plan.tombstone, plan.tally.documents = tombstone, 1
        plan.tally.freed += self._store.freed_by_folder(self._main)
        for name in self._store.names(self._main):
            address = self._main.moved(Collection.DATA, name)
            if address.is_main:
                continue
            sidecar, older = self._store.sidecar(address), self._store.revisions(address)
            bodies = self._bodies(address, sidecar, older)
            if sidecar is not None and bodies is not None:
                plan.files.append(RemovedFile(address, sidecar, older))
                plan.tally.attachments += 1
                plan.tally.freed += bodies

    def _file(self, address: DocumentAddress) -> None:
        """Let older revisions of a file go, or a deleted attachment."""
        sidecar = self._store.sidecar(address)
        if sidecar is None:
            return
        older = self._store.revisions(address)
        if not address.is_main and sidecar.deleted and _is_before(sidecar, self._rules.tombstones):
            self._remove(address, sidecar, older)
            return
        cutoff = self._rules.revisions
        gone = [each for each in older if cutoff is not None and each < cutoff and each != sidecar.modified]
        if gone:
            self._plan.older.append((address, gone))
            self._plan.tally.revisions += len(gone)
            self._plan.tally.freed += sum(self._store.freed(address, each) for each in gone)
            if not address.is_main:
                self._plan.tally.freed += self._bodies(address, None, gone) or 0

    def _remove(
        self, address: DocumentAddress, current: Sidecar, older: Sequence[Instant], *, is_orphan: bool = False
    ) -> None:
        tally = self._plan.tally
        self._plan.files.append(RemovedFile(address, current, older, is_orphan))
        tally.attachments += 1
        tally.freed += sum(self._store.freed(address, each) for each in (None, *older))
        tally.freed += self._bodies(address, current, older) or 0

    def _bodies(self, address: DocumentAddress, current: Sidecar | None, older: Sequence[Instant]) -> int | None:
        """Return the bytes of the bodies of revisions that are elsewhere; ``None`` where none is."""
        found = [self._store.read_older(address, each, content=False) for each in older]
        records = [current, *(each.sidecar for each in found if each is not None)]
        sizes = [each.body.size for each in records if each is not None and each.body is not None]
        return sum(sizes) if sizes else None

    def _orphans(self, current: Sidecar | None, cutoff: Instant) -> None:
        """Let attachments go that are old enough, and that no revision names which stays."""
        main, going = self._main, {each.address for each in self._plan.files}
        self._plan.witnesses = _witnesses(self._store, main)
        found = dict[str, Sidecar]()
        for name in self._store.names(main):
            address = main.moved(Collection.DATA, name)
            sidecar = None if address.is_main or address in going else self._store.sidecar(address)
            if sidecar is not None and not sidecar.deleted and sidecar.modified < cutoff:
                found[name] = sidecar
        if not found or (current is not None and current.deleted and current.modified >= cutoff):
            return
        is_deleted = current is not None and current.deleted
        names = set(found) if is_deleted else unnamed(self._store, main, set(found), self._stays)
        for name in sorted(names):
            address = main.moved(Collection.DATA, name)
            self._forget(address)
            self._remove(address, found[name], self._store.revisions(address), is_orphan=True)

    def _stays(self, instant: Instant) -> bool:
        return self._rules.revisions is None or instant >= self._rules.revisions

    def _forget(self, address: DocumentAddress) -> None:
        """Take older revisions of a file out of the plan: it goes with all of them."""
        plan = self._plan
        for each in [each for each in plan.older if each[0] == address]:
            plan.older.remove(each)
            plan.tally.revisions -= len(each[1])
            plan.tally.freed -= sum(self._store.freed(address, instant) for instant in each[1])
            plan.tally.freed -= self._bodies(address, None, each[1]) or 0


def _is_before(sidecar: Sidecar, cutoff: Instant | None) -> bool:
    return cutoff is not None and sidecar.modified < cutoff


def _witnesses(store: Store, main: DocumentAddress) -> tuple[str | None, ...]:
    """Return the ids of the current revisions of the data and the draft of a document."""
    found = (store.sidecar(main.moved(collection)) for collection in Collection)
    return tuple(None if sidecar is None else sidecar.id for sidecar in found)


def _newest(store: Store, draft: DocumentAddress) -> Sidecar | None:
    """Return the newest revision of any file of a draft; ``None`` without one.

    Raises:
        DamagedError: one cannot be read.
    """
    found = (store.sidecar(draft.moved(Collection.DRAFT, name)) for name in store.names(draft))
    return max((each for each in found if each is not None), key=lambda each: each.modified, default=None)


def purge_documents(
    purging: TreePurge, form: Form, documents: Iterable[str], rules: PurgeRules, *, is_trial: bool
) -> Iterator[PurgeTally | PersistenceError]:
    """Purge documents of a form, or with ``is_trial`` only find out what would go; yield the result of each.

    A document that cannot be purged yields its error, and the others are purged all the same.
    """
    for document in documents:
        try:
            yield purging.plan(form, document, rules).tally if is_trial else purging.purge(form, document, rules)
        except PersistenceError as error:
            yield error
