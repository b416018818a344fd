"""Comparing an index with its tree while both change: a reported discrepancy is real and lasting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from persistence.closable import Closable
from persistence.errors import BusyError, DiskError, disk_errors
from persistence.index.protocol import Discrepancy, IndexFault
from persistence.index.sources import UNKNOWN, DocumentName, Source
from persistence.index.sqlite import engine
from persistence.index.sync.journal import Journal, JournalEntry
from persistence.index.sync.rebuild import Generations
from persistence.index.sync.staleness import IndexCondition, changes_beside, condition_of, tree_identity

_LOOKS = 5
"""Looks at a document after which it counts as being changed all the time."""
_BATCH = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a document: the index file, the fingerprint of its files, and the one that the index has."""

    path: str
    name: DocumentName
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
        self._file: engine.IndexFile | None = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def document(self, document: str, *, is_draft: bool) -> Discrepancy | None:
        """Check that the index has the current state of a document."""
        return self._lasting(IndexFault.STALE, DocumentName(document, is_draft), self._difference)

    def contents(self, document: str, *, is_draft: bool) -> Discrepancy | None:
        """Check that the index has the values of a document which it has in its current state."""
        return self._lasting(IndexFault.WRONG, DocumentName(document, is_draft), self._wrong_values)

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yield the documents that the index has, each with whether it is a draft; they are read in batches."""
        last = 0
        while True:
            rows = self._ask(lambda index, last=last: index.names(last, _BATCH))  # type: ignore[misc]
            if not isinstance(rows, list) or not rows:
                return
            yield from (name for _, name in rows)
            last = rows[-1][0]

    def counts(self) -> Discrepancy | None:
        """Check that the index can be read, and counts its documents right."""
        return self._ask(engine.IndexReader.counts)

    def throughout(self) -> Discrepancy | None:
        """Check that all of it can be read and belongs together."""
        return self._ask(engine.IndexReader.integrity)

    def _lasting(
        self, fault: IndexFault, name: DocumentName, find: Callable[[_Look], str | Discrepancy | None]
    ) -> Discrepancy | None:
        for _ in range(_LOOKS):
            seen = self._look(name)
            if not isinstance(seen, _Look):
                return seen
            found = find(seen)
            if not isinstance(found, str):
                return found
            # A process that removes an entry has updated the rows before: if nothing changes between two looks, and
            # there is no entry in between, no process is changing the document.
            if self._look(name) == seen:
                return Discrepancy(fault, found)
        return None

    def _look(self, name: DocumentName) -> _Look | Discrepancy | None:
        current = self._source.fingerprint(name)

        def look(index: engine.IndexReader) -> _Look:
            known = index.fingerprints(name.document)[0 if name.is_draft else 1]
            return _Look(index.path, name, current, known)

        return self._ask(look)

    def _difference(self, seen: _Look) -> str | None:
        if seen.known == seen.current or self._is_in_journal(seen.name.document):
            return None
        if not seen.current:
            return "the index still has it"
        if seen.known:
            return "the index has an older state of it"
        try:
            found = self._source.read(seen.name, seen.current, lambda _: UNKNOWN)
        except BusyError:
            return None
        return None if found is None else "the index does not have it"

    def _wrong_values(self, seen: _Look) -> str | Discrepancy | None:
        if not seen.current or seen.current != seen.known:
            return None
        return self._ask(partial(self._compare, seen))

    def _is_in_journal(self, document: str) -> bool:
        with disk_errors("looking what the index has still to take in of", self._source.form):
            return JournalEntry(self._source.form, document) in self._journal.outstanding()

    def _compare(self, seen: _Look, index: engine.IndexReader) -> str | None:
        kept = index.kept(seen.name.document).get(seen.name.is_draft)
        if kept is None or kept.fingerprint != seen.current:
            return None
        definition, known = self._source.definition(kept.version), index.version(kept.version)
        is_outdated = kept.version in index.outdated()
        if known is None or is_outdated or (known.fingerprint, known.round) != (definition.fingerprint, kept.round):
            return None  # to be read again, before any answer
        read = self._source.read(seen.name, seen.current, self._source.definition)
        if read is None:
            return "the index has it, and it cannot be read"
        numbers = index.controls()
        keys = {path: numbers[path] for path in definition.paths if path in numbers}
        return index.difference(engine.prepared(read, engine.VersionKeys(kept.version, kept.round, keys)))

    def _ask(self, work: Callable[[engine.IndexReader], T]) -> T | Discrepancy | None:
        for look in range(_LOOKS):
            with disk_errors("looking at the index of", self._source.form):
                path = self._generations.current()
                try:
                    file = self._opened(path)
                    if file is None:
                        return None
                    with file.reading() as index:
                        return work(index)
                except engine.UnusableError as error:
                    self.close()
                    if self._generations.current() == path:
                        return Discrepancy(IndexFault.BROKEN, _cause(error))
                except (DiskError, BusyError):
                    # Others open and close it all the time, which may be in the way for a moment.
                    self.close()
                    self._path = None
                    if look == _LOOKS - 1:
                        raise
        return None

    def _opened(self, path: str | None) -> engine.IndexFile | None:
        if path == self._path:
            return self._file
        self.close()
        self._path = path
        if path is None:
            return None
        with suppress(engine.OutdatedError):
            changes = changes_beside(path)
            self._file = engine.IndexFile(path, f"the index of {self._source.form}")
            with self._file.reading() as index:
                condition = condition_of(index, tree_identity(self._root), changes)
            if condition is not IndexCondition.READY:
                self.close()
        return self._file


def _cause(error: engine.UnusableError) -> str:
    return error.cause or ("it is not whole" if os.path.exists(error.path) else "the file in use is missing")
