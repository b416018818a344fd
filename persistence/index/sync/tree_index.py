"""The index of a file tree: it answers with every acknowledged change, or says that it cannot yet (``staleness``)."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TypeVar

from persistence.closable import Closable
from persistence.definitions.catalog import Definition
from persistence.errors import BusyError, DiskError, DiskFullError, disk_errors
from persistence.index.budget import Budget
from persistence.index.protocol import RebuildAim
from persistence.index.sources import NOTHING_ELSEWHERE, Elsewhere, Source
from persistence.index.sqlite import connections, planner
from persistence.index.sqlite.connections import Reader
from persistence.index.sqlite.faults import SENSELESS, EngineError, UnusableError, as_told, is_full, require_room
from persistence.index.sqlite.planner import IndexedHit
from persistence.index.sqlite.pool import IndexPool, OpenIndex
from persistence.index.sqlite.rows import Rows
from persistence.index.sqlite.state import IndexState
from persistence.index.sync.audit import TreeAudit
from persistence.index.sync.flat_views import FlatViews
from persistence.index.sync.generations import (
    Generations,
    IndexCondition,
    changes_beside,
    condition_of,
    tree_identity,
)
from persistence.index.sync.jobs import IndexJob, IndexTask, progress_in
from persistence.index.sync.journal import Journal
from persistence.index.sync.rebuild import Rebuild
from persistence.index.sync.refresh import Refresh
from persistence.index.sync.reindexing import JobProcesses
from persistence.index.sync.staleness import Stale, Staleness
from persistence.model.addresses import Form
from persistence.model.search import Field, Hits, Query, Scope
from persistence.storage.layout import Layout
from persistence.xml.streaming import Streaming

_ATTEMPTS = 5
_PAGES = 3
"""How often a page is looked for again because documents on it have changed meanwhile."""

_LOOKS = 3
_LOOK = 0.02
"""Seconds between two looks whether an index is ready."""

_MAKING = 5.0
"""Seconds to wait for somebody else who makes a small index."""
_MAKING_RETRY_AFTER = 5

_REFRESHING = 3.0
"""Seconds for which a search reads documents again before it says that it takes longer."""
_RETRY_AFTER = 2

_DOUBT = 3600.0
"""Seconds for which an index is trusted that was rebuilt because it made no sense."""

_NOTHING_FOUND: tuple[int, Sequence[IndexedHit]] = (0, ())
_NO_VALUES: Sequence[str] = ()

T = TypeVar("T")


class TreeIndex(Closable):
    """The indexes of the forms of a tree, one file for each. A ``MaintainedIndex``.

    It owns its connections, the processes that rebuild, ``journal`` and ``flat``: ``close`` closes them.

    Methods raise ``BusyError`` while an index is being built, and ``DiskError`` where the disk refuses. On a full disk
    an index that is up to date still answers; ``DiskFullError`` says that something would have to be written first.
    ``source_of`` gives the tree of a form. ``flat`` are the flat views of the tree, where it has any: the journal is
    for both. ``elsewhere`` are the definitions that other trees have.
    """

    def __init__(
        self,
        root: str,
        journal: Journal,
        source_of: Callable[[Form], Source],
        flat: FlatViews | None = None,
        elsewhere: Elsewhere = NOTHING_ELSEWHERE,
    ) -> None:
        self.flat = flat
        self._elsewhere = elsewhere
        self._root = os.path.realpath(root)
        layout = Layout(self._root)
        self._journal = journal
        self._source = lru_cache(256)(source_of)
        self._generations = lru_cache(256)(lambda form: Generations(layout, form))
        self._pool = IndexPool()
        self._lock = threading.Lock()
        self._doubted: dict[Form, float] = {}
        self._processes = JobProcesses()
        self._rebuilding: dict[Form, subprocess.Popen[bytes]] = {}

    def close(self) -> None:
        """End the processes that rebuild, close the files, and leave the journal to others."""
        self._processes.close()
        self._pool.close()
        if self.flat is not None:
            self.flat.close()
        self._journal.close()

    # Searches.

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        """Return the documents that a query finds, within a budget if there is one. An unknown form has none.

        The documents on the page are compared with their files, which a person may have edited.
        """
        source = self._source(form)

        def look(reader: Reader) -> tuple[int, Sequence[IndexedHit]]:
            if budget is not None:
                budget.restart()
            with reader.within(budget):
                return planner.find(reader, scope, query, budget)

        for _ in range(_PAGES):
            total, page = self._ask(form, look, _NOTHING_FOUND)
            stale = [
                each.hit.document
                for each in page
                if each.fingerprint != source.fingerprint(each.hit.document, is_draft=each.hit.is_draft)
            ]
            if not stale:
                break
            self.update(form, stale)
        return Hits(total, tuple(each.hit for each in page))

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        """Yield the different values of a field or control, as ``SearchIndex`` says."""

        def work(reader: Reader) -> Sequence[str]:
            with reader.within(budget):
                return list(planner.distinct(reader, scope, by, budget))

        yield from self._ask(form, work, _NO_VALUES)

    def checking(self, definition: Definition) -> Streaming:
        """Return a parser that checks a document while it is received, and may extract its values for the index."""
        return self._source(definition.form).checking(definition)

    # Changes.

    def update(self, form: Form, documents: Iterable[str]) -> None:
        """Bring the rows of some documents up to date, in the index and in flat views."""
        documents = tuple(documents)
        self.refresh(form, documents)
        if self.flat is not None:
            self.flat.refresh(form, documents)

    def refresh(self, form: Form, documents: Iterable[str]) -> None:
        """Bring the rows of some documents in the index up to date; do nothing where there is no index."""
        documents = tuple(documents)
        generations, source = self._generations(form), self._source(form)
        for _ in range(_ATTEMPTS):
            with suppress(_AgainError), disk_errors("bringing the index up to date of", form):
                require_room(self._root)
                path = generations.current()
                if path is None:
                    return
                with self._guarding(form, path):
                    used = self._pool.opened(form, path)
                    with used.reading() as reader:
                        staleness = Staleness(reader.connection, source)
                        stale = Stale(documents, staleness.changed_definitions(), staleness.outdated())
                    self._replace(source, used, stale)
                if generations.current() == path:  # otherwise another one has been made, perhaps without them
                    return
        raise _never_ready(form)

    def recover(self) -> None:
        """Bring the index up to date with the journals of dead processes, so that not every search reads them.

        Raises:
            OSError: a journal cannot be read, or not be removed.
        """
        for left in self._journal.abandoned():
            by_form: defaultdict[Form, list[str]] = defaultdict(list)
            for entry in left.entries:
                by_form[entry.form].append(entry.document)
            for form, documents in by_form.items():
                self.update(form, documents)
            left.remove()

    def orphaned(self, seconds: float) -> Iterator[str]:
        """Yield the paths of journals of dead processes that nobody has recovered for so long. Raises ``OSError``."""
        return self._journal.orphaned(seconds)

    def merge(self, form: Form) -> bool:
        """Tidy the index of a form a little; return whether there may be more to tidy."""
        with suppress(_AgainError), disk_errors("tidying the index of", form):
            require_room(self._root)
            path = self._generations(form).current()
            if path is not None:
                with self._guarding(form, path), self._pool.opened(form, path).writing() as connection:
                    return Rows(connection).merge()
        return False

    def invalidate(self, form: Form) -> None:
        """Let the index of a form be rebuilt: it has missed a change. Raises ``OSError``."""
        generations = self._generations(form)
        path = generations.current()
        if path is not None:
            generations.invalidate(path)

    # Rebuilds and checks.

    def make_ready(self, form: Form) -> None:
        """Make the index of a form usable, if there is none.

        Raises:
            BusyError: that will take a while, or somebody else is at it.
        """
        if self._generations(form).current() is None:
            with disk_errors("making the index of", form):
                require_room(self._root)
                self._make_ready(form)

    def is_ready(self, form: Form) -> bool:
        """Return whether a search of a form finds an index, or needs none because there are no documents."""
        with disk_errors("looking at the index of", form):
            is_ready = self.rebuild(form).condition() is IndexCondition.READY
            return is_ready or next(self._source(form).documents(), None) is None

    def has_definition(self, form: Form) -> bool:
        """Return whether a form has a definition of its own, or had one."""
        source = self._source(form)
        return not source.is_designer and next(source.versions(), None) is not None

    def versions(self, form: Form) -> Iterator[int]:
        """Return the versions of a form that have a definition, or had one."""
        return self._source(form).versions()

    def rebuild(self, form: Form) -> Rebuild:
        """Return the rebuild of the index of a form."""
        return Rebuild(self._root, self._generations(form), self._source(form))

    def job(self, forms: Sequence[Form], aim: RebuildAim, version: int | None = None) -> IndexJob:
        """Return the rebuild of the indexes of some forms, or of one version of one.

        Rows of flat views are read again too, as nobody else knows what was changed by hand.
        """
        flat = None if aim is RebuildAim.READY else self.flat
        return IndexJob(
            self._root,
            tuple(self._task(form, aim, version) for form in forms),
            () if flat is None else tuple(flat.task(form, version) for form in forms),
        )

    def run_apart(self, job: IndexJob) -> bool:
        """Do a job in a process of its own and wait for it; return whether it succeeded.

        Raises:
            BusyError: the index was closed.
            OSError: the process cannot be started.
        """
        return self._processes.run(job)

    def is_rebuilding(self) -> bool:
        """Return whether somebody rebuilds an index."""
        with disk_errors("looking how far the index is"):
            return progress_in(self._root) is not None

    def leftovers(self, form: Form) -> list[str]:
        """Return the paths of files that a killed rebuild left. Raises ``OSError``."""
        return self._generations(form).leftovers()

    def audit(self, form: Form) -> TreeAudit:
        """Return the comparison of the index of a form with its tree."""
        return TreeAudit(self._root, self._generations(form), self._source(form), self._journal)

    # How a question is answered.

    def _ask(self, form: Form, work: Callable[[Reader], T], nothing: T) -> T:
        """Return what some work finds in the index, with every acknowledged change in it."""
        with disk_errors("looking what the index has still to take in of", form):
            changed = [each.document for each in self._journal.outstanding() if each.form == form]
        try:
            return self._ask_current(form, work, nothing, changed)
        except DiskError as error:
            try:
                with disk_errors("reading the index of", form):
                    return self._ask_read_only(form, work, nothing, changed)
            except DiskFullError:
                if isinstance(error, DiskFullError) or is_full(self._root):
                    raise
                raise error from None

    def _ask_current(self, form: Form, work: Callable[[Reader], T], nothing: T, changed: Sequence[str]) -> T:
        """Return what some work finds, after bringing the index up to date."""
        generations, source = self._generations(form), self._source(form)
        for _ in range(_ATTEMPTS):
            with suppress(_AgainError), disk_errors("using the index of", form):
                require_room(self._root)
                path = generations.current()
                if path is None and next(source.documents(), None) is None:
                    return nothing
                if path is None or not self._is_usable(form, path):
                    self._pool.discard(form)
                    self._make_ready(form)
                    continue
                with self._guarding(form, path):
                    used = self._pool.opened(form, path)
                    with used.reading() as reader:
                        stale = Staleness(reader.connection, source).look(changed)
                        if stale.is_nothing:
                            return work(reader)
                    self._replace(source, used, stale)
                    with used.reading() as reader:
                        return work(reader)
        raise _never_ready(form)

    def _is_usable(self, form: Form, path: str) -> bool:
        """Return whether an index is ready to be asked, which is remembered."""
        with self._guarding(form, path):
            used = self._pool.opened(form, path)
            for _ in range(0 if used.is_ready else _LOOKS):
                changes = changes_beside(path)
                with used.reading() as reader:
                    condition = condition_of(IndexState(reader.connection), tree_identity(self._root), changes)
                if condition is IndexCondition.READY:
                    used.is_ready = True
                    break
                time.sleep(_LOOK)  # somebody may just be changing it
            return used.is_ready

    def _ask_read_only(self, form: Form, work: Callable[[Reader], T], nothing: T, changed: Sequence[str]) -> T:
        """Return what some work finds without writing anything.

        Raises:
            DiskFullError: something would have to be written first.
        """
        full = DiskFullError(f"there is no room to bring the index of {form} up to date")
        path, source = self._generations(form).current(), self._source(form)
        if path is None:
            if next(source.documents(), None) is None:
                return nothing
            raise full
        changes = changes_beside(path)

        def look(reader: Reader) -> T:
            condition = condition_of(IndexState(reader.connection), tree_identity(self._root), changes)
            is_ready = condition is IndexCondition.READY
            if not is_ready or not Staleness(reader.connection, source).look(changed).is_nothing:
                raise full
            return work(reader)

        try:
            return connections.read_only(path, look)
        except (EngineError, UnusableError, FileNotFoundError, *SENSELESS) as error:
            raise full from error  # if it is damaged, that can wait until it can be rebuilt

    @staticmethod
    def _replace(source: Source, used: OpenIndex, stale: Stale) -> None:
        """Replace what is out of date.

        Raises:
            BusyError: documents have to be read again, and that takes longer.
        """
        if stale.is_nothing:
            return
        with used.writing() as connection:
            refresh = Refresh(connection, used.path, source)
            refresh.documents(stale.documents)
            if stale.definitions:
                refresh.definitions(stale.definitions)
            end = time.monotonic() + _REFRESHING
            for version in Staleness(connection, source).outdated():
                for _ in refresh.version(version):
                    if time.monotonic() > end:
                        raise BusyError(
                            f"documents of {source.form} are being read anew: its definition changed", _RETRY_AFTER
                        )

    @contextmanager
    def _guarding(self, form: Form, path: str) -> Iterator[None]:
        """Use an index for a block; invalidate it where it turns out to be damaged.

        Raises:
            _AgainError: it was invalidated, or another one has taken its place: the next one is to be used.
        """
        try:
            yield
        except (UnusableError, EngineError, FileNotFoundError, *SENSELESS) as error:
            self._pool.discard(form)
            self._require_damage(error, form, path)
            self._generations(form).invalidate(path)
            raise _AgainError from error

    def _require_damage(self, error: Exception, form: Form, path: str) -> None:
        """Raise the domain error for one that does not say that an index is damaged."""
        if isinstance(error, EngineError):
            is_replaced = self._generations(form).current() != path  # then its file is removed
            if not is_replaced and not connections.is_damage(error, path):
                raise as_told(error, f"the index of {form}") from error
        elif isinstance(error, FileNotFoundError):
            if os.path.exists(path):
                raise error
        elif not isinstance(error, UnusableError) and not self._is_first_doubt(form):
            raise DiskError(f"the index of {form} makes no sense: {type(error).__name__}: {error}") from error

    def _is_first_doubt(self, form: Form) -> bool:
        """Return whether to rebuild an index that makes no sense; if that does not help, it is not the index."""
        now = time.monotonic()
        last = self._doubted.get(form)
        self._doubted[form] = now
        return last is None or now > last + _DOUBT

    def _make_ready(self, form: Form) -> None:
        """Make an index usable, at once if the form is small, else by a process. Raises as ``make_ready`` does."""
        rebuild = self.rebuild(form)
        if not rebuild.is_small:
            with self._lock:
                process = self._rebuilding.get(form)
                if process is None or process.poll() is not None:
                    job = IndexJob(self._root, (self._task(form, RebuildAim.READY),))
                    self._rebuilding[form] = self._processes.begin(job)
            raise BusyError(f"the index of {form} is being made", _MAKING_RETRY_AFTER)
        try:
            rebuild.make_ready(processes=1, timeout=_MAKING, progress=lambda _: None)
        except EngineError as error:
            raise as_told(error, f"the index of {form}") from error

    def _task(self, form: Form, aim: RebuildAim, only: int | None = None) -> IndexTask:
        source, there = self._source(form), self._elsewhere
        return IndexTask(
            *(form.app, form.name, source.data_format, source.is_designer),
            *(aim, only, there.root(form), there.hand_edits.value),
        )


class _AgainError(Exception):
    """The index has changed under whoever was using it."""


def _never_ready(form: Form) -> BusyError:
    return BusyError(f"the index of {form} is being made again and again", _RETRY_AFTER)
