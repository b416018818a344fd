"""Searches and distinct values of one form, by the statements of one transaction that sees one state of everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from persistence.index.cards import AS_FOLDED, FACTS, Edge, decode, hit_of, is_cut, key_of
from persistence.index.protocol import Budget
from persistence.limits.database import FEW_FOUND, LEAPS
from persistence.limits.search import HIT_COSTS, LARGEST_FOUND
from persistence.model.search import Field, Hits, Query, Scope
from persistence.postgresql.conditions import (
    BoundSql,
    EntryKey,
    SearchConditions,
    SearchedPartition,
    conditions,
    joined,
    texts_in,
)
from persistence.postgresql.database import Rows
from persistence.postgresql.index_rows import plain

_MOST_ROWS = LARGEST_FOUND // HIT_COSTS + 1
"""Documents of a page that are looked for: so many are too large an answer already."""

_LAST = 1 << 62
_AT_ONCE = 32
"""Documents of a page that are in memory at once."""

_CARDS = "SELECT seq, document, draft, card FROM document WHERE seq = ANY(%s::bigint[])"
_WITH_CARDS = """
SELECT place, seq, document.document, draft, card
FROM (SELECT seq, row_number() OVER () AS place FROM ({}) walk) page JOIN document USING (seq)
"""
_NEXT = (
    "SELECT fold, value FROM entry WHERE control = %(control)s AND partition = number"
    " AND (fold, value) > ({fold}, {value}) ORDER BY fold, value LIMIT 1"
)
_LEAPING = f"""
WITH RECURSIVE leaps AS (
    SELECT number, first.fold, first.value
    FROM unnest(%(partitions)s::int[]) AS number, LATERAL ({_NEXT.format(fold="''", value="''")}) AS first
    UNION ALL
    SELECT number, next.fold, next.value
    FROM leaps, LATERAL ({_NEXT.format(fold="leaps.fold", value="leaps.value")}) AS next
)
SELECT fold, value FROM leaps LIMIT %(most)s
"""
_NONE = "SELECT FROM entry WHERE control = %s AND partition = ANY(%s::int[]) AND fold = '' AND value = '' LIMIT 1"
_WITH_LONG = """
SELECT number FROM unnest(%s::int[]) AS number
WHERE EXISTS (SELECT FROM entry WHERE control = number AND partition = ANY(%s::int[]) AND whole IS NOT NULL)
"""
_LONG = """
SELECT card FROM document JOIN entry USING (seq)
WHERE control = %s AND entry.partition = ANY(%s::int[]) AND fold = %s AND value = %s LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class DatabaseSearch:
    """A search of some partitions, in the transaction of a connection. Methods raise errors of the database.

    ``cards`` are those of a short page, by document, where they were found with it.
    """

    connection: Rows
    scope: Scope
    searched: Sequence[SearchedPartition]
    budget: Budget | None
    cards: dict[int, tuple[str, bool, str]] = field(default_factory=dict)

    def find(self, query: Query) -> Hits:
        """Return the number of documents that a query finds, and those on the page.

        Raises:
            BadRequestError: it asks for more than the budget.
        """
        asked = conditions(self.scope, query, self.searched, self._long(query))
        if asked is None or not self.searched:
            return Hits()
        order = _Order.of(query, self.searched)
        total, rows = self._rows(asked, order)
        wanted = None if query.paths is None else frozenset(query.paths)
        paths = {
            number: path
            for partition in self.searched
            for path, number in partition.controls.items()
            if wanted is None or path in wanted
        }
        page = []
        for document, is_draft, card in self._cards(rows):
            found = hit_of(decode(card), document, paths, is_draft=is_draft)
            if self.budget is not None:
                self.budget.check()
                self.budget.hold(found, query.paths or ())
            page.append(found)
        return Hits(total, tuple(page))

    def distinct(self, by: Field | str) -> Iterator[str]:
        """Yield the different values of a control or a field, sorted; an empty one for a field that a document lacks.

        Raises:
            BadRequestError: there are more than the budget allows.
        """
        asked = conditions(self.scope, Query(), self.searched)
        number = self._number(by)
        if number is None or asked is None or not self.searched:
            return
        for fold, value in self._keys(number, asked):
            if self.budget is not None:
                self.budget.check()
            if not fold and not value:
                if not isinstance(by, Field):
                    continue
                text = ""
            else:
                text = self._value(number, fold, value)
            if self.budget is not None:
                self.budget.hold_value(text)
            yield text

    @property
    def _partitions(self) -> list[int]:
        return [partition.number for partition in self.searched]

    def _number(self, by: Field | str) -> int | None:
        if isinstance(by, Field):
            return int(FACTS[by])
        return next((found for each in self.searched if (found := each.controls.get(by)) is not None), None)

    # Searches.

    def _long(self, query: Query) -> frozenset[int]:
        """Return the controls that have long values, among those in whose values texts are searched.

        For most there are none, and the database plans one list of entries better than two.
        """
        controls = texts_in(query, self.searched)
        found = self.connection.execute(_WITH_LONG, (controls, self._partitions)).fetchall() if controls else []
        return frozenset(number for (number,) in found)

    def _rows(self, asked: SearchConditions, order: _Order) -> tuple[int, list[int]]:
        """Return the number of documents, and the rows of the page."""
        if asked.is_empty:
            total = sum(partition.documents for partition in self.searched)
            return total, self._walked(order, total)
        if asked.only is not None and order.control is None:
            counted = asked.only.on(self._partitions)
            total = int(self._one(BoundSql(f"SELECT count(*) FROM ({counted.text}) c", counted.parameters))[0])
            if total > FEW_FOUND:
                return total, self._walked(order, total, asked.only)
        columns = "d.seq, d.modified" if order.control is None else "d.seq, d.modified, d.partition"
        hits = asked.of(self._partitions, columns)
        page = order.page_of_hits()
        row = self._one(
            BoundSql(
                f"WITH hits AS MATERIALIZED ({hits.text})"
                f" SELECT (SELECT count(*) FROM hits), ARRAY(SELECT seq FROM ({page.text}) p)",
                hits.parameters + page.parameters,
            )
        )
        return int(row[0]), row[1]

    def _walked(self, order: _Order, total: int, key: EntryKey | None = None) -> list[int]:
        """Return the page of all documents in their order, or of those that have a key."""
        if order.offset >= total:
            return []
        walk = order.page_of_all(self.searched, key)
        if order.size > _AT_ONCE:
            return list(self._one(BoundSql(f"SELECT ARRAY(SELECT seq FROM ({walk.text}) p)", walk.parameters))[0])
        found = self.connection.execute(
            _WITH_CARDS.format(walk.text).encode(), walk.parameters, prepare=False
        ).fetchall()
        self.cards.update((seq, tuple(card)) for _, seq, *card in found)
        return [seq for _, seq, *_ in sorted(found)]

    def _cards(self, rows: Sequence[int]) -> Iterator[tuple[str, bool, str]]:
        for at in range(0, len(rows), _AT_ONCE):
            some = rows[at : at + _AT_ONCE]
            found = self.cards
            if not found:
                found = {row[0]: row[1:] for row in self.connection.execute(_CARDS, (some,)).fetchall()}
            yield from (found[seq] for seq in some)

    def _one(self, sql: BoundSql) -> tuple[Any, ...]:
        """Return the row of a statement. It is not prepared: a plan for any values would be slow for most."""
        row = self.connection.execute(sql.text.encode(), sql.parameters, prepare=False).fetchone()
        if row is None:
            raise LookupError("a statement has no row")
        return row

    # Distinct values.

    def _keys(self, control: int, asked: SearchConditions) -> list[tuple[str, str]]:
        """Return the different folds and values of a control, sorted; empty ones where a document has none."""
        if asked.is_empty:
            values = {"control": control, "partitions": self._partitions, "most": LEAPS + 1}
            found = self.connection.execute(_LEAPING, values, prepare=False).fetchall()
            if len(found) <= LEAPS:
                none = self.connection.execute(_NONE, (control, self._partitions), prepare=False).fetchone()
                return sorted({*found, *([("", "")] if none is not None else ())})
        seen = BoundSql("") if asked.is_empty else asked.of(self._partitions, "d.seq")
        text = "SELECT DISTINCT fold, value FROM entry WHERE control = %s AND partition = ANY(%s::int[])"
        among = f" AND seq IN ({seen.text})" if seen.text else ""
        statement = f"{text}{among} ORDER BY fold, value LIMIT {_MOST_ROWS}"
        parameters = control, self._partitions, *seen.parameters
        return self.connection.execute(statement.encode(), parameters, prepare=False).fetchall()

    def _value(self, control: int, fold: str, value: str) -> str:
        if is_cut(fold):
            row = self._one(BoundSql(_LONG, (control, self._partitions, fold, value)))
            return next(each for each in decode(row[0]).of(control) if tuple(map(plain, _key(each))) == (fold, value))
        return fold if value == AS_FOLDED else value


def _key(value: str) -> tuple[str, str]:
    fold, key = key_of(value)
    return str(fold), str(key)


@dataclass(frozen=True, slots=True)
class _Order:
    """The order that a query asks for, and the page of it. ``control`` is ``None`` where it is by last save."""

    control: int | None
    is_descending: bool
    offset: int
    size: int

    @classmethod
    def of(cls, query: Query, searched: Sequence[SearchedPartition]) -> _Order:
        by = query.sort.by
        if isinstance(by, Field):
            control: int | None = FACTS.get(by)
        else:
            control = next((each.controls[by] for each in searched if by in each.controls), None)
        # A control that no document has a value of leaves the second order: the last save comes first.
        is_descending = query.sort.is_descending or (control is None and by is not Field.LAST_MODIFIED)
        number = None if control is None else int(control)
        return cls(number, is_descending, min(query.offset, _LAST), min(query.size, _MOST_ROWS))

    def page_of_hits(self) -> BoundSql:
        """Return the query for the page of the documents in ``hits``."""
        if self.control is None:
            return BoundSql(f"SELECT seq FROM hits ORDER BY {self._by_save} {self._page}")
        edge = "e.seq = h.seq AND e.control = %s AND e.partition = h.partition AND e.edge & %s > 0"
        return BoundSql(
            "SELECT h.seq, coalesce(e.fold, '') AS fold, coalesce(e.value, '') AS value, h.modified"
            f" FROM hits h LEFT JOIN entry e ON {edge} ORDER BY {self._by_value} {self._page}",
            (self.control, self._edge),
        )

    def page_of_all(self, searched: Sequence[SearchedPartition], key: EntryKey | None) -> BoundSql:
        """Return the query for the page of all documents on some partitions; of those with a key, if there is one."""
        if self.control is not None:
            arms = joined(" UNION ALL ", [self._sorted_arm(partition) for partition in searched])
            return BoundSql(
                f"SELECT d.seq, e.fold, e.value, d.modified FROM ({arms.text}) e JOIN document d USING (seq)"
                f" ORDER BY {self._by_value} {self._page}",
                arms.parameters,
            )
        arms = joined(" UNION ALL ", [self._saved_arm(partition, key) for partition in searched])
        return BoundSql(f"SELECT seq FROM ({arms.text}) d ORDER BY {self._by_save} {self._page}", arms.parameters)

    @staticmethod
    def _saved_arm(partition: SearchedPartition, key: EntryKey | None) -> BoundSql:
        text = "SELECT seq, modified FROM document d WHERE partition = %s"
        if key is None:
            return BoundSql(text, (partition.number,))
        with_key = key.on((partition.number,))
        # As a value, not as a join: the documents are looked at in their order, until the page is full.
        return BoundSql(
            f"{text} AND (SELECT true FROM ({with_key.text} AND seq = d.seq) one)",
            (partition.number, *with_key.parameters),
        )

    def _sorted_arm(self, partition: SearchedPartition) -> BoundSql:
        if self.control is None or (self.control > 0 and self.control not in partition.controls.values()):
            return BoundSql(
                "SELECT seq, '' AS fold, '' AS value FROM document WHERE partition = %s", (partition.number,)
            )
        return BoundSql(
            "SELECT seq, fold, value FROM entry WHERE control = %s AND partition = %s AND edge & %s > 0",
            (self.control, partition.number, self._edge),
        )

    @property
    def _edge(self) -> int:
        return int(Edge.HIGHEST if self.is_descending else Edge.LOWEST)

    @property
    def _by_save(self) -> str:
        direction = "DESC" if self.is_descending else "ASC"
        return f"modified {direction}, seq {direction}"

    @property
    def _by_value(self) -> str:
        direction = "DESC" if self.is_descending else "ASC"
        return f"fold {direction}, value {direction}, modified DESC, seq DESC"

    @property
    def _page(self) -> str:
        return f"LIMIT {self.size} OFFSET {self.offset}"
