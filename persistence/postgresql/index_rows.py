"""The rows that the index keeps of documents, written in the transactions that change these.

Only differences are written. The writer of the rows of a document holds a lock of it until the commit, and reads the
document after it has the lock: so the last one has read what was stored last, be it a save or a job that reads
documents again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from psycopg import Cursor
from psycopg.rows import TupleRow

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
from persistence.index.sources import DocumentName, IndexedDefinition, ReadAhead, Source
from persistence.model.addresses import Form
from persistence.postgresql.database import Database, Rows
from persistence.postgresql.indexed_versions import IndexedVersions, PartitionKey, SourceOf, VersionState
from persistence.postgresql.places import FormNumbers, lock_key

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
class DocumentRow:
    """The index row of a document or draft."""

    seq: int
    partition: int
    card: str


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document or draft as it is now; ``rest`` is folded."""

    version: int
    partition: int
    card: Card
    rest: str


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
            kept = {is_draft: DocumentRow(*row) for is_draft, *row in asked.kept.fetchall()}
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
            kept = {is_draft: DocumentRow(*row) for is_draft, *row in rows}
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
                key = PartitionKey(self._number, version, is_draft, indexed.round)
                card, rest = card_of(read, indexed.numbers), plain(read.rest.casefold())
                yield is_draft, ReadDocument(version, self._versions.partition(key), card, rest)

    def _definition(self, version: int) -> IndexedDefinition:
        if version not in self._known:
            self._known[version] = self._current(version)
        return self._known[version].definition


def _difference(connection: Rows, kept: DocumentRow | None, now: ReadDocument | None) -> str | None:
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
    return None if is_same and text == (now.rest,) else "the index would not find all values of it"


class _Change:
    """Replaces the rows of one document, and counts. Nothing waits for the database until the commit."""

    def __init__(self, connection: Rows, form: int, document: str) -> None:
        self._connection = connection
        self._form = form
        self._document = document
        self._totals: Counter[int] = Counter()

    def replace(
        self, kept: DocumentRow | None, now: ReadDocument | None, *, is_draft: bool, is_rewritten: bool = False
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
        values = self._form, self._document, is_draft, now.partition, now.card.modified, text, now.rest, *columns
        self._connection.execute(_ADD, values)
        self._totals[now.partition] += 1

    def count(self) -> None:
        count(self._connection, self._totals)

    def _change(self, kept: DocumentRow, now: ReadDocument, text: str) -> None:
        before, after = set(entries(decode(kept.card))), set(entries(now.card))
        if gone := before - after:
            controls, folds, values, _ = zip(*map(_stored, gone), strict=True)
            self._connection.execute(_REMOVE_ENTRIES, (kept.seq, list(controls), list(folds), list(values)))
        if come := after - before:
            self._connection.execute(_ADD_ENTRIES, (kept.partition, kept.seq, *columns_of(now.card, come)))
        changed = {"rest": now.rest, "modified": now.card.modified, "card": text, "seq": kept.seq}
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
