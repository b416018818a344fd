"""Reading documents again for the index: one job at a time in a database, whichever node does it.

The process that works holds a lock of the session, on a connection that does nothing else but say how far it is. Where
the process or its connection ends, so does the lock. Each document is one transaction, which saves may wait for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain

import psycopg

from persistence.closable import Closable, closed
from persistence.errors import BusyError, PersistenceError
from persistence.index.protocol import ReindexingState, ReindexingStatus
from persistence.index.sources import DefinitionState
from persistence.model.addresses import Form
from persistence.postgresql.database import Database, Rows
from persistence.postgresql.editions import SourceOf
from persistence.postgresql.index_rows import IndexRows
from persistence.postgresql.places import FormNumbers, lock_key

Failed = Callable[[Form | None, Exception], None]
"""Called when a job that a search has started has failed."""

_AT_ONCE = 200
_LONGEST_WAIT = 24 * 3600.0
"""Seconds for which a job waits for another one, which comes to an end."""
_LOOK = 0.2
"""Seconds between two looks whether another job has ended, and between two reports."""
_LONGEST_END = 10.0
"""Seconds for which ``close`` waits for the documents that are just being read."""
_MOST_AT_ONCE = 2
"""Calls in a process that run or wait: each keeps a thread, of which there are few."""
_RETRY_AFTER = 30

_OUTDATED = """
SELECT number FROM partition JOIN edition USING (form, version)
WHERE form = %s AND partition.round < edition.round AND state <> %s
AND EXISTS (SELECT FROM partition_total WHERE partition = number)
"""
_DOCUMENTS = """
SELECT document, modified, seq FROM document WHERE partition = %s AND (modified, seq) > (%s, %s)
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

_TAKE = "SELECT pg_try_advisory_lock(%s)"
_GIVE = "SELECT pg_advisory_unlock(%s)"
_REPORT = """
INSERT INTO reindexing (current, total) VALUES (%(current)s, %(total)s)
ON CONFLICT (is_only) DO UPDATE SET current = excluded.current, total = excluded.total
"""
_STATUS = """
SELECT current, total FROM reindexing WHERE EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) = %s
)
"""


class RereadDocuments:
    """Reads documents of forms again, each in a transaction of its own. Methods raise domain errors."""

    def __init__(self, database: Database, numbers: FormNumbers, rows: IndexRows, source_of: SourceOf) -> None:
        self._database = database
        self._numbers = numbers
        self._rows = rows
        self._source_of = source_of

    def outdated(self, form: Form) -> Iterator[str]:
        """Read the documents again that were read by an older edition; yield each."""
        number = self._numbers.require(form)
        while partitions := self._partitions(number):
            before = self._count(partitions)
            for partition in partitions:
                for document in self._in(partition):
                    self._reread(form, document)
                    yield document
                with self._database.reading("counting documents") as connection:
                    connection.execute(_COMPACT, (partition,))
            if before == 0 or self._count(partitions) >= before:  # others change them meanwhile
                return

    def count_outdated(self, form: Form) -> int:
        """Return how many documents were read by an older edition."""
        return self._count(self._partitions(self._numbers.require(form)))

    def everything(self, form: Form, version: int | None) -> Iterator[str]:
        """Write all rows of a form anew, or those of one version; yield each document that was looked at."""
        number, source = self._numbers.require(form), self._source_of(form)
        for each in source.versions() if version is None else (version,):
            with self._database.transaction("indexing", form):
                self._rows.published(form, each)
        with self._database.reading("looking for strays of", form) as connection:
            strays = [document for (document,) in connection.execute(_STRAY, (number,)).fetchall()]
        for document in chain((name.document for name in source.documents()), strays):
            if version is None or source.version(document) == version:
                self._reread(form, document, is_rewritten=True)
            yield document
        recount(self._database, form, number)

    def count(self, form: Form) -> int:
        """Return how many documents of a form there are, as far as the index knows."""
        with self._database.reading("counting the documents of", form) as connection:
            row = connection.execute(_TOTAL_OF_FORM, (self._numbers.require(form),)).fetchone()
        return int(row[0]) if row is not None else 0

    def _reread(self, form: Form, document: str, *, is_rewritten: bool = False) -> None:
        unsynced = "SET LOCAL synchronous_commit = off"  # what a crash takes is outdated again
        with self._database.transaction("indexing", form, first=unsynced) as connection:
            connection.pipeline_until_commit()
            self._rows.changed(form, document, is_rewritten=is_rewritten)

    def _partitions(self, number: int) -> list[int]:
        with self._database.reading("looking for outdated documents") as connection:
            found = connection.execute(_OUTDATED, (number, DefinitionState.DELETED.name)).fetchall()
        return [partition for (partition,) in found]

    def _count(self, partitions: Sequence[int]) -> int:
        with self._database.reading("counting documents") as connection:
            row = connection.execute(_TOTAL, (list(partitions),)).fetchone()
        return int(row[0]) if row is not None else 0

    def _in(self, partition: int) -> Iterator[str]:
        last: tuple[str, int] = ("", 0)
        while True:
            with self._database.reading("listing documents") as connection:
                found = connection.execute(_DOCUMENTS, (partition, *last, _AT_ONCE)).fetchall()
            for document, *last_found in found:
                yield document
                last = (last_found[0], last_found[1])
            if len(found) < _AT_ONCE:
                return


def recount(database: Database, form: Form, number: int) -> None:
    """Correct the totals of a form with a number. Raises domain errors."""
    with database.transaction("counting the documents of", form) as connection:
        connection.execute(_RECOUNT, (number,))


class IndexJobs(Closable):
    """The jobs of this process, one at a time in the database. It owns the threads of those that searches start."""

    def __init__(self, database: Database, reread: RereadDocuments, failed: Failed) -> None:
        self._database = database
        self._reread = reread
        self._failed = failed
        self._key = lock_key(database.address.schema, "reindexing")
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
        """Write all rows of forms anew, or those of one version.

        Raises:
            BusyError: so many wait already that others could not be served, or the service ends.
        """
        if not self._turns.acquire(blocking=False):
            raise BusyError("indexes are being made anew, and others wait for their turn already", _RETRY_AFTER)
        forms = tuple(forms)
        try:
            total = sum(map(self._reread.count, forms))
            self._work(total, chain.from_iterable(self._reread.everything(form, version) for form in forms))
        finally:
            self._turns.release()

    def status(self) -> ReindexingStatus:
        """Return the progress of the job, whichever node does it."""
        with self._database.reading("looking how far the index is") as connection:
            row = connection.execute(_STATUS, (self._key,)).fetchone()
        return ReindexingStatus() if row is None else ReindexingStatus(ReindexingState.INDEXING, *row)

    def _bring_up_to_date(self, form: Form) -> None:
        try:
            self._work(self._reread.count_outdated(form), self._reread.outdated(form))
        except PersistenceError as error:
            if not self._is_closing.is_set():
                self._failed(form, error)

    def _work(self, total: int, documents: Iterator[str]) -> None:
        """Go through documents when it is this process's turn, and say how far it is."""
        with self._turn(total) as connection:
            said = time.monotonic()
            for current, _ in enumerate(documents, 1):
                if self._is_closing.is_set():
                    raise closed("the index")
                if time.monotonic() > said + _LOOK:
                    said = time.monotonic()
                    connection.execute(_REPORT, {"current": min(current, total), "total": total})

    @contextmanager
    def _turn(self, total: int) -> Iterator[Rows]:
        """Hold the lock for a block.

        Raises:
            BusyError: the service ends, or others hold it for very long.
        """
        ends = time.monotonic() + _LONGEST_WAIT
        with self._database.apart("reading documents again") as connection:
            while connection.execute(_TAKE, (self._key,)).fetchone() != (True,):
                if time.monotonic() > ends:
                    raise BusyError("another index is being made", _RETRY_AFTER)
                if self._is_closing.wait(_LOOK):
                    raise closed("the index")
            try:
                connection.execute(_REPORT, {"current": 0, "total": total})
                yield connection
            finally:
                with suppress(psycopg.Error):  # a connection that has ended has no lock
                    connection.execute(_GIVE, (self._key,))
