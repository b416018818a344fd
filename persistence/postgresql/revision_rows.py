"""Revisions in a database, read: their rows and lists, their contents in pieces, and all files of a document."""

from __future__ import annotations

import heapq
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from types import TracebackType
from typing import NamedTuple

import msgspec
from psycopg.rows import TupleRow

from persistence.errors import DamagedError, DiskError, OutcomeUnknownError, PersistenceError, ReplacedError
from persistence.limits import DEFINITIONS_FORESEEN, INLINE, MOST_SWEPT, PIECE, SWEPT_AT_ONCE, UNCLAIMED_SECONDS
from persistence.model.addresses import FORM_XHTML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import ListedRevision, Sidecar
from persistence.model.texts import Instant
from persistence.postgresql.database import (
    DATA,
    DEFINITION,
    DRAFT,
    Database,
    FormNumbers,
    ResourceKey,
    folder_of,
    key_of,
)
from persistence.storage.commit import Upload
from persistence.storage.layout import NAMES
from persistence.storage.storage import DocumentFile, DocumentFiles, RangedFile, Readable, RevisionList, StateMark
from persistence.storage.stored_revision import NOTHING_THERE, Fingerprint, StoredRevision

_decoder = msgspec.json.Decoder(Sidecar)

_OF_DOCUMENT = f"""
SELECT kind, folder, name, id, sidecar FROM revision
WHERE form = %s AND kind = 0 AND folder = %s AND name IN (%s, %s) AND is_current
UNION ALL SELECT kind, folder, name, id, sidecar FROM revision
WHERE form = %s AND kind = 1 AND folder = %s AND is_current
UNION ALL (
    SELECT kind, folder, name, id, CASE name WHEN '{FORM_XHTML}' THEN sidecar END FROM revision
    WHERE form = %s AND kind = 2 AND is_current LIMIT {DEFINITIONS_FORESEEN + 1}
)
"""
_OF_DEFINITION = """
SELECT kind, folder, name, id, sidecar FROM revision
WHERE form = %s AND kind = 2 AND folder = %s AND name IN (%s, %s) AND is_current
"""

LookupRow = tuple[int, str, str, str, bytes | None]  # Kind, folder, name, content id and sidecar


class _FormXhtml(NamedTuple):
    id: str
    sidecar: bytes


def select_sidecars(number: int, address: Address) -> tuple[str, tuple[object, ...]]:
    """Return the statement and parameters that find the current sidecars of an address and its main one.

    For a document, also those of its whole draft, and the definitions of its form, if they are few.
    """
    folder = folder_of(address)
    values = (number, folder, address.main.name, address.name)
    if isinstance(address, DefinitionAddress):
        return _OF_DEFINITION, values
    return _OF_DOCUMENT, (*values, number, folder, number)


def decoded(data: bytes, address: object) -> Sidecar:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DamagedError(f"the sidecar of {address} cannot be read: {error}") from error


def facts(sidecar: Sidecar) -> StoredRevision:
    return StoredRevision(sidecar, sidecar.etag, sidecar.size)


class Lookup:
    """The current sidecars and definitions that were found; ``drafts`` are the documents whose whole draft is known."""

    def __init__(self) -> None:
        self.sidecars: dict[Address, Sidecar | None] = {}
        self.drafts = set[tuple[Form, str]]()
        self._definitions: dict[Form, dict[int, _FormXhtml | None]] = {}

    def add(self, address: Address, rows: Sequence[LookupRow]) -> None:
        """Know what ``select_sidecars`` has found, and that there is nothing else."""
        found: dict[Address, bytes | None]
        asked: list[Address]
        if isinstance(address, DefinitionAddress):
            found = {DefinitionAddress(address.form, address.version, row[2]): row[4] for row in rows}
            asked = [address, address.main]
        else:
            definitions = [row for row in rows if row[0] == DEFINITION]
            self.drafts.add((address.form, address.document))
            if len(definitions) <= DEFINITIONS_FORESEEN:
                self._definitions[address.form] = dict.fromkeys((int(row[1]) for row in definitions), None) | {
                    int(folder): _FormXhtml(content, data)
                    for _, folder, _, content, data in definitions
                    if data is not None
                }
            collections = {DATA: Collection.DATA, DRAFT: Collection.DRAFT}
            own = (row for row in rows if row[0] != DEFINITION)
            found = {address.moved(collections[kind], name): data for kind, _, name, _, data in own}
            asked = [each.moved(collection) for collection in Collection for each in (address, address.main)]
        for each in {*asked, *found}:
            data = found.get(each)
            self.sidecars[each] = None if data is None else decoded(data, each)

    def sidecar(self, address: Address) -> tuple[Sidecar | None] | None:
        """Return a tuple of the current sidecar; ``None`` where it was not looked up."""
        if address not in self.sidecars:
            known = self._definitions.get(address.form)
            if not isinstance(address, DefinitionAddress) or not address.is_main or known is None:
                return None
            row = known.get(address.version)
            self.sidecars[address] = None if row is None else decoded(row.sidecar, address)
        return (self.sidecars[address],)

    def content_id(self, address: Address) -> tuple[str | None] | None:
        """Return a tuple of the content id of a ``form.xhtml``; ``None`` where it was not looked up."""
        if not isinstance(address, DefinitionAddress) or not address.is_main or address.form not in self._definitions:
            return None
        row = self._definitions[address.form].get(address.version)
        return (None if row is None else row.id,)

    def versions(self, form: Form) -> list[tuple[int, str | None]] | None:
        """Return the known versions of a form, highest first, each with its content id."""
        found = self._definitions.get(form)
        if found is None:
            return None
        return sorted(((version, None if row is None else row.id) for version, row in found.items()), reverse=True)

    def note(self, address: Address, sidecar: Sidecar | None) -> None:
        self.sidecars[address] = sidecar
        if isinstance(address, DefinitionAddress):
            self._definitions.pop(address.form, None)


_AT = "form = %s AND kind = %s AND folder = %s AND name = %s"
_INSTANTS = f"SELECT modified FROM revision WHERE {_AT} ORDER BY modified DESC"
_PAGE = f"SELECT modified, sidecar FROM revision WHERE {_AT} AND modified BETWEEN %s AND %s ORDER BY modified DESC"
_NAMES_BESIDE = "SELECT name FROM revision WHERE form = %s AND kind = %s AND folder = %s AND is_current ORDER BY name"
_FOLDER = """
SELECT name, modified, is_current, sidecar FROM revision
WHERE form = %s AND kind = %s AND folder = %s AND (name, modified) > (%s, %s) ORDER BY name, modified LIMIT %s
"""
_FORMS = """
SELECT app, name FROM form
WHERE (%s::text IS NULL OR app = %s) AND EXISTS (SELECT FROM revision WHERE revision.form = form.id)
AND (app, name) > (%s, %s)
ORDER BY app, name LIMIT %s
"""
_DOCUMENTS = """
SELECT folder FROM revision WHERE form = %s AND kind = %s AND is_current AND folder > %s
GROUP BY folder ORDER BY folder LIMIT %s
"""
_SUMS = """
SELECT folder, sum(('x' || left(encode(sha256(convert_to(
    concat_ws(' ', (kind = 1)::int, name, modified, id, is_current::int), 'UTF8')), 'hex'), 16))::bit(64)::bigint)
FROM revision WHERE form = %s AND kind = %s AND folder > %s GROUP BY folder ORDER BY folder LIMIT %s
"""
"""Calculates ``sum_of_revisions`` of ``storage.marks``."""

_VERSIONS = """
SELECT folder, max(id) FILTER (WHERE name = %s) FROM revision
WHERE form = %s AND kind = %s AND is_current GROUP BY folder
"""


class _Lookups(threading.local):
    """The lookups of the blocks that a thread is in, the innermost last; the first one knows nothing."""

    def __init__(self) -> None:
        self.inside = [Lookup()]


class DatabaseReader(Readable):
    """The forms in a database, to be read, in the blocks of ``deciding`` and ``writing`` by what they have found."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.numbers = FormNumbers(database)
        self._lookups = _Lookups()

    def sidecar(self, address: Address) -> Sidecar | None:
        known = self._lookups.inside[-1].sidecar(address)
        return self._sidecar(address) if known is None else known[0]

    def read(self, address: Address, instant: Instant | None = None, *, content: bool) -> StoredRevision | None:
        if content:
            return self._opened(address, instant)
        sidecar = self.sidecar(address) if instant is None else self._sidecar(address, instant)
        return None if sidecar is None else facts(sidecar)

    def read_older(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        current = self.sidecar(address)
        if current is not None and current.modified == instant:
            return None
        return self.read(address, instant, content=content)

    def history(self, address: Address) -> RevisionList:
        instants = self._instants(address)

        def load(begin: int, end: int) -> list[ListedRevision]:
            wanted, found, key = instants[begin:end], list[ListedRevision](), self._key_of(address)
            if not wanted or key is None:
                return []
            of_range = *key, wanted[-1], wanted[0]
            rows, listed = self.database.rows("listing the revisions of", address, _PAGE, of_range), set(wanted)
            for instant, data in (row for row in rows if row[0] in listed):
                try:
                    found.append(ListedRevision(instant, decoded(data, address)))
                except DamagedError:
                    if instant == instants[0]:
                        raise
                    found.append(ListedRevision(instant, None))
            return found

        return RevisionList(len(instants), instants.__getitem__, load)

    def revisions(self, address: Address) -> list[Instant]:
        current = self.sidecar(address)
        return [each for each in self._instants(address) if current is None or each != current.modified]

    def names(self, main: Address) -> list[str]:
        key = self._key_of(main)
        return [] if key is None else [name for (name,) in self.database.rows("listing", main, _NAMES_BESIDE, key[:3])]

    def sidecars(self, main: Address) -> Iterator[tuple[str, Instant, Sidecar]]:
        for row in self.folder(main):
            yield row.name, row.modified, decoded(row.sidecar, replace(main, name=row.name))

    def folder(self, main: Address) -> Iterator[FolderRow]:
        """Yield the revisions of all that is beside a ``data.xml`` or ``form.xhtml``, by name and instant."""
        key = self._key_of(main)
        if key is not None:
            rows = self.database.listed("listing", key.folder, _FOLDER, key[:3], ("", ""))
            yield from map(FolderRow._make, rows)

    def forms(self, app: str | None = None) -> Iterator[Form]:
        if app is not None:
            NAMES.application(app)
        yield from (Form(*row) for row in self.database.listed("listing the forms", "", _FORMS, (app, app), ("", "")))

    def versions(self, form: Form) -> Iterator[int]:
        yield from (version for version, _ in self._versions(form))

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        number = self.numbers.find(form)
        if number is not None:
            kind = DRAFT if collection is Collection.DRAFT else DATA
            rows = self.database.listed("listing the documents of", form, _DOCUMENTS, (number, kind), ("",))
            yield from (document for (document,) in rows)

    def documents_and_drafts(self, form: Form) -> Iterator[str]:
        found = heapq.merge(*(self.documents(form, each) for each in Collection))
        yield from (document for document, _ in groupby(found))

    def fingerprint(self, address: Address) -> Fingerprint:
        known = self._lookups.inside[-1].content_id(address)
        found = self._row("id", address) if known is None else known
        return _fingerprint(None if found is None else found[0])

    def fingerprints(self, form: Form) -> Iterator[tuple[int, Fingerprint]]:
        for version, content in self._versions(form):
            yield version, _fingerprint(content)

    def marks(self, form: Form) -> Iterator[StateMark]:
        number = self.numbers.find(form)
        if number is None:
            return
        definitions, *both = (
            self.database.listed("listing the revisions of", form, _SUMS, (number, kind), ("",))
            for kind in (DEFINITION, DATA, DRAFT)
        )
        for version, total in definitions:
            yield StateMark(DefinitionAddress(form, int(version)), str(int(total)), is_sum=True)
        for document, found in groupby(heapq.merge(*both), lambda each: each[0]):
            main = DocumentAddress(form, Collection.DATA, document)
            yield StateMark(main, str(sum(int(total) for _, total in found)), is_sum=True)

    def _versions(self, form: Form) -> list[tuple[int, str | None]]:
        """Return the versions of a form, highest first, each with the content id of its ``form.xhtml``."""
        known = self._lookups.inside[-1].versions(form)
        if known is not None:
            return known
        number = self.numbers.find(form)
        if number is None:
            return []
        rows = self.database.rows("listing the versions of", form, _VERSIONS, (FORM_XHTML, number, DEFINITION))
        return sorted(((int(folder), content) for folder, content in rows), reverse=True)

    def _number(self, address: Address) -> int | None:
        NAMES.paths(address)
        return self.numbers.find(address.form)

    def _key_of(self, address: Address) -> ResourceKey | None:
        number = self._number(address)
        return None if number is None else key_of(number, address)

    def _row(self, columns: str, address: Address, instant: Instant | None = None) -> TupleRow | None:
        key = self._key_of(address)
        if key is None:
            return None
        at, values = ("is_current", ()) if instant is None else ("modified = %s", (instant,))
        statement = f"SELECT {columns} FROM revision WHERE {_AT} AND {at}"
        return next(iter(self.database.rows("reading", address, statement, (*key, *values))), None)

    def _sidecar(self, address: Address, instant: Instant | None = None) -> Sidecar | None:
        row = self._row("sidecar", address, instant)
        return None if row is None else decoded(row[0], address)

    def _opened(self, address: Address, instant: Instant | None) -> StoredRevision | None:
        row = self._row("sidecar, body", address, instant)
        if row is None:
            return None
        sidecar = decoded(row[0], address)
        if sidecar.deleted:
            return facts(sidecar)
        if row[1] is not None and len(row[1]) != sidecar.size:
            raise DamagedError(f"the content of {address} has {len(row[1])} bytes, and not {sidecar.size}")
        if row[1] is not None:
            return StoredRevision(sidecar, sidecar.etag, sidecar.size, io.BytesIO(row[1]))

        def read(begin: int, _: int) -> memoryview:
            number, skipped = divmod(begin, PIECE)
            pieces = self.database.rows("reading", "a content", _READ, (sidecar.id, number))
            if not pieces or len(pieces[0][0]) != min(PIECE, sidecar.size - number * PIECE):
                raise ReplacedError("the content was replaced while it was read, and is gone")
            return memoryview(pieces[0][0])[skipped:]

        file = io.BufferedReader(RangedFile(sidecar.size, read))
        return StoredRevision(sidecar, sidecar.etag, sidecar.size, file)

    def _instants(self, address: Address) -> list[Instant]:
        key = self._key_of(address)
        rows = [] if key is None else self.database.rows("listing the revisions of", address, _INSTANTS, key)
        return [Instant(each) for (each,) in rows]


def _fingerprint(content: str | None) -> Fingerprint:
    if content is None:
        return NOTHING_THERE
    return (int(content[:14], 16), int(content[14:28], 16), int(content[28:], 16)), None


class FolderRow(NamedTuple):
    """A revision in a folder."""

    name: str
    modified: Instant
    is_current: bool
    sidecar: bytes


_BEGIN = "INSERT INTO unclaimed (id, form, folder) VALUES (%s, %s, %s)"
_PIECE = "INSERT INTO piece (id, number, bytes) VALUES (%s, %s, %b)"
GIVE_UP = """
WITH own AS (DELETE FROM unclaimed WHERE id = %s RETURNING id) DELETE FROM piece USING own WHERE piece.id = own.id
"""
_SWEEP = """
WITH old AS (
    SELECT id FROM unclaimed WHERE since < now() - make_interval(secs => %s)
    ORDER BY since LIMIT %s FOR UPDATE SKIP LOCKED
), gone AS (DELETE FROM unclaimed USING old WHERE unclaimed.id = old.id RETURNING unclaimed.id),
pieces AS (DELETE FROM piece USING gone WHERE piece.id = gone.id)
SELECT count(*) FROM gone
"""
_READ = "SELECT bytes FROM piece WHERE id = %s AND number = %s"


# Contents in a database: small ones in the row of their revision, larger ones in pieces, streamed up and down.
#
# Pieces are written before any lock is held. Ids that no revision has are *unclaimed*; a sweep removes old ones, so
# readers can finish.


def sweep(database: Database, seconds: float = UNCLAIMED_SECONDS, most: int = SWEPT_AT_ONCE) -> int:
    """Remove some contents that no revision has had for so many seconds; return how many."""
    with database.apart("removing old contents") as connection:
        ((count,),) = connection.execute(_SWEEP, (seconds, most)).fetchall()
    return int(count)


def sweep_all(database: Database) -> None:
    for _ in range(MOST_SWEPT // SWEPT_AT_ONCE):
        if not sweep(database):
            return


class DatabaseUpload(Upload):
    """A body on its way into a database. ``flush`` stores a large one before any lock is held."""

    def __init__(self, local: str, database: Database, folder: Callable[[], tuple[int | None, str]]) -> None:
        super().__init__(local)
        self._database = database
        self._folder = folder
        self._has_pieces = False
        self._is_stored = False

    @property
    def is_large(self) -> bool:
        return self.size > INLINE

    def flush(self) -> None:
        """Write a large content to the database, in pieces; a small one waits for its row."""
        if not self.is_large or self._is_stored:
            return
        if self._has_pieces:
            raise DiskError("storing a body: it failed before, and only some pieces are there")
        with suppress(PersistenceError):
            sweep(self._database)
        number, folder = self._folder()
        self._has_pieces = True  # from now on there is something to give up
        self._database.require_committing()
        self._database.run("storing", "a body", _BEGIN, (self.id, number, folder))
        with self.opened() as file:
            for at in range(-(-self.size // PIECE)):
                piece = file.read(PIECE)
                self._database.require_committing()
                # Each alone, because others wait for connections.
                self._database.run("storing", "a body", _PIECE, (self.id, at, piece))
        self._is_stored = True

    def body(self) -> bytes | None:
        """Return a small content for its row, and ``None`` for one in pieces."""
        self.flush()
        if self.is_large:
            return None
        with self.opened() as file:
            return file.read()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Those of a stored content are not unclaimed any more; one that nobody knows of is left to the sweep.
            if self._has_pieces and not isinstance(error, OutcomeUnknownError):
                with suppress(PersistenceError):
                    self._database.require_committing()
                    self._database.run("giving up", "a body", GIVE_UP, (self.id,))
        finally:
            super().__exit__(kind, error, trace)


_UNCLAIMED = "SELECT id FROM unclaimed WHERE folder = %s AND (form = %s OR form IS NULL) ORDER BY id"
_ERASE = """
WITH gone AS (DELETE FROM unclaimed WHERE folder = %s AND (form = %s OR form IS NULL) RETURNING id)
DELETE FROM piece USING gone WHERE piece.id = gone.id
"""


@dataclass(frozen=True, slots=True)
class DatabaseDocumentFiles(DocumentFiles):
    """The revisions of a document and its draft, and contents that no revision has any more."""

    reader: DatabaseReader
    form: Form
    document: str

    def listed(self) -> Iterator[DocumentFile]:
        """Yield every revision, and then every content that waits to be swept, named as in a file tree."""
        number = self.reader.numbers.find(self.form)
        if number is None:
            return
        for collection in Collection:
            main = DocumentAddress(self.form, collection, self.document)
            for row in self.reader.folder(main):
                address = main.moved(collection, row.name)
                sidecar = decoded(row.sidecar, address)
                name = str(address) if row.is_current else f"{address} of {row.modified}"
                yield DocumentFile(name, sidecar.size, sidecar.digest or "")
        asked = self.document, number
        rows = self.reader.database.rows("looking for contents of", self.document, _UNCLAIMED, asked)
        yield from (DocumentFile(f"content {content}", 0, "") for (content,) in rows)

    def remove(self, links: list[str]) -> None:  # noqa: ARG002 - there are none
        """Remove contents of the document that no revision has any more, in the transaction of the block."""
        number = self.reader.numbers.find(self.form)
        with self.reader.database.reading("erasing", self.document) as connection:
            connection.execute(_ERASE, (self.document, number))
