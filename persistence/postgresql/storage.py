"""A storage of forms in a database. A read is one statement, and within ``writing`` a part of its transaction."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from typing import BinaryIO

import psycopg

from persistence.errors import DamagedError
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.postgresql.contents import DatabaseUpload, opened_content
from persistence.postgresql.database import Database
from persistence.postgresql.failures import database_errors
from persistence.postgresql.jobs import DatabaseJob
from persistence.postgresql.leases import DatabaseLeases
from persistence.postgresql.lookups import Lookup, decoded, select_sidecars
from persistence.postgresql.places import (
    DATA,
    DEFINITION,
    DRAFT,
    FormNumbers,
    ResourceKey,
    check,
    check_app,
    folder_of,
    key_of,
    lock_key,
)
from persistence.postgresql.revisions import DatabaseRevisions, RevisionReader
from persistence.postgresql.traces import DatabaseDocumentFiles
from persistence.postgresql.writing import CommitListener, DatabaseWriter, facts
from persistence.storage.managed import ManagedStorage
from persistence.storage.marks import StateMark
from persistence.storage.storage import KeepsHistory, keeps_all
from persistence.storage.stored_revision import NOTHING_THERE, Fingerprint, StoredRevision

_READ_ONLY = "read-only"
"""The name of the lock that writers share, and that is taken alone to keep them out."""
_KINDS = {Collection.DATA: DATA, Collection.DRAFT: DRAFT}


class _Lookups(threading.local):
    """The lookups of the blocks that a thread is in, the innermost last."""

    def __init__(self) -> None:
        self.inside: list[Lookup] = []


class DatabaseStorage(ManagedStorage):
    """The forms in a database. ``local`` is a directory of this node, where bodies wait on their way in."""

    def __init__(
        self,
        database: Database,
        local: str,
        *,
        listener: CommitListener | None = None,
        keeps_history: KeepsHistory = keeps_all,
    ) -> None:
        """``listener`` is the index, which is written in the transactions of the saves."""
        self.database = database
        self._listener = listener
        self._local = local
        self._numbers = FormNumbers(database)
        self._reader = RevisionReader(database)
        self._keeps_history = keeps_history
        self._lookups = _Lookups()
        self._gate = lock_key(database.address.schema, _READ_ONLY)
        self._leases = DatabaseLeases(database)
        self._reencryption = DatabaseJob(database, "re-encryption")

    @property
    def leases(self) -> DatabaseLeases:
        return self._leases

    @property
    def reencryption(self) -> DatabaseJob:
        return self._reencryption

    def sidecar(self, address: Address) -> Sidecar | None:
        inside = self._lookups.inside
        known = inside[-1].sidecar(address) if inside else None
        if known is not None:
            return known[0]
        place = self._key_of(address)
        return None if place is None else self._reader.sidecar(place, address)

    def read(self, address: Address, *, content: bool) -> StoredRevision | None:
        if content:
            return self._opened(address, None)
        sidecar = self.sidecar(address)
        return None if sidecar is None else facts(sidecar)

    def read_revision(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        if content:
            return self._opened(address, instant)
        place = self._key_of(address)
        sidecar = None if place is None else self._reader.sidecar(place, address, instant)
        return None if sidecar is None else facts(sidecar)

    def read_older(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        current = self.sidecar(address)
        if current is not None and current.modified == instant:
            return None
        return self.read_revision(address, instant, content=content)

    def removable(self, address: Address, instant: Instant | None) -> StoredRevision | None:
        if instant is None:
            return self.read(address, content=False)
        return self.read_revision(address, instant, content=False)

    def content(self, address: Address) -> BinaryIO | None:
        found = self._opened(address, None)
        return None if found is None else found.file

    def history(self, address: Address) -> DatabaseRevisions | None:
        place = self._key_of(address)
        instants = [] if place is None else self._reader.instants(place, address)
        return None if place is None or not instants else DatabaseRevisions(self._reader, place, address, instants)

    def names(self, main: Address) -> list[str]:
        place = self._key_of(main)
        return [] if place is None else self._reader.names(place, main)

    def fingerprint(self, address: Address) -> Fingerprint:
        inside = self._lookups.inside
        known = inside[-1].content_id(address) if inside else None
        if known is not None:
            return _fingerprint(known[0])
        place = self._key_of(address)
        row = None if place is None else self._reader.row("id", place, address)
        return _fingerprint(None if row is None else row[0])

    def fingerprints(self, form: Form) -> Iterator[tuple[int, Fingerprint]]:
        for version, content in self._versions(form):
            yield version, _fingerprint(content)

    def versions(self, form: Form) -> Iterator[int]:
        yield from (version for version, _ in self._versions(form))

    def forms(self, app: str | None = None) -> Iterator[Form]:
        if app is not None:
            check_app(app)
        yield from self._reader.forms(app)

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        number = self._numbers.find(form)
        if number is not None:
            yield from self._reader.documents(form, number, _KINDS[collection])

    def documents_and_drafts(self, form: Form) -> Iterator[str]:
        found = heapq.merge(*(self.documents(form, each) for each in Collection))
        yield from (document for document, _ in groupby(found))

    def marks(self, form: Form) -> Iterator[StateMark]:
        number = self._numbers.find(form)
        if number is None:
            return
        for version, total in self._reader.sums(form, number, DEFINITION):
            yield StateMark(DefinitionAddress(form, int(version), FORM_XHTML), str(total), is_sum=True)
        both = heapq.merge(*(self._reader.sums(form, number, kind) for kind in (DATA, DRAFT)))
        for document, found in groupby(both, lambda each: each[0]):
            main = DocumentAddress(form, Collection.DATA, document, DATA_XML)
            yield StateMark(main, str(sum(total for _, total in found)), is_sum=True)

    def sidecars(self, main: Address) -> Iterator[tuple[str, Instant, Sidecar]]:
        place = self._key_of(main)
        for row in () if place is None else self._reader.folder(place.form, place.kind, place.folder):
            yield row.name, row.modified, decoded(row.sidecar, replace(main, name=row.name))

    def revisions(self, address: Address) -> list[Instant]:
        place, current = self._key_of(address), self.sidecar(address)
        instants = [] if place is None else self._reader.instants(place, address)
        return [each for each in instants if current is None or each != current.modified]

    def is_older_name_of(self, address: Address, instant: Instant, content_id: str) -> bool:  # noqa: ARG002 - of trees
        """Return False: no revision here has a second name."""
        return False

    def has_unfinished(self, main: DocumentAddress) -> bool:  # noqa: ARG002 - of trees
        """Return False: a transaction is never half done."""
        return False

    def freed(self, address: Address, instant: Instant | None) -> int:
        found = self.removable(address, instant)
        return 0 if found is None else found.size

    def freed_by_folder(self, main: DocumentAddress) -> int:
        place = self._key_of(main)
        if place is None:
            return 0
        rows = self._reader.folder(place.form, place.kind, place.folder)
        return sum(len(row.sidecar) + decoded(row.sidecar, main).size for row in rows)

    def traces(self, form: Form, document: str) -> DatabaseDocumentFiles:
        return DatabaseDocumentFiles(self._reader, self._numbers, form, document)

    def upload(self, address: Address) -> DatabaseUpload:
        return DatabaseUpload(
            self._local, self.database, lambda: (self._numbers.find(address.form), folder_of(address))
        )

    @contextmanager
    def deciding(self, address: Address) -> Iterator[None]:
        lookup, number = Lookup(), self._number(address)
        if number is not None:
            statement, values = select_sidecars(number, address)
            with self.database.reading("reading", address) as connection:
                lookup.add(address, connection.execute(statement.encode(), values, binary=True).fetchall())
        self._lookups.inside.append(lookup)
        try:
            yield
        finally:
            self._lookups.inside.pop()

    @contextmanager
    def writing(self, address: Address) -> Iterator[DatabaseWriter]:
        self.database.require_committing()
        number = self._number(address)
        with self.database.transaction("writing", address, first=None) as connection:
            writer = DatabaseWriter(connection, self._numbers, self._keeps_history, self._listener)
            writer.begin(address, number, self._key(*address.scope), self._gate)
            self._lookups.inside.append(writer.lookup)
            try:
                yield writer
                writer.tell()
                self.database.require_committing()
            finally:
                self._lookups.inside.pop()

    @contextmanager
    def keeping_writers_out(self) -> Iterator[Callable[[], None]]:
        """Keep writers out for a block, once those who are writing have committed; readers go on.

        The lock ends with the connection. Yields a function that raises ``BusyError`` if that was lost.
        """
        with self.database.session("keeping writers out of", self.database.address) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", (self._gate,))

            def require() -> None:
                with database_errors("looking whether writers are kept out of", self.database.address):
                    connection.execute("SELECT 1")

            try:
                yield require
            finally:  # the server may take a while to notice that the connection ends
                with suppress(psycopg.Error):
                    connection.execute("SELECT pg_advisory_unlock(%s)", (self._gate,))

    @contextmanager
    def creating(self, form: Form) -> Iterator[None]:
        key = self._key(form.app, form.name, "creation")
        with self.database.joined("creating a document of", form) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,)).fetchone()
            yield

    def _key(self, *scope: str) -> int:
        return lock_key(self.database.address.schema, *scope)

    def _versions(self, form: Form) -> list[tuple[int, str | None]]:
        inside = self._lookups.inside
        known = inside[-1].versions(form) if inside else None
        if known is not None:
            return known
        number = self._numbers.find(form)
        return [] if number is None else self._reader.versions(form, number)

    def _number(self, address: Address) -> int | None:
        check(address)
        return self._numbers.find(address.form)

    def _key_of(self, address: Address) -> ResourceKey | None:
        number = self._number(address)
        return None if number is None else key_of(number, address)

    def _opened(self, address: Address, instant: Instant | None) -> StoredRevision | None:
        place = self._key_of(address)
        row = None if place is None else self._reader.row("sidecar, body", place, address, instant)
        if row is None:
            return None
        sidecar = decoded(row[0], address)
        if sidecar.deleted:
            return facts(sidecar)
        if row[1] is not None and len(row[1]) != sidecar.size:
            raise DamagedError(f"the content of {address} has {len(row[1])} bytes, and not {sidecar.size}")
        file = opened_content(self.database, sidecar.id, sidecar.size, row[1])
        return StoredRevision(sidecar, sidecar.etag, sidecar.size, file)


def _fingerprint(content: str | None) -> Fingerprint:
    if content is None:
        return NOTHING_THERE
    return (int(content[:14], 16), int(content[14:28], 16), int(content[28:], 16)), None
