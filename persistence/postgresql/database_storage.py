"""A storage of forms in a database, and the leases of its documents. A read is one statement.

The writer of a scope changes it within one transaction, which holds its lock until the commit. Every change also says
which revision it replaces, and finds no row where there is a different one: two writers never overwrite each other
unseen, even if the lock fails.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec
from psycopg import Cursor
from psycopg import errors as codes
from psycopg.rows import TupleRow

from persistence.errors import BusyError, LockedError, NotFoundError, ReplacedError
from persistence.index.outbox import Before, event_of, has_events
from persistence.limits import MOST_LEASES_BESIDE_NEW_IDS, MOST_LEASES_OF_A_DIRECTORY
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.sidecar import Sidecar, later_than
from persistence.model.texts import Instant
from persistence.model.versions import DocumentLease, LeaseHolder, Moment
from persistence.postgresql.connections import RETRY_AFTER, Session, database_errors
from persistence.postgresql.database import (
    DATA,
    DRAFT,
    Database,
    DatabaseJob,
    FormNumbers,
    ResourceKey,
    Rows,
    folder_of,
    key_of,
    lock_key,
    locked,
    pushed,
)
from persistence.postgresql.revision_rows import (
    GIVE_UP,
    DatabaseDocumentFiles,
    DatabaseReader,
    DatabaseUpload,
    Lookup,
    decoded,
    facts,
    select_sidecars,
)
from persistence.storage.commit import Upload
from persistence.storage.layout import NAMES
from persistence.storage.storage import Arrivals, KeepsHistory, Leases, Storage, Writing, keeps_all
from persistence.storage.stored_revision import StoredRevision

_LOCK = "SELECT pg_advisory_xact_lock(%s), pg_try_advisory_xact_lock_shared(%s)"
_AT = "form = %(form)s AND kind = %(kind)s AND folder = %(folder)s AND name = %(name)s"
_CURRENT = f"{_AT} AND is_current AND id = %(over)s"
_VALUES = "%(form)s, %(kind)s, %(folder)s, %(name)s, %(modified)s, true, %(id)s, %(sidecar)b::bytea, %(body)b::bytea"
_COLUMNS = "form, kind, folder, name, modified, is_current, id, sidecar, body"
_IS_FORM = "EXISTS (SELECT FROM form WHERE id = %(form)s AND app = %(app)s AND form.name = %(form_name)s)"
_FIRST = f"""
INSERT INTO revision ({_COLUMNS}) SELECT {_VALUES} WHERE {_IS_FORM} ON CONFLICT DO NOTHING RETURNING 1
"""
_NEXT = f"""
WITH replaced AS (UPDATE revision SET is_current = false WHERE {_CURRENT} AND {_IS_FORM} RETURNING 1)
INSERT INTO revision ({_COLUMNS}) SELECT {_VALUES} FROM replaced RETURNING 1
"""
_INSTEAD = f"""
UPDATE revision SET modified = %(modified)s, id = %(id)s, sidecar = %(sidecar)b, body = %(body)b
WHERE {_CURRENT} AND {_IS_FORM} RETURNING 1
"""
_REWRITE = f"""
UPDATE revision SET id = %(id)s, sidecar = %(sidecar)b, body = %(body)b
WHERE {_AT} AND modified = %(modified)s AND id = %(over)s RETURNING 1
"""
_CLAIM = "DELETE FROM unclaimed WHERE id = %s RETURNING 1"
_IS_TAKEN = "SELECT EXISTS (SELECT FROM piece WHERE id = %s AND number = 0)"
_RENAME = "UPDATE piece SET id = %s WHERE id = %s"
_UNCLAIM = """
INSERT INTO unclaimed (id, form, folder) SELECT %(over)s, %(form)s, %(folder)s
WHERE EXISTS (SELECT FROM piece WHERE id = %(over)s) ON CONFLICT DO NOTHING
"""
_DISCARD = """
WITH gone AS (DELETE FROM revision WHERE {} RETURNING id, form, folder, body IS NULL AS is_apart),
unclaimed AS (
    INSERT INTO unclaimed (id, form, folder) SELECT id, form, folder FROM gone
    WHERE is_apart AND EXISTS (SELECT FROM piece WHERE piece.id = gone.id) ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone
"""
"""Leaves contents in pieces to the sweep: somebody may be reading them."""

_ERASE = """
WITH gone AS (DELETE FROM revision WHERE {} RETURNING id, body IS NULL AS is_apart),
pieces AS (DELETE FROM piece USING gone WHERE gone.is_apart AND piece.id = gone.id)
SELECT count(*) FROM gone
"""
"""Removes the contents too, at once."""

_RECORD = "INSERT INTO outbox_event (recorded, body) VALUES (%s, %b)"
_FOLDER = "form = %(form)s AND kind = %(kind)s AND folder = %(folder)s"


class CommitListener(Protocol):
    """Hears of the changes of a block of ``writing``, before its commit and within its transaction; it may raise."""

    def changing(self, form: Form, document: str, version: int) -> None:
        """The ``data.xml`` of a document of a version is being changed: ask for what ``changed`` will need."""

    def changed(self, form: Form, document: str) -> None:
        """The ``data.xml`` of a document, or of its draft, was changed."""

    def published(self, form: Form, version: int) -> None:
        """The ``form.xhtml`` of a version was changed."""


class DatabaseWriter(Writing):
    """Makes changes in the transaction of a connection. Methods raise domain errors and those of the connection.

    ``documents`` (with their drafts) and ``definitions`` were changed.
    """

    def __init__(
        self,
        connection: Session,
        numbers: FormNumbers,
        keeps_history: KeepsHistory,
        listener: CommitListener | None,
        *,
        has_events: bool,
    ) -> None:
        self._connection = connection
        self._numbers = numbers
        self._keeps_history = keeps_history
        self._listener = listener
        self._has_events = has_events
        self.lookup = Lookup()
        self.documents: dict[tuple[Form, str], None] = {}
        self.definitions: dict[tuple[Form, int], None] = {}

    def begin(self, address: Address, number: int | None, key: int, gate: int) -> None:
        """Take the lock ``key``, share ``gate``, look at what the scope needs; ``number`` is that of the form."""
        locked = self._connection.execute(_LOCK, (key, gate))
        found = None if number is None else self._ask(number, address)
        row = locked.fetchone()
        if row is None or not row[1]:
            raise BusyError("the data is being moved and can only be read for now", RETRY_AFTER)
        if found is not None:
            self.lookup.add(address, found.fetchall())

    def current(self, address: Address) -> StoredRevision | None:
        if address not in self.lookup.sidecars:
            number = self._numbers.find(address.form)
            if number is None:
                return None
            self.lookup.add(address, self._ask(number, address).fetchall())
        sidecar = self.lookup.sidecars[address]
        return None if sidecar is None else facts(sidecar)

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        return self._replace(address, sidecar, _own(upload), over)

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        self.require_removable(address)
        return self._replace(address, tombstone, None, over)

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        self.require_removable(address)
        own, place = _own(upload), key_of(self._numbers.require(address.form), address)
        row = _row(place, rewritten, own.body(), over.id)
        if self._connection.execute(_REWRITE, row | {"modified": over.modified}).fetchone() is None:
            return False
        self._claim(own, rewritten.id)
        self._connection.execute(_UNCLAIM, row)
        if instant is None:
            self._note(address, rewritten)
        return True

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:  # noqa: ARG002 - of trees
        self.require_removable(address)
        self._remove(_DISCARD, address, over)

    def remove_current(self, address: Address, *, over: StoredRevision) -> None:
        self.require_removable(address)
        self._remove(_ERASE, address, over)

    def discard_draft(self, form: Form, document: str) -> None:
        self._discard(_DISCARD, DRAFT, form, document)

    def discard_document(self, form: Form, document: str) -> None:
        main = DocumentAddress(form, Collection.DATA, document)
        self.require_removable(main)
        if self._has_events and (found := self.current(main)) is not None:
            _record(self._connection, main, found.sidecar, found.sidecar, is_erased=True)
        self._discard(_ERASE, DATA, form, document)

    def remove_older(self, address: Address, instants: Sequence[Instant]) -> int:
        self.require_removable(address)
        number = self._numbers.find(address.form)
        values = key_of(number or 0, address)._asdict() | {"instants": list(instants)}
        where = f"{_AT} AND NOT is_current AND modified = ANY(%(instants)s)"
        ((count,),) = self._connection.execute(_ERASE.format(where), values).fetchall()
        return int(count)

    def _ask(self, number: int, address: Address) -> Cursor[TupleRow]:
        statement, values = select_sidecars(number, address)
        return self._connection.execute(statement.encode(), values, binary=True)

    def _replace(
        self, address: Address, sidecar: Sidecar, upload: DatabaseUpload | None, over: StoredRevision | None
    ) -> Sidecar:
        # Later than the revision before, and than the document's in the other collection: a draft older than the save
        # or the tombstone beside it counts as left by a crash. No clock decides about it.
        beside = None
        if isinstance(address, DocumentAddress) and (address.is_draft or address.is_main):
            beside = self.current(address.counterpart)
        latest = max((each.latest for each in (over, beside) if each is not None), default=None)
        sidecar = sidecar if latest is None else later_than(sidecar, latest)
        if upload is not None:
            sidecar = self._with_own_content(upload, sidecar)
        place = key_of(self._numbers.require(address.form), address)
        row = _row(place, sidecar, None if upload is None else upload.body(), None if over is None else over.sidecar.id)
        row |= {"app": address.form.app, "form_name": address.form.name}
        is_kept = isinstance(address, DefinitionAddress) or upload is None or self._keeps_history(address.form)
        keeps = address.keeps_history and is_kept
        statement = _FIRST if over is None else _NEXT if keeps else _INSTEAD
        try:
            storing = self._connection.execute(statement, row)
            if self._listener is not None and address.is_main and isinstance(address, DocumentAddress):
                self._listener.changing(address.form, address.document, sidecar.version)
            stored = storing.fetchone()
        except codes.UniqueViolation as error:
            raise _replaced(address) from error
        if stored is None:
            raise _replaced(address)
        if upload is not None:
            self._claim(upload, sidecar.id)
        if statement is _INSTEAD:
            self._connection.execute(_UNCLAIM, row)
        if self._has_events:
            _record(self._connection, address, sidecar, None if over is None else over.sidecar)
        self._note(address, sidecar)
        return sidecar

    def _with_own_content(self, upload: DatabaseUpload, sidecar: Sidecar) -> Sidecar:
        """Return the sidecar with an id under which no other revision has pieces, until this transaction commits.

        A revision from elsewhere brings its id, which another may have already (a document imported under another
        name). They must not share pieces, which are removed with the first of them.
        """
        if not upload.is_large or sidecar.id == upload.id:
            return sidecar
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (sidecar.id,))
        self._connection.execute(GIVE_UP, (sidecar.id,))
        if self._connection.execute(_IS_TAKEN, (sidecar.id,)).fetchone() == (False,):
            return sidecar
        return msgspec.structs.replace(sidecar, id=upload.id, tag=sidecar.etag)

    def _claim(self, upload: DatabaseUpload, content: str) -> None:
        if not upload.is_large:
            return
        if self._connection.execute(_CLAIM, (upload.id,)).fetchone() is None:
            raise BusyError("the body was received too long ago, and is gone")
        if content != upload.id:
            self._connection.execute(_RENAME, (content, upload.id))

    def _note(self, address: Address, sidecar: Sidecar | None) -> None:
        self.lookup.note(address, sidecar)
        if not address.is_main:
            return
        if isinstance(address, DefinitionAddress):
            self.definitions[address.form, address.version] = None
        else:
            self.documents[address.form, address.document] = None

    def _remove(self, statement: str, address: Address, over: StoredRevision) -> None:
        number = self._numbers.find(address.form)
        values = key_of(number or 0, address)._asdict() | {"over": over.sidecar.id}
        row = self._connection.execute(statement.format(_CURRENT), values).fetchone()
        if row != (1,):
            raise _replaced(address)
        if self._has_events:
            _record(self._connection, address, over.sidecar, over.sidecar, is_erased=True)
        self._note(address, None)

    def _discard(self, statement: str, kind: int, form: Form, document: str) -> None:
        collection = Collection.DRAFT if kind == DRAFT else Collection.DATA
        known = [
            each
            for each, sidecar in self.lookup.sidecars.items()
            if sidecar is not None
            and isinstance(each, DocumentAddress)
            and (each.form, each.document, each.collection) == (form, document, collection)
        ]
        number = self._numbers.find(form)
        if number is None or (kind == DRAFT and not known and (form, document) in self.lookup.drafts):
            return
        self._connection.execute(statement.format(_FOLDER), {"form": number, "kind": kind, "folder": document})
        for each in known:
            self.lookup.note(each, None)
        self.documents[form, document] = None


def _own(upload: Upload) -> DatabaseUpload:
    if not isinstance(upload, DatabaseUpload):
        raise TypeError("an upload of another storage")
    return upload


def _record(
    connection: Rows, address: Address, sidecar: Sidecar, before: Sidecar | None, *, is_erased: bool = False
) -> None:
    """Record the event of a change in the transaction that makes it."""
    if has_events(address):
        event = event_of(address, sidecar, Before.of(before), is_erased=is_erased)
        connection.execute(_RECORD, (time.time(), msgspec.json.encode(event)))


def _row(place: ResourceKey, sidecar: Sidecar, body: bytes | None, over: str | None) -> dict[str, object]:
    return place._asdict() | {
        "modified": sidecar.modified,
        "id": sidecar.id,
        "sidecar": msgspec.json.encode(sidecar),
        "body": body,
        "over": over,
    }


def _replaced(address: Address) -> ReplacedError:
    return ReplacedError(f"{address} was written by another request meanwhile")


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
            _require(connection, user, address)

    @contextmanager
    def protecting(self, address: DocumentAddress, user: User) -> Iterator[None]:
        NAMES.paths(address)
        with self._database.joined("reading the lease of", address) as connection:
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (self._key(address),))
            _require(connection, user, address)
            yield

    def listed(self) -> Iterator[DocumentLease]:
        yield from map(_lease, self._database.listed("listing leases", "", _LISTED, (), ("",)))

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
    return None if row is None or not row[3] else _lease(row)


def _lease(row: TupleRow) -> DocumentLease:
    document, holder, group, left, form = row
    return DocumentLease(document, holder, group, left, "", 0.0, time.time(), form)


def _require(connection: Rows, user: User, address: DocumentAddress) -> None:
    held = _living(connection, address.document)
    if held is not None and held.keeps_out(user, address.form):
        raise _refusal(held)


def _refusal(held: DocumentLease) -> LockedError:
    return held.refusal(Moment("", 0.0, held.wall))


_ARRIVING = "SELECT app, name FROM arriving JOIN form ON form.id = arriving.form WHERE source = %s"
_BRING_DRAFTS = "INSERT INTO arrived_draft (source, etag) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING"
_DRAFTS = "SELECT etag FROM arrived_draft WHERE source = %s"
_BEGIN_ARRIVAL = "INSERT INTO arriving (source, form) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_END_ARRIVAL = """
DELETE FROM arriving USING form, unnest(%s::text[], %s::text[]) AS ended (app, name)
WHERE source = %s AND arriving.form = form.id AND form.app = ended.app AND form.name = ended.name
"""


@dataclass(frozen=True, slots=True)
class DatabaseArrivals(Arrivals):
    """Forms that are being moved here: they came by the move alone, so a move that goes on may replace them."""

    database: Database
    numbers: FormNumbers

    def begun(self, source: str) -> set[Form]:
        rows = self.database.rows("looking what is being moved to", self.database.address, _ARRIVING, (source,))
        return {Form(*row) for row in rows}

    def begin(self, source: str, form: Form) -> None:
        self.database.run("beginning to move", form, _BEGIN_ARRIVAL, (source, self.numbers.require(form)))

    def end(self, source: str, forms: Iterable[Form]) -> None:
        ended = list(forms)
        values = [form.app for form in ended], [form.name for form in ended], source
        self.database.run("ending a move to", self.database.address, _END_ARRIVAL, values)

    def bring_drafts(self, source: str, etags: Iterable[str]) -> None:
        self.database.run("moving drafts to", self.database.address, _BRING_DRAFTS, (source, list(etags)))

    def drafts_of(self, source: str) -> set[str]:
        rows = self.database.rows("looking what was moved to", self.database.address, _DRAFTS, (source,))
        return {etag for (etag,) in rows}


class DatabaseStorage(DatabaseReader, Storage):
    """The forms in a database. ``local`` is a directory of this node, where bodies wait on their way in."""

    def __init__(  # noqa: PLR0913 - each is a setting
        self,
        database: Database,
        local: str,
        *,
        listener: CommitListener | None = None,
        keeps_history: KeepsHistory = keeps_all,
        has_events: bool = False,
        append_only: bool = False,
    ) -> None:
        """``listener`` is the index, which is written in the transactions of the saves, and so are events."""
        super().__init__(database)
        self._listener = listener
        self._local = local
        self._keeps_history = keeps_all if append_only else keeps_history
        self._has_events = has_events
        self._append_only = append_only
        # Writers share this lock, and it is taken alone to keep them out.
        self._gate = lock_key(database.address.schema, "read-only")
        self.leases = DatabaseLeases(database)
        self.reencryption = DatabaseJob(database, "re-encryption")
        self.arrivals = DatabaseArrivals(database, self.numbers)

    def freed(self, address: Address, instant: Instant | None) -> int:
        found = self.read(address, instant, content=False)
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
            lookup.add(address, self.database.rows("reading", address, *select_sidecars(number, address)))
        with pushed(self._lookups.inside, lookup):
            yield

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writing]:
        self.database.require_committing()
        number = self._number(address)
        with self.database.transaction("writing", address, first=None) as connection:
            writer = DatabaseWriter(
                connection, self.numbers, self._keeps_history, self._listener, has_events=self._has_events
            )
            writer.is_append_only = self._append_only
            writer.begin(address, number, self._key(*address.scope), self._gate)
            with pushed(self._lookups.inside, writer.lookup):
                yield writer
                if self._listener is not None:
                    for form, version in writer.definitions:
                        self._listener.published(form, version)
                    for form, document in writer.documents:
                        self._listener.changed(form, document)
                self.database.require_committing()

    @contextmanager
    def keeping_writers_out(self) -> Iterator[Callable[[], None]]:
        # Once those who are writing have committed; readers go on. The lock ends with the connection.
        with self.database.session("keeping writers out of", self.database.address) as connection:

            def require() -> None:
                with database_errors("looking whether writers are kept out of", self.database.address):
                    connection.execute("SELECT 1")

            with locked(connection, self._gate):
                yield require

    @contextmanager
    def creating(self, form: Form) -> Iterator[None]:
        key = self._key(form.app, form.name, "creation")
        with self.database.joined("creating a document of", form) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,)).fetchone()
            yield

    def _key(self, *scope: str) -> int:
        return lock_key(self.database.address.schema, *scope)
