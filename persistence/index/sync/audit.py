"""Comparing an index with its tree while both change: a reported discrepancy is real and lasting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from persistence.closable import Closable
from persistence.errors import BusyError, disk_errors
from persistence.index.protocol import Discrepancy, IndexFault
from persistence.index.sources import UNKNOWN, Source
from persistence.index.sqlite import connections, row_audit
from persistence.index.sqlite.faults import EngineError, OutdatedError, UnusableError, as_told
from persistence.index.sqlite.records import VersionKeys, prepared
from persistence.index.sqlite.rows import Rows
from persistence.index.sqlite.state import Connection, IndexState
from persistence.index.sync.generations import (
    Generations,
    IndexCondition,
    changes_beside,
    condition_of,
    tree_identity,
)
from persistence.index.sync.journal import Journal, JournalEntry

_LOOKS = 5
"""Looks at a document after which it counts as being changed all the time."""
_BATCH = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a document: the index file, the fingerprint of its files, and the one that the index has."""

    path: str
    current: str
    known: str


class TreeAudit(Closable):
    """Compares the index of one form with its tree; for one thread. An ``IndexAudit``."""

    def __init__(self, root: str, generations: Generations, source: Source, journal: Journal) -> None:
        self._root = root
        self._generations = generations
        self._source = source
        self._journal = journal
        self._path: str | None = None
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def document(self, document: str, *, is_draft: bool) -> Discrepancy | None:
        """Check that the index has the current state of a document."""
        for _ in range(_LOOKS):
            seen = self._look(document, is_draft=is_draft)
            if not isinstance(seen, _Look):
                return seen
            what = self._difference(seen, document, is_draft=is_draft)
            if what is None or self._is_in_journal(document):
                return None
            # Whoever strikes an entry off has updated the rows before: if nothing changes between two looks, and there
            # is no entry in between, nobody is just changing the document.
            if self._look(document, is_draft=is_draft) == seen:
                return Discrepancy(IndexFault.STALE, what)
        return None

    def contents(self, document: str, *, is_draft: bool) -> Discrepancy | None:
        """Check that the index has the values of a document which it has in its current state."""
        for _ in range(_LOOKS):
            seen = self._look(document, is_draft=is_draft)
            if not isinstance(seen, _Look):
                return seen
            if not seen.current or seen.current != seen.known:
                return None
            found = self._ask(partial(self._compare, document=document, is_draft=is_draft, fingerprint=seen.current))
            if not isinstance(found, str):
                return found
            if self._look(document, is_draft=is_draft) == seen:
                return Discrepancy(IndexFault.WRONG, found)
        return None

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yield the documents that the index has, each with whether it is a draft; they are read in batches."""
        last = 0
        while True:
            rows = self._ask(lambda connection, last=last: IndexState(connection).names(last, _BATCH))  # type: ignore[misc]
            if not isinstance(rows, list) or not rows:
                return
            yield from ((document, is_draft) for _, document, is_draft in rows)
            last = rows[-1][0]

    def counts(self) -> Discrepancy | None:
        """Check that the index can be read, and counts its documents right."""
        return self._ask(row_audit.counts)

    def throughout(self) -> Discrepancy | None:
        """Check that all of it can be read and belongs together."""
        return self._ask(row_audit.integrity)

    def _look(self, document: str, *, is_draft: bool) -> _Look | Discrepancy | None:
        current = self._source.fingerprint(document, is_draft=is_draft)

        def look(connection: Connection) -> _Look:
            known = IndexState(connection).fingerprints(document)
            return _Look(str(self._path), current, known[0 if is_draft else 1])

        return self._ask(look)

    def _difference(self, seen: _Look, document: str, *, is_draft: bool) -> str | None:
        if seen.known:
            if not seen.current:
                return "the index still has it"
            return None if seen.known == seen.current else "the index has an older state of it"
        if not seen.current:
            return None
        try:
            found = self._source.read(
                document, is_draft=is_draft, fingerprint=seen.current, definitions=lambda _: UNKNOWN
            )
        except BusyError:
            return None
        return None if found is None else "the index does not have it"

    def _is_in_journal(self, document: str) -> bool:
        with disk_errors("looking what the index has still to take in of", self._source.form):
            return JournalEntry(self._source.form, document) in self._journal.outstanding()

    def _compare(self, connection: Connection, *, document: str, is_draft: bool, fingerprint: str) -> str | None:
        """Return how the rows of a document, which are of the state of a fingerprint, differ from its files."""
        connection.execute("BEGIN")
        try:
            kept = Rows(connection).kept(document, is_draft=is_draft)
            if kept is None or kept.fingerprint != fingerprint:
                return None
            definition, known = self._source.definition(kept.version), IndexState(connection).version(kept.version)
            is_outdated = kept.version in IndexState(connection).outdated()
            if known is None or is_outdated or (known.fingerprint, known.round) != (definition.fingerprint, kept.round):
                return None  # to be read again, before anybody is answered
            read = self._source.read(
                document, is_draft=is_draft, fingerprint=fingerprint, definitions=self._source.definition
            )
            if read is None:
                return "the index has it, and it cannot be read"
            numbers = IndexState(connection).controls()
            keys = {path: numbers[path] for path in definition.paths if path in numbers}
            return row_audit.difference(connection, prepared(read, VersionKeys(kept.version, kept.round, keys)))
        finally:
            connection.execute("ROLLBACK")

    def _ask(self, work: Callable[[Connection], T]) -> T | Discrepancy | None:
        """Return what some work reads in the index in use; ``None`` where there is none that is to be compared."""
        for look in range(_LOOKS):
            with disk_errors("looking at the index of", self._source.form):
                path = self._generations.current()
                try:
                    connection = self._opened(path)
                    return None if connection is None else work(connection)
                except (UnusableError, EngineError) as error:
                    self.close()
                    if isinstance(error, EngineError) and not connections.is_damage(error, path or ""):
                        # Others open and close it all the time, which may be in the way for a moment.
                        self._path = None
                        if look == _LOOKS - 1:
                            raise as_told(error, f"the index of {self._source.form}") from error
                    elif self._generations.current() == path:
                        return Discrepancy(IndexFault.BROKEN, _cause(error))
        return None

    def _opened(self, path: str | None) -> Connection | None:
        """Return a connection to the file in use, if it is to be compared; that is found out once for each file."""
        if path == self._path:
            return self._connection
        self.close()
        self._path = path
        if path is None:
            return None
        with suppress(OutdatedError):
            connections.check(path)
            changes = changes_beside(path)
            connection = connections.connected(path)
            connection.execute("PRAGMA query_only = ON")
            if condition_of(IndexState(connection), tree_identity(self._root), changes) is IndexCondition.READY:
                self._connection = connection
            else:
                connection.close()
        return self._connection


def _cause(error: Exception) -> str:
    if isinstance(error, EngineError):
        return str(error)
    return "it is not whole" if os.path.exists(str(error)) else "the file in use is missing"
