"""The index files of a tree, with every acknowledged change (``staleness``), and compared with the tree."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from persistence.closable import Closable
from persistence.errors import BusyError, DiskError, DiskFullError, disk_errors
from persistence.index.protocol import RebuildAim
from persistence.index.sources import Source
from persistence.index.sqlite import engine
from persistence.index.sync import staleness
from persistence.index.sync.journal import Journal
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
                failure = _AgainError()
                for _ in range(_ATTEMPTS):
                    engine.require_space(self.root)
                    path = generations.current()
                    if path is None and next(source.documents(), None) is None:
                        return nothing
                    try:
                        if path is not None:
                            with self._using(form, path) as used:
                                if used.is_ready or self._has_become_ready(used):
                                    return self._current(used, source, scope, changed, work)
                        self._pool.discard(form)
                        self._make_ready(form)
                    except _AgainError as error:
                        failure = error
        except DiskError as error:
            if isinstance(error, DiskFullError) or engine.is_full(self.root):  # some quotas are errors of any kind
                raise DiskFullError(f"there is no room to use the index of {form}") from error
            raise
        raise failure.mistake or BusyError(f"the index of {form} keeps failing to build", _RETRY_AFTER)

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
            raise _AgainError(error.mistake) from error
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
    """The index has changed under a connection that used it, or was given up, perhaps because of a ``mistake``."""

    def __init__(self, mistake: Exception | None = None) -> None:
        super().__init__()
        self.mistake = mistake
