"""The rows of many documents, read again for the index and brought up to date in one transaction.

A save that is under way holds the lock of its document. It is not waited for while other documents are locked: that
document is read again afterwards, alone. A save waits for one batch at most.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from persistence.errors import DamagedError
from persistence.index.cards import encode, entries
from persistence.index.sources import DocumentName, ReadAhead
from persistence.limits import LARGEST_REREAD
from persistence.model.addresses import DATA_XML, Form
from persistence.postgresql.database import Database, Rows
from persistence.postgresql.index_rows import DocumentRow, IndexRows, ReadDocument, columns_of, count
from persistence.postgresql.indexed_versions import SourceOf
from persistence.postgresql.lookups import decoded
from persistence.postgresql.places import DATA, DRAFT, FormNumbers
from persistence.storage.stored_revision import StoredRevision

_UNSYNCED = "SET LOCAL synchronous_commit = off"
"""A crash takes whole batches, whose documents are outdated again."""

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
            kept: dict[str, dict[bool, DocumentRow]] = {}
            for document, is_draft, *row in connection.execute(_ROWS_OF_MANY, (number, locked)):
                kept.setdefault(document, {})[is_draft] = DocumentRow(*row)
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
        kept: Mapping[bool, DocumentRow],
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
            texts = [seq for seq, _ in written], [each.rest for _, each in written]
            self.connection.execute(_SET_TEXTS, texts)
        count(self.connection, self.totals)


def _facts(documents: Iterable[ReadDocument]) -> tuple[list[int], list[str], list[str]]:
    documents = list(documents)
    return (
        [each.partition for each in documents],
        [each.card.modified for each in documents],
        [encode(each.card) for each in documents],
    )
