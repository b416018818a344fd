"""Purging the data of one storage: old revisions, deleted documents, drafts, and attachments that nothing names.

A plan is made without a lock, and carried out in steps, each under the lock of its document and only if the document is
as it was found. The current revision of a living document always stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from persistence.errors import PersistenceError
from persistence.limits import PURGE_PAUSE, PURGED_AT_ONCE
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant, one_later
from persistence.model.sidecar import Sidecar
from persistence.providers.provider import Route
from persistence.services.purge_plans import (
    PurgePlan,
    PurgePlanning,
    PurgeRules,
    PurgeTotals,
    RemovedFile,
    current_ids,
    newest_of,
)
from persistence.storage.managed import BodiesOf, ManagedStorage
from persistence.storage.split_attachments import RevisionRewriter, SplitStorage
from persistence.storage.storage import RevisionStorage, Writing


class StoragePurge:
    """Purges documents of one storage."""

    def __init__(self, store: ManagedStorage, bodies_of: BodiesOf) -> None:
        self.store = store
        self._bodies_of = bodies_of
        self._rewriter = RevisionRewriter(store, bodies_of)

    def forms(self, app: str | None) -> list[Form]:
        """Return the forms of the storage, or of an application in it, in order."""
        return sorted(self.store.forms(app), key=lambda form: (form.app, form.name))

    def discard(self, main: DocumentAddress, tombstone: Sidecar) -> bool:
        """Remove a deleted document, if the tombstone is current and no attachment was saved since."""
        files = (self.store.sidecar(main.moved(main.collection, name)) for name in self.store.names(main))
        later = [each for each in files if each is not None and each.modified > tombstone.modified]
        if not all(each.deleted for each in later):
            return False
        newest = max((each.modified for each in later), default=tombstone.modified)
        plan = self.plan(main.form, main.document, PurgeRules(tombstones=one_later(newest)))
        if plan.tombstone is None or plan.tombstone.id != tombstone.id:
            return False
        self._carry_out(plan)
        return plan.totals.documents > 0

    def has(self, form: Form, document: str) -> bool:
        """Return whether there is anything of a document, or a draft of it."""
        mains = (DocumentAddress(form, collection, document, DATA_XML) for collection in Collection)
        return any(self.store.names(main) for main in mains)

    def plan(self, form: Form, document: str, rules: PurgeRules) -> PurgePlan:
        """Find the parts of a document that rules let go."""
        return PurgePlanning(self.store, rules, PurgePlan(form, document)).made()

    def purge(self, form: Form, document: str, rules: PurgeRules) -> PurgeTotals:
        """Remove the parts of a document that rules let go, and finish interrupted writes."""
        for collection in Collection:
            self._rewriter.finish(DocumentAddress(form, collection, document, DATA_XML))
        plan = self.plan(form, document, rules)
        if not plan.totals.is_empty:
            self._carry_out(plan)
        return plan.totals

    def storage_of(self, form: Form) -> RevisionStorage:
        """Return the storage of a form's data, with the bodies of its attachments from wherever they are."""
        bodies = self._bodies_of(form)
        return self.store if bodies is None else SplitStorage(self.store, bodies)

    def _carry_out(self, plan: PurgePlan) -> None:
        storage = self.storage_of(plan.form)
        for address, instants in plan.older:
            remove_older(storage, address, instants)
        for each in plan.files:
            if not remove_file(storage, each, partial(self._is_as_found, plan, each)):
                plan.totals.attachments -= 1
        if plan.tombstone is not None:
            with storage.writing(plan.main) as writer:
                if self._is_still_deleted(plan, plan.tombstone):
                    writer.discard_document(plan.form, plan.document)
                else:
                    plan.totals.documents = 0
        if plan.draft is not None:
            draft = plan.main.moved(Collection.DRAFT)
            with storage.writing(draft) as writer:
                found = newest_of(self.store, draft)
                if found is not None and found.id == plan.draft.id:
                    writer.discard_draft(plan.form, plan.document)
                else:
                    plan.totals.drafts = 0

    def _is_as_found(self, plan: PurgePlan, file: RemovedFile) -> bool:
        if plan.tombstone is not None:  # the document may have been saved again, with this attachment
            return self._is_still_deleted(plan, plan.tombstone)
        return not file.is_orphan or current_ids(self.store, plan.main) == plan.seen_ids

    def _is_still_deleted(self, plan: PurgePlan, tombstone: Sidecar) -> bool:
        current, newest = self.store.sidecar(plan.main), newest_of(self.store, plan.main)
        is_newer = newest is not None and plan.newest is not None and newest.modified > plan.newest.modified
        return current is not None and current.id == tombstone.id and not is_newer


def _batches(instants: Sequence[Instant]) -> Iterator[Sequence[Instant]]:
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
    """Remove an attachment, its older revisions first, if it ``is_as_found`` under the lock."""
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
    """Remove the revisions that a deletion has kept, where a form keeps no history; the lock is held."""
    if route.properties.keeps_history or route.data.managed is None:
        return
    history = route.storage.history(address)
    if history is not None:
        end = min(history.total, PURGED_AT_ONCE)
        writer.remove_older(address, [history.instant(position) for position in range(1, end)])


def purge_documents(
    purging: StoragePurge, form: Form, documents: Iterable[str], rules: PurgeRules, *, is_trial: bool
) -> Iterator[PurgeTotals | PersistenceError]:
    """Purge documents of a form, or with ``is_trial`` only plan that; yield the result or error of each."""
    for document in documents:
        try:
            yield purging.plan(form, document, rules).totals if is_trial else purging.purge(form, document, rules)
        except PersistenceError as error:
            yield error
