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
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import msgspec
from psycopg import Cursor
from psycopg.rows import TupleRow

from persistence.bounded_cache import BoundedCache
from persistence.errors import DamagedError
from persistence.index.cards import (
    LONGEST_KEY,
    NOTHING,
    Card,
    EntryRow,
    card_of,
    decode,
    encode,
    entries,
    is_cut,
    key_of,
)
from persistence.index.sources import DefinitionState, DocumentName, IndexedDefinition, ReadAhead, Source
from persistence.limits import DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES, LARGEST_REREAD, PARTITIONS_KEPT
from persistence.model.addresses import DATA_XML, Form
from persistence.model.versions import IndexKey
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


# Form versions as they are indexed: the state of a definition by which an index reads documents of a version.
#
# A publication replaces the state in its transaction, and begins a new generation where other controls are indexed.
# Documents are in partitions by generation: totals of partitions show which documents were read by an older state, and
# no save waits for a publication.


class NumberedKey(msgspec.Struct, frozen=True):
    """An indexed control and its number, which it keeps for as long as the form has an index."""

    number: int
    key: IndexKey


_decoder = msgspec.json.Decoder(tuple[NumberedKey, ...])


@lru_cache(DEFINITIONS_KEPT)
def keys_of(text: str) -> tuple[NumberedKey, ...]:
    """Return the indexed controls of an indexed version, which has them as JSON."""
    return _decoder.decode(text)


@dataclass(frozen=True, slots=True)
class VersionState:
    """The state of a form version by which documents are read; ``keys`` are its indexed controls, as JSON.

    In another ``generation`` the same document has other entries.
    """

    generation: int
    state: DefinitionState
    data_format: str
    fingerprint: str
    keys: str

    @classmethod
    def of_row(cls, row: tuple[int, str, str, str, str]) -> VersionState:
        return cls(row[0], DefinitionState[row[1]], *row[2:])

    @property
    def row(self) -> tuple[int, str, str, str, str]:
        """The columns beside the key."""
        return self.generation, self.state.name, self.data_format, self.fingerprint, self.keys

    @property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of the indexed controls by path."""
        return {each.key.path: each.number for each in keys_of(self.keys)}

    @property
    def definition(self) -> IndexedDefinition:
        """The definition by which documents are read."""
        return IndexedDefinition(self.fingerprint, self.state, tuple(each.key for each in keys_of(self.keys)))

    def following(self, now: VersionState) -> VersionState:
        """Return the next state, with the definition of ``now``.

        A version that is deleted begins a new generation too: what was read before is hidden (spec search 2.5).
        """
        is_same = self._indexed == now._indexed
        return replace(now, generation=self.generation if is_same else self.generation + 1)

    @property
    def _indexed(self) -> str | None:
        return self.keys if self.state is DefinitionState.PUBLISHED else None


_NEVER = VersionState(0, DefinitionState.UNKNOWN, "", "", "[]")


class PartitionKey(NamedTuple):
    """The number of a form, the version of documents, and the generation in which they were read."""

    form: int
    version: int
    is_draft: bool
    generation: int


class IndexedVersions:
    """The indexed versions and partitions in a database."""

    def __init__(self, database: Database, numbers: FormNumbers, source_of: SourceOf) -> None:
        self._database = database
        self._numbers = numbers
        self._source_of = source_of
        self._partitions: dict[PartitionKey, int] = {}
        self._definitions: BoundedCache[IndexedDefinition] = BoundedCache(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self._lock = threading.Lock()

    def ask(self, connection: Rows, form: int, version: int) -> Cursor[TupleRow]:
        """Ask for a version of a form with a number, without waiting in a pipeline."""
        return connection.execute(_VERSION, (form, version))

    def current(
        self, connection: Rows, form: Form, version: int, asked: Cursor[TupleRow] | None = None
    ) -> VersionState:
        """Return a version as it is indexed, and store it first where its definition is kept elsewhere."""
        number = self._numbers.require(form)
        row = (asked or self.ask(connection, number, version)).fetchone()
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

    def renew(self, connection: Rows, form: Form, version: int) -> None:
        """Bring an indexed version up to date with its definition, in the transaction of a connection."""
        number = self._numbers.require(form)
        connection.execute(_KEEP_VERSION, (number, version, *_NEVER.row))  # there is a row to lock
        row = connection.execute(f"{_VERSION} FOR UPDATE", (number, version)).fetchone()
        if row is None:
            raise LookupError("an indexed version was not made")
        now = VersionState.of_row(row).following(self._read(connection, form, version))
        if now.row != row:
            connection.execute(_REPLACE_VERSION, (*now.row, number, version))

    def is_current(self, form: Form, version: int, indexed: VersionState) -> bool:
        """Return whether a version is indexed by its definition as it is now."""
        source = self._source_of(form)
        if indexed.data_format != source.data_format or not source.is_by_rules(indexed.fingerprint):
            return False
        if source.has_own_definitions:
            return True
        return indexed.fingerprint == source.definition_fingerprint(version)

    def partition(self, key: PartitionKey) -> int:
        """Return the number of a partition, made in a transaction of its own where it is missing."""
        known = self._partitions.get(key)
        if known is not None:
            return known
        with self._database.apart("indexing", f"version {key.version}") as connection:
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
        keys = [NumberedKey(numbers[key.path], key) for key in definition.keys]
        text = msgspec.json.encode(keys).decode()
        return VersionState(1, definition.state, source.data_format, definition.fingerprint, text)


_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_ROWS = "SELECT draft, seq, partition, card FROM document WHERE form = %s AND document = %s"
_ADD = """
WITH added AS (
    INSERT INTO document (form, document, draft, partition, modified, card) VALUES (%s, %s, %s, %s, %s, %s)
    RETURNING seq, partition
), texts AS (
    INSERT INTO free_text (seq, fold) SELECT seq, %s FROM added
)
INSERT INTO entry (control, partition, fold, value, seq, edge, whole)
SELECT control, added.partition, fold, value, added.seq, edge, whole
FROM added, unnest(%s::int[], %s::text[], %s::text[], %s::smallint[], %s::text[])
    AS of (control, fold, value, edge, whole)
"""
_ADD_ENTRIES = """
INSERT INTO entry (control, partition, fold, value, seq, edge, whole)
SELECT control, %s, fold, value, %s, edge, whole
FROM unnest(%s::int[], %s::text[], %s::text[], %s::smallint[], %s::text[]) AS of (control, fold, value, edge, whole)
"""
_REMOVE_ENTRIES = """
DELETE FROM entry WHERE seq = %s
AND (control, fold, value) IN (SELECT * FROM unnest(%s::int[], %s::text[], %s::text[]))
"""
_REMOVE = """
WITH entries AS (DELETE FROM entry WHERE seq = %(seq)s), texts AS (DELETE FROM free_text WHERE seq = %(seq)s)
DELETE FROM document WHERE seq = %(seq)s
"""
_CHANGE = """
WITH texts AS (UPDATE free_text SET fold = %(rest)s WHERE seq = %(seq)s AND fold <> %(rest)s)
UPDATE document SET modified = %(modified)s, card = %(card)s WHERE seq = %(seq)s
"""
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


@dataclass(frozen=True, slots=True)
class IndexedRow:
    """The index row of a document or draft."""

    seq: int
    partition: int
    card: str


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document or draft as it is now; ``free_text`` is folded."""

    version: int
    partition: int
    card: Card
    free_text: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """The rows of a document and its draft, and indexed versions by number, asked for."""

    kept: Cursor[TupleRow]
    versions: Mapping[int, Cursor[TupleRow]]


class IndexRows:
    """Writes the rows of the index, within the transaction of this thread. Methods raise domain errors."""

    def __init__(self, database: Database, numbers: FormNumbers, source_of: SourceOf) -> None:
        self.versions = IndexedVersions(database, numbers, source_of)
        self._database = database
        self._numbers = numbers
        self._source_of = source_of

    def published(self, form: Form, version: int) -> None:
        """Index a version by its definition as it is now, from the commit on."""
        with self._database.reading("indexing", form) as connection:
            self.versions.renew(connection, form, version)

    def changing(self, form: Form, document: str, version: int) -> None:
        """Lock the rows of a document, and ask for what ``changed`` needs."""
        number = self._numbers.require(form)
        with self._database.reading("indexing", form) as connection:
            kept = self._kept(connection, number, document)
            connection.asked[form, document] = _Asked(kept, {version: self.versions.ask(connection, number, version)})

    def changed(self, form: Form, document: str, *, is_rewritten: bool = False) -> None:
        """Bring the rows of a document and its draft up to date; ``is_rewritten`` writes all of them."""
        number = self._numbers.require(form)
        with self._database.reading("indexing", form) as connection:
            asked = connection.asked.pop((form, document), None)
            if not isinstance(asked, _Asked):
                asked = _Asked(self._kept(connection, number, document), {})
            reading = self.reading(connection, form, asked.versions)
            now = dict(reading.read(document))  # what is read for it, the same round trip reads
            kept = {is_draft: IndexedRow(*row) for is_draft, *row in asked.kept.fetchall()}
            change = _Change(connection, number, document)
            for is_draft in (True, False):
                change.replace(kept.get(is_draft), now.get(is_draft), is_draft=is_draft, is_rewritten=is_rewritten)
            change.count()

    def difference(self, form: Form, document: str) -> str | None:
        """Return how the rows of a document and its draft differ from what is stored now.

        Rows by an older state of a definition are no difference: they are brought up to date before a search answers.
        """
        number = self._numbers.require(form)
        with self._database.transaction("comparing the index of", form) as connection:
            connection.execute(_LOCK, (self.lock(number, document),))
            rows = connection.execute(_ROWS, (number, document)).fetchall()
            kept = {is_draft: IndexedRow(*row) for is_draft, *row in rows}
            now = dict(self.reading(connection, form).read(document))
            found = (_difference(connection, kept.get(is_draft), now.get(is_draft)) for is_draft in (True, False))
            return next(filter(None, found), None)

    def _kept(self, connection: Rows, number: int, document: str) -> Cursor[TupleRow]:
        connection.execute(_LOCK, (self.lock(number, document),))
        return connection.execute(_ROWS, (number, document))

    def lock(self, number: int, document: str) -> int:
        """Return the key of the lock of a document's rows; ``number`` is that of its form."""
        return lock_key(self._database.address.schema, "index", str(number), document)

    def reading(
        self, connection: Rows, form: Form, asked: Mapping[int, Cursor[TupleRow]] | None = None
    ) -> DocumentReading:
        """Read documents of a form in the transaction of a connection; some versions were ``asked`` for already."""

        def current(version: int) -> VersionState:
            return self.versions.current(connection, form, version, None if asked is None else asked.get(version))

        return DocumentReading(self._numbers.require(form), self._source_of(form), self.versions, current)


class DocumentReading:
    """Reads documents of a form as they are stored now, in a transaction, by the definitions of their versions."""

    def __init__(
        self, number: int, source: Source, versions: IndexedVersions, current: Callable[[int], VersionState]
    ) -> None:
        self._number = number
        self._source = source
        self._versions = versions
        self._current = current
        self._known: dict[int, VersionState] = {}

    def read(self, document: str, ahead: ReadAhead | None = None) -> Iterator[tuple[bool, ReadDocument]]:
        """Read the draft and the saved document, unless they were read ``ahead``."""
        for is_draft in (True, False):
            read = self._source.read(DocumentName(document, is_draft), "stored", self._definition, ahead)
            if read is not None:
                version = read.hit.facts.version
                indexed = self._known[version]
                key = PartitionKey(self._number, version, is_draft, indexed.generation)
                card, free_text = card_of(read, indexed.numbers), plain(read.free_text.casefold())
                yield is_draft, ReadDocument(version, self._versions.partition(key), card, free_text)

    def _definition(self, version: int) -> IndexedDefinition:
        if version not in self._known:
            self._known[version] = self._current(version)
        return self._known[version].definition


def _difference(connection: Rows, kept: IndexedRow | None, now: ReadDocument | None) -> str | None:
    if now is None:
        return None if kept is None else "the index still has it"
    if kept is None:
        return "the index does not have it"
    if kept.partition != now.partition:
        row = connection.execute(_SAME_VERSION, (kept.partition, now.partition)).fetchone()
        return None if row == (True,) else "the index has another version of it"
    if kept.card != encode(now.card):
        return "the index has other values of it"
    expected = {_stored(entry)[:3] for entry in entries(now.card)}
    entry_rows = connection.execute(_ENTRIES, (kept.seq,)).fetchall()
    text = connection.execute(_TEXT, (kept.seq,)).fetchone()
    is_same = len(entry_rows) == len(expected) and {tuple(row) for row in entry_rows} == expected
    return None if is_same and text == (now.free_text,) else "the index would not find all values of it"


class _Change:
    """Replaces the rows of one document, and counts. Nothing waits for the database until the commit."""

    def __init__(self, connection: Rows, form: int, document: str) -> None:
        self._connection = connection
        self._form = form
        self._document = document
        self._totals: Counter[int] = Counter()

    def replace(
        self, kept: IndexedRow | None, now: ReadDocument | None, *, is_draft: bool, is_rewritten: bool = False
    ) -> None:
        if kept is not None and (now is None or is_rewritten or kept.partition != now.partition):
            self._connection.execute(_REMOVE, {"seq": kept.seq})
            self._totals[kept.partition] -= 1
            kept = None
        if now is None:
            return
        text = encode(now.card)
        if kept is not None:
            self._change(kept, now, text)
            return
        columns = columns_of(now.card, entries(now.card))
        values = self._form, self._document, is_draft, now.partition, now.card.modified, text, now.free_text, *columns
        self._connection.execute(_ADD, values)
        self._totals[now.partition] += 1

    def count(self) -> None:
        count(self._connection, self._totals)

    def _change(self, kept: IndexedRow, now: ReadDocument, text: str) -> None:
        before, after = set(entries(decode(kept.card))), set(entries(now.card))
        if gone := before - after:
            controls, folds, values, _ = zip(*map(_stored, gone), strict=True)
            self._connection.execute(_REMOVE_ENTRIES, (kept.seq, list(controls), list(folds), list(values)))
        if come := after - before:
            self._connection.execute(_ADD_ENTRIES, (kept.partition, kept.seq, *columns_of(now.card, come)))
        changed = {"rest": now.free_text, "modified": now.card.modified, "card": text, "seq": kept.seq}
        self._connection.execute(_CHANGE, changed)


def count(connection: Rows, totals: Mapping[int, int]) -> None:
    """Add to the totals of partitions, in the shard of a connection."""
    changed = sorted((number, added) for number, added in totals.items() if added)
    if changed:
        connection.execute(_COUNT, [list(column) for column in zip(*changed, strict=True)])


def plain(text: str) -> str:
    """Return a text that the database can have: without NUL, as in XML."""
    return text.replace("\0", "\x1e") if "\0" in text else text


def _stored(entry: EntryRow) -> tuple[int, str, str, int]:
    number, fold, value, edge = entry
    return number, "" if fold == NOTHING else plain(str(fold)), "" if value == NOTHING else plain(str(value)), edge


def columns_of(
    card: Card, found: Iterable[EntryRow]
) -> tuple[list[int], list[str], list[str], list[int], list[str | None]]:
    """Return the columns of entries of a card: numbers, folds, values, edges, and folded values that are cut."""
    long = (value for values in card.values.values() for value in values if len(value) > LONGEST_KEY // 3)
    cut = {key: value.casefold() for value in long if is_cut((key := key_of(value))[0])}
    numbers, folds, values, edges = [], [], [], []
    wholes: list[str | None] = []
    for entry in found:
        number, fold, value, edge = _stored(entry)
        numbers.append(number)
        folds.append(fold)
        values.append(value)
        edges.append(edge)
        wholes.append(cut[entry[1], entry[2]] if is_cut(entry[1]) and number > 0 else None)
    return numbers, folds, values, edges, wholes


_UNSYNCED = "SET LOCAL synchronous_commit = off"  # A crash takes whole batches, whose documents are outdated again

_TRY = """
SELECT document FROM unnest(%s::text[], %s::bigint[]) AS of (document, key) WHERE pg_try_advisory_xact_lock(key)
"""
_ROWS_OF_MANY = (
    "SELECT document, draft, seq, partition, card FROM document WHERE form = %s AND document = ANY(%s::text[])"
)
_STORED_OF_MANY = """
SELECT kind, folder, sidecar, CASE WHEN octet_length(body) <= %s THEN body END FROM revision
WHERE form = %s AND kind = ANY(%s::smallint[]) AND folder = ANY(%s::text[]) AND name = %s AND is_current
"""
_REMOVE_MANY = """
WITH entries AS (DELETE FROM entry WHERE seq = ANY(%(seqs)s)),
texts AS (DELETE FROM free_text WHERE seq = ANY(%(seqs)s))
DELETE FROM document WHERE seq = ANY(%(seqs)s)
"""
_CHANGE_MANY = """
WITH entries AS (DELETE FROM entry WHERE seq = ANY(%s))
UPDATE document SET partition = now.partition, modified = now.modified, card = now.card
FROM unnest(%s::bigint[], %s::int[], %s::text[], %s::text[]) AS now (seq, partition, modified, card)
WHERE document.seq = now.seq
"""
_ADD_MANY = """
INSERT INTO document (form, document, draft, partition, modified, card)
SELECT %s, now.* FROM unnest(%s::text[], %s::boolean[], %s::int[], %s::text[], %s::text[]) AS now
RETURNING document, draft, seq
"""
_COPY_ENTRIES = "COPY entry (partition, seq, control, fold, value, edge, whole) FROM STDIN"
_SET_TEXTS = """
INSERT INTO free_text (seq, fold) SELECT * FROM unnest(%s::bigint[], %s::text[])
ON CONFLICT (seq) DO UPDATE SET fold = excluded.fold WHERE free_text.fold <> excluded.fold
"""


# The rows of many documents, read again for the index and brought up to date in one transaction.
#
# A save that is under way holds the lock of its document. It is not waited for while other documents are locked: that
# document is read again afterwards, alone. A save waits for one batch at most.


@dataclass(frozen=True, slots=True)
class IndexBatches:
    """Reads documents again, many in one transaction."""

    database: Database
    numbers: FormNumbers
    rows: IndexRows
    source_of: SourceOf

    def reread(
        self, form: Form, documents: Sequence[str], *, is_rewritten: bool = False, version: int | None = None
    ) -> None:
        """Bring the rows of documents and their drafts up to date, or those of one version.

        ``is_rewritten`` writes all of them, also where nothing seems to be different.
        """
        number, left = self.numbers.require(form), dict.fromkeys(documents)
        locks = [self.rows.lock(number, document) for document in left]
        with self.database.transaction("indexing", form, first=_UNSYNCED) as connection:
            locked = [document for (document,) in connection.execute(_TRY, (list(left), locks)).fetchall()]
            ahead, apart = _read_ahead(connection, number, locked)
            kept: dict[str, dict[bool, IndexedRow]] = {}
            for document, is_draft, *row in connection.execute(_ROWS_OF_MANY, (number, locked)):
                kept.setdefault(document, {})[is_draft] = IndexedRow(*row)
            reading, change = self.rows.reading(connection, form), _BatchedChange(connection, number)
            for document in locked:
                if document not in apart:
                    del left[document]
                    now = dict(reading.read(document, ahead))
                    if version is None or version in {each.version for each in now.values()}:
                        change.replace(document, kept.get(document, {}), now, is_rewritten=is_rewritten)
            change.write()
        for document in left:
            if version is None or self.source_of(form).version(document) == version:
                with self.database.transaction("indexing", form, first=_UNSYNCED) as connection:
                    connection.pipeline_until_commit()
                    self.rows.changed(form, document, is_rewritten=is_rewritten)


def _read_ahead(connection: Rows, form: int, documents: Sequence[str]) -> tuple[ReadAhead, set[str]]:
    """Read documents and drafts with their contents; return also those that have to be read alone."""
    values = LARGEST_REREAD, form, [DATA, DRAFT], list(documents), DATA_XML
    found: dict[DocumentName, StoredRevision] = {}
    apart = set[str]()
    for kind, document, data, body in connection.execute(_STORED_OF_MANY, values, binary=True):
        try:
            sidecar = decoded(data, document)
        except DamagedError:
            apart.add(document)
            continue
        if sidecar.deleted:
            continue
        if body is None or len(body) != sidecar.size:
            apart.add(document)
            continue
        revision = StoredRevision(sidecar, sidecar.etag, sidecar.size, io.BytesIO(body))
        found[DocumentName(document, kind == DRAFT)] = revision
    return found, apart


@dataclass(slots=True)
class _BatchedChange:
    """Replaces the rows of documents of a form, and counts. A document that stays in the index keeps its ``seq``."""

    connection: Rows
    form: int
    gone: list[int] = field(default_factory=list)
    changed: list[tuple[int, ReadDocument]] = field(default_factory=list)
    new: dict[tuple[str, bool], ReadDocument] = field(default_factory=dict)
    totals: Counter[int] = field(default_factory=Counter)

    def replace(
        self,
        document: str,
        kept: Mapping[bool, IndexedRow],
        now: Mapping[bool, ReadDocument],
        *,
        is_rewritten: bool,
    ) -> None:
        for is_draft in (True, False):
            before, after = kept.get(is_draft), now.get(is_draft)
            if before is not None:
                self.totals[before.partition] -= 1
            if after is not None:
                self.totals[after.partition] += 1
            if after is None:
                self.gone += [] if before is None else [before.seq]
            elif before is None:
                self.new[document, is_draft] = after
            elif is_rewritten or before.partition != after.partition or before.card != encode(after.card):
                self.changed.append((before.seq, after))

    def write(self) -> None:
        if self.gone:
            self.connection.execute(_REMOVE_MANY, {"seqs": self.gone})
        if self.changed:
            seqs, documents = (list(column) for column in zip(*self.changed, strict=True))
            self.connection.execute(_CHANGE_MANY, (seqs, seqs, *_facts(documents)))
        written = [*self.changed]
        if self.new:
            names, drafts = (list(column) for column in zip(*self.new, strict=True))
            added = self.connection.execute(
                _ADD_MANY, (self.form, names, drafts, *_facts(self.new.values()))
            ).fetchall()
            written += [(seq, self.new[document, is_draft]) for document, is_draft, seq in added]
        if written:
            with self.connection.cursor().copy(_COPY_ENTRIES) as copy:
                for seq, each in written:
                    for entry in zip(*columns_of(each.card, entries(each.card)), strict=True):
                        copy.write_row((each.partition, seq, *entry))
            texts = [seq for seq, _ in written], [each.free_text for _, each in written]
            self.connection.execute(_SET_TEXTS, texts)
        count(self.connection, self.totals)


def _facts(documents: Iterable[ReadDocument]) -> tuple[list[int], list[str], list[str]]:
    documents = list(documents)
    return (
        [each.partition for each in documents],
        [each.card.modified for each in documents],
        [encode(each.card) for each in documents],
    )
