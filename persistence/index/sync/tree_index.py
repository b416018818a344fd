"""The index of a file tree: it answers with every acknowledged change, or says that it cannot yet (``staleness``)."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from persistence.catalog import Definition
from persistence.closable import Closable
from persistence.errors import DiskError, disk_errors
from persistence.index.protocol import Budget, RebuildAim, ReindexingState, ReindexingStatus, status_in
from persistence.index.sources import DocumentName, IndexedPage, Source
from persistence.index.sync.index_files import IndexCheck, IndexFiles
from persistence.index.sync.journal import Journal
from persistence.index.sync.rebuild import IndexJob, IndexTask, JobProcesses, rebuild_record
from persistence.index.sync.staleness import IndexCondition
from persistence.index.sync.updater import Failed, FlatViews, Updater
from persistence.model.addresses import Form
from persistence.model.queries import Field, Hits, Query, Scope
from persistence.processes import Child
from persistence.storage import files
from persistence.storage.findings import Finding
from persistence.xml import Streaming

_PAGES = 3  # How often a page is looked for again because documents on it have changed meanwhile


class TreeIndex(Closable):
    """The indexes of the forms of a tree, one file for each. A ``MaintainedIndex``.

    It owns its connections, the processes that rebuild, ``journal`` and ``flat``. On a full disk searches raise
    ``DiskFullError``, because SQLite has to write beside an index to read it.
    """

    def __init__(self, root: str, journal: Journal, source_of: Callable[[Form], Source], flat: FlatViews) -> None:
        self.flat = flat
        self.files = IndexFiles(root, journal, source_of, self._begin)
        self._journal = journal
        self._check = IndexCheck(self.files, journal, self.update, self.recover)
        self._processes = JobProcesses()
        self._lock = threading.Lock()
        self._updater: Updater | None = None
        self._rebuilding: dict[Form, Child] = {}

    def close(self) -> None:
        self._processes.close()
        self._check.close()
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
            found = self.files.ask(form, scope, lambda index: index.search(scope, query, budget), IndexedPage())
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
        yield from self.files.ask(form, scope, lambda index: index.distinct(scope, by, budget), nothing)

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
        with disk_errors("looking at the index of", form):
            is_ready = self.files.rebuild(form).condition() is IndexCondition.READY
            return is_ready or next(self.files.source(form).documents(), None) is None

    def has_definition(self, form: Form) -> bool:
        source = self.files.source(form)
        return not source.described.is_designer and next(source.versions(), None) is not None

    def versions(self, form: Form) -> Iterator[int]:
        return self.files.source(form).versions()

    def job(self, forms: Sequence[Form], aim: RebuildAim, version: int | None = None) -> IndexJob:
        """Return the rebuild of the indexes of some forms, or of one version of one.

        Rows of flat views are read again too, because changes by hand are not noted anywhere.
        """
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

    def is_rebuilding(self) -> bool:
        return self.status().state is ReindexingState.INDEXING

    def status(self) -> ReindexingStatus:
        return status_in(rebuild_record(self.files.root))

    def sweep(self, form: Form) -> None:
        with disk_errors("removing what the index had of", form):
            for path in self.files.generations(form).stray_files():
                files.remove(path)

    def findings_of(self, form: Form, name: DocumentName, *, deep: bool) -> Iterator[Finding]:
        return self._check.of_document(form, name, deep=deep)

    def findings(self, only: tuple[str, ...], *, deep: bool) -> Iterator[Finding]:
        return self._check.of_forms(only, deep=deep)

    def _begin(self, form: Form) -> None:
        with self._lock:
            process = self._rebuilding.get(form)
            if process is None or process.poll() is not None:
                self._rebuilding[form] = self._processes.begin(self.job((form,), RebuildAim.READY))
