"""Purging over HTTP: single revisions and attachments (spec crud 4.9), and all that is old enough (spec crud 8.5).

Only administrators get here. The current revision of a document always stays, unlike in the real system: there the one
before would become current.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import msgspec

from persistence.closable import taking
from persistence.errors import BadRequestError, BusyError, ConflictError, NotFoundError, PersistenceError
from persistence.forms.messages import attributes_of, element, text
from persistence.limits import MOST_PURGE_PROBLEMS
from persistence.model import versions
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.permissions import Operations, User
from persistence.model.queries import ExportQuery, RevisionHistory
from persistence.model.sidecar import Sidecar
from persistence.model.texts import LAST, Instant
from persistence.providers.router import Route, Router
from persistence.services.documents import Documents, protecting
from persistence.services.exporting import SelectedForm, select_forms
from persistence.services.purging import (
    PurgeRules,
    PurgeTotals,
    RemovedFile,
    StoragePurge,
    purge_documents,
    remove_file,
)
from persistence.services.rules import (
    PURGING,
    READING,
    Access,
    Delete,
    Get,
    Read,
    Removed,
    check_precondition,
    subject_of,
    tombstone_of,
)
from persistence.storage.storage import Writing
from persistence.storage.stored_revision import StoredRevision

PurgeOf = Callable[[Route], StoragePurge | None]
"""Returns what purges the data of a route; ``None`` where another service has it."""


@dataclass(frozen=True, slots=True)
class ForcedDeletes:
    """Removes single revisions, and attachments with all their revisions, without a trace."""

    # Without ``access``, a proxy has decided about permissions (spec crud 11).
    documents: Documents
    access: Access | None
    purge_of: PurgeOf

    def read(self, address: DocumentAddress, get: Get) -> Read:
        """Return the facts of a revision, or of a tombstone, for a HEAD."""
        route = self.documents.router.of(address.form)
        found = self._found(route, address, get.instant)
        if self.access is None:
            return Read(address, found, None)
        number = self.documents.admitted(route, address, get.version, None)
        versions.must_equal(number, found.sidecar.version, address)
        subject = subject_of(route, address, found.sidecar, 0)
        return Read(address, found, self.access.allow(READING, subject, get))

    def delete(self, address: DocumentAddress, delete: Delete, instant: Instant | None) -> Removed:
        """Remove the revision of an instant, or without one an attachment with all its revisions."""
        if address.is_draft:
            raise BadRequestError("a draft has no history: delete it without force-delete")
        if address.is_main != (instant is not None):
            raise BadRequestError("force-delete needs last-modified-time for data.xml, and none for an attachment")
        route = self.documents.router.of(address.form)
        number = self.documents.admitted(route, address, delete.version, None)
        if instant is None:
            return self._delete_attachment(route, address, delete, number)
        return self._delete_revision(route, address, delete, number, instant)

    def _delete_revision(
        self, route: Route, address: DocumentAddress, delete: Delete, number: int | None, instant: Instant
    ) -> Removed:
        purge = self.purge_of(route)
        with route.storage.writing(address) as writer:
            current = writer.current(address)
            found = self._found(route, address, instant)
            removed = self._allowed(route, address, delete, number, found)
            with protecting(route, address, delete.user):
                if current is not None and current.sidecar.modified == instant:
                    tombstone = self._purged(route, writer, address, current, delete.user)
                else:
                    writer.remove_older(address, [instant])
                    tombstone = None if current is None else current.sidecar
            if purge is None or tombstone is None or not tombstone.purged or _has_older(route, address):
                return removed
        if not purge.discard(address, tombstone):
            raise ConflictError(f"{address} was written by another request meanwhile")
        return removed

    def _purged(
        self, route: Route, writer: Writing, address: DocumentAddress, current: StoredRevision, user: User
    ) -> Sidecar | None:
        """Return the tombstone that goes with the last older revision; ``None`` if another service has the request."""
        # A runtime purges from the newest revision to the oldest (spec runtime 6). Were the tombstone removed at once,
        # an older revision would be current again.
        instant = current.sidecar.modified
        if not current.sidecar.deleted:
            raise ConflictError(f"{instant} is the current revision of {address}: delete the document first")
        if self.purge_of(route) is None:
            writer.discard_document(address.form, address.document)
            return None
        if current.sidecar.purged or not _has_older(route, address):
            return msgspec.structs.replace(current.sidecar, purged=True)
        purged = msgspec.structs.replace(tombstone_of(current, user), purged=True)
        stored = writer.delete(address, purged, over=current)
        writer.remove_older(address, [instant])
        return stored

    def _delete_attachment(self, route: Route, address: DocumentAddress, delete: Delete, number: int | None) -> Removed:
        found = self._found(route, address, None)
        removed = self._allowed(route, address, delete, number, found)
        if self.purge_of(route) is None:  # older revisions go with the current one there
            with route.storage.writing(address) as writer, protecting(route, address, delete.user):
                current = writer.current(address)
                if current is not None:
                    writer.remove_current(address, over=current)
            return removed
        older = [each for each in route.storage.history(address).instants() if each != found.sidecar.modified]

        def is_same() -> bool:
            now = route.storage.sidecar(address)
            return now is not None and now.id == found.sidecar.id

        if not remove_file(route.storage, RemovedFile(address, found.sidecar, older), is_same):
            raise ConflictError(f"{address} was written by another request meanwhile")
        return removed

    def _found(self, route: Route, address: DocumentAddress, instant: Instant | None) -> StoredRevision:
        found = route.data.storage.removable(address, instant)
        if found is None:
            raise NotFoundError(f"{address} does not exist" + (f" as of {instant}" if instant else ""))
        return found

    def _allowed(
        self, route: Route, address: DocumentAddress, delete: Delete, number: int | None, found: StoredRevision
    ) -> Removed:
        """Decide by the owner of the revision itself, also for an attachment (spec crud 4.9)."""
        check_precondition(delete.precondition, address, found)
        versions.must_equal(number, found.sidecar.version, address)
        operations: Operations | None = None
        if self.access is not None:
            subject = subject_of(route, address, found.sidecar, 0)
            operations = self.access.allow(PURGING, subject, delete)
        return Removed(found.sidecar.version, None, operations)


def _has_older(route: Route, address: DocumentAddress) -> bool:
    return route.storage.history(address).total > 1


@dataclass(frozen=True, slots=True)
class PurgeRequests:
    """Purges for one caller at a time in a process; forms of another service are left to it."""

    purges: Sequence[StoragePurge]
    purge_of: PurgeOf
    router: Router
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)

    def purge(self, app: str | None, name: str | None, document: str | None, rules: PurgeRules, *, dry: bool) -> bytes:
        """Purge all that is old enough, or with ``dry`` find out how much that is; return the answer in XML."""

        def results() -> Iterator[PurgeTotals | PersistenceError]:
            for purge in self.purges:
                for form in sorted(purge.store.forms(app)):
                    if name not in (None, form.name) or self.purge_of(self.router.of(form)) is not purge:
                        continue
                    every = purge.store.documents_and_drafts(form) if document is None else _one(purge, form, document)
                    yield from purge_documents(purge, form, every, rules, is_trial=dry)

        return self._answer(results(), dry=dry)

    def purge_data(self, query: ExportQuery, document: str | None, user: User, *, dry: bool) -> bytes:
        """Purge form data as the real system chooses it: by form, version, history and dates (spec runtime 6)."""
        selected = [(each, self.purge_of(each.route)) for each in select_forms(self.router, query)]

        def results() -> Iterator[PurgeTotals | PersistenceError]:
            for chosen, purge in selected:
                if purge is None:
                    continue
                form = chosen.route.form
                for each in purge.store.documents(form) if document is None else _one(purge, form, document):
                    data = DocumentPurge(chosen, purge, DocumentAddress(form, Collection.DATA, each), user)
                    try:
                        yield data.totals() if dry else data.purge()
                    except PersistenceError as error:
                        yield error

        return self._answer(results(), dry=dry)

    def _answer(self, results: Iterator[PurgeTotals | PersistenceError], *, dry: bool) -> bytes:
        totals, problems = PurgeTotals(), list[str]()
        with taking(self._turn, BusyError("another purge is being done", retry_after=30)):
            for result in results:
                if isinstance(result, PurgeTotals):
                    totals.add(result)
                elif len(problems) < MOST_PURGE_PROBLEMS:
                    problems.append(str(result))
        attributes = attributes_of({"dry-run": dry, **asdict(totals)})
        return element("purged", attributes, "".join(element("problem", "", text(each)) for each in problems)).encode()


@dataclass(frozen=True, slots=True)
class DocumentPurge:
    """The purge of one document by the query of ``selected``, for a ``user``."""

    # A document whose newest revision is in the range of dates is removed with its history. Without the history, only
    # its current revision is removed, and it stays deleted. Of others, older revisions in the range are removed.
    selected: SelectedForm
    purging: StoragePurge
    main: DocumentAddress
    user: User

    def totals(self) -> PurgeTotals:
        current = self.purging.store.sidecar(self.main)
        if current is None or current.version not in self.selected.versions:
            return PurgeTotals()
        if self._is_removed(current):
            return PurgeTotals(documents=1, bytes=self.purging.store.freed_by_folder(self.main))
        return self.purging.plan(self.main, self._rules).totals

    def purge(self) -> PurgeTotals:
        totals = self.totals()
        if totals.documents:
            return totals if self._discard() else PurgeTotals()
        return totals if totals.is_empty else self.purging.purge(self.main.form, self.main.document, self._rules)

    @property
    def _rules(self) -> PurgeRules:
        query = self.selected.query
        if query.history is RevisionHistory.EXCLUDE:
            return PurgeRules()
        return PurgeRules(revisions=query.until or LAST, since=query.since)

    def _is_removed(self, current: Sidecar) -> bool:
        query = self.selected.query
        is_chosen = query.history is RevisionHistory.INCLUDE or (
            query.history is RevisionHistory.EXCLUDE and not current.deleted
        )
        return is_chosen and query.is_in_range(current.modified)

    def _discard(self) -> bool:
        main, route = self.main, self.selected.route
        with route.storage.writing(main) as writer:
            current = writer.current(main)
            if current is None or not self._is_removed(current.sidecar):  # somebody has saved it meanwhile
                return False
            tombstone = current.sidecar
            with protecting(route, main, self.user):
                if not tombstone.deleted:
                    purged = msgspec.structs.replace(tombstone_of(current, self.user), purged=True)
                    tombstone = writer.delete(main, purged, over=current)
                    writer.discard_draft(main.form, main.document)
                if self.selected.query.history is RevisionHistory.EXCLUDE:
                    writer.remove_older(main, [current.sidecar.modified])
                    if _has_older(route, main):
                        return True
        return self.purging.discard(main, tombstone)


def _one(purge: StoragePurge, form: Form, document: str) -> list[str]:
    if purge.has(form, document):
        return [document]
    raise NotFoundError(f"{DocumentAddress(form, Collection.DATA, document)} does not exist")
