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
from persistence.index.sources import UNKNOWN, Source
from persistence.index.sqlite.engine import (
    IndexFile,
    IndexReader,
    OutdatedError,
    UnusableError,
    VersionKeys,
    prepared,
)
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
        self._file: IndexFile | None = None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

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
            rows = self._ask(lambda index, last=last: index.names(last, _BATCH))  # type: ignore[misc]
            if not isinstance(rows, list) or not rows:
                return
            yield from ((document, is_draft) for _, document, is_draft in rows)
            last = rows[-1][0]

    def counts(self) -> Discrepancy | None:
        """Check that the index can be read, and counts its documents right."""
        return self._ask(IndexReader.counts)

    def throughout(self) -> Discrepancy | None:
        """Check that all of it can be read and belongs together."""
        return self._ask(IndexReader.integrity)

    def _look(self, document: str, *, is_draft: bool) -> _Look | Discrepancy | None:
        current = self._source.fingerprint(document, is_draft=is_draft)

        def look(index: IndexReader) -> _Look:
            known = index.fingerprints(document)
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

    def _compare(self, index: IndexReader, *, document: str, is_draft: bool, fingerprint: str) -> str | None:
        """Return how the rows of a document, which are of the state of a fingerprint, differ from its files."""
        kept = index.kept(document, is_draft=is_draft)
        if kept is None or kept.fingerprint != fingerprint:
            return None
        definition, known = self._source.definition(kept.version), index.version(kept.version)
        is_outdated = kept.version in index.outdated()
        if known is None or is_outdated or (known.fingerprint, known.round) != (definition.fingerprint, kept.round):
            return None  # to be read again, before anybody is answered
        read = self._source.read(
            document, is_draft=is_draft, fingerprint=fingerprint, definitions=self._source.definition
        )
        if read is None:
            return "the index has it, and it cannot be read"
        numbers = index.controls()
        keys = {path: numbers[path] for path in definition.paths if path in numbers}
        return index.difference(prepared(read, VersionKeys(kept.version, kept.round, keys)))

    def _ask(self, work: Callable[[IndexReader], T]) -> T | Discrepancy | None:
        """Return what some work reads in the index in use; ``None`` where there is none that is to be compared."""
        for look in range(_LOOKS):
            with disk_errors("looking at the index of", self._source.form):
                path = self._generations.current()
                try:
                    file = self._opened(path)
                    if file is None:
                        return None
                    with file.reading() as index:
                        return work(index)
                except UnusableError as error:
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

    def _opened(self, path: str | None) -> IndexFile | None:
        """Return the file in use, if it is to be compared; that is found out once for each file."""
        if path == self._path:
            return self._file
        self.close()
        self._path = path
        if path is None:
            return None
        with suppress(OutdatedError):
            changes = changes_beside(path)
            self._file = IndexFile(path, f"the index of {self._source.form}")
            with self._file.reading() as index:
                condition = condition_of(index, tree_identity(self._root), changes)
            if condition is not IndexCondition.READY:
                self.close()
        return self._file


def _cause(error: UnusableError) -> str:
    return error.cause or ("it is not whole" if os.path.exists(error.path) else "the file in use is missing")
