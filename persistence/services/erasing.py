"""Erasing documents, as law may demand: all their files in a storage, with a certificate of what was removed.

Each step leaves the storage in order. An erasure that was killed goes on when it is called again, with the documents
that the certificate names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from persistence.errors import DamagedError, NotFoundError, disk_errors
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.services.purge_plans import RemovedFile
from persistence.services.purging import StoragePurge, remove_file
from persistence.storage.managed import BodiesOf, ManagedStorage, Traces


class ErasedFile(msgspec.Struct, frozen=True):
    """An erased file: its path below a root or in a backup, its size in bytes and its digest."""

    path: str
    size: int
    digest: str


class ErasedDocument(msgspec.Struct, frozen=True):
    """An erased document: its tree, its owner as far as one is known, and its files."""

    tree: str
    app: str
    form: str
    document: str
    owner: str | None
    files: tuple[ErasedFile, ...]


class ErasedCopies(msgspec.Struct, frozen=True):
    """The files of documents in a backup, and whether they were removed there."""

    backup: str
    removed: bool
    files: tuple[ErasedFile, ...]


class Certificate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record of an erasure, without any content. Until it has ``ended`` the erasure is not complete.

    ``by`` is the user of the system who ran it; ``remaining`` are lines about copies elsewhere.
    """

    format: int
    began: Instant
    by: str
    documents: tuple[ErasedDocument, ...]
    ended: Instant | None = None
    reason: str | None = None
    owner: str | None = None
    backups: tuple[ErasedCopies, ...] = ()
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnedDocuments:
    """The documents of a user, the number of revisions of others that name the user, and of documents that are damaged.

    The owner of a damaged document cannot be read.
    """

    documents: tuple[tuple[Form, str], ...]
    mentions: int
    damaged: int


@dataclass(frozen=True, slots=True)
class Erasing:
    """Erases documents of one storage, which is called ``name``."""

    name: str
    store: ManagedStorage
    purge: StoragePurge
    bodies_of: BodiesOf

    def owned(self, user: str) -> OwnedDocuments:
        """Return the documents and drafts of an owner; one that was never saved belongs to all owners of its files."""
        found, mentions, damaged = list[tuple[Form, str]](), 0, 0
        for form in self.purge.forms(None):
            for document in self.purge.store.documents_and_drafts(form):
                mains = [DocumentAddress(form, each, document, DATA_XML) for each in Collection]
                files = (main.moved(main.collection, name) for main in mains for name in self.store.names(main))
                deciding = list(self._current(mains)) or list(self._current(files))
                if any(each is not None and each.creator == user for each in deciding):
                    found.append((form, document))
                else:
                    damaged += None in deciding
                    mentions += sum(user in (each.modifier, each.creator) for each in self._revisions(mains[0]))
        return OwnedDocuments(tuple(found), mentions, damaged)

    def describe(self, form: Form, document: str) -> ErasedDocument:
        """Return the record of a document, with all its files."""
        with disk_errors("looking for the files of", f"{form}/data/{document}"):
            found = [
                ErasedFile(each.path, each.size, each.digest)
                for traces in self._traces(form, document)
                for each in traces.listed()
            ]
        if not found:
            raise NotFoundError(f"{form}/data/{document} does not exist")
        mains = [DocumentAddress(form, each, document, DATA_XML) for each in Collection]
        owner = next((each.creator for each in self._current(mains) if each is not None and each.creator), None)
        return ErasedDocument(self.name, form.app, form.name, document, owner, tuple(found))

    def erase(self, form: Form, document: str) -> None:
        """Erase a document with its history, attachments, draft and lease, and its traces.

        The caller rebuilds the index of the form: deleted rows stay in the file of a database for a while.
        """
        main = DocumentAddress(form, Collection.DATA, document, DATA_XML)
        traces = list(self._traces(form, document))
        with disk_errors("looking for links to", main):
            links = [list(each.links()) for each in traces]
        storage = self.purge.storage_of(form)
        for name in () if storage is self.store else self.store.names(main):
            address = main.moved(Collection.DATA, name)
            with suppress(DamagedError):
                current = None if address.is_main else self.store.sidecar(address)
                if current is not None:
                    remove_file(storage, RemovedFile(address, current, self.store.revisions(address)))
        with storage.writing(main) as writer:
            writer.discard_document(form, document)
            writer.discard_draft(form, document)
            # Under the lock: otherwise somebody may have saved the document again.
            with disk_errors("erasing", main):
                for each, own in zip(traces, links, strict=True):
                    each.remove(own)
        with suppress(NotFoundError):
            self.store.leases.broken(document)

    def _traces(self, form: Form, document: str) -> Iterator[Traces]:
        yield self.store.traces(form, document)
        bodies = self.bodies_of(form)
        if bodies is not None:
            yield bodies.traces(form, document)

    def _current(self, addresses: Iterable[DocumentAddress]) -> Iterator[Sidecar | None]:
        for address in addresses:
            try:
                sidecar = self.store.sidecar(address)
            except DamagedError:
                yield None
            else:
                if sidecar is not None:
                    yield sidecar

    def _revisions(self, main: DocumentAddress) -> Iterator[Sidecar]:
        try:
            history = self.store.history(main)
        except DamagedError:
            return
        found = (history.revision(position) for position in range(history.total)) if history is not None else ()
        yield from (each.sidecar for each in found if each is not None and each.sidecar is not None)
