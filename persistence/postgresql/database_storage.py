"""A storage of forms in a database, and the leases of its documents. A read is one statement."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from persistence.errors import BusyError, LockedError, NotFoundError
from persistence.limits import MOST_LEASES_BESIDE_NEW_IDS, MOST_LEASES_OF_A_DIRECTORY
from persistence.model.addresses import Address, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.permissions import User
from persistence.model.write_conditions import DocumentLease, LeaseHolder, Moment
from persistence.postgresql.connections import database_errors
from persistence.postgresql.database import Database, DatabaseJob, Rows, folder_of, lock_key
from persistence.postgresql.database_writer import CommitListener, DatabaseWriter
from persistence.postgresql.revision_rows import (
    DatabaseDocumentFiles,
    DatabaseReader,
    DatabaseUpload,
    Lookup,
    decoded,
    select_sidecars,
)
from persistence.storage.layout import NAMES
from persistence.storage.storage import KeepsHistory, Leases, Storage, keeps_all

_BUCKETS = 256
_LEFT = "greatest(0, ceil(extract(epoch FROM ends - clock_timestamp())))::int"
_FIND = f"SELECT document, holder, holder_group, {_LEFT}, form FROM lease WHERE document = %s"
_KEEP = "SELECT 1 FROM lease WHERE document = %s FOR UPDATE"
"""Lets nobody take over a lease that has expired, until the transaction ends."""
_LISTED = (
    f"SELECT document, holder, holder_group, {_LEFT}, form FROM lease WHERE document > %s ORDER BY document LIMIT %s"
)
_TAKE = """
INSERT INTO lease (document, bucket, holder, holder_group, form, ends)
VALUES (
    %(document)s, %(bucket)s, %(holder)s, %(group)s, %(form)s, clock_timestamp() + make_interval(secs => %(seconds)s)
)
ON CONFLICT (document) DO UPDATE
SET holder = excluded.holder, holder_group = excluded.holder_group, form = excluded.form, ends = excluded.ends
"""
_SWEEP = """
DELETE FROM lease WHERE document IN (
    SELECT document FROM lease WHERE bucket = %s AND ends < clock_timestamp() LIMIT 4 FOR UPDATE SKIP LOCKED
)
"""
_COUNT = "SELECT count(*) FROM lease WHERE bucket = %s"
_END = "DELETE FROM lease WHERE document = %s"


# Leases of documents in a database (spec crud 7), by its clock: the clocks of nodes do not matter.
#
# A writer shares a lock of the document's lease until the commit, and LOCK takes it alone: so they never pass each
# other.


class DatabaseLeases(Leases):
    """The leases in a database; a row is a lease."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def lock(
        self,
        address: DocumentAddress,
        holder: LeaseHolder,
        seconds: int,
        *,
        is_stored: bool = True,
        is_by_form: bool = False,
    ) -> None:
        with self._alone("leasing", address) as connection:
            held = _living(connection, address.document)
            own = address.form if is_by_form else None
            if held is not None and held.is_in_the_way(holder, own, is_stored=is_stored):
                raise _refusal(held)
            bucket = zlib.crc32(address.document.encode()) % _BUCKETS
            if held is None:
                connection.execute(_SWEEP, (bucket,))
                row = connection.execute(_COUNT, (bucket,)).fetchone()
                most = MOST_LEASES_OF_A_DIRECTORY if is_stored else MOST_LEASES_BESIDE_NEW_IDS
                if row is not None and row[0] >= most:
                    raise BusyError("too many documents are leased at the moment", retry_after=60)
            values = {"document": address.document, "bucket": bucket, "holder": holder.user, "group": holder.group}
            form = str(address.form) if held is None or is_by_form else held.form
            connection.execute(_TAKE, values | {"form": form, "seconds": seconds})

    def unlock(self, address: DocumentAddress, holder: LeaseHolder, *, is_by_form: bool = False) -> None:
        with self._alone("giving back the lease of", address) as connection:
            held = _living(connection, address.document)
            if held is not None and held.is_in_the_way(holder, address.form if is_by_form else None):
                raise _refusal(held)
            connection.execute(_END, (address.document,))

    def require(self, address: DocumentAddress, user: User) -> None:
        NAMES.paths(address)
        with self._database.reading("reading the lease of", address) as connection:
            _require(_living(connection, address.document), user, address)

    @contextmanager
    def protecting(self, address: DocumentAddress, user: User) -> Iterator[None]:
        NAMES.paths(address)
        with self._database.joined("reading the lease of", address) as connection:
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (self._key(address),))
            _require(_living(connection, address.document), user, address)
            yield

    def listed(self) -> Iterator[DocumentLease]:
        yield from (_lease(*row) for row in self._database.listed("listing leases", "", _LISTED, (), ("",)))

    def broken(self, document: str, user: str | None = None) -> DocumentLease:
        with self._database.joined("breaking the lease of", document) as connection:
            is_there = connection.execute(_KEEP, (document,)).fetchone() is not None
            held = _living(connection, document) if is_there else None
            if held is not None:
                held.require_of(user)
            if is_there:  # else somebody took a new lease meanwhile
                connection.execute(_END, (document,))
        if held is None:
            raise NotFoundError(f"nobody has leased the document {document}")
        return held

    @contextmanager
    def _alone(self, action: str, address: DocumentAddress) -> Iterator[Rows]:
        NAMES.paths(address)
        with self._database.transaction(action, address) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (self._key(address),))
            yield connection

    def _key(self, address: DocumentAddress) -> int:
        return lock_key(self._database.address.schema, "lease", address.document)


def _living(connection: Rows, document: str) -> DocumentLease | None:
    row = connection.execute(_FIND, (document,)).fetchone()
    return None if row is None or not row[3] else _lease(*row)


def _lease(document: str, holder: str, group: str | None, left: int, form: str) -> DocumentLease:
    return DocumentLease(document, holder, group, left, "", 0.0, time.time(), form)


def _require(held: DocumentLease | None, user: User, address: DocumentAddress) -> None:
    if held is not None and held.keeps_out(user, address.form):
        raise _refusal(held)


def _refusal(held: DocumentLease) -> LockedError:
    return held.refusal(Moment("", 0.0, held.wall))


class DatabaseStorage(DatabaseReader, Storage):
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
        super().__init__(database)
        self._listener = listener
        self._local = local
        self._keeps_history = keeps_history
        # Writers share this lock, and it is taken alone to keep them out.
        self._gate = lock_key(database.address.schema, "read-only")
        self.leases = DatabaseLeases(database)
        self.reencryption = DatabaseJob(database, "re-encryption")

    def freed(self, address: Address, instant: Instant | None) -> int:
        found = self.removable(address, instant)
        return 0 if found is None else found.size

    def freed_by_folder(self, main: DocumentAddress) -> int:
        return sum(len(row.sidecar) + decoded(row.sidecar, main).size for row in self.folder(main))

    def document_files(self, form: Form, document: str) -> DatabaseDocumentFiles:
        return DatabaseDocumentFiles(self, form, document)

    def upload(self, address: Address) -> DatabaseUpload:
        return DatabaseUpload(self._local, self.database, lambda: (self.numbers.find(address.form), folder_of(address)))

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
            writer = DatabaseWriter(connection, self.numbers, self._keeps_history, self._listener)
            writer.begin(address, number, self._key(*address.scope), self._gate)
            self._lookups.inside.append(writer.lookup)
            try:
                yield writer
                if self._listener is not None:
                    for form, version in writer.definitions:
                        self._listener.published(form, version)
                    for form, document in writer.documents:
                        self._listener.changed(form, document)
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
