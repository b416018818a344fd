"""The rows that the index keeps of documents, written in the transactions that change these.

Only differences are written. The writer of the rows of a document holds a lock of it until the commit, and reads the
document after it has the lock: so the last one has read what was stored last, be it a save or a job that reads
documents again.
"""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from psycopg import Cursor
from psycopg.rows import TupleRow

from persistence.bounded_cache import BoundedCache
from persistence.errors import DamagedError
from persistence.index.protocol import (
    LONGEST_KEY,
    NOTHING,
    Card,
    EntryRow,
    PreparedDocument,
    VersionState,
    decode,
    entries,
    is_cut,
    key_of,
    prepared,
)
from persistence.index.sources import DefinitionState, DocumentName, IndexedDefinition, ReadAhead, Source
from persistence.limits import DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES, LARGEST_REREAD, PARTITIONS_KEPT
from persistence.model.addresses import DATA_XML, Form
from persistence.postgresql.database import DATA, DRAFT, Database, FormNumbers, Rows, lock_key
from persistence.postgresql.revision_rows import decoded
from persistence.storage.stored_revision import StoredRevision

SourceOf = Callable[[Form], Source]

_VERSION = "SELECT round, state, data_format, fingerprint, keys FROM indexed_version WHERE form = %s AND version = %s"
_KEEP_VERSION = """
INSERT INTO indexed_version (form, version, round, state, data_format, fingerprint, keys)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (form, version) DO NOTHING
"""
_REPLACE_VERSION = """
UPDATE indexed_version SET round = %s, state = %s, data_format = %s, fingerprint = %s, keys = %s
WHERE form = %s AND version = %s
"""
_PARTITION = "SELECT number FROM partition WHERE form = %s AND version = %s AND draft = %s AND round = %s"
_MAKE_PARTITION = """
INSERT INTO partition (form, version, draft, round) VALUES (%s, %s, %s, %s)
ON CONFLICT (form, version, draft, round) DO NOTHING
"""
_CONTROLS = "SELECT path, number FROM control WHERE form = %s AND path = ANY(%s)"
_MAKE_CONTROLS = """
INSERT INTO control (form, path) SELECT %s, path FROM unnest(%s::text[]) AS path
ON CONFLICT (form, path) DO NOTHING
"""


# A publication replaces the state of a version in its transaction. Totals of partitions show which documents were read
# by an older state, and no save waits for a publication.


_NEVER = VersionState(0, DefinitionState.UNKNOWN, "", "", "[]")


class IndexedVersions:
    """The indexed versions and partitions in a database."""

    def __init__(self, database: Database, numbers: FormNumbers, source_of: SourceOf) -> None:
        self._database = database
        self._numbers = numbers
        self._source_of = source_of
        self._partitions: dict[tuple[int, int, bool, int], int] = {}
        self._definitions: BoundedCache[IndexedDefinition] = BoundedCache(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self._lock = threading.Lock()

    def current(
        self, connection: Rows, form: Form, version: int, asked: Cursor[TupleRow] | None = None
    ) -> VersionState:
        """Return a version as it is indexed, and store it first where its definition is kept elsewhere."""
        number = self._numbers.require(form)
        row = (asked or connection.execute(_VERSION, (number, version))).fetchone()
        if row is None:
            with self._database.apart("indexing", form) as other:
                made = self._read(other, form, version)
                other.execute(_KEEP_VERSION, (number, version, *made.row))
            row = connection.execute(_VERSION, (number, version)).fetchone()
        indexed = made if row is None else VersionState.of_row(row)
        # Once it was read in this process, values are extracted while a body is received.
        key = form, version, indexed.fingerprint
        self._definitions.get(key, lambda: self._source_of(form).definition(version))
        return indexed

    def renew(self, form: Form, version: int) -> None:
        number = self._numbers.require(form)
        with self._database.reading("indexing", form) as connection:
            connection.execute(_KEEP_VERSION, (number, version, *_NEVER.row))  # there is a row to lock
            row = connection.execute(f"{_VERSION} FOR UPDATE", (number, version)).fetchone()
            if row is None:
                raise LookupError("an indexed version was not made")
            now = VersionState.of_row(row).following(self._read(connection, form, version))
            if now.row != row:
                connection.execute(_REPLACE_VERSION, (*now.row, number, version))

    def is_current(self, form: Form, version: int, indexed: VersionState) -> bool:
        source = self._source_of(form)
        if indexed.data_format != source.described.data_format or not source.is_by_rules(indexed.fingerprint):
            return False
        if source.has_own_definitions:
            return True
        return indexed.fingerprint == source.definition_fingerprint(version)

    def partition(self, form: int, document: PreparedDocument) -> int:
        """Return the number of the partition of a document, made in a transaction of its own where it is missing."""
        key = form, document.content.version, document.name.is_draft, document.generation
        known = self._partitions.get(key)
        if known is not None:
            return known
        with self._database.apart("indexing", f"version {document.content.version}") as connection:
            row = connection.execute(_PARTITION, key).fetchone()
            if row is None:
                connection.execute(_MAKE_PARTITION, key)
                row = connection.execute(_PARTITION, key).fetchone()
        if row is None:
            raise LookupError("a partition was not made")
        with self._lock:
            if len(self._partitions) >= PARTITIONS_KEPT:
                self._partitions.clear()
            self._partitions[key] = int(row[0])
        return int(row[0])

    def _read(self, connection: Rows, form: Form, version: int) -> VersionState:
        source = self._source_of(form)
        definition = source.definition(version)
        number, wanted = self._numbers.require(form), sorted(set(definition.paths))  # so publications never deadlock
        numbers: dict[str, int] = dict(connection.execute(_CONTROLS, (number, wanted)).fetchall()) if wanted else {}
        if len(numbers) < len(wanted):
            connection.execute(_MAKE_CONTROLS, (number, wanted))
            numbers = dict(connection.execute(_CONTROLS, (number, wanted)).fetchall())
        return VersionState.of(definition, source.described.data_format, numbers)


_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_ROWS = "SELECT document, draft, seq, partition, card FROM document WHERE form = %s AND document"
_REMOVE = """
WITH entries AS (DELETE FROM entry WHERE seq = ANY(%s)), texts AS (DELETE FROM free_text WHERE seq = ANY(%s))
DELETE FROM document WHERE seq = ANY(%s)
"""
_REMOVE_ALL_ENTRIES = "DELETE FROM entry WHERE seq = ANY(%s)"
_REMOVE_ENTRIES = """
DELETE FROM entry WHERE seq = ANY(%s) AND (seq, control, fold, value) IN (
    SELECT at, control, fold, value FROM json_to_recordset(%s)
    AS gone (at bigint, control int, fold text, value text) OFFSET 0
)
"""
"""Removes entries of some documents; ``OFFSET`` keeps PostgreSQL from comparing them with all entries."""

_CHANGE = """
WITH now AS (
    SELECT * FROM json_to_recordset(%s) AS now (at bigint, partition int, modified text, card text, fold text)
), texts AS (
    INSERT INTO free_text (seq, fold) SELECT at, fold FROM now
    WHERE NOT EXISTS (SELECT FROM free_text AS same WHERE same.seq = at AND same.fold = now.fold)
    ON CONFLICT (seq) DO UPDATE SET fold = excluded.fold
)
UPDATE document SET partition = now.partition, modified = now.modified, card = now.card FROM now WHERE seq = at
"""
_ENTRIES_TO_ADD = """
json_to_recordset(%s) AS own (at bigint, partition int, control int, fold text, value text, edge smallint, whole text)
"""
_ADD_ENTRIES = f"""
INSERT INTO entry (seq, partition, control, fold, value, edge, whole) SELECT * FROM {_ENTRIES_TO_ADD}
"""
_ADD = f"""
WITH now AS (
    SELECT * FROM json_to_recordset(%s)
    AS now (at bigint, document text, draft boolean, partition int, modified text, card text, fold text)
), added AS (
    INSERT INTO document (form, document, draft, partition, modified, card)
    SELECT %s, document, draft, partition, modified, card FROM now ORDER BY at RETURNING document, draft, seq
), written AS (
    SELECT seq, at, now.fold FROM now JOIN added USING (document, draft)
), texts AS (
    INSERT INTO free_text (seq, fold) SELECT seq, fold FROM written
)
INSERT INTO entry (seq, partition, control, fold, value, edge, whole)
SELECT seq, partition, control, own.fold, value, edge, whole FROM {_ENTRIES_TO_ADD} JOIN written USING (at)
"""
"""Adds documents with their texts and entries, which have the same ``at``."""

_SAME_VERSION = """
SELECT kept.version = now.version FROM partition AS kept, partition AS now WHERE kept.number = %s AND now.number = %s
"""
_ENTRIES = "SELECT control, fold, value FROM entry WHERE seq = %s"
_TEXT = "SELECT fold FROM free_text WHERE seq = %s"
_COUNT = """
INSERT INTO partition_total (partition, shard, documents)
SELECT number, pg_backend_pid() %% 64, added FROM unnest(%s::int[], %s::bigint[]) AS of (number, added)
ON CONFLICT (partition, shard) DO UPDATE SET documents = partition_total.documents + excluded.documents
"""
_UNSYNCED = "SET LOCAL synchronous_commit = off"  # A crash takes whole batches, whose documents are outdated again
_TRY = """
SELECT document FROM unnest(%s::text[], %s::bigint[]) AS of (document, key) WHERE pg_try_advisory_xact_lock(key)
"""
_STORED = """
SELECT kind, folder, sidecar, CASE WHEN octet_length(body) <= %s THEN body END FROM revision
WHERE form = %s AND kind = ANY(%s::smallint[]) AND folder = ANY(%s::text[]) AND name = %s AND is_current
"""


class _IndexedRow(NamedTuple):
    seq: int
    partition: int
    card: str


class _Row(msgspec.Struct):
    """A document as it is to be written; ``at`` is its ``seq``, or its place in a list of new ones."""

    at: int
    document: str
    draft: bool
    partition: int
    modified: str
    card: str
    fold: str


class _Entry(msgspec.Struct):
    """An entry as it is stored; ``at`` is that of its row."""

    at: int
    partition: int
    control: int
    fold: str
    value: str
    edge: int
    whole: str | None


Kept = dict[DocumentName, _IndexedRow]
Versions = Mapping[int, Cursor[TupleRow]]  # Indexed versions by number, asked for


class IndexRows:
    """Writes the rows of the index, within the transaction of this thread. Methods raise domain errors."""

    def __init__(self, database: Database, numbers: FormNumbers, source_of: SourceOf) -> None:
        self.versions = IndexedVersions(database, numbers, source_of)
        self._database = database
        self._numbers = numbers
        self._source_of = source_of

    def published(self, form: Form, version: int) -> None:
        self.versions.renew(form, version)

    def changing(self, form: Form, document: str, version: int) -> None:
        """Lock the rows of a document, and ask for what ``changed`` needs."""
        number = self._numbers.require(form)
        with self._database.reading("indexing", form) as connection:
            kept = self._lock(connection, number, document)
            connection.asked[form, document] = kept, {version: connection.execute(_VERSION, (number, version))}

    def changed(self, form: Form, document: str, *, is_rewritten: bool = False) -> None:
        """Bring the rows of a document and its draft up to date; ``is_rewritten`` writes all of them."""
        number = self._numbers.require(form)
        with self._database.reading("indexing", form) as connection:
            asked = connection.asked.pop((form, document), None)
            kept, versions = asked or (self._lock(connection, number, document), {})
            now = self._read(connection, form, [document], versions)  # the same round trip has the rows
            self._replace(connection, number, _kept(kept), now, is_rewritten=is_rewritten)

    def reread(
        self, form: Form, documents: Sequence[str], *, is_rewritten: bool = False, version: int | None = None
    ) -> None:
        """Bring the rows of documents and their drafts up to date, or those of one version, in one transaction.

        ``is_rewritten`` writes all of them, also where nothing seems to be different. A save that is under way holds
        the lock of its document. It is not waited for while other documents are locked: that document is read again
        afterwards, alone. A save waits for one batch at most.
        """
        number = self._numbers.require(form)
        locks = [self._lock_key(number, document) for document in documents]
        with self._database.transaction("indexing", form, first=_UNSYNCED) as connection:
            locked = [document for (document,) in connection.execute(_TRY, (list(documents), locks)).fetchall()]
            ahead, apart = _read_ahead(connection, number, locked)
            kept = _kept(connection.execute(f"{_ROWS} = ANY(%s)", (number, locked)))
            done = due = set(locked) - apart
            now = self._read(connection, form, done, ahead=ahead)
            if version is not None:
                due = {name.document for name, each in now.items() if each.content.version == version}
            self._replace(
                connection,
                number,
                {name: row for name, row in kept.items() if name.document in due},
                {name: each for name, each in now.items() if name.document in due},
                is_rewritten=is_rewritten,
            )
        for document in set(documents) - done:
            if version is None or self._source_of(form).version(document) == version:
                with self._database.transaction("indexing", form, first=_UNSYNCED) as connection:
                    connection.pipeline_until_commit()
                    self.changed(form, document, is_rewritten=is_rewritten)

    def difference(self, form: Form, document: str) -> str | None:
        """Return how the rows of a document and its draft differ from what is stored now.

        Rows by an older state of a definition are no difference: they are brought up to date before a search answers.
        """
        number = self._numbers.require(form)
        with self._database.transaction("comparing the index of", form) as connection:
            kept = _kept(self._lock(connection, number, document))
            now = self._read(connection, form, [document])
            found = (
                self._difference(connection, number, kept.get(name), now.get(name))
                for name in (DocumentName(document, is_draft) for is_draft in (True, False))
            )
            return next(filter(None, found), None)

    def _lock(self, connection: Rows, number: int, document: str) -> Cursor[TupleRow]:
        connection.execute(_LOCK, (self._lock_key(number, document),))
        return connection.execute(f"{_ROWS} = %s", (number, document))

    def _lock_key(self, number: int, document: str) -> int:
        return lock_key(self._database.address.schema, "index", str(number), document)

    def _read(
        self,
        connection: Rows,
        form: Form,
        documents: Iterable[str],
        asked: Versions | None = None,
        ahead: ReadAhead | None = None,
    ) -> dict[DocumentName, PreparedDocument]:
        """Read documents and drafts as they are stored now, unless they were read ``ahead``.

        They are read by the definitions of their versions, of which some were ``asked`` for already.
        """
        source, known = self._source_of(form), dict[int, VersionState]()

        def definition(version: int) -> IndexedDefinition:
            if version not in known:
                known[version] = self.versions.current(connection, form, version, (asked or {}).get(version))
            return known[version].definition

        found = {}
        for document in documents:
            for name in (DocumentName(document, True), DocumentName(document, False)):  # noqa: FBT003
                read = source.read(name, "stored", definition, ahead)
                if read is not None:
                    found[name] = prepared(read, known[read.hit.facts.version])
        return found

    def _replace(
        self,
        connection: Rows,
        number: int,
        kept: Kept,
        now: Mapping[DocumentName, PreparedDocument],
        *,
        is_rewritten: bool,
    ) -> None:
        """Replace the rows of documents, and count. Nothing waits for the database until the commit."""
        totals = Counter[int]()
        totals.subtract(row.partition for row in kept.values())
        gone = [row.seq for name, row in kept.items() if name not in now]
        rewritten, removed, added = list[int](), list[_Entry](), list[_Entry]()
        changed, new, of_new = list[_Row](), list[_Row](), list[_Entry]()
        for name, document in now.items():
            partition, row = self.versions.partition(number, document), kept.get(name)
            totals[partition] += 1
            at = len(new) if row is None else row.seq
            texts = document.content.modified, document.card, plain(document.free_text)
            (new if row is None else changed).append(_Row(at, *name, partition, *texts))
            own = set(entries(document.content))
            if row is None:
                of_new += _stored(document.content, own, at, partition)
            elif is_rewritten or row.partition != partition:
                rewritten.append(at)
                added += _stored(document.content, own, at, partition)
            else:  # a value that stays is not written again
                before = decode(row.card)
                old = set(entries(before))
                removed += _stored(before, old - own, at, partition)
                added += _stored(document.content, own - old, at, partition)
        for statement, values, is_due in (
            (_REMOVE, (gone, gone, gone), gone),
            (_REMOVE_ALL_ENTRIES, (rewritten,), rewritten),
            (_REMOVE_ENTRIES, ([each.at for each in removed], _json(removed)), removed),
            (_CHANGE, (_json(changed),), changed),
            (_ADD_ENTRIES, (_json(added),), added),
            (_ADD, (_json(new), number, _json(of_new)), new),
        ):
            if is_due:
                connection.execute(statement, values)
        if differing := sorted((partition, count) for partition, count in totals.items() if count):
            connection.execute(_COUNT, [list(column) for column in zip(*differing, strict=True)])

    def _difference(
        self, connection: Rows, number: int, kept: _IndexedRow | None, now: PreparedDocument | None
    ) -> str | None:
        if now is None:
            return None if kept is None else "the index still has it"
        if kept is None:
            return "the index does not have it"
        partition = self.versions.partition(number, now)
        if kept.partition != partition:
            row = connection.execute(_SAME_VERSION, (kept.partition, partition)).fetchone()
            return None if row == (True,) else "the index has another version of it"
        if kept.card != now.card:
            return "the index has other values of it"
        own = _stored(now.content, entries(now.content), kept.seq, partition)
        expected = {(each.control, each.fold, each.value) for each in own}
        entry_rows = connection.execute(_ENTRIES, (kept.seq,)).fetchall()
        text = connection.execute(_TEXT, (kept.seq,)).fetchone()
        is_same = len(entry_rows) == len(expected) and {tuple(row) for row in entry_rows} == expected
        return None if is_same and text == (plain(now.free_text),) else "the index would not find all values of it"


def _kept(rows: Cursor[TupleRow]) -> Kept:
    return {DocumentName(document, is_draft): _IndexedRow(*row) for document, is_draft, *row in rows.fetchall()}


def _json(rows: Sequence[_Row | _Entry]) -> str:
    return msgspec.json.encode(rows).decode()


def plain(text: str) -> str:
    """Return a text that the database can have: without NUL, as in XML."""
    return text.replace("\0", "\x1e") if "\0" in text else text


def _stored(card: Card, found: Iterable[EntryRow], at: int, partition: int) -> Iterator[_Entry]:
    """Yield entries of a card as they are stored, each with the whole folded value where its fold is cut."""
    long = (value for values in card.values.values() for value in values if len(value) > LONGEST_KEY // 3)
    cut = {key: value.casefold() for value in long if is_cut((key := key_of(value))[0])}
    for control, fold, value, edge in found:
        whole = cut[fold, value] if is_cut(fold) and control > 0 else None
        fold_text, text = ("" if each == NOTHING else plain(str(each)) for each in (fold, value))
        yield _Entry(at, partition, control, fold_text, text, edge, whole)


def _read_ahead(connection: Rows, form: int, documents: Sequence[str]) -> tuple[ReadAhead, set[str]]:
    """Read documents and drafts with their contents; return also those that have to be read alone."""
    values = LARGEST_REREAD, form, [DATA, DRAFT], list(documents), DATA_XML
    found: dict[DocumentName, StoredRevision] = {}
    apart = set[str]()
    for kind, document, data, body in connection.execute(_STORED, values, binary=True):
        try:
            sidecar = decoded(data, document)
        except DamagedError:
            apart.add(document)
            continue
        if not sidecar.deleted and (body is None or len(body) != sidecar.size):
            apart.add(document)
        elif not sidecar.deleted:
            revision = StoredRevision(sidecar, sidecar.etag, sidecar.size, io.BytesIO(body))
            found[DocumentName(document, kind == DRAFT)] = revision
    return found, apart
