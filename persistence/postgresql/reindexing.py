"""Reading documents again for the index: one job at a time in a database, whichever node does it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice

import msgspec

from persistence import processors
from persistence.closable import Closable, closed
from persistence.errors import BusyError, PersistenceError
from persistence.index.protocol import ReindexingState, ReindexingStatus
from persistence.index.sources import DefinitionState
from persistence.limits import MOST_READERS, REREAD_AT_ONCE
from persistence.model.addresses import Form
from persistence.postgresql.database import Database
from persistence.postgresql.index_batches import IndexBatches
from persistence.postgresql.index_rows import IndexRows
from persistence.postgresql.indexed_versions import SourceOf
from persistence.postgresql.jobs import DatabaseJob
from persistence.postgresql.places import FormNumbers

Failed = Callable[[Form | None, Exception], None]
"""Called when a job that a search has started has failed."""

_LONGEST_WAIT = 24 * 3600.0
"""Seconds for which a job waits for another to end."""
_PAUSE = 0.2
"""Seconds between two reports."""
_LONGEST_END = 10.0
"""Seconds for which ``close`` waits for the documents that are just being read."""
_MOST_AT_ONCE = 2
"""Calls in a process that run or wait: each keeps one of few threads."""
_READERS = min(MOST_READERS, max(2, processors.count()))
"""Threads of a job: while one waits for the database, another reads."""

_OUTDATED = """
SELECT number FROM partition JOIN indexed_version USING (form, version)
WHERE form = %s AND partition.round < indexed_version.round AND state <> %s
AND EXISTS (SELECT FROM partition_total WHERE partition = number)
"""
_DOCUMENTS = """
SELECT modified, seq, document FROM document WHERE partition = %s AND (modified, seq) > (%s, %s)
ORDER BY modified, seq LIMIT %s
"""
_TOTAL = "SELECT coalesce(sum(documents), 0)::bigint FROM partition_total WHERE partition = ANY(%s::int[])"
_TOTAL_OF_FORM = """
SELECT coalesce(sum(documents), 0)::bigint FROM partition_total JOIN partition ON number = partition WHERE form = %s
"""
_STRAY = """
SELECT DISTINCT document FROM document d WHERE form = %s AND NOT EXISTS (
    SELECT FROM revision r WHERE r.form = d.form AND r.kind = d.draft::int AND r.folder = d.document
    AND r.name = 'data.xml' AND r.is_current
)
"""
_RECOUNT = """
INSERT INTO partition_total (partition, shard, documents)
SELECT number, pg_backend_pid() %% 64, there - counted FROM (
    SELECT number, (SELECT count(*) FROM document WHERE partition = number) AS there,
    (SELECT coalesce(sum(documents), 0) FROM partition_total WHERE partition = number) AS counted
    FROM partition WHERE form = %s
) AS found WHERE there <> counted
ON CONFLICT (partition, shard) DO UPDATE SET documents = partition_total.documents + excluded.documents
"""
"""Adds what is missing: rows and totals are of one state, and change together."""

_COMPACT = """
WITH gone AS (DELETE FROM partition_total WHERE partition = %s RETURNING partition, documents)
INSERT INTO partition_total (partition, shard, documents)
SELECT partition, -1, sum(documents) FROM gone GROUP BY partition HAVING sum(documents) <> 0
ON CONFLICT (partition, shard) DO UPDATE SET documents = partition_total.documents + excluded.documents
"""
"""Makes one shard of all, and none of an empty partition: each publication may leave one, and searches sum up all."""


class _Progress(msgspec.Struct, frozen=True):
    """How many documents of a job are done."""

    current: int
    total: int


class RereadDocuments:
    """Reads documents of forms again, and yields how many were looked at after each batch.

    ``at_once`` batches are read at the same time, each by a thread and a connection.
    """

    def __init__(self, database: Database, numbers: FormNumbers, rows: IndexRows, source_of: SourceOf) -> None:
        self._database = database
        self._numbers = numbers
        self._rows = rows
        self._source_of = source_of
        self._batches = IndexBatches(database, numbers, rows, source_of)

    def outdated(self, form: Form, at_once: int = 1) -> Iterator[int]:
        """Read the documents again that were read by an older state of a definition."""
        number = self._numbers.require(form)
        while partitions := self._partitions(number):
            before = self._count(partitions)
            for partition in partitions:
                rows = self._database.listed("listing documents", "", _DOCUMENTS, (partition,), ("", 0))
                documents = (document for *_, document in rows)
                yield from _together(documents, lambda some: self._batches.reread(form, some), at_once)
                with self._database.reading("counting documents") as connection:
                    connection.execute(_COMPACT, (partition,))
            if before == 0 or self._count(partitions) >= before:  # others change them meanwhile
                return

    def count_outdated(self, form: Form) -> int:
        """Return how many documents were read by an older state of a definition."""
        return self._count(self._partitions(self._numbers.require(form)))

    def everything(self, form: Form, version: int | None, at_once: int) -> Iterator[int]:
        """Write all rows of a form again, or those of one version."""
        number, source = self._numbers.require(form), self._source_of(form)
        for each in source.versions() if version is None else (version,):
            with self._database.transaction("indexing", form):
                self._rows.published(form, each)
        with self._database.reading("looking for strays of", form) as connection:
            strays = [document for (document,) in connection.execute(_STRAY, (number,)).fetchall()]

        def rewrite(documents: Sequence[str]) -> None:
            self._batches.reread(form, documents, is_rewritten=True, version=version)

        yield from _together(chain((name.document for name in source.documents()), strays), rewrite, at_once)
        recount(self._database, form, number)

    def count(self, form: Form) -> int:
        """Return how many documents of a form there are, as far as the index knows."""
        with self._database.reading("counting the documents of", form) as connection:
            row = connection.execute(_TOTAL_OF_FORM, (self._numbers.require(form),)).fetchone()
        return int(row[0]) if row is not None else 0

    def _partitions(self, number: int) -> list[int]:
        with self._database.reading("looking for outdated documents") as connection:
            found = connection.execute(_OUTDATED, (number, DefinitionState.DELETED.name)).fetchall()
        return [partition for (partition,) in found]

    def _count(self, partitions: Sequence[int]) -> int:
        with self._database.reading("counting documents") as connection:
            row = connection.execute(_TOTAL, (list(partitions),)).fetchone()
        return int(row[0]) if row is not None else 0


def _together(documents: Iterator[str], reread: Callable[[Sequence[str]], None], at_once: int) -> Iterator[int]:
    def reread_some(batch: Sequence[str]) -> int:
        reread(batch)
        return len(batch)

    batches = iter(lambda: list(islice(documents, REREAD_AT_ONCE)), [])
    if at_once == 1:
        yield from map(reread_some, batches)
        return
    with ThreadPoolExecutor(at_once, "rereading") as pool:
        running: deque[Future[int]] = deque()
        try:
            for batch in batches:
                running.append(pool.submit(reread_some, batch))
                if len(running) > at_once:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def recount(database: Database, form: Form, number: int) -> None:
    """Correct the totals of a form with a number. Raises domain errors."""
    with database.transaction("counting the documents of", form) as connection:
        connection.execute(_RECOUNT, (number,))


class IndexJobs(Closable):
    """The jobs of this process, one at a time in the database. It owns the threads of those that searches start."""

    def __init__(self, database: Database, reread: RereadDocuments, failed: Failed) -> None:
        self._reread = reread
        self._failed = failed
        self._job = DatabaseJob(database, "reading of documents")
        self._turns = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._lock = threading.Lock()
        self._threads: dict[Form, threading.Thread] = {}
        self._is_closing = threading.Event()

    def close(self) -> None:
        """End all jobs after the documents that are just being read; what is left, the next search goes on with."""
        with self._lock:
            self._is_closing.set()
            threads, self._threads = list(self._threads.values()), {}
        for thread in threads:
            thread.join(_LONGEST_END)

    def begin(self, form: Form) -> None:
        """Read the outdated documents of a form again in a thread, unless one does so already."""
        with self._lock:
            running = self._threads.get(form)
            if self._is_closing.is_set() or (running is not None and running.is_alive()):
                return
            thread = threading.Thread(target=self._bring_up_to_date, args=(form,), name="reindexing", daemon=True)
            self._threads[form] = thread
            thread.start()

    def run(self, forms: Iterable[Form], version: int | None = None) -> None:
        """Write all rows of forms again, or those of one version."""
        if not self._turns.acquire(blocking=False):
            raise BusyError("indexes are being rebuilt, and others wait for their turn already", retry_after=30)
        forms = tuple(forms)
        try:
            total = sum(map(self._reread.count, forms))
            everything = (self._reread.everything(form, version, _READERS) for form in forms)
            self._work(total, chain.from_iterable(everything))
        finally:
            self._turns.release()

    def status(self) -> ReindexingStatus:
        """Return the progress of the job, whichever node does it."""
        if not self._job.is_taken():
            return ReindexingStatus()
        try:
            progress = msgspec.json.decode(self._job.read(), type=_Progress)
        except msgspec.DecodeError:
            progress = _Progress(0, 0)
        return ReindexingStatus(ReindexingState.INDEXING, progress.current, progress.total)

    def _bring_up_to_date(self, form: Form) -> None:
        try:
            self._work(self._reread.count_outdated(form), self._reread.outdated(form, _READERS))
        except PersistenceError as error:
            if not self._is_closing.is_set():
                self._failed(form, error)

    def _work(self, total: int, looked_at: Iterator[int]) -> None:
        with self._job.turn("another index is being made", _LONGEST_WAIT, self._is_closing.is_set):
            self._report(0, total)
            reported, current = time.monotonic(), 0
            for documents in looked_at:
                current += documents
                if self._is_closing.is_set():
                    raise closed("the index")
                if time.monotonic() > reported + _PAUSE:
                    reported = time.monotonic()
                    self._report(min(current, total), total)

    def _report(self, current: int, total: int) -> None:
        with suppress(PersistenceError):
            self._job.write(msgspec.json.encode(_Progress(current, total)))
