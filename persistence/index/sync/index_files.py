"""The index files of a tree, with every acknowledged change (``staleness``), and compared with the tree."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

from persistence.closable import Closable
from persistence.errors import BusyError, DiskError, DiskFullError, disk_errors
from persistence.index.protocol import Discrepancy, IndexFault, RebuildAim
from persistence.index.sources import UNKNOWN, DocumentName, Source
from persistence.index.sqlite import engine
from persistence.index.sync import staleness
from persistence.index.sync.journal import Journal, JournalEntry
from persistence.index.sync.rebuild import Generations, Rebuild
from persistence.index.sync.staleness import IndexCondition, Refresh, Stale, changes_beside, condition_of, tree_identity
from persistence.model.addresses import Form
from persistence.model.queries import Scope
from persistence.storage.layout import Layout

_ATTEMPTS = 5
_LOOKS = 3
_LOOK = 0.02  # Seconds between two looks whether an index is ready

_MAKING = 5.0  # Seconds to wait for another process that makes a small index
_MAKING_RETRY_AFTER = 5

_REFRESHING = 3.0  # Seconds for which a search reads documents again before it says that it takes longer
_RETRY_AFTER = 2

T = TypeVar("T")


class IndexFiles(Closable):
    """The index files of the forms of a tree, one for each. It owns the connections to them.

    ``begin`` starts a process that rebuilds the index of a large form. Methods raise ``BusyError`` while an index is
    being built, and ``DiskError``.
    """

    def __init__(
        self, root: str, journal: Journal, source_of: Callable[[Form], Source], begin: Callable[[Form], None]
    ) -> None:
        self.root = os.path.realpath(root)
        layout = Layout(self.root)
        self.source = lru_cache(256)(source_of)
        self.generations = lru_cache(256)(lambda form: Generations(layout, form))
        self._journal = journal
        self._begin = begin
        self._pool = engine.IndexPool()

    def close(self) -> None:
        self._pool.close()

    def ask(self, form: Form, scope: Scope, work: Callable[[engine.IndexReader], T], nothing: T) -> T:
        """Return what some work finds in an index that has every acknowledged change; ``nothing`` without documents."""
        generations, source = self.generations(form), self.source(form)
        try:
            with disk_errors("using the index of", form):
                changed = [each.document for each in self._journal.outstanding() if each.form == form]
                for _ in range(_ATTEMPTS):
                    engine.require_space(self.root)
                    path = generations.current()
                    if path is None and next(source.documents(), None) is None:
                        return nothing
                    with suppress(_AgainError):
                        if path is not None:
                            with self._using(form, path) as used:
                                if used.is_ready or self._has_become_ready(used):
                                    return self._current(used, source, scope, changed, work)
                        self._pool.discard(form)
                        self._make_ready(form)
        except DiskError as error:
            if isinstance(error, DiskFullError) or engine.is_full(self.root):  # some quotas are errors of any kind
                raise DiskFullError(f"there is no room to use the index of {form}") from error
            raise
        raise BusyError(f"the index of {form} keeps failing to build", _RETRY_AFTER)

    def refresh(self, form: Form, documents: Iterable[str]) -> None:
        """Bring the rows of some documents in the index up to date; do nothing where there is no index."""
        documents = tuple(documents)
        generations, source = self.generations(form), self.source(form)
        for _ in range(_ATTEMPTS):
            with suppress(_AgainError), disk_errors("bringing the index up to date of", form):
                engine.require_space(self.root)
                path = generations.current()
                if path is None:
                    return
                with self._using(form, path) as used:
                    with used.reading() as index:
                        stale = staleness.look(index, source, ())._replace(documents=documents)
                    self._replace(source, used, stale)
                if generations.current() == path:  # otherwise another one has been made, perhaps without them
                    return
        raise BusyError(f"the index of {form} keeps failing to build", _RETRY_AFTER)

    def merge(self, form: Form) -> bool:
        """Tidy the index of a form a little; return whether there may be more to tidy."""
        with suppress(_AgainError), disk_errors("tidying the index of", form):
            engine.require_space(self.root)
            path = self.generations(form).current()
            if path is not None:
                with self._using(form, path) as used, used.writing() as index:
                    return index.merge()
        return False

    def make_ready(self, form: Form) -> None:
        if self.generations(form).current() is None:
            with disk_errors("making the index of", form):
                engine.require_space(self.root)
                self._make_ready(form)

    def invalidate(self, form: Form) -> None:
        """Let the index of a form be rebuilt: it has missed a change. Raises ``OSError``."""
        generations = self.generations(form)
        path = generations.current()
        if path is not None:
            generations.invalidate(path)

    def rebuild(self, form: Form) -> Rebuild:
        return Rebuild(self.root, self.generations(form), self.source(form))

    def _current(
        self,
        used: engine.IndexFile,
        source: Source,
        scope: Scope,
        changed: Sequence[str],
        work: Callable[[engine.IndexReader], T],
    ) -> T:
        with used.reading() as index:
            looked_at = source if scope.definition is None else replace(source, found=scope.definition)
            stale = staleness.look(index, looked_at, changed)
            if not any(stale):
                return work(index)
        self._replace(source, used, stale)
        with used.reading() as index:
            return work(index)

    def _has_become_ready(self, used: engine.IndexFile) -> bool:
        for _ in range(_LOOKS):
            changes = changes_beside(used.path)
            with used.reading() as index:
                if condition_of(index, tree_identity(self.root), changes) is IndexCondition.READY:
                    used.is_ready = True
                    return True
            time.sleep(_LOOK)  # a process may be changing it
        return False

    @staticmethod
    def _replace(source: Source, used: engine.IndexFile, stale: Stale) -> None:
        if not any(stale):
            return
        with used.writing() as index:
            refresh = Refresh(index, source)
            refresh.documents(stale.documents)
            if stale.definitions:
                refresh.definitions(stale.definitions)
            end = time.monotonic() + _REFRESHING
            for version in index.outdated():
                for _ in refresh.version(version):
                    if time.monotonic() > end:
                        raise BusyError(
                            f"documents of {source.form} are being read again: its definition changed", _RETRY_AFTER
                        )

    @contextmanager
    def _using(self, form: Form, path: str) -> Iterator[engine.IndexFile]:
        try:
            yield self._pool.opened(form, path)
        except engine.UnusableError as error:
            self._pool.discard(form)
            self.generations(form).invalidate(path)
            raise _AgainError from error
        except (DiskError, BusyError) as error:
            if self.generations(form).current() == path:
                raise
            raise _AgainError from error  # its file is removed

    def _make_ready(self, form: Form) -> None:
        rebuild = self.rebuild(form)
        if not rebuild.is_small:
            self._begin(form)
            raise BusyError(f"the index of {form} is being made", _MAKING_RETRY_AFTER)
        rebuild.run(RebuildAim.READY, timeout=_MAKING)


class _AgainError(Exception):
    """The index has changed under a connection that used it."""


_LOOKS_OF_AUDIT = 5  # Looks at a document after which it counts as being changed all the time
_BATCH = 1_000


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
        return self._lasting(IndexFault.STALE, DocumentName(document, is_draft), self._difference)

    def contents(self, document: str, *, is_draft: bool) -> Discrepancy | None:
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
        return self._ask(engine.IndexReader.counts)

    def throughout(self) -> Discrepancy | None:
        return self._ask(engine.IndexReader.integrity)

    def _lasting(
        self, fault: IndexFault, name: DocumentName, find: Callable[[_Look], str | Discrepancy | None]
    ) -> Discrepancy | None:
        for _ in range(_LOOKS_OF_AUDIT):
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
        if seen.known == seen.current:
            return None
        with disk_errors("reading the journal of", self._source.form):
            if JournalEntry(self._source.form, seen.name.document) in self._journal.outstanding():
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
        return self._ask(partial(self._values_differ, seen))

    def _values_differ(self, seen: _Look, index: engine.IndexReader) -> str | None:
        kept = index.kept(seen.name.document).get(seen.name.is_draft)
        if kept is None or kept.fingerprint != seen.current:
            return None
        definition, known = self._source.definition(kept.version), index.version(kept.version)
        is_outdated = kept.version in index.outdated()
        if (
            known is None
            or is_outdated
            or (known.fingerprint, known.generation) != (definition.fingerprint, kept.generation)
        ):
            return None  # to be read again, before any answer
        read = self._source.read(seen.name, seen.current, self._source.definition)
        if read is None:
            return "the index has it, and it cannot be read"
        numbers = index.controls()
        keys = {path: numbers[path] for path in definition.paths if path in numbers}
        return index.difference(engine.prepared(read, engine.VersionKeys(kept.version, kept.generation, keys)))

    def _ask(self, work: Callable[[engine.IndexReader], T]) -> T | Discrepancy | None:
        for look in range(_LOOKS_OF_AUDIT):
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
                    if look == _LOOKS_OF_AUDIT - 1:
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
