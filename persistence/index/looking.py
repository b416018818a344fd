"""What of an index is not as the tree is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from persistence.index.sources import UNKNOWN, Source

_BATCH = 1_000


class Looking:
    """Compares one index with its source. Methods raise ``sqlite3.Error`` and the domain errors of the store."""

    def __init__(self, connection: sqlite3.Connection, source: Source) -> None:
        self._connection = connection
        self._source = source

    def stale(self, documents: Iterable[str]) -> list[str]:
        """Those of some documents of which, or of whose drafts, the index has another state than the tree."""
        return [
            document
            for document in documents
            if any(
                self._marked(document, is_draft=is_draft) != self._source.mark(document, is_draft=is_draft)
                for is_draft in (True, False)
            )
        ]

    def changed_definitions(self) -> list[int]:
        """The versions whose definitions have changed since documents were read by them."""
        known = self._connection.execute("SELECT version, mark FROM editions").fetchall()
        return [version for version, mark in known if mark != self._source.definition_mark(version)]

    def outdated(self) -> list[int]:
        """The versions whose documents are to be read anew."""
        found = self._connection.execute("SELECT version FROM editions WHERE is_outdated ORDER BY version")
        return [version for (version,) in found]

    def differing(self) -> Iterator[str | None]:
        """The documents whose rows are not of their files as they are; ``None`` for each that is as it should be."""
        same = 0
        for document, is_draft in self._source.documents():
            mark = self._source.mark(document, is_draft=is_draft)
            known = self._marked(document, is_draft=is_draft)
            if known == mark:
                same += known != ""
                yield None
            elif known or self._source.read(document, is_draft=is_draft, mark=mark, definitions=lambda _: UNKNOWN):
                yield document
            else:
                yield None  # deleted, or damaged: there is to be no row
        if same < self._connection.execute("SELECT count(*) FROM documents").fetchone()[0]:
            yield from self._vanished()

    def _vanished(self) -> Iterator[str]:
        last = 0
        while rows := self._connection.execute(
            "SELECT row, document, draft FROM documents WHERE row > ? ORDER BY row LIMIT ?", (last, _BATCH)
        ).fetchall():
            for _, document, draft in rows:
                if not self._source.mark(document, is_draft=bool(draft)):
                    yield document
            last = rows[-1][0]

    def _marked(self, document: str, *, is_draft: bool) -> str:
        row = self._connection.execute(
            "SELECT mark FROM documents WHERE document = ? AND draft = ?", (document, is_draft)
        ).fetchone()
        return "" if row is None else str(row[0])
