"""Searches and distinct values of an index: the planner chooses the condition that selects the fewest documents."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from persistence.index.cards import (
    AS_FOLDED,
    FACTS,
    NOTHING,
    Edge,
    Fold,
    Value,
    decode,
    hit_of,
    is_cut,
    key_of,
    order_of,
)
from persistence.index.protocol import Budget
from persistence.index.sources import IndexedDocument, IndexedPage
from persistence.index.sqlite.conditions import (
    Narrowing,
    NumberedControls,
    Partition,
    Rarity,
    Sql,
    SqlCondition,
    UnionOfPartitions,
    among,
    card_passing,
    conditions,
    parameters_of,
    partitions_of,
    tested,
)
from persistence.model.queries import Field, Query, Scope

NEAR = 1_000  # Up to which place of the list documents are kept while many are counted

_MOST_UNITED = 400  # Queries in one statement; SQLite allows 500

_FEW_SCANS = 2
"""Partitions of which the first documents are put in one order before they are looked at: a version and its drafts."""

_SCANNING, _SORTING = 1, 10
"""The costs of a document that a scan passes by, and of one that is sorted; only their ratio matters."""

_FEW = 20_000  # Documents that are sorted at once; where more are found, the list is scanned in its order

_Row = tuple[Any, ...]
"""A row and its partition, and where documents are sorted by a control or fact, the fold and value they have of it."""

_WORTH_READING = 4
"""Rows of a condition that are read for each document of another: to look for one takes longer than to read as many."""

_LOOKED_AT, _MOST_LOOKED_AT = 1_000, 5_000
"""Documents that are looked at in their order before anything is counted, where the total is not needed.

Of these the first are looked at, and then others while enough of them meet the conditions to fill the page in time.
"""

_SAMPLES = 2_000, 20_000, 200_000
"""Limits up to which the documents of each condition are counted, until one selects fewer."""

_LEAPS = 2_000  # Distinct values up to which the next one is looked for; beyond, all entries are read

_PAGE = (
    "SELECT d.document, d.draft, d.fingerprint, d.card FROM json_each(?) j CROSS JOIN documents d ON d.row = j.value"
    " ORDER BY j.key"
)
_NEXT = (
    "SELECT fold, value FROM entries WHERE number = ? AND partition = ? AND (fold, value) > (?, ?)"
    " ORDER BY fold, value LIMIT 1"
)
_EVERYTHING = tested(())

_Key = tuple[Fold, Value]


class TreeSearch:
    """One search of an index, in the order of its query. Methods raise ``sqlite3.Error``."""

    def __init__(
        self, connection: sqlite3.Connection, rarity: Rarity, scope: Scope, query: Query, budget: Budget | None
    ) -> None:
        self._connection = connection
        self._query = query
        self._budget = budget
        self._controls = NumberedControls.of(connection)
        self._partitions = partitions_of(connection, scope)
        self._numbers = tuple(partition.number for partition in self._partitions)
        self._documents = sum(partition.documents for partition in self._partitions)
        if budget is not None:
            budget.allow_for(self._documents)
        asked = conditions(scope, query, self._controls, rarity, self._partitions)
        self._finds_nothing = asked is None or not self._partitions
        self._conditions = asked or []
        self._begin, self._end = query.offset, query.offset + query.size
        self._is_descending = query.sort.is_descending
        by = query.sort.by
        # A control that no document has a value of leaves the second order: the last save comes first.
        self._newest_first = query.sort.is_descending or by is not Field.LAST_MODIFIED
        # None is the order of the last save, as the order of the rows is.
        self._sorted_by: int | None = FACTS.get(by) if isinstance(by, Field) else self._controls.numbers.get(by)

    def page(self) -> IndexedPage:
        """Return the number of documents that are found, and those on the page."""
        if self._finds_nothing:
            return IndexedPage()
        head = None if self._query.needs_total else self._from_head_of_list()
        total, rows = head or self._found_by_plan()
        wanted = None if self._query.paths is None else frozenset(self._query.paths)
        paths = {number: path for path, number in self._controls.numbers.items() if wanted is None or path in wanted}
        page = []
        for document, draft, fingerprint, card in self._connection.execute(_PAGE, (json.dumps(rows),)):
            hit = hit_of(decode(card), document, paths, is_draft=bool(draft))
            if self._budget is not None:
                self._budget.check()
                self._budget.hold(hit, self._query.paths or ())
            page.append(IndexedDocument(hit, fingerprint))
        return IndexedPage(total, page, has_more=head is not None)

    def _from_head_of_list(self) -> tuple[int, list[int]] | None:
        """Return how many documents are known so far, which are more than up to the page's end, and its rows.

        Return ``None`` where the first documents of the order are not so many, and where all are quickly counted.
        """
        if self._documents <= _LOOKED_AT or all(each.is_quick for each in self._conditions):
            return None
        where, found = tested(self._conditions), list[int]()
        rows = self._first(_MOST_LOOKED_AT)
        for at in range(0, len(rows), _LOOKED_AT):
            found += self._passing(rows[at : at + _LOOKED_AT], where)
            if len(found) > self._end:
                return len(found), found[self._begin : self._end]
            if len(found) * _MOST_LOOKED_AT < (at + _LOOKED_AT) * self._end:
                break
        return None

    def _found_by_plan(self) -> tuple[int, list[int]]:
        if not self._conditions:
            return self._documents, self._scan(self._documents, _EVERYTHING)
        if len(self._conditions) == 1 and self._conditions[0].texts is not None and self._is_all:
            return self._of_texts(self._conditions[0], self._conditions[0].texts)
        selecting, reach = self._selecting()
        tests = [each for each in self._conditions if each is not selecting]
        if selecting.narrowing is not None:
            narrowed = self._narrowed(selecting.narrowing)
            if narrowed is not None:
                return self._found(selecting, narrowed.on(self._numbers), tested(self._conditions))
        elif reach is not None and reach < _FEW:
            return self._met(selecting, tests)
        return self._found(selecting, selecting.selects.on(self._numbers), tested(tests))

    @property
    def _is_all(self) -> bool:
        """Return whether all documents of the index are searched, so that a text is one of a document that counts."""
        row = self._connection.execute("SELECT sum(documents) FROM partitions").fetchone()
        return self._documents == int(row[0])

    def _of_texts(self, condition: SqlCondition, texts: Sql) -> tuple[int, list[int]]:
        """Return the number of documents whose texts meet the only condition, and the page of them.

        Where they are many, the texts are counted without a look at their documents, and the page is found by a scan.
        """
        narrowed = None if condition.narrowing is None else self._narrowed(condition.narrowing)
        if narrowed is not None:
            return self._found(condition, narrowed.on(self._numbers), tested(self._conditions))
        total = int(self._connection.execute(f"SELECT count(*) FROM ({texts.text})", texts.parameters).fetchone()[0])
        if total > _FEW:
            return total, self._scan(total, tested(self._conditions))
        return total, self._sort(self._rows(among(texts).on(self._numbers)))

    def _met(self, selecting: SqlCondition, tests: Iterable[SqlCondition]) -> tuple[int, list[int]]:
        """Return the number of documents that meet all conditions, and the page of them, where few meet the first.

        Of a condition that goes by row, all rows between the first and the last of these are read, if they are not many
        more: that is much quicker than to look for each.
        """
        rows, left = self._rows(selecting.selects.on(self._numbers)), []
        for each in tests:
            between = self._between(each, rows) if each.is_ordered and rows else None
            if between is None:
                left.append(each)
            else:
                rows = [row for row in rows if row in between]
        others = [each for each in left if each.card_test is None]
        if others and rows:
            rows = self._passing(rows, tested(others))
        on_card = [each.card_test for each in left if each.card_test is not None]
        if on_card and rows:
            rows = self._passing(rows, card_passing(on_card, "c.card"))
        return len(rows), self._sort(rows)

    def _passing(self, rows: Sequence[int], where: Sql) -> list[int]:
        selected = f"SELECT c.row FROM json_each(?) j CROSS JOIN documents c ON c.row = j.value WHERE {where.text}"
        return self._rows(Sql(selected, (json.dumps(rows), *where.parameters)))

    def _between(self, condition: SqlCondition, rows: Sequence[int]) -> frozenset[int] | None:
        most = len(rows) * _WORTH_READING
        selects = condition.selects.on(self._numbers)
        text = f"SELECT row FROM ({selects.text}) WHERE row BETWEEN ? AND ? LIMIT {most + 1}"
        found = self._rows(Sql(text, (*selects.parameters, min(rows), max(rows))))
        return frozenset(found) if len(found) <= most else None

    def _rows(self, selecting: Sql) -> list[int]:
        return [row[0] for row in self._connection.execute(selecting.text, selecting.parameters)]

    def _found(self, selecting: SqlCondition, source: Sql, where: Sql) -> tuple[int, list[int]]:
        selected = f"FROM ({source.text}) c WHERE {where.text}"
        parameters = source.parameters + where.parameters
        cursor = self._connection.execute(f"SELECT c.row {selected}", parameters)
        found = [row[0] for row in cursor.fetchmany(_FEW + 1)]
        if len(found) <= _FEW:
            return len(found), self._sort(found)
        is_by_save = self._sorted_by is None
        if selecting.is_ordered and is_by_save:
            total = int(self._connection.execute(f"SELECT count(*) {selected}", parameters).fetchone()[0])
            return total, self._scan(total, where, selecting.selects)
        total = len(found)
        if is_by_save and self._end <= NEAR:
            return self._top(found, cursor)
        while more := len(cursor.fetchmany(_FEW)):
            total += more
        return total, self._scan(total, tested(self._conditions))

    def _selecting(self) -> tuple[SqlCondition, int | None]:
        """Return the condition that selects the fewest documents, as far as that is quickly counted, and how many.

        Return ``None`` for the number where there was nothing to choose between.
        """
        quick = [condition for condition in self._conditions if not condition.is_scan]
        if len(quick) < 2:  # noqa: PLR2004 - nothing to choose between
            return (quick or self._conditions)[0], None
        sources = [each.narrowing.narrows if each.narrowing else each.selects for each in quick]
        for most in _SAMPLES:
            reached = [self._reach(source, most) for source in sources]
            if min(reached) < most:
                break
        return quick[reached.index(min(reached))], min(reached)

    def _narrowed(self, narrowing: Narrowing) -> Sql | None:
        narrows = narrowing.narrows
        found = self._connection.execute(f"{narrows.text} LIMIT {_FEW + 1}", narrows.parameters).fetchall()
        if len(found) <= _FEW:
            narrows = Sql("SELECT value AS text FROM json_each(?)", (json.dumps([text for (text,) in found]),))
        else:
            most = int(self._documents * narrowing.worth)
            if self._reach(narrows, most) >= most:
                return None
        return among(narrows)

    def _reach(self, source: Sql | UnionOfPartitions, most: int) -> int:
        bound = source.on(self._numbers)
        text = f"SELECT count(*) FROM ({bound.text} LIMIT {most})"
        return int(self._connection.execute(text, bound.parameters).fetchone()[0])

    def _sort(self, rows: list[int]) -> list[int]:
        """Return the page of documents that are all at hand."""
        if self._begin >= len(rows):
            return []
        if self._sorted_by is None:
            return sorted(rows, reverse=self._newest_first)[self._begin : self._end]
        if self._end / len(rows) * self._documents * _SCANNING < len(rows) * _SORTING:
            return self._scan(len(rows), Sql("c.row IN (SELECT value FROM json_each(?))", (json.dumps(rows),)))
        rows.sort(reverse=True)
        rows.sort(key=partial(self._key, self._sorted_by), reverse=self._is_descending)
        return rows[self._begin : self._end]

    def _top(self, found: list[int], cursor: sqlite3.Cursor) -> tuple[int, list[int]]:
        """Return the number of documents in the order of rows, and a near page: later rows need not be kept."""
        top = heapq.nlargest if self._newest_first else heapq.nsmallest
        total, kept = 0, list[int]()
        while found:
            total += len(found)
            kept = top(self._end, kept + found)
            found = [row[0] for row in cursor.fetchmany(_FEW)]
        return total, kept[self._begin :]

    def _scan(self, total: int, where: Sql, selects: Sql | UnionOfPartitions | None = None) -> list[int]:
        """Return the page of ``total`` documents, found by a scan of all documents in their order.

        The scan passes by those for which ``where`` is false; with ``selects``, it goes along these documents only.
        """
        if self._begin >= total:
            return []
        scans = []
        for partition in self._partitions:
            source = self._along(partition) if selects is None else selects.on([partition.number])
            text = f"SELECT c.* FROM ({source.text}) c WHERE {where.text} ORDER BY {self._order}"
            scans.append(Sql(text, source.parameters + where.parameters))
        if len(scans) > 1 and self._end <= NEAR:
            return self._merged(scans)
        scan = scans[0] if len(scans) == 1 else self._united(scans)
        return self._rows(Sql(f"{scan.text} LIMIT {self._end - self._begin} OFFSET {self._begin}", scan.parameters))

    def _first(self, most: int) -> list[int]:
        """Return up to so many documents in their order, whichever they are; none of many partitions."""
        if len(self._partitions) > _FEW_SCANS:
            return []
        found: list[_Row] = []
        for along in map(self._along, self._partitions):
            scan = f"SELECT * FROM ({along.text}) ORDER BY {self._order} LIMIT {most}"
            found += self._connection.execute(scan, along.parameters)
        return [row[0] for row in (found if len(self._partitions) == 1 else self._in_order(found)[:most])]

    @property
    def _order(self) -> str:
        if self._sorted_by is None:
            return f"row {'DESC' if self._newest_first else 'ASC'}"
        direction = "DESC" if self._is_descending else "ASC"
        return f"fold {direction}, value {direction}, row DESC"

    def _along(self, partition: Partition) -> Sql:
        if self._sorted_by is None:
            return Sql("SELECT row, partition FROM documents WHERE partition = ?", (partition.number,))
        if self._sorted_by > 0 and self._sorted_by not in partition.controls:
            return Sql(
                f"SELECT row, partition, {NOTHING} AS fold, {NOTHING} AS value FROM documents WHERE partition = ?",
                (partition.number,),
            )
        edge = Edge.HIGHEST if self._is_descending else Edge.LOWEST
        return Sql(
            "SELECT row, partition, fold, value FROM entries WHERE number = ? AND partition = ? AND edge & ?",
            (self._sorted_by, partition.number, int(edge)),
        )

    def _merged(self, scans: Iterable[Sql]) -> list[int]:
        """Return a near page of several scans: one statement for all would hold a sorter for each."""
        found: list[_Row] = []
        for scan in scans:
            found += self._connection.execute(f"{scan.text} LIMIT {self._end}", scan.parameters)
            if len(found) > NEAR:
                found = self._in_order(found)[: self._end]
        return [row[0] for row in self._in_order(found)[self._begin : self._end]]

    def _in_order(self, found: list[_Row]) -> list[_Row]:
        if self._sorted_by is None:
            return sorted(found, reverse=self._newest_first)
        newest = sorted(found, key=itemgetter(0), reverse=True)
        return sorted(newest, key=lambda row: order_of((row[2], row[3])), reverse=self._is_descending)

    def _united(self, scans: Sequence[Sql]) -> Sql:
        parts = [f"SELECT * FROM ({scan.text} LIMIT {self._end})" for scan in scans]
        while len(parts) > _MOST_UNITED:
            groups = [parts[at : at + _MOST_UNITED] for at in range(0, len(parts), _MOST_UNITED)]
            parts = [f"SELECT * FROM ({' UNION ALL '.join(group)})" for group in groups]
        return Sql(f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY {self._order}", parameters_of(scans))

    def _key(self, number: int, row: int) -> tuple[bool, Fold, Value]:
        if self._budget is not None:
            self._budget.check()
        card = decode(self._connection.execute("SELECT card FROM documents WHERE row = ?", (row,)).fetchone()[0])
        keys = [order_of(key_of(value)) for value in card.of(number)] or [order_of((NOTHING, NOTHING))]
        return max(keys) if self._is_descending else min(keys)


def distinct(
    connection: sqlite3.Connection, rarity: Rarity, scope: Scope, by: Field | str, budget: Budget | None
) -> Iterator[str]:
    """Yield the different values of a control or a field, sorted; an empty one for a field that a document lacks."""
    controls = NumberedControls.of(connection)
    number = FACTS[by] if isinstance(by, Field) else controls.numbers.get(by)
    searched = partitions_of(connection, scope)
    asked = conditions(scope, Query(), controls, rarity, searched)
    if number is None or asked is None:
        return
    where = tested(asked)
    if budget is not None:
        budget.allow_for(sum(partition.documents for partition in searched))
    found = (_keys(connection, int(number), partition, where) for partition in searched)
    for key, _ in groupby(heapq.merge(*found, key=order_of)):
        if budget is not None:
            budget.check()
        if key[0] == NOTHING and not isinstance(by, Field):
            continue
        value = "" if key[0] == NOTHING else _value(connection, int(number), key)
        if budget is not None:
            budget.hold_value(value)
        yield value


def _keys(connection: sqlite3.Connection, number: int, partition: Partition, where: Sql) -> Iterator[_Key]:
    last: _Key = (-1, -1)
    for _ in range(_LEAPS if where == _EVERYTHING else 0):
        found = connection.execute(_NEXT, (number, partition.number, *last)).fetchone()
        if found is None:
            return
        last = found
        yield last
    yield from connection.execute(
        "SELECT DISTINCT fold, value FROM entries c WHERE number = ? AND partition = ? AND (fold, value) > (?, ?)"
        f" AND {where.text} ORDER BY fold, value",
        (number, partition.number, *last, *where.parameters),
    )


def _value(connection: sqlite3.Connection, number: int, key: _Key) -> str:
    fold, value = key
    if is_cut(fold):
        row = connection.execute(
            "SELECT d.card FROM entries e JOIN documents d USING (row)"
            " WHERE e.number = ? AND e.fold = ? AND e.value = ?",
            (number, fold, value),
        ).fetchone()
        return next(each for each in decode(row[0]).of(number) if key_of(each) == key)
    return str(fold if value == AS_FOLDED else value)
