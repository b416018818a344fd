"""Inspecting a database and its index, all as it was at one moment: findings come out, nothing is changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from psycopg.rows import TupleRow

from persistence.errors import DamagedError
from persistence.limits import PIECE, UNCLAIMED_SECONDS
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar, digest_text
from persistence.model.texts import Instant
from persistence.postgresql.database import DATA, DEFINITION, DRAFT, Database, Rows, rows_after
from persistence.postgresql.database_index import recount
from persistence.postgresql.database_storage import DatabaseStorage
from persistence.postgresql.index_rows import IndexRows
from persistence.postgresql.revision_rows import decoded, sweep
from persistence.storage.findings import Finding, FindingKind
from persistence.storage.storage import MaintainedDatabase, RecordCheck

_COLLECTIONS = {DATA: Collection.DATA, DRAFT: Collection.DRAFT}
_FOLDERS = {DATA: Collection.DATA.value, DRAFT: Collection.DRAFT.value, DEFINITION: "form"}
_ROWS = """
SELECT r.form, r.kind, r.folder, r.name, r.modified, f.app, f.name, r.is_current, r.id, r.sidecar,
    octet_length(r.body), {digest}, p.pieces, p.last, p.bytes
FROM (
    SELECT * FROM revision WHERE (form, kind, folder, name, modified) > (%s, %s, %s, %s, %s)
    ORDER BY form, kind, folder, name, modified LIMIT %s
) AS r LEFT JOIN form AS f ON f.id = r.form LEFT JOIN LATERAL (
    SELECT count(*), max(number), sum(octet_length(bytes)) FROM piece WHERE piece.id = r.id
) AS p (pieces, last, bytes) ON r.body IS NULL
ORDER BY r.form, r.kind, r.folder, r.name, r.modified
"""
_INLINE_DIGEST = "encode(sha256(r.body), 'hex')"
_PIECE_OF = "SELECT bytes FROM piece WHERE id = %s AND number = %s"
_STRAY = """
SELECT DISTINCT id FROM piece WHERE NOT EXISTS (SELECT FROM unclaimed WHERE unclaimed.id = piece.id)
AND NOT EXISTS (SELECT FROM revision WHERE revision.id = piece.id AND body IS NULL)
"""
_IN_USE = (
    "SELECT id FROM unclaimed WHERE EXISTS (SELECT FROM revision WHERE revision.id = unclaimed.id AND body IS NULL)"
)
_OVERDUE = "SELECT count(*) FROM unclaimed WHERE since < now() - make_interval(secs => %s)"
_REMOVE_STRAY = """
DELETE FROM piece WHERE id = %s AND NOT EXISTS (SELECT FROM unclaimed WHERE unclaimed.id = piece.id)
AND NOT EXISTS (SELECT FROM revision WHERE revision.id = piece.id)
"""
_CLAIM = "DELETE FROM unclaimed WHERE id = %s AND EXISTS (SELECT FROM revision WHERE revision.id = unclaimed.id)"
_AT = "form = %s AND kind = %s AND folder = %s AND name = %s"
_IS_THERE = f"SELECT 1 FROM revision WHERE {_AT} AND modified = %s AND id = %s"
_MAKE_CURRENT = f"""
UPDATE revision SET is_current = true WHERE {_AT} AND modified = (SELECT max(modified) FROM revision WHERE {_AT})
AND NOT EXISTS (SELECT FROM revision WHERE {_AT} AND is_current)
"""


class _Row(NamedTuple):
    """A revision, with the size and digest of its content as they are. ``last`` is the number of the last piece."""

    form: int
    kind: int
    folder: str
    name: str
    modified: Instant
    app: str | None
    form_name: str | None
    is_current: bool
    id: str
    sidecar: bytes
    size: int | None
    digest: str | None
    pieces: int | None
    last: int | None
    bytes: int | None

    @property
    def place(self) -> str:
        form = f"{self.app}/{self.form_name}" if self.app is not None else f"the form number {self.form}, which is lost"
        return f"{form}/{_FOLDERS.get(self.kind, self.kind)}/{self.folder}/{self.name}"

    @property
    def address(self) -> DocumentAddress | None:
        if self.app is None or self.form_name is None or self.kind not in _COLLECTIONS:
            return None
        return DocumentAddress(Form(self.app, self.form_name), _COLLECTIONS[self.kind], self.folder, self.name)


@dataclass(frozen=True, slots=True)
class RevisionInspection:
    """Inspects revisions and contents; ``is_deep`` compares every digest, ``body_fault`` judges bodies of records."""

    database: Database
    is_deep: bool
    body_fault: RecordCheck

    def run(self, connection: Rows) -> Iterator[Finding | None]:
        """Yield all findings, and ``None`` after each folder; ``connection`` has a snapshot."""
        statement = _ROWS.format(digest=_INLINE_DIGEST if self.is_deep else "NULL")
        rows = rows_after(lambda: nullcontext(connection), statement, (), (-1, -1, "", "", ""))
        for _, folder in groupby(map(_Row._make, rows), lambda row: row[:3]):
            for _, of_resource in groupby(folder, lambda row: row.name):
                revisions = list(of_resource)
                newest = revisions[-1]
                for row in revisions:
                    yield from self._revision(connection, row)
                if not any(row.is_current for row in revisions):
                    mend = partial(self.database.run, "repairing", newest.place, _MAKE_CURRENT, newest[:4] * 3)
                    message = f"of {len(revisions)} revisions none is current"
                    yield FindingKind.NO_CURRENT.at(newest.place, message, mend=mend)
                elif not newest.is_current:
                    message = f"the current revision is older than that of {newest.modified}"
                    yield FindingKind.ORDER_WRONG.at(newest.place, message)
            yield None
        yield from self._contents(connection)

    def _revision(self, connection: Rows, row: _Row) -> Iterator[Finding]:
        try:
            sidecar = decoded(row.sidecar, row.place)
        except DamagedError as error:
            yield FindingKind.ROW_UNREADABLE.at(row.place, str(error))
            return
        if row.app is None or (sidecar.id, sidecar.modified) != (row.id, row.modified):
            message = f"the row of {row.modified} is not that of its sidecar, which is of {sidecar.modified}"
            yield FindingKind.ROW_WRONG.at(row.place, message)
        fault_of_content = self._content_fault(connection, row, sidecar)
        if fault_of_content:
            yield FindingKind.CONTENT_WRONG.at(row.place, f"of {row.modified}: {fault_of_content}")
        address = row.address
        fault = None if address is None or sidecar.body is None else self.body_fault(address, sidecar)
        if fault is not None:
            with self.database.apart("looking at", row.place) as now:
                is_still_there = now.execute(_IS_THERE.encode(), (*row[:5], row.id)).fetchone() is not None
            if is_still_there:
                yield fault[0].at(row.place, fault[1])

    def _content_fault(self, connection: Rows, row: _Row, sidecar: Sidecar) -> str:
        if sidecar.deleted:
            return "a deletion has a content" if row.size is not None or row.pieces else ""
        digest = row.digest
        if row.size is None:
            pieces = -(-sidecar.size // PIECE)
            if not row.pieces:
                return "its content is missing"
            if (row.pieces, row.last, row.bytes) != (pieces, pieces - 1, sidecar.size):
                return f"it has {row.pieces} pieces of {row.bytes} bytes, and not {pieces} of {sidecar.size}"
            if self.is_deep:
                sha256 = hashlib.sha256()
                for number in range(pieces):
                    found = connection.execute(_PIECE_OF, (row.id, number), binary=True).fetchone()
                    sha256.update(b"" if found is None else found[0])
                digest = sha256.hexdigest()
        elif row.size != sidecar.size:
            return f"its content has {row.size} bytes, and not {sidecar.size}"
        if digest is not None and sidecar.digest not in {None, digest_text(digest)}:
            return "its content has another digest"
        return ""

    def _contents(self, connection: Rows) -> Iterator[Finding]:
        for (content,) in connection.execute(_STRAY).fetchall():
            mend = partial(self.database.run, "repairing", content, _REMOVE_STRAY, (content,))
            yield FindingKind.STRAY_CONTENT.at(f"content {content}", "no revision has it", mend=mend)
        for (content,) in connection.execute(_IN_USE).fetchall():
            message = "a revision has it, and it would be removed as if none had"
            mend = partial(self.database.run, "repairing", content, _CLAIM, (content,))
            yield FindingKind.IN_USE_UNCLAIMED.at(f"content {content}", message, mend=mend)
        (count,) = connection.execute(_OVERDUE, (2 * UNCLAIMED_SECONDS,)).fetchone() or (0,)
        if count:
            message = f"{count} contents that no revision has any more"
            yield FindingKind.OVERDUE.at("contents", message, mend=self._sweep)

    def _sweep(self) -> None:
        while sweep(self.database):
            continue


_DOCUMENTS = """
SELECT form, folder, kind = 1 AS draft, modified FROM revision
WHERE kind IN (0, 1) AND name = 'data.xml' AND is_current
AND position(convert_to('"deleted":true', 'UTF8') IN sidecar) = 0
"""
"""The living documents and drafts. A quote in a text of a sidecar has a backslash before it."""

_DIFFERENT = f"""
SELECT DISTINCT coalesce(r.form, d.form), coalesce(r.folder, d.document)
FROM ({_DOCUMENTS}) AS r
FULL JOIN document AS d ON d.form = r.form AND d.document = r.folder AND d.draft = r.draft
WHERE r.folder IS NULL OR d.document IS NULL OR d.modified <> r.modified
"""
_EVERY = f"""
SELECT DISTINCT form, folder FROM (
    SELECT form, folder FROM ({_DOCUMENTS}) AS r UNION SELECT form, document FROM document
) AS found (form, folder) WHERE (form, folder) > (%s, %s) ORDER BY form, folder LIMIT %s
"""
_TOTALS = """
SELECT p.form, version, draft, there, counted FROM partition AS p,
LATERAL (SELECT count(*) FROM document WHERE partition = p.number) AS a (there),
LATERAL (SELECT coalesce(sum(documents), 0)::bigint FROM partition_total WHERE partition = p.number) AS b (counted)
WHERE there <> counted
"""


def _inspected_index(database: Database, rows: IndexRows, connection: Rows, *, is_deep: bool) -> Iterator[Finding]:
    """Compare the index in the snapshot of a connection; ``is_deep`` compares the values of every document.

    A difference in the snapshot is looked at again in its own transaction, so that it is real.
    """

    def rewrite(form: Form, document: str) -> None:
        with database.transaction("indexing", form):
            rows.changed(form, document, is_rewritten=True)

    forms = {number: Form(*names) for number, *names in connection.execute("SELECT * FROM form").fetchall()}
    totals = connection.execute(_TOTALS).fetchall()
    every = rows_after(lambda: nullcontext(connection), _EVERY, (), (-1, ""))
    found: Iterable[TupleRow] = every if is_deep else connection.execute(_DIFFERENT.encode())
    for number, document in found:
        form = forms.get(number)
        difference = None if form is None else rows.difference(form, document)
        if form is not None and difference is not None:
            mend = partial(rewrite, form, document)
            yield FindingKind.INDEX_ROWS.at(f"{form}/data/{document}", difference, mend=mend)
    for number, version, is_draft, there, counted in totals:
        if number in forms:
            kind = "drafts" if is_draft else "documents"
            message = f"it counts {counted} {kind} of version {version}, and not {there}"
            mend = partial(recount, database, forms[number], number)
            yield FindingKind.TOTAL_WRONG.at(str(forms[number]), message, mend=mend)


def maintained(storage: DatabaseStorage, rows: IndexRows | None = None) -> MaintainedDatabase:
    """Return the database of a storage; ``rows`` are those of its index, if any."""
    database = storage.database

    def inspect(is_deep: bool, body_fault: RecordCheck) -> Iterator[Finding | None]:  # noqa: FBT001 - as there
        with database.snapshot() as connection:
            yield from RevisionInspection(database, is_deep, body_fault).run(connection)
            if rows is not None:
                yield from _inspected_index(database, rows, connection, is_deep=is_deep)

    return MaintainedDatabase(str(database.address), storage, database.snapshot, inspect)
