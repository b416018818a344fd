"""The index of a file tree, and its updater, a thread that brings index and flat views up to date.

The index answers with every acknowledged change, or says that it cannot yet (``staleness``).
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

from persistence.catalog import Definition
from persistence.closable import Closable, closed
from persistence.errors import BusyError, DiskError, DiskFullError, PersistenceError, as_disk_error, disk_errors
from persistence.index.protocol import READING_SECONDS, Budget, RebuildAim, ReindexingStatus, being_read, status_in
from persistence.index.search_compiler import Search
from persistence.index.sources import DocumentName, IndexedPage, Source
from persistence.index.sqlite import engine
from persistence.index.sync import staleness
from persistence.index.sync.rebuild import FlatViews, IndexJob, IndexTask, JobProcesses, Rebuild, rebuild_record
from persistence.index.sync.staleness import (
    IndexCondition,
    Journal,
    Refresh,
    Stale,
    Ticket,
    changes_beside,
    condition_of,
    tree_identity,
)
from persistence.limits import LONGEST_TURN, MOST_WAITING
from persistence.model.addresses import Form
from persistence.model.queries import Field, Hits, Query, Scope
from persistence.processes import Child
from persistence.storage import files
from persistence.storage.layout import Layout
from persistence.xml import Streaming

_AT_ONCE = 200  # Changes that are taken in together
_GATHERING = 1.0  # Seconds in which changes are gathered: several at once cost little more than one
_IDLE = 1.0  # Seconds without changes after which there is time to tidy up
_PAUSE = 0.5  # Seconds until the next attempt where others or the disk are in the way. Each time it is twice as long.
_LONGEST_PAUSE = 8.0
_RECOVERING = 30.0  # Seconds between two looks for journals of dead processes

_LONGEST_END = 10.0  # Seconds for which close waits for the documents that are just being read

Failed = Callable[[Form | None, Exception], None]
"""Called when the index of a form was given up, for the next search to rebuild, or for another fault."""


class _Changed(NamedTuple):
    """A document that has changed, and its ticket; ``None`` where the disk has refused the entry."""

    form: Form
    document: str
    ticket: Ticket | None
    at: float


class Updater(Closable):
    """Hears of changes, and brings index and flat views up to date shortly after. A ``ChangeListener``."""

    # It owns the thread that does so, and that looks for journals of dead processes, which ``recover`` works off.
    def __init__(
        self, journal: Journal, index: TreeIndex, flat: FlatViews, recover: Callable[[], None], failed: Failed
    ) -> None:
        self._journal = journal
        self._index = index
        self._flat = flat
        self._recover = recover
        self._failed = failed
        self._tickets: defaultdict[tuple[Form, str], list[Ticket | None]] = defaultdict(list)
        self._changed: deque[_Changed] = deque()
        self._delayed: deque[_Changed] = deque()
        self._taken: list[_Changed] = []
        self._pause = _PAUSE
        self._retried = 0.0
        self._lock = threading.Lock()
        self._woken = threading.Condition(self._lock)
        self._taken_up = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._is_ending = False
        self._looked = 0.0
        self._untidy: set[Form] = set()

    def start(self) -> None:
        """Recover what dead processes have left, now and from then on."""
        with self._lock:
            self._begin()

    @property
    def delay(self) -> float:
        """Seconds for which the oldest change of this process has not been in the index."""
        waiting = (tuple(self._taken), tuple(self._delayed), tuple(self._changed))
        first = [part[0].at for part in waiting if part]
        return max(0.0, time.monotonic() - min(first)) if first else 0.0

    def close(self) -> None:
        """End the thread after the documents it is just reading. The rest stays in the journal for the next process."""
        # Were it stopped with the process, it might hold a lock that SQLite needs to end, too.
        with self._woken:
            self._is_ending = True
            self._woken.notify_all()
            self._taken_up.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_LONGEST_END)

    def changing(self, form: Form, document: str) -> None:
        """Write a journal entry before a document changes; where that fails, the index of the form is given up."""
        if self._is_ending:
            raise closed("the index")
        try:
            ticket = self._journal.write(form, document)
        except OSError as error:
            self._give_up(form, error)
            ticket = None
        with self._lock:
            self._tickets[form, document].append(ticket)

    def changed(self, form: Form, document: str) -> None:
        """Let the rows of the document be brought up to date; where too many wait for that, wait for a moment, too."""
        with self._woken:
            tickets = self._tickets[form, document]
            ticket = tickets.pop()
            if not tickets:
                del self._tickets[form, document]
        if ticket is None:  # it may have been rebuilt meanwhile, before the document changed
            self._give_up(form, None)
        with self._woken:
            self._changed.append(_Changed(form, document, ticket, time.monotonic()))
            self._begin()
            # Else it gathers: woken, it would take the interpreter from requests.
            if len(self._changed) in {1, _AT_ONCE}:
                self._woken.notify()
            self._taken_up.wait_for(lambda: len(self._changed) <= MOST_WAITING or self._is_ending, LONGEST_TURN)

    def _begin(self) -> None:
        if self._thread is None and not self._is_ending:
            thread = threading.Thread(target=self._run, name="updater", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads: the next change tries again
                self._failed(None, error)
            else:
                self._thread = thread

    def _run(self) -> None:
        while not self._is_ending:
            try:
                if time.monotonic() >= self._looked + _RECOVERING:
                    self._looked = time.monotonic()
                    for work in (self._flat.restore, self._recover):
                        with suppress(OSError, PersistenceError):
                            work()
                if self._is_changed():
                    self._taken = self._due()
                    self._update(self._taken)
                    self._taken = []
                    continue
                while self._untidy and not self._changed and not self._is_ending:
                    form = self._untidy.pop()
                    with suppress(PersistenceError):
                        if self._index.merge(form):
                            self._untidy.add(form)
            except Exception as error:  # noqa: BLE001 - without this thread, every search would have its work to do
                self._failed(None, error)
                with self._woken:
                    self._woken.wait_for(lambda: self._is_ending, _PAUSE)

    def _is_changed(self) -> bool:
        now = time.monotonic()
        until = now + _IDLE if self._untidy else self._looked + _RECOVERING
        if self._delayed:
            until = min(until, self._retried)
        with self._woken:
            self._woken.wait_for(lambda: bool(self._changed) or self._is_ending, max(until - now, 0))
            return bool(self._changed) or self._is_time_to_retry()

    def _due(self) -> list[_Changed]:
        """Take the changes that are to be tried again; else wait for more new ones, unless there are enough already."""
        # Were those tried again counted among the new ones, writers would wait for whatever is in the way.
        with self._woken:
            due = self._changed
            if self._is_time_to_retry():
                due = self._delayed
            else:  # enough: else the next search would have ever more to do
                self._woken.wait_for(lambda: len(self._changed) >= _AT_ONCE or self._is_ending, _GATHERING)
            taken = [due.popleft() for _ in range(min(len(due), _AT_ONCE))]
            self._taken_up.notify_all()
            return taken

    def _is_time_to_retry(self) -> bool:
        return bool(self._delayed) and time.monotonic() >= self._retried

    def _update(self, changed: list[_Changed]) -> None:
        by_form: defaultdict[Form, list[_Changed]] = defaultdict(list)
        for each in changed:
            by_form[each.form].append(each)
        held = set() if time.monotonic() >= self._retried else {each.form for each in self._delayed}
        waiting = set[Form]()
        for form, documents in by_form.items():
            is_indexed = self._has_indexed(form, documents)
            if form in held or not self._has_filled(form, documents) or not is_indexed:
                waiting.add(form)
        with suppress(OSError):
            self._journal.strike(each.ticket for each in changed if each.ticket and each.form not in waiting)
        if waiting and time.monotonic() >= self._retried:
            self._retried = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        self._delayed.extend(each for each in changed if each.form in waiting)
        if not self._delayed:
            self._pause = _PAUSE

    def _has_indexed(self, form: Form, changed: list[_Changed]) -> bool:
        is_indexed = False
        try:
            self._index.refresh(form, [each.document for each in changed])
            self._untidy.add(form)
            is_indexed = True
            self._index.make_ready(form)
        except (BusyError, DiskFullError):  # where it is being built, it lists what changes meanwhile
            return is_indexed
        except Exception as error:  # noqa: BLE001 - after any error, the index must not stay as it is
            if self._is_ending or not threading.main_thread().is_alive():
                return False
            self._give_up(form, error)
        return True

    def _has_filled(self, form: Form, changed: list[_Changed]) -> bool:
        try:
            self._flat.refresh(form, [each.document for each in changed])
        except (BusyError, DiskError):
            return False
        except Exception as error:  # noqa: BLE001 - later changes are to be indexed all the same
            self._failed(form, error)
        return True

    def _give_up(self, form: Form, error: Exception | None) -> None:
        with suppress(OSError):
            self._index.invalidate(form)
        if error is not None:
            self._failed(form, error)


_PAGES = 3  # How often a page is looked for again because documents on it have changed meanwhile

_ATTEMPTS = 5
_LOOKS = 3
_LOOK = 0.02  # Seconds between two looks whether an index is ready

_MAKING = 5.0  # Seconds to wait for another process that makes a small index
_MAKING_RETRY_AFTER = 5

_RETRY_AFTER = 2

T = TypeVar("T")


class TreeIndex(Closable):
    """The indexes of the forms of a tree, one file for each. Methods raise ``BusyError`` and ``DiskError``."""

    # It owns its connections, the processes that rebuild, ``journal`` and ``flat``. On a full disk searches raise
    # ``DiskFullError``, because SQLite has to write beside an index to read it.
    def __init__(self, root: str, journal: Journal, source_of: Callable[[Form], Source], flat: FlatViews) -> None:
        self.root = os.path.realpath(root)
        layout = Layout(self.root)
        self.flat = flat
        self.source = lru_cache(256)(source_of)
        self.generations = lru_cache(256)(lambda form: engine.Generations(layout, form))
        self.pool = engine.IndexPool()
        self.journal = journal
        self._processes = JobProcesses()
        self._lock = threading.Lock()
        self._updater: Updater | None = None
        self._rebuilding: dict[Form, Child] = {}

    def close(self) -> None:
        self._processes.close()
        self.pool.close()
        self.flat.close()
        self.journal.close()

    def updater(self, failed: Failed) -> Updater:
        self._updater = Updater(self.journal, self, self.flat, self.recover, failed)
        return self._updater

    @property
    def delay(self) -> float:
        return 0.0 if self._updater is None else self._updater.delay

    def waiting(self) -> int:
        """Return the number of documents of all processes whose changes are not in the index yet."""
        with disk_errors("reading the journal of the index"):
            return len(self.journal.outstanding())

    # Searches.

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        source = self.source(form)
        for _ in range(_PAGES):  # a person may have edited documents on the page: they are compared with their files
            found = self._ask(form, scope, budget, partial(Search.find, query=query), IndexedPage())
            stale = [
                each.document
                for each, fingerprint in zip(found.hits.page, found.fingerprints, strict=True)
                if fingerprint != source.fingerprint(DocumentName(each.document, each.is_draft))
            ]
            if not stale:
                break
            self.update(form, stale)
            if budget is not None:
                budget.restart()
        return found.hits

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        nothing: list[str] = []
        yield from self._ask(form, scope, budget, lambda search: list(search.distinct(by)), nothing)

    def checking(self, definition: Definition) -> Streaming:
        return self.source(definition.form).checking(definition)

    # Changes.

    def update(self, form: Form, documents: Iterable[str]) -> None:
        """Bring index and flat views up to date."""
        documents = tuple(documents)
        self.refresh(form, documents)
        self.flat.refresh(form, documents)

    def recover(self) -> None:
        """Bring the index up to date with the journals of dead processes, so that not every search reads them."""
        for left in self.journal.abandoned():
            by_form: defaultdict[Form, list[str]] = defaultdict(list)
            for entry in left.entries:
                by_form[entry.form].append(entry.document)
            for form, documents in by_form.items():
                self.update(form, documents)
            left.remove()

    def _ask(self, form: Form, scope: Scope, budget: Budget | None, work: Callable[[Search], T], nothing: T) -> T:
        """Return what some work finds in an index that has every acknowledged change; ``nothing`` without documents."""
        generations, source = self.generations(form), self.source(form)
        mistake: Exception | None = None

        def answer(used: engine.IndexFile) -> T:
            with used.reading() as index:
                looked_at = source if scope.definition is None else replace(source, found=scope.definition)
                partitions = index.partitions()
                stale = staleness.look(index, partitions, looked_at, changed)
                if not any(stale):
                    return index.search(partitions, scope, budget, work)
            self._replace(source, used, stale)
            with used.reading() as index:
                return index.search(index.partitions(), scope, budget, work)

        with self._disk_errors(form):
            changed = [each.document for each in self.journal.outstanding() if each.form == form]
            for _ in range(_ATTEMPTS):
                engine.require_space(self.root)
                path = generations.current()
                if path is None and next(source.documents(), None) is None:
                    return nothing
                try:
                    if path is not None:
                        with self._using(form, path) as used:
                            if used.is_ready or self.is_trusted(used, _LOOKS):
                                return answer(used)
                    self.pool.discard(form)
                    self._make_ready(form)
                except _AgainError as error:
                    mistake = error.mistake
        raise mistake or BusyError(f"the index of {form} keeps failing to build", _RETRY_AFTER)

    @contextmanager
    def _disk_errors(self, form: Form) -> Iterator[None]:
        try:
            yield
        except (OSError, DiskError) as error:
            failure = error if isinstance(error, DiskError) else as_disk_error(error, "using the index of", form)
            if isinstance(failure, DiskFullError) or engine.is_full(self.root):  # some quotas are errors of any kind
                raise DiskFullError(f"there is no room to use the index of {form}") from error
            if failure is error:
                raise
            raise failure from error

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
                        stale = staleness.look(index, index.partitions(), source, ())._replace(documents=documents)
                    self._replace(source, used, stale)
                if generations.current() == path:  # otherwise another one has been made, perhaps without them
                    return
        raise BusyError(f"the index of {form} keeps failing to build", _RETRY_AFTER)

    def merge(self, form: Form) -> bool:
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

    def rebuild_of(self, form: Form) -> Rebuild:
        return Rebuild(self.root, self.generations(form), self.source(form))

    def is_trusted(self, used: engine.IndexFile, looks: int = 1) -> bool:
        for look in range(looks):
            if used.is_ready:
                break
            if look:
                time.sleep(_LOOK)  # a process may be changing it
            changes = changes_beside(used.path)
            with used.reading() as index:
                used.is_ready = condition_of(index, tree_identity(self.root), changes) is IndexCondition.READY
        return used.is_ready

    @staticmethod
    def _replace(source: Source, used: engine.IndexFile, stale: Stale) -> None:
        if not any(stale):
            return
        with used.writing() as index:
            refresh = Refresh(index, source)
            refresh.documents(stale.documents)
            if stale.definitions:
                refresh.definitions(stale.definitions)
            end = time.monotonic() + READING_SECONDS
            for version in staleness.outdated(index.partitions()):
                for _ in refresh.version(version):
                    if time.monotonic() > end:
                        raise being_read(source.form)

    @contextmanager
    def _using(self, form: Form, path: str) -> Iterator[engine.IndexFile]:
        try:
            yield self.pool.opened(form, path)
        except engine.UnusableError as error:
            self.pool.discard(form)
            self.generations(form).invalidate(path)
            raise _AgainError(error.mistake) from error
        except (DiskError, BusyError) as error:
            if self.generations(form).current() == path:
                raise
            raise _AgainError from error  # its file is removed

    def _make_ready(self, form: Form) -> None:
        rebuild = self.rebuild_of(form)
        if not rebuild.is_small:
            with self._lock:
                process = self._rebuilding.get(form)
                if process is None or process.poll() is not None:
                    self._rebuilding[form] = self._processes.begin(self.job((form,), RebuildAim.READY))
            raise BusyError(f"the index of {form} is being made", _MAKING_RETRY_AFTER)
        rebuild.run(RebuildAim.READY, timeout=_MAKING)

    # Rebuilds and checks.

    def is_ready(self, form: Form) -> bool:
        """Return whether a search of a form finds an index, or needs none because there are no documents."""
        with disk_errors("looking at the index of", form):
            is_ready = self.rebuild_of(form).condition() is IndexCondition.READY
            return is_ready or next(self.source(form).documents(), None) is None

    def has_definition(self, form: Form) -> bool:
        """Return whether a form has a definition of its own, or had one."""
        source = self.source(form)
        return not source.described.is_designer and next(source.versions(), None) is not None

    def versions(self, form: Form) -> Iterator[int]:
        return self.source(form).versions()

    def job(self, forms: Sequence[Form], aim: RebuildAim, version: int | None = None) -> IndexJob:
        # Rows of flat views are read again too, because changes by hand are not noted anywhere.
        return IndexJob(
            self.root,
            tuple(IndexTask(self.source(form).described, aim, version) for form in forms),
            () if aim is RebuildAim.READY else tuple(self.flat.task(form, version) for form in forms),
        )

    def rebuild(self, forms: Sequence[Form], version: int | None = None) -> None:
        with disk_errors("rebuilding the index"):
            is_done = self._processes.run(self.job(forms, RebuildAim.REBUILT, version))
        if not is_done:
            raise DiskError("the index could not be rebuilt; the log says why")

    def status(self) -> ReindexingStatus:
        return status_in(rebuild_record(self.root))

    def sweep(self, form: Form) -> None:
        """Remove the files that a killed rebuild left of the index of a form."""
        with disk_errors("removing what the index had of", form):
            for path in self.generations(form).stray_files():
                files.remove(path)


class _AgainError(Exception):
    """The index has changed under a connection that used it, or was given up, perhaps because of a ``mistake``."""

    def __init__(self, mistake: Exception | None = None) -> None:
        super().__init__()
        self.mistake = mistake
