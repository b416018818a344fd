"""A database as commands maintain it: moved, backed up and checked through the storage that a service has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from persistence.model.addresses import Form
from persistence.postgresql.database import Database
from persistence.postgresql.index_inspection import IndexInspection
from persistence.postgresql.index_rows import IndexRows
from persistence.postgresql.inspection import RevisionInspection
from persistence.postgresql.places import FormNumbers
from persistence.postgresql.storage import DatabaseStorage
from persistence.storage.managed import MaintainedDatabase, RecordCheck, StorageFinding
from persistence.storage.storage import Arrivals

_BEGUN = "SELECT app, name FROM arriving JOIN form ON form.id = arriving.form WHERE source = %s"
_BRING = "INSERT INTO arrived_draft (source, etag) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING"
_DRAFTS = "SELECT etag FROM arrived_draft WHERE source = %s"
_BEGIN = "INSERT INTO arriving (source, form) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_END = """
DELETE FROM arriving USING form, unnest(%s::text[], %s::text[]) AS ended (app, name)
WHERE source = %s AND arriving.form = form.id AND form.app = ended.app AND form.name = ended.name
"""


class DatabaseMoveJournal(Arrivals):
    """Forms that are being moved here: they came by the move alone, so a move that goes on may replace them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._numbers = FormNumbers(database)

    def begun(self, source: str) -> set[Form]:
        with self._database.reading("looking what is being moved to", self._database.address) as connection:
            return {Form(*row) for row in connection.execute(_BEGUN, (source,)).fetchall()}

    def begin(self, source: str, form: Form) -> None:
        number = self._numbers.require(form)
        with self._database.apart("beginning to move", form) as connection:
            connection.execute(_BEGIN, (source, number))

    def end(self, source: str, forms: Iterable[Form]) -> None:
        ended = list(forms)
        with self._database.apart("ending a move to", self._database.address) as connection:
            connection.execute(_END, ([form.app for form in ended], [form.name for form in ended], source))

    def bring_drafts(self, source: str, etags: Iterable[str]) -> None:
        with self._database.apart("moving drafts to", self._database.address) as connection:
            connection.execute(_BRING, (source, list(etags)))

    def drafts_of(self, source: str) -> set[str]:
        with self._database.reading("looking what was moved to", self._database.address) as connection:
            return {etag for (etag,) in connection.execute(_DRAFTS, (source,)).fetchall()}


def maintained(storage: DatabaseStorage, rows: IndexRows | None = None) -> MaintainedDatabase:
    """Return the database of a storage that keeps all older revisions; ``rows`` are those of its index, if any."""
    database = storage.database

    def inspect(is_deep: bool, body_fault: RecordCheck) -> Iterator[StorageFinding | None]:  # noqa: FBT001 - as there
        with database.snapshot() as connection:
            yield from RevisionInspection(database, is_deep, body_fault).run(connection)
            if rows is not None:
                yield from IndexInspection(database, rows, is_deep).run(connection)

    return MaintainedDatabase(
        str(database.address),
        storage,
        DatabaseMoveJournal(database),
        database.snapshot,
        storage.keeping_writers_out,
        inspect,
    )
