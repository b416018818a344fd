"""Purging over HTTP: single revisions and attachments (spec crud 4.9), and all that is old enough (spec crud 8.5).

Only administrators get here. For a single revision they also need the permission to delete, as its own owner gives it.
The current revision of a document always stays, unlike in the real system: there the one before would become current.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from persistence.errors import BadRequestError, BusyError, ConflictError, NotFoundError, PersistenceError
from persistence.forms.messages import attribute, element, text
from persistence.limits.documents import MOST_PURGE_PROBLEMS
from persistence.model import versions
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.permissions import Operations
from persistence.model.sidecar import Sidecar
from persistence.providers.provider import Provider, Route
from persistence.services.access import Access, subject_of
from persistence.services.documents import Documents
from persistence.services.leasing import protecting
from persistence.services.purge_plans import PurgeRules, PurgeTotals, RemovedFile
from persistence.services.purging import StoragePurge, purge_documents, remove_file
from persistence.services.rules import Delete, Get, Read, Removed, check_precondition
from persistence.storage.stored_revision import StoredRevision

PurgeOf = Callable[[Route], StoragePurge | None]
"""Returns what purges the data of a route; ``None`` where another service has it."""


class StoragePurges:
    """The purges of all storages of a service that are managed here, by the providers that have them."""

    def __init__(self, purges: Iterable[tuple[Provider, StoragePurge]]) -> None:
        self._purges = {id(provider): purge for provider, purge in purges}

    def __iter__(self) -> Iterator[StoragePurge]:
        """Yield the purge of each storage."""
        return iter(self._purges.values())

    def of(self, route: Route) -> StoragePurge | None:
        """Return what purges the data of a route; ``None`` where another service has it."""
        return self._purges.get(id(route.data))


@dataclass(frozen=True, slots=True)
class ForcedDeletes:
    """Removes single revisions, and attachments with all their revisions, without a trace.

    Without ``access``, a proxy has decided about permissions (spec crud 11). Methods raise the domain errors of
    ``persistence.errors``.
    """

    documents: Documents
    access: Access | None
    purge_of: PurgeOf

    def read(self, address: DocumentAddress, get: Get) -> Read:
        """Return the facts of a revision for a HEAD, those of a tombstone, too."""
        route = self.documents.router.of(address.form)
        found = self._found(route, address, get.instant)
        if self.access is None:
            return Read(address, found, None)
        number = self.documents.admitted(route, address, get.version, None)
        versions.must_equal(number, found.sidecar.version, address)
        operations = self.access.to_read(subject_of(route, address, found.sidecar, 0), get.user, get.token)
        return Read(address, found, operations)

    def delete(self, address: DocumentAddress, delete: Delete, instant: Instant | None) -> Removed:
        """Remove the revision of an instant, or without one an attachment with all its revisions.

        Raises:
            BadRequestError: the other one of the two would be needed, or it is a draft.
            ConflictError: it is the current revision of the data, or a deletion with a history; or somebody else
                writes it meanwhile.
        """
        if address.is_draft:
            raise BadRequestError("a draft has no history: a DELETE without force-delete leaves nothing of it")
        if address.is_main != (instant is not None):
            raise BadRequestError("force-delete needs last-modified-time for data.xml, and none for an attachment")
        route = self.documents.router.of(address.form)
        number = self.documents.admitted(route, address, delete.version, None)
        if instant is None:
            return self._file(route, address, delete, number)
        return self._revision(route, address, delete, number, instant)

    def _revision(
        self, route: Route, address: DocumentAddress, delete: Delete, number: int | None, instant: Instant
    ) -> Removed:
        with route.storage.writing(address) as writer:
            current = writer.current(address)
            found = self._found(route, address, instant)
            removed = self._allowed(route, address, delete, number, found)
            if current is None or current.sidecar.modified != instant:
                with protecting(route, address, delete.user):
                    writer.remove_older(address, [instant])
                return removed
            history = route.storage.history(address)
            if not current.sidecar.deleted:
                raise ConflictError(f"{instant} is the current revision of {address}, which always stays: delete it")
            if history is not None and history.total > 1:
                raise ConflictError(f"{address} has older revisions: its deletion can only be purged after them")
            purge = self.purge_of(route)
            if purge is None:
                writer.discard_document(address.form, address.document)
        if purge is not None and not purge.discard(address, current.sidecar):
            raise ConflictError(f"{address} was written by another request meanwhile")
        return removed

    def _file(self, route: Route, address: DocumentAddress, delete: Delete, number: int | None) -> Removed:
        found = self._found(route, address, None)
        removed = self._allowed(route, address, delete, number, found)
        if self.purge_of(route) is None:  # older revisions go with the current one there
            with route.storage.writing(address) as writer, protecting(route, address, delete.user):
                current = writer.current(address)
                if current is not None:
                    writer.remove_current(address, over=current)
            return removed
        file = RemovedFile(address, found.sidecar, _older(route, address, found.sidecar))
        if not remove_file(route.storage, file, lambda: self._is_same(route, address, found.sidecar)):
            raise ConflictError(f"{address} was written by another request meanwhile")
        return removed

    def _is_same(self, route: Route, address: DocumentAddress, sidecar: Sidecar) -> bool:
        now = route.storage.sidecar(address)
        return now is not None and now.id == sidecar.id

    def _found(self, route: Route, address: DocumentAddress, instant: Instant | None) -> StoredRevision:
        found = route.storage.removable(address, instant)
        if found is None:
            raise NotFoundError(f"{address} does not exist" + (f" as of {instant}" if instant else ""))
        return found

    def _allowed(
        self, route: Route, address: DocumentAddress, delete: Delete, number: int | None, found: StoredRevision
    ) -> Removed:
        """Judge a revision by its own owner, that of an attachment, too (spec crud 4.9)."""
        check_precondition(delete.precondition, address, found)
        versions.must_equal(number, found.sidecar.version, address)
        operations: Operations | None = None
        if self.access is not None:
            operations = self.access.to_purge(subject_of(route, address, found.sidecar, 0), delete.user, delete.token)
        return Removed(address, found.sidecar.version, None, operations)


def _older(route: Route, address: DocumentAddress, current: Sidecar) -> list[Instant]:
    history = route.storage.history(address)
    if history is None:
        return []
    found = [history.instant(position) for position in range(history.total)]
    return [each for each in found if each != current.modified]


@dataclass(slots=True)
class _Summary:
    totals: PurgeTotals = field(default_factory=PurgeTotals)
    problems: list[str] = field(default_factory=list)

    def add(self, result: PurgeTotals | PersistenceError) -> None:
        if isinstance(result, PurgeTotals):
            self.totals.add(result)
        elif len(self.problems) < MOST_PURGE_PROBLEMS:
            self.problems.append(str(result))


class PurgeRequests:
    """Purges all that is old enough, for one caller at a time in a process. ``purges`` are those of all storages here.

    ``route_of`` gives the route of a form. Forms that another service has are left to it.
    """

    def __init__(self, purges: StoragePurges, route_of: Callable[[Form], Route]) -> None:
        self._purges = purges
        self._route_of = route_of
        self._turn = threading.Lock()

    def purge(self, app: str | None, name: str | None, document: str | None, rules: PurgeRules, *, dry: bool) -> bytes:
        """Purge, or only find out what that would do if it is ``dry``; return the answer.

        Raises:
            BusyError: a purge is being done for somebody else.
            NotFoundError: there is no such document.
        """
        if not self._turn.acquire(blocking=False):
            raise BusyError("another purge is being done", retry_after=30)
        try:
            summary = _Summary()
            for purge, form in self._forms(app, name):
                documents = purge.store.documents_and_drafts(form) if document is None else _one(purge, form, document)
                for result in purge_documents(purge, form, documents, rules, is_trial=dry):
                    summary.add(result)
            return _answer(summary, dry=dry)
        finally:
            self._turn.release()

    def _forms(self, app: str | None, name: str | None) -> Iterator[tuple[StoragePurge, Form]]:
        for purge in self._purges:
            for form in purge.forms(app):
                is_asked = name is None or form.name == name
                if is_asked and self._purges.of(self._route_of(form)) is purge:
                    yield purge, form


def _one(purge: StoragePurge, form: Form, document: str) -> list[str]:
    if not purge.has(form, document):
        raise NotFoundError(f"{DocumentAddress(form, Collection.DATA, document, DATA_XML)} does not exist")
    return [document]


def _answer(summary: _Summary, *, dry: bool) -> bytes:
    totals = summary.totals
    numbers = {
        "revisions": totals.revisions,
        "documents": totals.documents,
        "drafts": totals.drafts,
        "attachments": totals.attachments,
        "bytes": totals.freed,
    }
    attributes = attribute("dry-run", "true" if dry else "false")
    attributes += "".join(attribute(name, str(number)) for name, number in numbers.items())
    return element(
        "purged", attributes, "".join(element("problem", "", text(each)) for each in summary.problems)
    ).encode()
