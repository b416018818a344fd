"""The revisions of documents in a storage: the one that a GET means, and all living ones, for work on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from persistence.errors import DamagedError, NotFoundError
from persistence.model.addresses import DATA_XML, Address, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.providers.provider import Route
from persistence.services.rules import Get, must_live
from persistence.storage.managed import ManagedStorage
from persistence.storage.split_attachments import RevisionRewriter
from persistence.storage.storage import Revisions, position_at
from persistence.storage.stored_revision import StoredRevision


def selected(route: Route, address: DocumentAddress, get: Get, *, content: bool) -> StoredRevision:
    """Return the living revision that a GET selects, with ``content`` open."""
    if get.as_of is not None:
        return must_live(as_of(route.storage, address, get.as_of, content=content), address)
    if get.instant is None:
        return must_live(route.storage.read(address, content=content), address)
    found = route.storage.read_revision(address, get.instant, content=content)
    if found is None:
        raise NotFoundError(f"{address} has no revision of {get.instant}")
    return must_live(found, address)


def as_of(storage: Revisions, address: Address, moment: Instant, *, content: bool) -> StoredRevision:
    """Return the revision that was current at a moment, perhaps a tombstone."""
    found = storage.read(address, content=content)
    # Only the history of another service says since when something is deleted.
    if found is not None and not found.sidecar.deleted and found.sidecar.modified <= moment:
        return found
    if found is not None:
        found.close()
    revisions = storage.history(address) if address.keeps_history else None
    position = 0 if revisions is None else position_at(revisions, moment)
    if revisions is not None and position < revisions.total:
        older = storage.read_revision(address, revisions.instant(position), content=content)
        if older is not None:
            return older
    raise NotFoundError(f"{address} did not exist at {moment}")


@dataclass(frozen=True, slots=True)
class DataRevision:
    """A living revision: the current one, or with an ``instant`` an older one."""

    address: DocumentAddress
    instant: Instant | None
    sidecar: Sidecar


def living_revisions(
    store: ManagedStorage, rewriter: RevisionRewriter, form: Form, document: str, problems: list[str]
) -> Iterator[DataRevision]:
    """Yield the living revisions of a document, its attachments and its draft; add what is damaged to ``problems``."""
    for collection in (Collection.DRAFT, Collection.DATA):
        main = DocumentAddress(form, collection, document, DATA_XML)
        for name in store.names(main):
            yield from _revisions_of(store, rewriter, main.moved(collection, name), problems)


def opened_revision(rewriter: RevisionRewriter, revision: DataRevision) -> StoredRevision | None:
    """Return a revision with its content open; ``None`` where it is not there any more."""
    found = rewriter.read(revision.address, revision.instant)
    if found is None or found.file is None:
        return None
    if found.sidecar.id != revision.sidecar.id:
        found.file.close()
        return None
    return found


def _revisions_of(
    store: ManagedStorage, rewriter: RevisionRewriter, address: DocumentAddress, problems: list[str]
) -> Iterator[DataRevision]:
    current = ""
    for instant in (None, *store.revisions(address)):
        try:
            if instant is not None and store.is_older_name_of(address, instant, current):
                continue  # it goes with the first name, when that is rewritten
            record = rewriter.record(address, instant)
        except DamagedError as error:
            problems.append(str(error))
            continue
        if record is not None and instant is None:
            current = record.id
        if record is not None and not record.deleted:
            yield DataRevision(address, instant, record)
