"""Comparing the index of a database with the documents in it: findings come out, nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from psycopg.rows import TupleRow

from persistence.model.addresses import Form
from persistence.postgresql.database import Database, Rows, rows_after
from persistence.postgresql.index_rows import IndexRows
from persistence.postgresql.reindexing import recount
from persistence.storage.managed import StorageFault, StorageFinding

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


@dataclass(frozen=True, slots=True)
class IndexInspection:
    """Compares the index of a database; ``is_deep`` compares the values of every document.

    A difference in the snapshot is looked at again in its own transaction, so that it is real.
    """

    database: Database
    rows: IndexRows
    is_deep: bool

    def run(self, connection: Rows) -> Iterator[StorageFinding]:
        """Yield all findings; ``connection`` has a snapshot."""
        forms = {number: Form(*names) for number, *names in connection.execute("SELECT * FROM form").fetchall()}
        totals = connection.execute(_TOTALS).fetchall()
        found: Iterable[TupleRow] = (
            rows_after(lambda: nullcontext(connection), _EVERY, (), (-1, ""))
            if self.is_deep
            else connection.execute(_DIFFERENT.encode())
        )
        for number, document in found:
            form = forms.get(number)
            difference = None if form is None else self.rows.difference(form, document)
            if form is not None and difference is not None:
                mend = partial(self._rewrite, form, document)
                yield StorageFinding(StorageFault.INDEX_WRONG, f"{form}/data/{document}", difference, mend)
        for number, version, is_draft, there, counted in totals:
            if number in forms:
                kind = "drafts" if is_draft else "documents"
                message = f"it counts {counted} {kind} of version {version}, and not {there}"
                mend = partial(recount, self.database, forms[number], number)
                yield StorageFinding(StorageFault.TOTAL_WRONG, str(forms[number]), message, mend)

    def _rewrite(self, form: Form, document: str) -> None:
        with self.database.transaction("indexing", form):
            self.rows.changed(form, document, is_rewritten=True)
