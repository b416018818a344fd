"""Taking documents in: an index is brought up to date with the tree, in transactions of its own.

Whoever takes a document in reads it within the transaction. Transactions come one after the other, so the last one has
read what was written last: it does not matter who takes in what, how often, and in what order.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from persistence.index import facts
from persistence.index.records import Edition, prepared
from persistence.index.rows import Name, Rows
from persistence.index.sources import Definition, Source, State

_BATCH = 200
"""Documents in one transaction: others who write wait for it."""


class Taking:
    """Brings one index up to date with its source.

    Methods raise ``sqlite3.Error`` and the domain errors of the store.
    """

    def __init__(self, connection: sqlite3.Connection, source: Source) -> None:
        self._connection = connection
        self._source = source

    def take_in(self, documents: Iterable[str]) -> None:
        """Take in those of some documents that have changed, with their drafts."""
        stale = [document for document in documents if self._is_stale(document)]
        for at in range(0, len(stale), _BATCH):
            with self._changing() as change:
                change.take_in(stale[at : at + _BATCH])

    def _is_stale(self, document: str) -> bool:
        return any(
            self._marked(document, is_draft=is_draft) != self._source.mark(document, is_draft=is_draft)
            for is_draft in (True, False)
        )

    def _marked(self, document: str, *, is_draft: bool) -> str:
        row = self._connection.execute(
            "SELECT mark FROM documents WHERE document = ? AND draft = ?", (document, is_draft)
        ).fetchone()
        return "" if row is None else str(row[0])

    def look_at_definitions(self) -> None:
        """Notice which definitions have changed since documents were read by them."""
        known = self._connection.execute("SELECT version, mark FROM editions").fetchall()
        changed = [version for version, mark in known if mark != self._source.definition_mark(version)]
        if changed:
            with self._changing() as change:
                for version in changed:
                    change.edition(version)

    def outdated(self) -> list[int]:
        """The versions whose documents are to be read anew."""
        found = self._connection.execute("SELECT version FROM editions WHERE is_outdated ORDER BY version")
        return [version for (version,) in found]

    def renew(self, version: int) -> Iterator[int]:
        """Read the documents of an outdated version anew, in batches; yields how many have been looked at."""
        last, done, number = 0, 0, self._round(version)
        while rows := self._connection.execute(
            "SELECT row, document FROM documents WHERE row > ? AND shelf IN"
            " (SELECT number FROM shelves WHERE version = ?) ORDER BY row LIMIT ?",
            (last, version, _BATCH),
        ).fetchall():
            with self._changing() as change:
                change.renew(version, [document for _, document in rows])
            last, done = rows[-1][0], done + len(rows)
            yield done
        self._connection.execute(
            "UPDATE editions SET is_outdated = 0 WHERE version = ? AND round = ?", (version, number)
        )

    def _round(self, version: int) -> int:
        return int(self._connection.execute("SELECT round FROM editions WHERE version = ?", (version,)).fetchone()[0])

    def differing(self) -> Iterator[str | None]:
        """The documents whose rows are not of their files as they are now; ``None`` for one that is as it should be."""
        same = 0
        for document, is_draft in self._source.documents():
            mark = self._source.mark(document, is_draft=is_draft)
            known = self._marked(document, is_draft=is_draft)
            if known == mark:
                same += known != ""
                yield None
            elif known or self._source.read(document, is_draft=is_draft, mark=mark, definitions=_any_definition):
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

    def verify(self) -> Iterator[int]:
        """Take in all that differs; yields how many documents have been looked at."""
        done = 0
        differing = iter(self.differing())
        while batch := list(islice(differing, _BATCH)):
            self.take_in(document for document in batch if document is not None)
            done += len(batch)
            yield done

    @contextmanager
    def _changing(self) -> Iterator[_Change]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield _Change(self._connection, self._source)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _any_definition(_version: int) -> Definition:
    return Definition("", State.UNKNOWN)


class _Change:
    """What is done within one transaction."""

    def __init__(self, connection: sqlite3.Connection, source: Source) -> None:
        self._connection = connection
        self._source = source
        self._rows = Rows(connection)
        self._editions: dict[int, tuple[Edition, Definition]] = {}

    def take_in(self, documents: Iterable[str]) -> None:
        """Put the rows of documents and their drafts in the place of those that were there."""
        documents = list(dict.fromkeys(documents))
        if facts.read(self._connection, facts.REBUILDING):
            self._connection.executemany(
                "INSERT OR IGNORE INTO missed (document) VALUES (?)", [(document,) for document in documents]
            )
        if not facts.read(self._connection, facts.COMPLETE):
            return
        names: list[Name] = [(document, is_draft) for document in documents for is_draft in (True, False)]
        records = [
            record
            for document, is_draft in names
            if (
                record := self._source.read(
                    document,
                    is_draft=is_draft,
                    mark=self._source.mark(document, is_draft=is_draft),
                    definitions=lambda version: self.edition(version)[1],
                )
            )
        ]
        self._rows.remove(names)
        self._rows.add(prepared(record, self.edition(record.version)[0]) for record in records)

    def renew(self, version: int, documents: Iterable[str]) -> None:
        """Take in those of the documents that were not read by the definition as it is."""
        edition, _ = self.edition(version)
        self.take_in(
            document
            for document in documents
            if self._connection.execute(
                "SELECT 1 FROM documents d JOIN shelves s ON s.number = d.shelf"
                " WHERE d.document = ? AND s.version = ? AND d.round <> ?",
                (document, version, edition.round),
            ).fetchone()
        )

    def edition(self, version: int) -> tuple[Edition, Definition]:
        """A version as its documents are to be read now."""
        known = self._editions.get(version)
        if known is None:
            definition = self._source.definition(version)
            known = self._editions[version] = self._noticed(version, definition), definition
        return known

    def _noticed(self, version: int, definition: Definition) -> Edition:
        """The edition, after what has become of the definition was taken down."""
        row = self._connection.execute(
            "SELECT mark, controls, round FROM editions WHERE version = ?", (version,)
        ).fetchone()
        numbers = self._rows.numbers(definition.paths)
        is_published = definition.state is State.PUBLISHED
        controls = json.dumps(list(numbers.values())) if is_published else None
        if row is None:
            self._connection.execute(
                "INSERT INTO editions (version, mark, controls, round) VALUES (?, ?, ?, 1)",
                (version, definition.mark, controls),
            )
            return Edition(version, 1, numbers)
        mark, before, number = row
        if mark != definition.mark:
            if definition.state is State.DELETED and before is not None:
                self._connection.execute("UPDATE shelves SET hidden = 1 WHERE version = ?", (version,))
            elif controls != before:
                number += 1
            self._connection.execute(
                "UPDATE editions SET mark = ?, controls = ?, round = ?, is_outdated = is_outdated OR ?"
                " WHERE version = ?",
                (definition.mark, controls, number, number != row[2], version),
            )
        return Edition(version, number, numbers)
