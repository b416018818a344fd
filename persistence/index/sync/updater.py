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
from itertools import islice
from typing import NamedTuple

from persistence.catalog import Definition
from persistence.closable import Closable, closed
from persistence.errors import BusyError, DiskError, DiskFullError, PersistenceError, disk_errors
from persistence.forms.flat_tables import RowReader
from persistence.index.protocol import Budget, RebuildAim, ReindexingStatus, status_in
from persistence.index.sources import DocumentName, IndexedPage, Source, flat_rows
from persistence.index.sqlite import engine
from persistence.index.sync.index_files import IndexCheck, IndexFiles
from persistence.index.sync.journal import Journal, Ticket
from persistence.index.sync.rebuild import SMALL, FlatMaker, FlatTask, IndexJob, IndexTask, JobProcesses, rebuild_record
from persistence.index.sync.staleness import IndexCondition, tree_identity
from persistence.limits import LONGEST_TURN, MOST_WAITING
from persistence.model.addresses import Form
from persistence.model.queries import Field, Hits, Query, Scope
from persistence.processes import Child
from persistence.storage import files
from persistence.storage.reader import StoreReader
from persistence.xml import Streaming

_PATIENCE = 1.0
"""Seconds for which changes wait for a process that makes views: they, and later ones of the form, are tried again."""


class FlatViews(Closable):
    """The flat views of the tree of a root. A ``ReportTables``. Methods raise ``DiskError`` and ``BusyError``."""

    # It owns a connection to their file, and processes. ``defined_elsewhere`` gives forms with definitions in another
    # tree.
    def __init__(
        self, root: str, source_of: Callable[[Form], Source], defined_elsewhere: Callable[[], Iterable[Form]] = tuple
    ) -> None:
        self._root = os.path.realpath(root)
        self._source_of = source_of
        self._defined_elsewhere = defined_elsewhere
        self._file = engine.FlatFile(self._root)
        self._lock = threading.Lock()
        self._kept: _KeptCatalogue | None = None
        self._is_closed = False
        self._processes = JobProcesses()
        self._restoring: Child | None = None
        self._restored: engine.FileIdentity | None = None
        self._is_asked = False

    def close(self) -> None:
        self._processes.close()
        with self._lock:
            self._is_closed = True
            self._close()

    def create(self, form: Form, version: int) -> None:
        view = self._source_of(form).view
        if sum(1 for _ in islice(view.documents(form), SMALL + 1)) <= SMALL:
            FlatMaker(self._source_of(form), self._root).make(version, is_new=True)
        elif not self._processes.run(IndexJob(self._root, flat=(self.task(form, version, is_new=True),))):
            raise DiskError("the flat views could not be made; the log says why")
        self.restore()

    def drop(self, form: Form, version: int) -> None:
        FlatMaker(self._source_of(form), self._root).make(version)

    def refresh(self, form: Form, documents: Iterable[str]) -> None:
        """Replace the rows of documents; do nothing where the form has no views."""
        # If the file turns out to be damaged, everything is read again (``restore``).
        with self._using(f"bringing the flat views up to date of {form}", form) as kept:
            if kept is None or not kept.catalogue.versions(form):
                return
            with kept.catalogue.changing():
                versions = kept.catalogue.versions(form)
                views = {version: kept.catalogue.views(form, version) for version in versions}
                readers = {version: RowReader(of_version) for version, of_version in views.items()}
                source = self._source_of(form)
                every = [view for of_version in views.values() for view in of_version]
                for document in documents:
                    kept.catalogue.remove_rows(every, document)
                    rows = flat_rows(source.view, form, readers, document)
                    if rows is not None:
                        kept.catalogue.add_rows(rows)

    def restore(self) -> None:
        """Start a process that makes the views again which may be out of date, after a power cut, for instance."""
        # If the file is lost, these are all views that the sidecars of definitions ask for; they are read once.
        if self._file.identity is None and not self._is_asked:
            self._is_asked = True
            catalogs = ((form, self._source_of(form).catalog) for form in self._forms())
            if any(
                catalog.of(form, version).has_flat_views
                for form, catalog in catalogs
                for version in catalog.storage.versions(form)
            ):
                self._file.make()
        with self._using("looking at the flat views") as kept:
            if kept is None:
                return
            tree, catalogue = tree_identity(self._root), kept.catalogue
            if catalogue.is_complete and catalogue.is_of(tree):
                return
            if self._restoring is not None and self._restoring.poll() is None and self._restored == kept.identity:
                return
            forms = catalogue.forms() if catalogue.is_complete else self._forms()
            tasks = tuple(self.task(form, but=tree) for form in forms)
            self._restoring, self._restored = self._processes.begin(IndexJob(self._root, flat=tasks)), kept.identity

    def _forms(self) -> Iterable[Form]:
        return {*StoreReader(self._root).forms(), *self._defined_elsewhere()}

    @contextmanager
    def _using(self, action: str, form: Form | None = None) -> Iterator[_KeptCatalogue | None]:
        """Use the connection of this process for a block; ``None`` where there is no file."""
        # A damaged file is replaced by an empty one; where only the views of ``form`` are wrong, their rows are marked
        # to be read again. ``restore`` does the rest.
        with self._lock, disk_errors(action):
            if self._is_closed:
                raise closed("the file of flat views")
            engine.require_space(self._root)
            found, is_fresh = self._file.identity, False
            try:
                kept = self._opened(found)
            except engine.FLAT_FAILURES as error:
                self._repair(engine.flat_failure(error, action), found, form)
                found, is_fresh = self._file.identity, True
                kept = self._opened(found)
            try:
                yield kept
            except engine.FLAT_FAILURES as error:
                self._close()
                self._repair(engine.flat_failure(error, action), found, form)
            else:
                if not is_fresh:
                    return
        self.restore()

    def _repair(self, error: Exception, found: engine.FileIdentity | None, form: Form | None) -> None:
        match error:
            case engine.InconsistentError() if form is not None:
                with suppress(engine.UnusableError), self._file.opened() as catalogue:
                    catalogue.doubt(form)
                    return
            case engine.InconsistentError() | engine.UnusableError():
                pass
            case _:
                raise error
        self._file.discard(found)
        self._file.make()

    def _opened(self, found: engine.FileIdentity | None) -> _KeptCatalogue | None:
        kept = self._kept
        if kept is not None and kept.identity != found:
            self._close()
            kept = None
        if kept is None and found is not None:
            kept = self._kept = _KeptCatalogue(self._file.opened(_PATIENCE), found)
        return kept

    def _close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.catalogue.close()

    def task(self, form: Form, version: int | None = None, *, but: str = "", is_new: bool = False) -> FlatTask:
        return FlatTask(self._source_of(form).described, version, but, is_new)


class _KeptCatalogue(NamedTuple):
    """A catalogue that stays open: as long as one does, others can read the file without being allowed to write."""

    catalogue: engine.FlatCatalogue
    identity: engine.FileIdentity


_AT_ONCE = 200
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
        self, journal: Journal, files: IndexFiles, flat: FlatViews, recover: Callable[[], None], failed: Failed
    ) -> None:
        self._journal = journal
        self._files = files
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
                        if self._files.merge(form):
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
            self._files.refresh(form, [each.document for each in changed])
            self._untidy.add(form)
            is_indexed = True
            self._files.make_ready(form)
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
            self._files.invalidate(form)
        if error is not None:
            self._failed(form, error)


_PAGES = 3  # How often a page is looked for again because documents on it have changed meanwhile


class TreeIndex(Closable):
    """The indexes of the forms of a tree, one file for each. Methods raise ``BusyError`` and ``DiskError``."""

    # It owns its connections, the processes that rebuild, ``journal`` and ``flat``. On a full disk searches raise
    # ``DiskFullError``, because SQLite has to write beside an index to read it.
    def __init__(self, root: str, journal: Journal, source_of: Callable[[Form], Source], flat: FlatViews) -> None:
        self.flat = flat
        self.files = IndexFiles(root, journal, source_of, self._begin)
        self._journal = journal
        self.check = IndexCheck(self.files, journal, self.update, self.recover)
        self._processes = JobProcesses()
        self._lock = threading.Lock()
        self._updater: Updater | None = None
        self._rebuilding: dict[Form, Child] = {}

    def close(self) -> None:
        self._processes.close()
        self.files.close()
        self.flat.close()
        self._journal.close()

    def updater(self, failed: Failed) -> Updater:
        self._updater = Updater(self._journal, self.files, self.flat, self.recover, failed)
        return self._updater

    @property
    def delay(self) -> float:
        return 0.0 if self._updater is None else self._updater.delay

    def waiting(self) -> int:
        """Return the number of documents of all processes whose changes are not in the index yet."""
        with disk_errors("reading the journal of the index"):
            return len(self._journal.outstanding())

    # Searches.

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        source = self.files.source(form)
        for _ in range(
            _PAGES
        ):  # A person may have edited the documents on the page: they are compared with their files
            if budget is not None:
                budget.restart()
            found = self.files.ask(form, scope, budget, lambda search: search.find(query), IndexedPage())
            stale = [
                each.hit.document
                for each in found.documents
                if each.fingerprint != source.fingerprint(DocumentName(each.hit.document, each.hit.is_draft))
            ]
            if not stale:
                break
            self.update(form, stale)
        return Hits(found.total, tuple(each.hit for each in found.documents), found.has_more)

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        nothing: list[str] = []
        yield from self.files.ask(form, scope, budget, lambda search: list(search.distinct(by)), nothing)

    def checking(self, definition: Definition) -> Streaming:
        return self.files.source(definition.form).checking(definition)

    # Changes.

    def update(self, form: Form, documents: Iterable[str]) -> None:
        documents = tuple(documents)
        self.files.refresh(form, documents)
        self.flat.refresh(form, documents)

    def recover(self) -> None:
        """Bring the index up to date with the journals of dead processes, so that not every search reads them."""
        for left in self._journal.abandoned():
            by_form: defaultdict[Form, list[str]] = defaultdict(list)
            for entry in left.entries:
                by_form[entry.form].append(entry.document)
            for form, documents in by_form.items():
                self.update(form, documents)
            left.remove()

    # Rebuilds and checks.

    def is_ready(self, form: Form) -> bool:
        """Return whether a search of a form finds an index, or needs none because there are no documents."""
        with disk_errors("looking at the index of", form):
            is_ready = self.files.rebuild(form).condition() is IndexCondition.READY
            return is_ready or next(self.files.source(form).documents(), None) is None

    def has_definition(self, form: Form) -> bool:
        """Return whether a form has a definition of its own, or had one."""
        source = self.files.source(form)
        return not source.described.is_designer and next(source.versions(), None) is not None

    def versions(self, form: Form) -> Iterator[int]:
        return self.files.source(form).versions()

    def job(self, forms: Sequence[Form], aim: RebuildAim, version: int | None = None) -> IndexJob:
        # Rows of flat views are read again too, because changes by hand are not noted anywhere.
        return IndexJob(
            self.files.root,
            tuple(IndexTask(self.files.source(form).described, aim, version) for form in forms),
            () if aim is RebuildAim.READY else tuple(self.flat.task(form, version) for form in forms),
        )

    def rebuild(self, forms: Sequence[Form], version: int | None = None) -> None:
        with disk_errors("rebuilding the index"):
            is_done = self._processes.run(self.job(forms, RebuildAim.REBUILT, version))
        if not is_done:
            raise DiskError("the index could not be rebuilt; the log says why")

    def status(self) -> ReindexingStatus:
        return status_in(rebuild_record(self.files.root))

    def sweep(self, form: Form) -> None:
        """Remove the files that a killed rebuild left of the index of a form."""
        with disk_errors("removing what the index had of", form):
            for path in self.files.generations(form).stray_files():
                files.remove(path)

    def _begin(self, form: Form) -> None:
        with self._lock:
            process = self._rebuilding.get(form)
            if process is None or process.poll() is not None:
                self._rebuilding[form] = self._processes.begin(self.job((form,), RebuildAim.READY))
