"""Reading revisions and lists of them: the statements of a storage that change nothing.

Lists of any length are read some rows at a time, each time from the last key on: no transaction is open meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from persistence.errors import DamagedError
from persistence.limits import LISTED_ROWS
from persistence.model.addresses import FORM_XHTML, Address, Form
from persistence.model.history import ListedRevision
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.postgresql.database import Database
from persistence.postgresql.lookups import decoded
from persistence.postgresql.places import DEFINITION, ResourceKey
from persistence.storage.storage import RevisionList, count_since

_AT = "form = %s AND kind = %s AND folder = %s AND name = %s"
_CURRENT = f"SELECT sidecar FROM revision WHERE {_AT} AND is_current"
_CURRENT_CONTENT = f"SELECT sidecar, body FROM revision WHERE {_AT} AND is_current"
_REVISION = f"SELECT sidecar FROM revision WHERE {_AT} AND modified = %s"
_REVISION_CONTENT = f"SELECT sidecar, body FROM revision WHERE {_AT} AND modified = %s"
_ID = f"SELECT id FROM revision WHERE {_AT} AND is_current"
_INSTANTS = f"SELECT modified FROM revision WHERE {_AT} ORDER BY modified DESC"
_PAGE = f"SELECT modified, sidecar FROM revision WHERE {_AT} AND modified BETWEEN %s AND %s ORDER BY modified DESC"
_NAMES = "SELECT name FROM revision WHERE form = %s AND kind = %s AND folder = %s AND is_current ORDER BY name"
_FOLDER = """
SELECT name, modified, is_current, sidecar FROM revision
WHERE form = %s AND kind = %s AND folder = %s AND (name, modified) > (%s, %s) ORDER BY name, modified LIMIT %s
"""
_FORMS = """
SELECT app, name FROM form
WHERE (app, name) > (%s, %s) AND (%s::text IS NULL OR app = %s)
AND EXISTS (SELECT FROM revision WHERE revision.form = form.id)
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
    """Reads rows of revisions by their places. Methods raise domain errors."""

    database: Database

    def sidecar(self, place: ResourceKey, address: Address, instant: Instant | None = None) -> Sidecar | None:
        with self.database.reading("reading", address) as connection:
            statement = _CURRENT if instant is None else _REVISION
            values = place if instant is None else (*place, instant)
            row = connection.execute(statement, values, binary=True).fetchone()
        return None if row is None else decoded(row[0], address)

    def content(
        self, place: ResourceKey, address: Address, instant: Instant | None = None
    ) -> tuple[bytes, bytes | None] | None:
        """Return the sidecar, as bytes, and the small content of the current revision, or of that of an instant."""
        with self.database.reading("reading", address) as connection:
            statement = _CURRENT_CONTENT if instant is None else _REVISION_CONTENT
            values = place if instant is None else (*place, instant)
            row = connection.execute(statement, values, binary=True).fetchone()
        return None if row is None else (row[0], row[1])

    def content_id(self, place: ResourceKey, address: Address) -> str | None:
        with self.database.reading("looking at", address) as connection:
            row = connection.execute(_ID, place).fetchone()
        return None if row is None else str(row[0])

    def instants(self, place: ResourceKey, address: Address) -> list[Instant]:
        """Return the instants of all revisions, newest first."""
        with self.database.reading("listing the revisions of", address) as connection:
            rows = connection.execute(_INSTANTS, place).fetchall()
        return [Instant(each) for (each,) in rows]

    def names(self, place: ResourceKey, address: Address) -> list[str]:
        with self.database.reading("listing", address) as connection:
            return [str(name) for (name,) in connection.execute(_NAMES, place[:3]).fetchall()]

    def folder(self, form: int, kind: int, folder: str) -> Iterator[FolderRow]:
        last = ("", "")
        while True:
            with self.database.reading("listing", folder) as connection:
                rows = connection.execute(_FOLDER, (form, kind, folder, *last, LISTED_ROWS), binary=True).fetchall()
            yield from (FolderRow(name, modified, is_current, data) for name, modified, is_current, data in rows)
            if len(rows) < LISTED_ROWS:
                return
            last = rows[-1][:2]

    def forms(self, app: str | None) -> Iterator[Form]:
        last = ("", "")
        while True:
            with self.database.reading("listing the forms") as connection:
                rows = connection.execute(_FORMS, (*last, app, app, LISTED_ROWS)).fetchall()
            yield from (Form(*row) for row in rows)
            if len(rows) < LISTED_ROWS:
                return
            last = rows[-1]

    def documents(self, form: Form, number: int, kind: int) -> Iterator[str]:
        """Yield the ids of the documents in a collection, in order."""
        last = ""
        while True:
            with self.database.reading("listing the documents of", form) as connection:
                rows = connection.execute(_DOCUMENTS, (number, kind, last, LISTED_ROWS)).fetchall()
            yield from (str(folder) for (folder,) in rows)
            if len(rows) < LISTED_ROWS:
                return
            last = rows[-1][0]

    def sums(self, form: Form, number: int, kind: int) -> Iterator[tuple[str, int]]:
        """Yield each folder of a kind, in order, with the ``sum_of_revisions`` in it."""
        last = ""
        while True:
            with self.database.reading("listing the revisions of", form) as connection:
                rows = connection.execute(_SUMS, (number, kind, last, LISTED_ROWS)).fetchall()
            yield from ((str(folder), int(total)) for folder, total in rows)
            if len(rows) < LISTED_ROWS:
                return
            last = rows[-1][0]

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
        listed = set(wanted)
        return [self._listed(instant, data) for instant, data in rows if instant in listed]

    def _listed(self, instant: Instant, data: bytes) -> ListedRevision:
        try:
            return ListedRevision(instant, decoded(data, self.address))
        except DamagedError:
            if instant == self.instants[0]:
                raise
            return ListedRevision(instant, None)
