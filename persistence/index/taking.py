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
from typing import NamedTuple

from persistence.index import facts, tally
from persistence.index.connections import transaction
from persistence.index.looking import Looking
from persistence.index.records import Edition, prepared
from persistence.index.rows import Kept, Rows
from persistence.index.schema import TEXTS
from persistence.index.sources import Definition, Source, State

_BATCH = 200
"""Documents in one transaction: others who write wait for it."""

_MERGED = 200
"""Pages of the index of texts that are written at once while pieces are merged."""


class Taking:
    """Brings one index up to date with its source, by a connection that writes.

    Methods raise ``sqlite3.Error``, ``OSError`` and the domain errors of the store.
    """

    def __init__(self, connection: sqlite3.Connection, source: Source) -> None:
        self._connection = connection
        self._source = source
        self._looking = Looking(connection, source)
        self._path = str(connection.execute("PRAGMA database_list").fetchone()[2])

    def take_in(self, documents: Iterable[str]) -> None:
        """Take in those of some documents that have changed, with their drafts."""
        documents = list(documents)
        for at in range(0, len(documents), _BATCH):
            with self._changing() as change:
                change.take_in(documents[at : at + _BATCH])

    def notice(self, versions: Iterable[int]) -> None:
        """Take down what has become of the definitions of some versions."""
        with self._changing() as change:
            for version in versions:
                change.edition(version)

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

    def verify(self) -> Iterator[int]:
        """Take in all that differs; yields how many documents have been looked at."""
        done = 0
        differing = iter(self._looking.differing())
        while batch := list(islice(differing, _BATCH)):
            self.take_in(document for document in batch if document is not None)
            done += len(batch)
            yield done

    def merge(self) -> bool:
        """Merge pieces of the index of texts, a few at a time; says whether there may be more."""
        before = self._connection.total_changes
        for table in TEXTS:
            self._connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (_MERGED,))
        return self._connection.total_changes - before > len(TEXTS)

    def _round(self, version: int) -> int:
        row = self._connection.execute("SELECT round FROM editions WHERE version = ?", (version,)).fetchone()
        return int(row[0])

    @contextmanager
    def _changing(self) -> Iterator[Change]:
        with transaction(self._connection):
            change = Change(self._connection, self._source)
            yield change
            if change.is_made:
                tally.add(self._connection, self._path)


class _State(NamedTuple):
    """What has become of a document or draft: its mark, empty where there is none, and what the index has of it."""

    document: str
    is_draft: bool
    mark: str
    kept: Kept | None


class Change:
    """What is done within one transaction. Methods raise what those of ``Taking`` do."""

    def __init__(self, connection: sqlite3.Connection, source: Source) -> None:
        self._connection = connection
        self._source = source
        self._rows = Rows(connection)
        self._editions: dict[int, tuple[Edition, Definition]] = {}
        self.is_made = False

    def take_in(self, documents: Iterable[str]) -> None:
        """Put rows of documents and drafts as they are in the place of those of an earlier state."""
        self._replace(each for each in self._found(documents) if each.kept is None or each.kept.mark != each.mark)

    def renew(self, version: int, documents: Iterable[str]) -> None:
        """Take in those of the documents that were not read by the definition as it is."""
        edition, _ = self.edition(version)
        self._replace(
            each
            for each in self._found(documents)
            if each.kept is not None and each.kept.version == version and each.kept.round != edition.round
        )

    def _found(self, documents: Iterable[str]) -> Iterator[_State]:
        """What has become of documents and their drafts; drafts first, as they vanish when they are saved."""
        for document in dict.fromkeys(documents):
            for is_draft in (True, False):
                mark = self._source.mark(document, is_draft=is_draft)
                kept = self._rows.kept(document, is_draft=is_draft)
                if mark or kept is not None:
                    yield _State(document, is_draft, mark, kept)

    def _replace(self, states: Iterable[_State]) -> None:
        states = list(states)
        if not states:
            return
        self.is_made = True
        if facts.read(self._connection, facts.REBUILDING):
            self._connection.executemany(
                "INSERT OR IGNORE INTO missed (document) VALUES (?)", [(each.document,) for each in states]
            )
        if not facts.read(self._connection, facts.COMPLETE):
            return
        records = (  # one at a time: they may be large
            record
            for each in states
            if (
                record := self._source.read(
                    each.document,
                    is_draft=each.is_draft,
                    mark=each.mark,
                    definitions=lambda version: self.edition(version)[1],
                )
            )
        )
        self._rows.remove([each.kept for each in states if each.kept is not None])
        self._rows.add(prepared(record, self.edition(record.version)[0]) for record in records)

    def edition(self, version: int) -> tuple[Edition, Definition]:
        """A version as its documents are to be read now."""
        known = self._editions.get(version)
        if known is None:
            definition = self._source.definition(version)
            known = self._editions[version] = self._noticed(version, definition), definition
        return known

    def _noticed(self, version: int, definition: Definition) -> Edition:
        """The edition, after what has become of the definition was taken down."""
        self.is_made = True
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
