"""Comparing an index with the tree while both change: what is said to differ does, and nobody is about to mend it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from typing import TypeVar

from persistence.errors import BusyError, disk_errors
from persistence.index import connections, identity, tally
from persistence.index.damage import OutdatedError, UnusableError
from persistence.index.generations import Generations
from persistence.index.making import State, state_of
from persistence.index.pending import Noted, Pending
from persistence.index.records import Edition, Prepared, decode, entries, prepared
from persistence.index.schema import FIELDS
from persistence.index.sources import UNKNOWN, Source

_LOOKS = 5
"""How often is looked again before it counts as being changed all the time."""
_BATCH = 1_000
_TRIGRAM = 3
_TEXTS = f"SELECT {', '.join(f'c{number}' for number in range(len(FIELDS)))} FROM fields_content WHERE id = ?"

T = TypeVar("T")


class Fault(Enum):
    """How an index is not as it should be."""

    STALE = "it does not have a document as it is"
    WRONG = "it has other values than the document"
    BROKEN = "it cannot be read, or contradicts itself"


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """What is wrong with an index: ``what`` says it in half a line."""

    fault: Fault
    what: str


@dataclass(frozen=True, slots=True)
class _Look:
    """What was seen of one document: in which index file, the state of its files, and that which the index has."""

    path: str
    mark: str
    known: str | None


class Audit:
    """Compares one form's index with its source; for one thread.

    What the service finds out for itself, before it answers, is nothing to say: that there is no index, that it was
    made by another version or of another tree, that a definition has changed, or that a document is noted.

    Methods raise ``DiskError``, and ``BusyError`` where writers were always in the way. Once an index is found broken
    nothing more is said of it.
    """

    def __init__(self, root: str, generations: Generations, source: Source, pending: Pending) -> None:
        self._root = root
        self._generations = generations
        self._source = source
        self._pending = pending
        self._path: str | None = None
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def document(self, document: str, *, is_draft: bool) -> Discrepancy | None:
        """Whether the index has another state of a document than its files."""
        for _ in range(_LOOKS):
            seen = self._look(document, is_draft=is_draft)
            if not isinstance(seen, _Look):
                return seen
            what = self._difference(seen, document, is_draft=is_draft)
            if what is None or self._is_noted(document):
                return None
            # Whoever takes a note off has taken the document in before: what is the same twice, with no note in
            # between, is not just being changed.
            if self._look(document, is_draft=is_draft) == seen:
                return Discrepancy(Fault.STALE, what)
        return None

    def contents(self, document: str, *, is_draft: bool) -> Discrepancy | None:
        """Whether the index has other values of a document than its files, though it has read them as they are."""
        for _ in range(_LOOKS):
            seen = self._look(document, is_draft=is_draft)
            if not isinstance(seen, _Look):
                return seen
            if not seen.mark or seen.mark != seen.known:
                return None
            found = self._asked(partial(self._compared, document=document, is_draft=is_draft, mark=seen.mark))
            if not isinstance(found, str):
                return found
            if self._look(document, is_draft=is_draft) == seen:
                return Discrepancy(Fault.WRONG, found)
        return None

    def names(self) -> Iterator[tuple[str, bool]]:
        """The documents that the index has, each with whether it is a draft, read in batches."""
        last = 0
        while True:
            rows = self._asked(
                lambda connection, last=last: connection.execute(  # type: ignore[misc]
                    "SELECT row, document, draft FROM documents WHERE row > ? ORDER BY row LIMIT ?", (last, _BATCH)
                ).fetchall()
            )
            if not isinstance(rows, list) or not rows:
                return
            yield from ((document, bool(draft)) for _, document, draft in rows)
            last = rows[-1][0]

    def counts(self) -> Discrepancy | None:
        """Whether the index can be read, and counts its documents right."""
        return self._asked(_counted)

    def throughout(self) -> Discrepancy | None:
        """Whether all of it can be read and belongs together; the longer, the more documents there are."""
        return self._asked(_sound)

    def _look(self, document: str, *, is_draft: bool) -> _Look | Discrepancy | None:
        mark = self._source.mark(document, is_draft=is_draft)

        def known(connection: sqlite3.Connection) -> _Look:
            row = connection.execute(
                "SELECT mark FROM documents WHERE document = ? AND draft = ?", (document, is_draft)
            ).fetchone()
            return _Look(str(self._path), mark, None if row is None else str(row[0]))

        return self._asked(known)

    def _difference(self, seen: _Look, document: str, *, is_draft: bool) -> str | None:
        if seen.known is not None:
            if not seen.mark:
                return "the index still has it"
            return None if seen.known == seen.mark else "the index has an older state of it"
        if not seen.mark:
            return None
        try:
            found = self._source.read(document, is_draft=is_draft, mark=seen.mark, definitions=lambda _: UNKNOWN)
        except BusyError:
            return None
        return None if found is None else "the index does not have it"

    def _is_noted(self, document: str) -> bool:
        with disk_errors("looking what the index has still to take in of", self._source.form):
            return Noted(self._source.form, document) in self._pending.outstanding()

    def _compared(self, connection: sqlite3.Connection, *, document: str, is_draft: bool, mark: str) -> str | None:
        """What differs in the rows of a document, which are of the state ``mark``."""
        connection.execute("BEGIN")
        try:
            row = connection.execute(
                "SELECT d.row, d.text, d.shelf, d.round, d.created, d.card, s.version, s.draft FROM documents d"
                " JOIN shelves s ON s.number = d.shelf WHERE d.document = ? AND d.draft = ? AND d.mark = ?",
                (document, is_draft, mark),
            ).fetchone()
            if row is None:
                return None
            number, text, shelf, read_in, created, card, version, draft = row
            edition = connection.execute(
                "SELECT mark, is_outdated, round FROM editions WHERE version = ?", (version,)
            ).fetchone()
            definition = self._source.definition(version)
            if edition is None or edition != (definition.mark, 0, read_in):
                return None  # to be read anew, before anybody is answered
            record = self._source.read(document, is_draft=is_draft, mark=mark, definitions=self._source.definition)
            if record is None:
                return "the index has it, and it cannot be read"
            numbers = {path: int(control) for control, path in connection.execute("SELECT number, path FROM controls")}
            known = {path: numbers[path] for path in definition.paths if path in numbers}
            expected = prepared(record, Edition(version, read_in, known))
            if (expected.version, is_draft, expected.created) != (version, bool(draft), created):
                return "the index has it at another place"
            if decode(card) != decode(expected.card):
                return "the index has other values of it"
            return _entered(connection, expected, shelf, number) or _written(connection, expected, number, text)
        finally:
            connection.execute("ROLLBACK")

    def _asked(self, work: Callable[[sqlite3.Connection], T]) -> T | Discrepancy | None:
        """What is read in the index in use; ``None`` where there is none that is to be compared."""
        for look in range(_LOOKS):
            with disk_errors("looking at the index of", self._source.form):
                path = self._generations.current()
                try:
                    connection = self._used(path)
                    return None if connection is None else work(connection)
                except (UnusableError, sqlite3.Error) as error:
                    self.close()
                    if isinstance(error, sqlite3.Error) and not connections.is_damage(error, path or ""):
                        # Others open and close it all the time, which may be in the way for a moment.
                        self._path = None
                        if look == _LOOKS - 1:
                            raise connections.as_told(error, f"the index of {self._source.form}") from error
                    elif self._generations.current() == path:
                        return Discrepancy(Fault.BROKEN, _cause(error))
        return None

    def _used(self, path: str | None) -> sqlite3.Connection | None:
        """A connection to the file in use, if it is to be compared; that is found out once for each file."""
        if path == self._path:
            return self._connection
        self.close()
        self._path = path
        if path is None:
            return None
        with suppress(OutdatedError):
            connections.check(path)
            changes = tally.beside(path)
            connection = connections.connected(path)
            connection.execute("PRAGMA query_only = ON")
            if state_of(connection, identity.of(self._root), changes) is State.READY:
                self._connection = connection
            else:
                connection.close()
        return self._connection


def _entered(connection: sqlite3.Connection, expected: Prepared, shelf: int, row: int) -> str | None:
    for number, fold, value, edge in expected.entries:
        found = connection.execute(
            "SELECT edge FROM entries WHERE number = ? AND shelf = ? AND fold = ? AND value = ? AND row = ?",
            (number, shelf, fold, value, row),
        ).fetchone()
        if found is None or found[0] != edge:
            return "the index has not entered all its values"
    return None


def _written(connection: sqlite3.Connection, expected: Prepared, row: int, text: int) -> str | None:
    of = connection.execute("SELECT row FROM texts WHERE text = ?", (text,)).fetchone()
    fields = connection.execute(_TEXTS, (text,)).fetchone()
    rest = connection.execute("SELECT c0 FROM rests_content WHERE id = ?", (text,)).fetchone()
    if of != (row,) or fields != expected.fields or rest != (expected.rest,):
        return "the index has other text of it"
    columns = (("fields", f"{{{name}}} : ", said) for name, said in zip(FIELDS, fields, strict=True) if said)
    for table, column, said in (*islice(columns, 1), ("rests", "", expected.rest)):  # one of each: it takes long
        if not _is_met(connection, table, column, text, said or ""):
            return "the index does not find its text"
    return None


def _is_met(connection: sqlite3.Connection, table: str, column: str, number: int, text: str) -> bool:
    """Whether a document is found by three characters of its text; one that is shorter is not found so."""
    middle = max(len(text) // 2 - 1, 0)
    trigram = text[middle : middle + _TRIGRAM]
    if len(trigram) < _TRIGRAM:
        return True
    quoted = trigram.replace('"', '""')
    asked = f"SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = ?"
    return connection.execute(asked, (f'{column}"{quoted}"', number)).fetchone() is not None


def _counted(connection: sqlite3.Connection) -> Discrepancy | None:
    wrong = connection.execute(
        "SELECT 1 FROM shelves s WHERE s.documents <> (SELECT count(*) FROM documents d WHERE d.shelf = s.number)"
        " UNION ALL SELECT 1 FROM documents WHERE shelf NOT IN (SELECT number FROM shelves) LIMIT 1"
    ).fetchone()
    return None if wrong is None else Discrepancy(Fault.BROKEN, "it counts its documents wrong")


def _sound(connection: sqlite3.Connection) -> Discrepancy | None:
    said = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if said != "ok":
        return Discrepancy(Fault.BROKEN, said)
    connection.execute("BEGIN")
    try:
        cards = connection.execute("SELECT card FROM documents")
        expected = sum(sum(1 for _ in entries(decode(card))) for (card,) in cards)
        found = connection.execute("SELECT count(*) FROM entries").fetchone()[0]
    finally:
        connection.execute("ROLLBACK")
    return None if found == expected else Discrepancy(Fault.BROKEN, f"it has {found} entries instead of {expected}")


def _cause(error: Exception) -> str:
    if isinstance(error, sqlite3.Error):
        return str(error)
    return "it is not whole" if os.path.exists(str(error)) else "the file in use is missing"
