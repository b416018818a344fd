"""The order in which documents come, and the page of them that a query asks for."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from persistence.index.cards import FACTS, NOTHING, Edge, Fold, Value, decode, key_of, order_of
from persistence.index.protocol import Budget
from persistence.index.sqlite.partitions import Arms, NumberedControls, Partition, Sql, parameters_of
from persistence.model.search import Field, Query

NEAR = 1_000
"""Up to which place of the list documents are kept while many are counted."""

_MOST_ARMS = 400
"""Queries in one statement; SQLite allows 500."""

_FEW_WALKS = 2
"""Partitions of which the first documents are put in one order before they are looked at: a version and its drafts."""

_WALKING, _SORTING = 1, 10
"""The costs of a document that is passed by on a walk, and of one that is sorted; only their ratio matters."""

_Row = tuple[Any, ...]
"""A row and its partition, and where documents are sorted by a control or fact, the fold and value they have of it."""


class Paging:
    """The order that a query asks for, and the page of it, on some partitions. Methods raise ``sqlite3.Error``."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        query: Query,
        controls: NumberedControls,
        partitions: Sequence[Partition],
        budget: Budget | None = None,
    ) -> None:
        self._connection = connection
        self._budget = budget
        self._begin, self._end = query.offset, query.offset + query.size
        self._is_descending = query.sort.is_descending
        self._partitions = partitions
        by = query.sort.by
        # A control that no document has a value of leaves the second order: the last save comes first.
        self._newest_first = query.sort.is_descending or by is not Field.LAST_MODIFIED
        self._number: int | None = FACTS.get(by) if isinstance(by, Field) else controls.numbers.get(by)

    @property
    def is_by_save(self) -> bool:
        """Return whether the order is by last save, as the order of the rows is."""
        return self._number is None

    @property
    def is_near(self) -> bool:
        return self._end <= NEAR

    @property
    def end(self) -> int:
        """Return the number of documents up to the end of the page."""
        return self._end

    def of(self, found: Sequence[int]) -> list[int]:
        """Return the page of documents that are in their order."""
        return list(found[self._begin : self._end])

    def gathered(self, rows: list[int]) -> list[int]:
        """Return the page of documents that are all at hand."""
        if self._begin >= len(rows):
            return []
        if self._number is None:
            return sorted(rows, reverse=self._newest_first)[self._begin : self._end]
        passed = self._end / len(rows) * sum(partition.documents for partition in self._partitions)
        if passed * _WALKING < len(rows) * _SORTING:
            among = Sql("c.row IN (SELECT value FROM json_each(?))", (json.dumps(rows),))
            return self.walked(len(rows), among)
        rows.sort(reverse=True)
        rows.sort(key=partial(self._key, self._number), reverse=self._is_descending)
        return rows[self._begin : self._end]

    def foremost(self, found: list[int], more: Callable[[], list[int]]) -> tuple[int, list[int]]:
        """Return the number of documents in the order of rows, and a near page: later rows need not be kept."""
        foremost = heapq.nlargest if self._newest_first else heapq.nsmallest
        total, kept = 0, list[int]()
        while found:
            total += len(found)
            kept = foremost(self._end, kept + found)
            found = more()
        return total, kept[self._begin :]

    def walked(self, total: int, where: Sql, selects: Sql | Arms | None = None) -> list[int]:
        """Return the page of ``total`` documents, found by a walk along all documents in their order.

        The walk passes by those for which ``where`` is false; with ``selects``, it goes along these documents only.
        """
        if self._begin >= total:
            return []
        walks = [
            Sql(f"SELECT c.* FROM ({source.text}) c WHERE {where.text} ORDER BY {self._order}", source.parameters)
            for source in (
                self._along(partition) if selects is None else selects.on([partition.number])
                for partition in self._partitions
            )
        ]
        walks = [Sql(walk.text, walk.parameters + where.parameters) for walk in walks]
        if len(walks) > 1 and self.is_near:
            return self._merged(walks)
        walk = walks[0] if len(walks) == 1 else self._united(walks)
        return self._rows(f"{walk.text} LIMIT {self._end - self._begin} OFFSET {self._begin}", walk)

    def first(self, most: int) -> list[int]:
        """Return up to so many documents in their order, whatever they meet; none of many partitions."""
        if len(self._partitions) > _FEW_WALKS:
            return []
        found: list[_Row] = []
        for along in map(self._along, self._partitions):
            walk = f"SELECT * FROM ({along.text}) ORDER BY {self._order} LIMIT {most}"
            found += self._connection.execute(walk, along.parameters)
        return [row[0] for row in (found if len(self._partitions) == 1 else self._sorted(found)[:most])]

    @property
    def _order(self) -> str:
        if self._number is None:
            return f"row {'DESC' if self._newest_first else 'ASC'}"
        direction = "DESC" if self._is_descending else "ASC"
        return f"fold {direction}, value {direction}, row DESC"

    def _along(self, partition: Partition) -> Sql:
        if self._number is None:
            return Sql("SELECT row, partition FROM documents WHERE partition = ?", (partition.number,))
        if self._number > 0 and self._number not in partition.controls:
            return Sql(
                f"SELECT row, partition, {NOTHING} AS fold, {NOTHING} AS value FROM documents WHERE partition = ?",
                (partition.number,),
            )
        edge = Edge.HIGHEST if self._is_descending else Edge.LOWEST
        return Sql(
            "SELECT row, partition, fold, value FROM entries WHERE number = ? AND partition = ? AND edge & ?",
            (self._number, partition.number, int(edge)),
        )

    def _merged(self, walks: Iterable[Sql]) -> list[int]:
        """Return a near page of several walks: one statement for all would hold a sorter for each."""
        found: list[_Row] = []
        for walk in walks:
            found += self._connection.execute(f"{walk.text} LIMIT {self._end}", walk.parameters)
            if len(found) > NEAR:
                found = self._sorted(found)[: self._end]
        return [row[0] for row in self._sorted(found)[self._begin : self._end]]

    def _sorted(self, found: list[_Row]) -> list[_Row]:
        if self._number is None:
            return sorted(found, reverse=self._newest_first)
        newest = sorted(found, key=itemgetter(0), reverse=True)
        return sorted(newest, key=lambda row: order_of((row[2], row[3])), reverse=self._is_descending)

    def _united(self, walks: Sequence[Sql]) -> Sql:
        arms = [f"SELECT * FROM ({walk.text} LIMIT {self._end})" for walk in walks]
        while len(arms) > _MOST_ARMS:
            parts = [arms[at : at + _MOST_ARMS] for at in range(0, len(arms), _MOST_ARMS)]
            arms = [f"SELECT * FROM ({' UNION ALL '.join(part)})" for part in parts]
        return Sql(f"SELECT * FROM ({' UNION ALL '.join(arms)}) ORDER BY {self._order}", parameters_of(walks))

    def _rows(self, statement: str, walk: Sql) -> list[int]:
        return [row[0] for row in self._connection.execute(statement, walk.parameters)]

    def _key(self, number: int, row: int) -> tuple[bool, Fold, Value]:
        if self._budget is not None:
            self._budget.check()
        card = decode(self._connection.execute("SELECT card FROM documents WHERE row = ?", (row,)).fetchone()[0])
        keys = [order_of(key_of(value)) for value in card.of(number)] or [order_of((NOTHING, NOTHING))]
        return max(keys) if self._is_descending else min(keys)
