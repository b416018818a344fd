"""Reading revisions and lists of them. Long lists are read some rows at a time, without an open transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from psycopg.rows import TupleRow

from persistence.errors import DamagedError
from persistence.model.addresses import FORM_XHTML, Address, Form
from persistence.model.history import ListedRevision
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.postgresql.database import Database
from persistence.postgresql.lookups import decoded
from persistence.postgresql.places import DEFINITION, ResourceKey
from persistence.storage.storage import RevisionList, count_since

_AT = "form = %s AND kind = %s AND folder = %s AND name = %s"
_INSTANTS = f"SELECT modified FROM revision WHERE {_AT} ORDER BY modified DESC"
_PAGE = f"SELECT modified, sidecar FROM revision WHERE {_AT} AND modified BETWEEN %s AND %s ORDER BY modified DESC"
_NAMES = "SELECT name FROM revision WHERE form = %s AND kind = %s AND folder = %s AND is_current ORDER BY name"
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


@dataclass(frozen=True, slots=True)
class RevisionReader:
    """Reads rows of revisions by their keys."""

    database: Database

    def row(
        self, columns: str, place: ResourceKey, address: Address, instant: Instant | None = None
    ) -> TupleRow | None:
        """Return columns of the current revision, or of the one of an instant."""
        at = "is_current" if instant is None else "modified = %s"
        values = place if instant is None else (*place, instant)
        with self.database.reading("reading", address) as connection:
            statement = f"SELECT {columns} FROM revision WHERE {_AT} AND {at}"
            return connection.execute(statement.encode(), values, binary=True).fetchone()

    def sidecar(self, place: ResourceKey, address: Address, instant: Instant | None = None) -> Sidecar | None:
        row = self.row("sidecar", place, address, instant)
        return None if row is None else decoded(row[0], address)

    def instants(self, place: ResourceKey, address: Address) -> list[Instant]:
        """Return the instants of all revisions, newest first."""
        with self.database.reading("listing the revisions of", address) as connection:
            rows = connection.execute(_INSTANTS, place).fetchall()
        return [Instant(each) for (each,) in rows]

    def names(self, place: ResourceKey, address: Address) -> list[str]:
        with self.database.reading("listing", address) as connection:
            return [str(name) for (name,) in connection.execute(_NAMES, place[:3]).fetchall()]

    def folder(self, form: int, kind: int, folder: str) -> Iterator[FolderRow]:
        yield from map(
            FolderRow._make, self.database.listed("listing", folder, _FOLDER, (form, kind, folder), ("", ""))
        )

    def forms(self, app: str | None) -> Iterator[Form]:
        yield from (Form(*row) for row in self.database.listed("listing the forms", "", _FORMS, (app, app), ("", "")))

    def documents(self, form: Form, number: int, kind: int) -> Iterator[str]:
        rows = self.database.listed("listing the documents of", form, _DOCUMENTS, (number, kind), ("",))
        yield from (folder for (folder,) in rows)

    def sums(self, form: Form, number: int, kind: int) -> Iterator[tuple[str, int]]:
        """Yield each folder of a kind, in order, with the ``sum_of_revisions`` in it."""
        for folder, total in self.database.listed("listing the revisions of", form, _SUMS, (number, kind), ("",)):
            yield folder, int(total)

    def versions(self, form: Form, number: int) -> list[tuple[int, str | None]]:
        """Return the versions of a form, highest first, each with the content id of its ``form.xhtml``."""
        with self.database.reading("listing the versions of", form) as connection:
            rows = connection.execute(_VERSIONS, (FORM_XHTML, number, DEFINITION)).fetchall()
        return sorted(((int(folder), content) for folder, content in rows), reverse=True)


class FolderRow(NamedTuple):
    """A revision in a folder, with its sidecar as bytes."""

    name: str
    modified: Instant
    is_current: bool
    sidecar: bytes


@dataclass(frozen=True, slots=True)
class DatabaseRevisions(RevisionList):
    """The revisions of a resource, by their instants as they were at one moment, newest first."""

    reader: RevisionReader
    place: ResourceKey
    address: Address
    instants: list[Instant]

    @property
    def total(self) -> int:
        return len(self.instants)

    def instant(self, position: int) -> Instant:
        return self.instants[position]

    def since(self, instant: Instant) -> int:
        return count_since(self, instant)

    def revision(self, position: int) -> ListedRevision | None:
        return next(iter(self.page(position, position + 1)), None)

    def page(self, begin: int, end: int) -> list[ListedRevision]:
        wanted = self.instants[begin:end]
        if not wanted:
            return []
        with self.reader.database.reading("listing the revisions of", self.address) as connection:
            rows = connection.execute(_PAGE, (*self.place, wanted[-1], wanted[0]), binary=True).fetchall()
        found, listed = [], set(wanted)
        for instant, data in (row for row in rows if row[0] in listed):
            try:
                found.append(ListedRevision(instant, decoded(data, self.address)))
            except DamagedError:
                if instant == self.instants[0]:
                    raise
                found.append(ListedRevision(instant, None))
        return found
