"""The documents of a form version as a table, for administrators: found, filtered and sorted by the index.

Permissions of forms do not count. Encrypted controls are not indexed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self

from persistence.errors import BadRequestError, DamagedError
from persistence.forms.outline import NO_OUTLINE, Outline
from persistence.index.protocol import Budget
from persistence.limits import ROWS_AT_ONCE, STORED_LISTED
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress
from persistence.model.instants import Instant
from persistence.model.search import (
    Comparison,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    Hit,
    Hits,
    Query,
    Scope,
    Sort,
)
from persistence.providers.provider import Route
from persistence.services.export_tables import BETWEEN, FACTS, CsvLines, distinct_headings, facts_of


@dataclass(frozen=True, slots=True)
class TableColumn:
    """The column of an indexed control: its path in searches, and its label."""

    path: str
    label: str


@dataclass(frozen=True, slots=True)
class VersionTable:
    """The table of one version."""

    route: Route
    version: int
    columns: tuple[TableColumn, ...]

    @classmethod
    def of(cls, route: Route, version: int, language: str | None) -> Self:
        """Return the table of a version, with labels in a language, else in the first one of the form."""
        definition = route.catalog.of(route.form, version)
        data_format = route.properties.data_format
        outline = outline_of(route, version)
        keys = route.indexed(definition).index_keys(data_format).keys
        paths = [tuple(step.name for step in key.steps) for key in keys]
        labels = [outline.label(path, language) or path[-1] for path in paths]
        headings = distinct_headings(labels, paths)
        return cls(route, version, tuple(TableColumn(key.path, each) for key, each in zip(keys, headings, strict=True)))

    def find(self, query: Query, drafts: Drafts) -> Hits:
        scope = Scope((self.version,), DraftFilter(drafts))
        return self.route.data.index.search(self.route.form, scope, query, Budget())

    def stored(self, offset: int, size: int) -> Hits:
        """Return a part of the saved documents without an index or values of controls, those saved last first.

        Of a large form, ``STORED_LISTED`` documents in any order are read.
        """
        storage = self.route.data.storage
        names = list(islice(storage.documents(self.route.form), STORED_LISTED + 1))
        found = list[Hit]()
        for document in names[:STORED_LISTED]:
            with suppress(DamagedError):
                sidecar = storage.sidecar(DocumentAddress(self.route.form, Collection.DATA, document, DATA_XML))
                if sidecar is not None and not sidecar.deleted and sidecar.version == self.version:
                    found.append(Hit(document=document, is_draft=False, facts=sidecar.facts))
        found.sort(key=lambda hit: (hit.facts.modified, hit.document), reverse=True)
        return Hits(len(found), tuple(found[offset : offset + size]), has_more=len(names) > STORED_LISTED)

    def csv(self, query: Query, drafts: Drafts) -> Iterator[bytes]:
        """Yield all documents that a query finds as CSV in UTF-8, in the order in which they were created.

        Each page is a search that begins at the last creation, so that no document is missed when others are deleted.
        """
        lines = CsvLines()
        lines.add([*FACTS, *(column.label for column in self.columns)])
        yield "\ufeff".encode()
        for hit in self._by_creation(query, drafts):
            values = (BETWEEN.join(hit.values.get(column.path, ())) for column in self.columns)
            lines.add([*facts_of(hit.document, hit.facts), *values])
            if lines.size > _PIECE:
                yield lines.taken()
        yield lines.taken()

    def _by_creation(self, query: Query, drafts: Drafts) -> Iterator[Hit]:
        paths = tuple(column.path for column in self.columns)
        since: Instant | None = None
        offset, seen = 0, set[tuple[str, bool]]()
        while True:
            begin = () if since is None else (FieldFilter(Field.CREATED, Comparison.GTE, since),)
            asked = replace(
                query,
                fields=(*query.fields, *begin),
                sort=Sort(Field.CREATED, is_descending=False),
                offset=offset,
                size=ROWS_AT_ONCE,
                paths=paths,
            )
            page = self.find(asked, drafts).page
            for hit in page:
                if (hit.document, hit.is_draft) not in seen:
                    yield hit
            if len(page) < ROWS_AT_ONCE:
                return
            last = page[-1].facts.created
            offset = offset + ROWS_AT_ONCE if last == since else 0
            same = {(hit.document, hit.is_draft) for hit in page if hit.facts.created == last}
            since, seen = last, (seen | same if last == since else same)


_PIECE = 1 << 16


def outline_of(route: Route, version: int) -> Outline:
    """Return the outline of a version; an empty one where it is not published, or cannot be read."""
    try:
        return route.catalog.of(route.form, version).outline(route.properties.data_format) or NO_OUTLINE
    except (BadRequestError, DamagedError):
        return NO_OUTLINE
