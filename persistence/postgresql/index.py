"""The search index of a database, written in the transactions of the saves.

So a search has to look only for definitions that index other controls than those by which documents were read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from psycopg import errors as codes

from persistence.closable import Closable
from persistence.definitions.catalog import Definition
from persistence.errors import BadRequestError, BusyError
from persistence.index.protocol import Budget, ReindexingStatus
from persistence.index.queries import searched_owners
from persistence.index.sources import DefinitionState
from persistence.limits import READ_AT_ONCE, SEARCH_WAITS, SEARCH_WAITS_PER_DOCUMENT
from persistence.model.addresses import Form
from persistence.model.search import Field, Hits, Query, Scope
from persistence.model.users import OwnerSets
from persistence.postgresql.conditions import SearchedPartition
from persistence.postgresql.database import Database
from persistence.postgresql.index_rows import IndexRows
from persistence.postgresql.indexed_versions import SourceOf, VersionState
from persistence.postgresql.places import FormNumbers
from persistence.postgresql.reindexing import Failed, IndexJobs, RereadDocuments
from persistence.postgresql.searches import DatabaseSearch
from persistence.postgresql.selections import BoundSql, joined
from persistence.postgresql.session import Session
from persistence.postgresql.texts import known, select_texts
from persistence.storage.storage import Readable
from persistence.xml.streaming import Streaming

_ATTEMPTS = 5
_READING = 3.0
"""Seconds for which a search reads documents again before it says that it takes longer."""
_RETRY_AFTER = 2

_PARTITIONS = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT number, version, draft, partition.round,
    (SELECT coalesce(sum(documents), 0)::bigint FROM partition_total WHERE partition = number),
    indexed_version.round, state, data_format, fingerprint, keys
FROM partition JOIN indexed_version USING (form, version) WHERE form = %s ORDER BY number
"""
_DEADLINE = "SELECT set_config('statement_timeout', %s, true)"

T = TypeVar("T")


class DatabaseIndex(Closable):
    """The index of the forms in a database. Raises ``BusyError`` while many documents are read again."""

    def __init__(
        self, database: Database, numbers: FormNumbers, rows: IndexRows, source_of: SourceOf, failed: Failed
    ) -> None:
        self._database = database
        self._numbers = numbers
        self._rows = rows
        self._source_of = source_of
        self._reread = RereadDocuments(database, numbers, rows, source_of)
        self.jobs = IndexJobs(database, self._reread, failed)

    def close(self) -> None:
        """End the jobs of this process."""
        self.jobs.close()

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        found = self._ask(form, scope, query, budget, lambda search: search.find(query))
        return Hits() if found is None else found

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        yield from self._ask(form, scope, Query(), budget, lambda search: list(search.distinct(by))) or ()

    def checking(self, definition: Definition) -> Streaming:
        return self._source_of(definition.form).checking(definition)

    def _ask(
        self, form: Form, scope: Scope, query: Query, budget: Budget | None, work: Callable[[DatabaseSearch], T]
    ) -> T | None:
        number = self._numbers.find(form)
        if number is None:
            return None
        is_current = self._rows.versions.is_current
        for _ in range(_ATTEMPTS):
            if budget is not None:
                budget.restart()
            with self._searching(form, number, query, budget) as (connection, allow):
                results = []
                while connection.first.nextset():
                    if connection.first.description is not None:
                        results.append(connection.first.fetchall())
                every = [_Partition.of(row) for row in results[0]]
                found = [each for each in every if each.owners(scope) is not None]
                texts = results[1] if len(results) > 1 else []
                indexed = {each.version: each.indexed for each in found}
                versions = [number for number in sorted(indexed) if not is_current(form, number, indexed[number])]
                outdated = sum(each.documents for each in found if each.is_outdated)
                if not versions and not outdated:
                    searched = [each.searched(scope) for each in found if each.documents and each.is_seen]
                    allow(sum(each.documents for each in searched))
                    return work(DatabaseSearch(connection, scope, searched, budget, known(query, texts)))
            self._bring_up_to_date(form, versions, outdated)
        raise _being_read(form)

    def _bring_up_to_date(self, form: Form, versions: Iterable[int], documents: int) -> None:
        for version in versions:
            with self._database.transaction("indexing", form) as connection:
                self._rows.versions.renew(connection, form, version)
        if documents > READ_AT_ONCE:
            self.jobs.begin(form)
            raise _being_read(form)
        ends = time.monotonic() + _READING
        for _ in self._reread.outdated(form) if documents else ():
            if time.monotonic() > ends:
                self.jobs.begin(form)
                raise _being_read(form)

    @contextmanager
    def _searching(
        self, form: Form, number: int, query: Query, budget: Budget | None
    ) -> Iterator[tuple[Session, Callable[[int], None]]]:
        """Search in one transaction, which sees one state; yield it with a function that allows time for documents."""
        allowed = SEARCH_WAITS

        def allow(documents: int) -> None:
            nonlocal allowed
            allowed += documents * SEARCH_WAITS_PER_DOCUMENT
            left = 0 if budget is None else max(1, round(1000 * (allowed - time.monotonic() + budget.began)))
            connection.execute(_DEADLINE, (str(left),))
            if budget is not None:
                budget.allow_for(documents)

        texts = select_texts(number, query)
        first = BoundSql(_PARTITIONS, (number,))
        first = first if texts is None else joined(";", (first, texts))
        with self._database.transaction("searching", form, first=first.text, values=first.parameters) as connection:
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


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition with its version as it is indexed, and how many documents it has."""

    number: int
    version: int
    is_draft: bool
    round: int
    documents: int
    indexed: VersionState

    @classmethod
    def of(cls, row: tuple[int, int, bool, int, int, int, str, str, str, str]) -> _Partition:
        return cls(*row[:5], VersionState.of_row(row[5:]))

    @property
    def is_seen(self) -> bool:
        """True if its documents were read by the definition as it is: others are hidden (spec search 2.5)."""
        return self.round == self.indexed.round

    @property
    def is_outdated(self) -> bool:
        return not self.is_seen and self.indexed.state is not DefinitionState.DELETED

    def owners(self, scope: Scope) -> OwnerSets | None:
        return searched_owners(scope, self.version, is_draft=self.is_draft)

    def searched(self, scope: Scope) -> SearchedPartition:
        owner_sets = self.owners(scope) or frozenset()
        return SearchedPartition(self.number, self.documents, self.indexed.numbers, self.is_draft, owner_sets)


class DatabaseReindexer:
    """Writes the rows of an index again on request. A ``Reindexer``; each call ends when that is done."""

    def __init__(self, view: Readable, jobs: IndexJobs) -> None:
        self._view = view
        self._jobs = jobs

    def all(self) -> None:
        self._jobs.run(self._view.forms())

    def version(self, form: Form, number: int | None) -> None:
        if form in set(self._view.forms(form.app)):
            self._jobs.run((form,), number)

    def status(self) -> ReindexingStatus:
        return self._jobs.status()


def _being_read(form: Form) -> BusyError:
    return BusyError(f"documents of {form} are being read again: its definition changed", _RETRY_AFTER)
