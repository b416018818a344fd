"""All living revisions of a document in one storage, for work on what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from persistence.errors import DamagedError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.storage.managed import ManagedStorage
from persistence.storage.split_attachments import RevisionRewriter
from persistence.storage.stored_revision import StoredRevision


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
            yield from _of_resource(store, rewriter, main.moved(collection, name), problems)


def opened_revision(rewriter: RevisionRewriter, revision: DataRevision) -> StoredRevision | None:
    """Return a revision with its content open; ``None`` where it is not there any more."""
    found = rewriter.read(revision.address, revision.instant)
    if found is None or found.file is None:
        return None
    if found.sidecar.id != revision.sidecar.id:
        found.file.close()
        return None
    return found


def _of_resource(
    store: ManagedStorage, rewriter: RevisionRewriter, address: DocumentAddress, problems: list[str]
) -> Iterator[DataRevision]:
    """Yield the living revisions of a resource, but not a second name of the current one that a kill has left."""
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
