"""The search index of a database: its SQL, searches, and reading documents again, one job at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import Any, TypeVar

from psycopg import errors as codes

from persistence import processes
from persistence.catalog import Definition
from persistence.closable import Closable, Jobs, closed
from persistence.errors import BadRequestError
from persistence.index.protocol import (
    READING_SECONDS,
    Budget,
    Fact,
    ReindexingStatus,
    being_read,
    key_of,
    reported,
    status_in,
)
from persistence.index.search_compiler import (
    Condition,
    Key,
    Order,
    Partition,
    Search,
    SearchDialect,
    Sql,
    any_of,
    joined,
    searched_partitions,
)
from persistence.index.sources import DefinitionState
from persistence.limits import (
    MOST_GATHERED,
    MOST_READERS,
    READ_AT_ONCE,
    REREAD_AT_ONCE,
    SAMPLED,
    SEARCH_WAITS,
    SEARCH_WAITS_PER_DOCUMENT,
)
from persistence.model.addresses import Form
from persistence.model.queries import ControlFilter, Field, Hits, Query, Scope, TextMatch
from persistence.model.texts import Instant
from persistence.postgresql.connections import Session
from persistence.postgresql.database import Database, DatabaseJob, FormNumbers, Rows
from persistence.postgresql.index_rows import IndexRows, SourceOf, plain
from persistence.xml import Streaming

Failed = Callable[[Form | None, Exception], None]  # Called when a job that a search has started has failed

_READERS = min(MOST_READERS, max(2, processes.count()))
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
    with database.transaction("counting the documents of", form) as connection:
        connection.execute(_RECOUNT, (number,))


_ATTEMPTS = 5

_PARTITIONS = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT number, version, draft, partition.round,
    (SELECT coalesce(sum(documents), 0)::bigint FROM partition_total WHERE partition = number),
    indexed_version.round, state, data_format, fingerprint, keys
FROM partition JOIN indexed_version USING (form, version) WHERE form = %s ORDER BY number
"""
_DEADLINE = "SELECT set_config('statement_timeout', %s, true)"

T = TypeVar("T")


# Rows are written in the transactions of the saves. So a search has to look only for definitions that index other
# controls than those by which documents were read.
class DatabaseIndex(Closable):
    """The index of the forms in a database. Raises ``BusyError`` while many documents are read again.

    There is one job at a time in the database that reads documents again; those that searches start have a thread.
    """

    def __init__(
        self, database: Database, numbers: FormNumbers, rows: IndexRows, source_of: SourceOf, failed: Failed
    ) -> None:
        self._database = database
        self._numbers = numbers
        self._rows = rows
        self._source_of = source_of
        self._record = DatabaseJob(database, "reading of documents")
        self._jobs = Jobs[Form]("reindexing", failed)

    def close(self) -> None:
        """End all jobs after the documents that are just being read; what is left, the next search goes on with."""
        self._jobs.close()

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        found = self._ask(form, scope, budget, lambda search: search.find(query))
        return Hits() if found is None else found.hits

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        yield from self._ask(form, scope, budget, lambda search: list(search.distinct(by))) or ()

    def checking(self, definition: Definition) -> Streaming:
        return self._source_of(definition.form).checking(definition)

    def _ask(self, form: Form, scope: Scope, budget: Budget | None, work: Callable[[Search], T]) -> T | None:
        number = self._numbers.find(form)
        if number is None:
            return None
        is_current = self._rows.versions.is_current
        for _ in range(_ATTEMPTS):
            if budget is not None:
                budget.restart()
            with self._searching(form, number, budget) as (connection, allow):
                while connection.first.nextset() and connection.first.description is None:
                    pass
                searched, indexed, outdated = searched_partitions(connection.first.fetchall(), scope)
                versions = [each for each in sorted(indexed) if not is_current(form, each, indexed[each])]
                if not versions and not outdated:
                    dialect = PostgresDialect(connection, searched)
                    allow(dialect.documents)
                    return work(Search(dialect, scope, budget))
            self._bring_up_to_date(form, versions, outdated)
        raise being_read(form)

    def _bring_up_to_date(self, form: Form, versions: Iterable[int], documents: int) -> None:
        for version in versions:
            with self._database.transaction("indexing", form):
                self._rows.versions.renew(form, version)
        if documents > READ_AT_ONCE:
            self._begin(form)
            raise being_read(form)
        ends = time.monotonic() + READING_SECONDS
        for _ in self._outdated(form) if documents else ():
            if time.monotonic() > ends:
                self._begin(form)
                raise being_read(form)

    @contextmanager
    def _searching(
        self, form: Form, number: int, budget: Budget | None
    ) -> Iterator[tuple[Session, Callable[[int], None]]]:
        """Search in one transaction, which sees one state; yield it with a function that allows time for documents."""
        allowed = SEARCH_WAITS

        def allow(documents: int) -> None:
            nonlocal allowed
            allowed += documents * SEARCH_WAITS_PER_DOCUMENT
            ends = 0.0 if budget is None else min(budget.began + allowed, budget.until)
            left = 0 if budget is None else max(1, round(1000 * (ends - time.monotonic())))
            connection.execute(_DEADLINE, (str(left),))
            if budget is not None:
                budget.allow_for(documents)

        with self._database.transaction("searching", form, first=_PARTITIONS, values=(number,)) as connection:
            connection.pipeline_until_commit()
            if budget is not None:
                budget.start()
            try:
                yield connection, allow
            except codes.QueryCanceled as error:
                raise BadRequestError(
                    f"the search takes more than {allowed:.2f} s in the database: ask for less, or more narrowly"
                ) from error
            finally:
                if budget is not None:
                    budget.stop()

    def rebuild(self, forms: Sequence[Form], version: int | None = None) -> None:
        everything = (self._everything(form, version, _READERS) for form in forms)
        self._work(lambda: sum(map(self._total, forms)), chain.from_iterable(everything))

    def status(self) -> ReindexingStatus:
        return status_in(self._record)

    def _begin(self, form: Form) -> None:
        """Read the outdated documents of a form again in a thread, unless that is to be done already."""

        def work() -> None:
            number = self._numbers.require(form)
            self._work(lambda: self._count(self._partitions(number)), self._outdated(form, _READERS))

        if not (self._jobs.is_ending() or self._jobs.has(form)):
            self._jobs.begin(form, work)

    def _work(self, count: Callable[[], int], looked_at: Iterator[int]) -> None:
        with reported(self._record, count, is_ending=self._jobs.is_ending) as report:
            for documents in looked_at:
                report(documents)
                if self._jobs.is_ending():
                    raise closed("the index")

    def _outdated(self, form: Form, at_once: int = 1) -> Iterator[int]:
        """Read outdated documents again, ``at_once`` batches at a time; yield how many after each batch."""
        number = self._numbers.require(form)
        while partitions := self._partitions(number):
            before = self._count(partitions)
            for partition in partitions:
                rows = self._database.listed("listing documents", "", _DOCUMENTS, (partition,), ("", 0))
                documents = (document for *_, document in rows)
                yield from _together(documents, lambda some: self._rows.reread(form, some), at_once)
                with self._database.reading("counting documents") as connection:
                    connection.execute(_COMPACT, (partition,))
            if before == 0 or self._count(partitions) >= before:  # others change them meanwhile
                return

    def _everything(self, form: Form, version: int | None, at_once: int) -> Iterator[int]:
        number, source = self._numbers.require(form), self._source_of(form)
        for each in source.versions() if version is None else (version,):
            with self._database.transaction("indexing", form):
                self._rows.versions.renew(form, each)
        strays = [document for (document,) in self._database.rows("looking for strays of", form, _STRAY, (number,))]

        def rewrite(documents: Sequence[str]) -> None:
            self._rows.reread(form, documents, is_rewritten=True, version=version)

        yield from _together(chain((name.document for name in source.documents()), strays), rewrite, at_once)
        recount(self._database, form, number)

    def _total(self, form: Form) -> int:
        number = self._numbers.require(form)
        ((total,),) = self._database.rows("counting the documents of", form, _TOTAL_OF_FORM, (number,))
        return int(total)

    def _partitions(self, number: int) -> list[int]:
        asked = number, DefinitionState.DELETED.name
        found = self._database.rows("looking for outdated documents", "", _OUTDATED, asked)
        return [partition for (partition,) in found]

    def _count(self, partitions: Sequence[int]) -> int:
        ((total,),) = self._database.rows("counting documents", "", _TOTAL, (list(partitions),))
        return int(total)


# The SQL of searches in PostgreSQL: the tables of a schema, and indexes of trigrams (pg_trgm) of its texts.

TRIGRAM = 3  # Characters of the shortest text that an index of texts helps to find

_RARE = 0.02  # The share of the newest documents up to which a text is a rare one

_LEAPS = """
WITH RECURSIVE leaps AS (
    SELECT number, '' COLLATE "C" AS fold, '' COLLATE "C" AS value FROM unnest(?::int[]) AS number
    UNION ALL
    SELECT number, next.fold, next.value FROM leaps, LATERAL (
        SELECT fold, value FROM entry
        WHERE control = ? AND partition = number AND (fold, value) > (leaps.fold, leaps.value)
        ORDER BY fold, value LIMIT 1
    ) AS next
)
SELECT fold, value FROM leaps WHERE value <> '' OR EXISTS (
    SELECT FROM entry WHERE control = ? AND partition = number AND entry.fold = ANY(ARRAY['']) AND entry.value = ''
) LIMIT ?
"""


class PostgresDialect(SearchDialect):
    """The SQL of a search in a transaction. Methods raise errors of the database."""

    found = "seq"
    listed = "seq, modified"
    entered = "entry d JOIN (SELECT seq, modified FROM document) m USING (seq)"
    same_form = "s.form = x.form AND"
    nothing = "''"
    hit = "document, draft, '', card"

    def __init__(self, connection: Rows, searched: Sequence[Partition]) -> None:
        super().__init__(searched)
        self._connection = connection

    def rows(self, sql: Sql) -> list[tuple[Any, ...]]:
        """Run a statement. It is not prepared: a plan for any values would be slow for most."""
        text = sql.text.replace("?", "%s").encode()
        return self._connection.execute(text, sql.values, prepare=False).fetchall()

    def is_d(self, on: str) -> str:
        return f"{on} AND seq = d.seq"

    def key(self, text: str) -> Key:
        fold, value = key_of(text)
        return plain(str(fold)), plain(str(value))

    def has_fold(self, folds: Sequence[str]) -> Sql:
        # An index of texts would find one fold, too, but all of its documents at once.
        return Sql("fold = ANY(?::text[])", (list(folds),))

    def leaps(self, number: int, most: int) -> list[Key] | None:
        found = self.rows(Sql(_LEAPS, ([each.number for each in self.searched], number, number, most + 1)))
        return [(fold, value) for fold, value in found] if len(found) <= most else None

    def saved(self, low: Instant, high: Instant) -> Condition:
        return self.selected("document", Sql("modified >= ? AND modified < ?", (low, high)), is_distinct=True)

    def lowest_from(self, number: int, low: str) -> Sql:
        lower = "SELECT FROM entry x WHERE x.seq = entry.seq AND x.control = ? AND x.fold >= ? AND x.fold < entry.fold"
        return Sql(f"(NOT EXISTS ({lower}))", (number, low))

    def in_organization(self, fact: Fact, names: Sequence[str], on: str) -> Condition:
        folds, values = zip(*map(self.key, names), strict=True)
        one_of = "(fold, value) IN (SELECT * FROM unnest(?::text[], ?::text[]))"
        return self.entries(fact, Sql(one_of, (list(folds), list(values))), on)

    def containing(self, number: int, asked: ControlFilter, folds: Sequence[str] | None) -> Condition:
        if folds is not None:
            return self.entries(number, self.has_fold(folds))
        folded = asked.text.casefold()
        texts = list(dict.fromkeys(folded.split()))
        # A text in the fold, which is the beginning, is in the value too.
        # Where no value is longer than its fold, there is only this: one list is planned much better than two.
        long = f"SELECT 1 FROM entry WHERE control = ? AND {self.on} AND whole IS NOT NULL LIMIT 1"
        columns = ("fold", "whole") if self.rows(Sql(long, (number,))) else ("fold",)
        either = []
        for column in columns:
            tests = [Sql("control > 0")]
            if asked.match is TextMatch.SUBSTRING:
                tests.append(Sql(f"{column} LIKE ?", (_like(folded),)))
            else:
                tests += [Sql(f"{column} LIKE ?", (_like(text),)) for text in texts if len(text) >= TRIGRAM]
                tests += [Sql(f"strpos(' ' || {column} || ' ', ?) <> 0", (f" {text} ",)) for text in texts]
                tests += [] if texts else [Sql(f"{column} <> ''")]
            either.append(self.entries(number, joined(" AND ", tests)))
        return replace(any_of(either), is_range=False, is_quick=False)

    def anywhere(self, folded: str, controls: Sequence[int]) -> Condition:
        like = (_like(folded),)
        texts = Sql("fold LIKE ?", like), Sql("whole LIKE ?", like)
        if len(folded) >= TRIGRAM:
            values = [self.selected("entry", Sql(f"control > 0 AND {each.text}", like)) for each in texts]
            free_text = Sql("SELECT seq FROM free_text WHERE fold LIKE ?", like)
        else:  # no index of texts helps: others' texts are not read
            of = ", ".join(map(str, controls)) or "0"
            values = [self.selected("entry", Sql(f"control IN ({of}) AND {each.text}", like)) for each in texts]
            free_text = Sql(
                f"SELECT seq FROM document JOIN free_text USING (seq) WHERE {self.on} AND fold LIKE ?", like
            )
        own = Condition(free_text, Sql("(SELECT f.fold LIKE ? FROM free_text f WHERE f.seq = d.seq)", like))
        return replace(any_of([own, *values]), is_range=False, is_quick=False)

    def narrowest(self, conditions: Sequence[Condition]) -> Condition | None:
        """Return the rarest text among the newest documents, if it is rare: the database takes all texts for rare."""
        texts = [each for each in conditions if not each.is_range]
        counts = [Sql(f"count(*) FILTER (WHERE {each.test.text})", each.test.values) for each in texts]
        every = joined(", ", [Sql("count(*)"), *counts])
        newest = f"SELECT seq FROM document WHERE partition = number ORDER BY modified DESC, seq DESC LIMIT {SAMPLED}"
        partitions = [each.number for each in self.searched]
        sample = f"unnest(?::int[]) AS number, LATERAL ({newest}) AS d LIMIT {SAMPLED}"
        ((sampled, *reached),) = self.rows(
            Sql(f"SELECT {every.text} FROM (SELECT d.seq FROM {sample}) d", (*every.values, partitions))
        )
        fewest = min(reached, default=sampled)
        return texts[reached.index(fewest)] if reached and fewest <= sampled * _RARE else None

    def page(self, hits: Sql, order: Order, counted: int) -> tuple[int, list[int]]:
        """Return the number of hits and the page of them; where they are few, the database must not read all others."""
        of = f"SELECT d.seq, d.modified, d.partition FROM document d WHERE {self.on}"
        page, values = "SELECT seq, modified FROM hits", tuple[object, ...]()
        if order.control is not None:
            page = (
                "SELECT h.seq, h.modified, coalesce(e.fold, '') AS fold, coalesce(e.value, '') AS value FROM hits h"
                " LEFT JOIN entry e ON e.seq = h.seq AND control = ? AND e.partition = h.partition AND edge & ? > 0"
            )
            values = order.control, order.edge
        statement = f"""
            WITH found AS {"NOT " if counted else ""}MATERIALIZED ({hits.text}),
            counted AS MATERIALIZED (SELECT count(*) AS n FROM found),
            hits AS MATERIALIZED (
                {of} AND (SELECT n FROM counted) <= {MOST_GATHERED} AND d.seq = ANY(ARRAY(SELECT seq FROM found))
                UNION ALL
                {of} AND (SELECT n FROM counted) > {MOST_GATHERED} AND d.seq IN (SELECT seq FROM found)
            )
            SELECT (SELECT count(*) FROM hits), ARRAY(SELECT seq FROM (
                {page} ORDER BY {self.ordered(order)} LIMIT {order.end - order.offset} OFFSET {order.offset}) p)"""
        ((total, rows),) = self.rows(Sql(statement, (*hits.values, *values)))
        return int(total), list(rows)


def _like(text: str) -> str:
    for special in "\\%_":
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"
