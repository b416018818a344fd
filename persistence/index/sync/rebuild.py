"""Making the index files and flat views of forms, in this process or in another, and keeping flat views up to date.

A small file names the index in use. An index file is never replaced by another of the same name: a process that has it
open goes on reading it until another one is in use. A new one is built beside it, from the whole tree, while that one
goes on being used and changed (``staleness``, 8).
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import msgspec

from persistence import processes
from persistence.closable import Closable, closed
from persistence.errors import BadRequestError, BusyError, DamagedError, DiskError, PersistenceError, disk_errors
from persistence.forms.flat_tables import RowReader, read_flat_views
from persistence.index.protocol import LONGEST_WAIT, PreparedDocument, Progress, RebuildAim, prepared, reported
from persistence.index.sources import DocumentName, Source, SourceDescription, flat_definition, flat_rows
from persistence.index.sqlite import engine
from persistence.index.sqlite.engine import FlatFile, Generations, UnusableError
from persistence.index.sync.staleness import (
    CHANGES,
    IndexCondition,
    Refresh,
    changes_beside,
    condition_of,
    reconcile_changes,
    tree_identity,
)
from persistence.model.addresses import Form
from persistence.processes import Child
from persistence.storage import files
from persistence.storage.layout import REINDEXING, Layout
from persistence.storage.reader import StoreReader
from persistence.storage.store import JobFile

SMALL = 1_000  # Documents up to which an index is made at once, by the process that needs it

_SMALL_BYTES = 16 << 20  # Bytes of all documents of a small form

_BATCH = 200
_LARGEST_BATCH = 1 << 20  # Characters of the texts of documents after which a batch of them is written


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Makes the index of one form usable. Methods raise ``DiskError``, ``OSError`` and the errors of the engine."""

    root: str
    generations: Generations
    source: Source

    @property
    def is_small(self) -> bool:
        first = islice(self.source.documents(), SMALL + 1)
        sizes = [self.source.size(name) for name in first]
        return len(sizes) <= SMALL and sum(sizes) <= _SMALL_BYTES

    def run(
        self, aim: RebuildAim, *, timeout: float, progress: Progress = lambda _: None, only: int | None = None
    ) -> None:
        """Bring the index into a condition; build it if it is missing or unusable."""
        # ``REBUILT`` shows documents that are hidden because their definition was deleted (spec search 2.5), all or
        # those of the version ``only``.
        with self.generations.rebuilding(timeout=timeout), engine.domain_errors(f"the index of {self.source.form}"):
            condition = IndexCondition.NONE if aim is RebuildAim.REBUILT else self.condition()
            if condition is IndexCondition.NONE:
                self._build(progress, only)
            elif aim is RebuildAim.VERIFIED or condition is IndexCondition.EARLIER:
                tree, path = tree_identity(self.root), self.generations.current()
                if path is None:
                    return
                with engine.IndexWriter(path) as index:
                    for compared in Refresh(index, self.source).everything():
                        progress(compared)
                    with index.changing():
                        index.tree = tree
                        reconcile_changes(index)

    def condition(self) -> IndexCondition:
        path = self.generations.current()
        if path is None:
            return IndexCondition.NONE
        try:
            changes = changes_beside(path)
            with engine.IndexFile(path, f"the index of {self.source.form}") as file, file.reading() as index:
                return condition_of(index, tree_identity(self.root), changes)
        except (engine.UnusableError, DiskError, BusyError):
            return IndexCondition.NONE

    def _build(self, progress: Progress, only: int | None) -> None:
        path = self.generations.fresh()
        try:
            with self._in_use() as old:
                self._fill(path, {} if only is None else old.hidden(but=only), progress)
                with engine.IndexWriter(path) as index:
                    new = Refresh(index, self.source)
                    new.documents(old.missed())  # most of it while others can go on
                    with old.keeping_others_out():
                        new.documents(old.missed())
                        self.generations.use(path)
        except BaseException:
            if self.generations.current() != path:
                engine.remove_index(path)
                files.remove(path + CHANGES)
            raise
        self.generations.sweep()

    @contextmanager
    def _in_use(self) -> Iterator[engine.IndexWriter]:
        path = self.generations.current()
        is_usable = False
        if path is not None:
            with suppress(engine.UnusableError, DiskError, BusyError):
                with engine.IndexFile(path, path) as file, file.writing() as index:
                    index.begin_rebuild()
                is_usable = True
        if path is None or not is_usable:
            path = self.generations.fresh()
            engine.make_empty(path)
            self.generations.use(path)
        with engine.IndexWriter(path) as index:
            try:
                yield index
            finally:
                with suppress(DiskError, BusyError), engine.domain_errors(path):
                    index.end_rebuild()

    def _fill(self, path: str, hidden: Mapping[DocumentName, int], progress: Progress) -> None:
        """Fill a new index; a thread writes a batch while this one reads the next."""
        with engine.NewIndex(path, hidden) as index, ThreadPoolExecutor(1, "indexing") as writer:
            refresh = Refresh(index, self.source)
            for version in self.source.versions():
                refresh.keys(version)
            names = self.source.documents()
            written = writer.submit(lambda: None)
            while batch := list(self._read(refresh, islice(names, _BATCH))):
                written.result()
                written = writer.submit(index.add, [each for each in batch if each is not None])
                progress(len(batch))
            written.result()
            index.finish(tree_identity(self.root))

    def _read(self, refresh: Refresh, names: Iterable[DocumentName]) -> Iterator[PreparedDocument | None]:
        """Yield the document of each name, and ``None`` for one that is deleted or damaged."""
        # End early where their texts are large: a batch is held in memory.
        size = 0
        for name in names:
            read = self.source.read(
                name, self.source.fingerprint(name), lambda version: refresh.keys(version).definition
            )
            if read is None:
                yield None
                continue
            document = prepared(read, refresh.keys(read.hit.facts.version))
            yield document
            size += len(document.free_text) + len(document.card)
            if size > _LARGEST_BATCH:
                return


_LONGEST_WAIT_FOR_VIEWS = 600.0  # Seconds to wait for a process that makes other views

_CHECKPOINT = 1.0
"""Seconds to wait for those who read, so that the log can be emptied; otherwise the next one empties it."""
_ATTEMPTS = 5
_RETRY_AFTER = 5


# Making the flat views of form versions: their tables, and the rows of all documents.
#
# Each version is made in one transaction, so no reader sees half of it. In that transaction the catalogue says that the
# form has flat views: a process that changes a document meanwhile waits for it to end, and then replaces the rows of
# the document; earlier changes are read. So no change is lost.


@dataclass(frozen=True, slots=True)
class FlatMaker:
    """Makes the flat views of one form in the tree of a root."""

    source: Source
    root: str

    def make(self, version: int, *, but: str = "", is_new: bool = False) -> None:
        """Read the rows of a version again, unless they are of the tree ``but``; drop its views if it is deleted.

        Its columns stay, unless it ``is_new``: then they are those of the stored definition.
        """
        # Where its views were lost, they are made again.

        def work(catalogue: engine.FlatCatalogue) -> None:
            if is_new or (version not in catalogue.versions(self.source.form) and self._is_wanted(version)):
                catalogue.request(self.source.form, version)
            self._make(catalogue, version, but)

        if is_new or self._file.identity is not None or self._is_wanted(version):
            self._change(work)

    def refill_all(self, *, but: str = "") -> Iterator[str]:
        """Read the rows of all versions again; yield why some cannot be made."""
        known: set[int] = set()
        if self._file.identity is not None:
            self._change(lambda catalogue: known.update(catalogue.versions(self.source.form)))
        for version in sorted(
            {*known, *filter(self._is_wanted, self.source.catalog.storage.versions(self.source.form))}
        ):
            try:
                self.make(version, but=but)
            except PersistenceError as error:
                yield f"{self.source.form}, version {version}: {error}"

    @property
    def _file(self) -> engine.FlatFile:
        return engine.FlatFile(self.root)

    def _change(self, work: Callable[[engine.FlatCatalogue], None]) -> None:
        action = f"making flat views of {self.source.form}"
        with disk_errors(action):
            for _ in range(_ATTEMPTS):
                found = None
                try:
                    self._file.make()
                    found = self._file.identity
                    with self._file.opened(_LONGEST_WAIT_FOR_VIEWS) as catalogue:
                        work(catalogue)
                        catalogue.checkpoint(_CHECKPOINT)
                except engine.FLAT_FAILURES as error:
                    meaning = engine.flat_failure(error, action)
                    if not isinstance(meaning, engine.UnusableError):
                        raise meaning from error
                    self._file.discard(found)
                else:
                    if self._file.identity == found:
                        return
        raise BusyError("the file of flat views is being made again and again", _RETRY_AFTER)

    def _make(self, catalogue: engine.FlatCatalogue, version: int, but: str) -> None:
        # Where no views can be made by its definition, the present ones are filled again, and then the cause is raised.
        source, form, cause = self.source, self.source.form, None
        with catalogue.changing():
            known = catalogue.versions(form).get(version)
            if known is None or (but and known.tree == but):
                return
            views, tag = catalogue.views(form, version), known.definition
            catalogue.remove(form, version)
            stored = flat_definition(source.catalog, form, version)
            if stored is None:
                return
            if not tag:
                tag, content = stored
                try:
                    views = read_flat_views(content, form, version, source.described.naming, catalogue.names())
                except (BadRequestError, DamagedError) as error:
                    cause = error
            if views:
                catalogue.add(form, version, engine.CataloguedVersion(tag, tree_identity(self.root)), views)
                readers = {version: RowReader(views)}
                for document in source.view.documents(form):
                    rows = flat_rows(source.view, form, readers, document)
                    if rows is not None:
                        catalogue.add_rows(rows)
        if cause is not None:
            raise cause

    def _is_wanted(self, version: int) -> bool:
        return self.source.catalog.of(self.source.form, version).has_flat_views


class IndexTask(msgspec.Struct, frozen=True):
    """The index of one form, and the aim of its rebuild. ``only`` is as in ``Rebuild.run``."""

    source: SourceDescription
    aim: RebuildAim = RebuildAim.READY
    only: int | None = None


class FlatTask(msgspec.Struct, frozen=True):
    """The flat views of one form, or of one version."""

    source: SourceDescription
    version: int | None = None
    but: str = ""  # except those of this tree
    is_new: bool = False  # columns of the version are made by its definition, too


class IndexJob(msgspec.Struct, frozen=True):
    """The rebuild of some indexes in the tree of a root, and then of flat views."""

    root: str
    tasks: tuple[IndexTask, ...] = ()
    flat: tuple[FlatTask, ...] = ()

    @property
    def forms(self) -> int:
        return len(self.tasks)

    def count(self) -> int:
        """Return roughly how many documents and drafts there are."""
        return sum(1 for task in self.tasks for _ in self._rebuild(task).source.documents())

    def run(self, progress: Progress) -> None:
        """Do it in this process; ``BusyError`` says that another process rebuilt an index for very long."""
        for cause in self.work(progress):
            raise DiskError(f"no flat views of {cause}")

    def work(self, progress: Progress = lambda _: None) -> Iterator[str]:
        """Make the indexes and then the flat views; yield the causes where some of these cannot be made."""
        if self.tasks:
            record = rebuild_record(self.root)
            with disk_errors("making the index"), reported(record, self.count, progress) as report:
                for task in self.tasks:
                    with disk_errors("making the index of", task.source.form):
                        rebuild = self._rebuild(task)
                        rebuild.run(task.aim, timeout=LONGEST_WAIT, progress=report, only=task.only)
        file = FlatFile(self.root)
        with disk_errors("looking at the tables of flat views"):
            found = file.identity
        for flat in self.flat:
            maker = FlatMaker(flat.source.opened(self.root), self.root)
            if flat.version is None:
                yield from maker.refill_all(but=flat.but)
            else:
                maker.make(flat.version, is_new=flat.is_new)
        read = {flat.source.form for flat in self.flat if flat.version is None}
        if read.issuperset(StoreReader(self.root).forms()):
            with suppress(UnusableError, DiskError, BusyError):  # otherwise it is done once more
                file.settle(found)

    def _rebuild(self, task: IndexTask) -> Rebuild:
        return Rebuild(self.root, Generations(Layout(self.root), task.source.form), task.source.opened(self.root))


def rebuild_record(root: str) -> JobFile:
    """Return the record of the rebuilds in the tree of a root. Its file is also the lock."""
    path = f"{root}/{REINDEXING}"
    return JobFile("rebuild", path, path)


_LONGEST_END = 10.0  # Seconds that a process may take at its end to remove its unfinished files


class JobProcesses(Closable):
    """Starts processes that rebuild, and owns them. For all threads."""

    # An index that a process has not finished when it is ended is rebuilt by the next search.
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Child] = []
        self._is_closed = False

    def begin(self, job: IndexJob) -> Child:
        """Start a process of its own that rebuilds: it has all processors. Raises ``OSError``."""
        with self._lock:
            if self._is_closed:
                raise closed("the maker of indexes")
            self._running = [each for each in self._running if each.poll() is None]
            process = processes.start(
                "-m", "persistence.index", given=msgspec.json.encode(job), stdout=subprocess.DEVNULL
            )
            self._running.append(process)
            return process

    def run(self, job: IndexJob) -> bool:
        return self.begin(job).wait() == 0

    def close(self) -> None:
        """End the processes that are still running, and wait for them."""
        with self._lock:
            self._is_closed = True
            running, self._running = self._running, []
        for process in running:
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LONGEST_END)
                continue
            process.kill()
            process.wait()


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
