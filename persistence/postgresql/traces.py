"""All that a database has of one document, so that it can be erased."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.postgresql.lookups import decoded
from persistence.postgresql.places import FormNumbers, check, kind_of
from persistence.postgresql.revisions import RevisionReader
from persistence.storage.managed import TracedFile, Traces

_UNCLAIMED = "SELECT id FROM unclaimed WHERE folder = %s AND (form = %s OR form IS NULL) ORDER BY id"
_ERASE = """
WITH gone AS (DELETE FROM unclaimed WHERE folder = %s AND (form = %s OR form IS NULL) RETURNING id)
DELETE FROM piece USING gone WHERE piece.id = gone.id
"""


@dataclass(frozen=True, slots=True)
class DatabaseDocumentFiles(Traces):
    """The revisions of a document and its draft, and contents that no revision has any more."""

    reader: RevisionReader
    numbers: FormNumbers
    form: Form
    document: str

    def listed(self) -> Iterator[TracedFile]:
        """Yield every revision, and then every content that waits to be swept, named as in a file tree."""
        number = self.numbers.find(self.form)
        if number is None:
            return
        for collection in Collection:
            main = DocumentAddress(self.form, collection, self.document, DATA_XML)
            check(main)
            for row in self.reader.folder(number, kind_of(main), self.document):
                address = main.moved(collection, row.name)
                sidecar = decoded(row.sidecar, address)
                name = str(address) if row.is_current else f"{address} of {row.modified}"
                yield TracedFile(name, sidecar.size, sidecar.digest or "")
        with self.reader.database.reading("looking for contents of", self.document) as connection:
            rows = connection.execute(_UNCLAIMED, (self.document, number)).fetchall()
        yield from (TracedFile(f"content {content}", 0, "") for (content,) in rows)

    def links(self) -> Iterator[str]:
        """Yield nothing: a row has no other name."""
        yield from ()

    def remove(self, links: list[str]) -> None:  # noqa: ARG002 - there are none
        """Remove contents of the document that no revision has any more, in the transaction of the block."""
        number = self.numbers.find(self.form)
        with self.reader.database.reading("erasing", self.document) as connection:
            connection.execute(_ERASE, (self.document, number))
