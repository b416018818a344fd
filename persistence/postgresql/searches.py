"""Searches and distinct values of one form, by the statements of one transaction that sees one state of everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from persistence.index.cards import AS_FOLDED, FACTS, decode, hit_of, is_cut, key_of
from persistence.index.protocol import Budget
from persistence.limits import FIRST_TRIED, LEAPS, NEWEST_TRIED
from persistence.model.search import Field, Hits, Query, Scope
from persistence.postgresql.conditions import SearchConditions, SearchedPartition, conditions
from persistence.postgresql.database import Rows
from persistence.postgresql.index_rows import plain
from persistence.postgresql.pages import MOST_ROWS, PageOrder
from persistence.postgresql.planner import SearchPlan, SearchPlanner
from persistence.postgresql.selections import BoundSql, joined
from persistence.postgresql.texts import KnownTexts

_AT_ONCE = 32
"""Documents of a page that are in memory at once."""

_CARDS = "SELECT seq, document, draft, card FROM document WHERE seq = ANY(%s::bigint[])"
_WITH_CARDS = """
SELECT place, seq, document.document, draft, card
FROM (SELECT seq, row_number() OVER () AS place FROM ({}) walk) page JOIN document USING (seq)
"""
_TOTAL_AND_CARDS = """
SELECT total, seq, document.document, draft, card
FROM ({} OFFSET 0) AS found (total, page)
LEFT JOIN (LATERAL unnest(page) WITH ORDINALITY AS p (seq, place) JOIN document USING (seq)) ON true ORDER BY place
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
_LONG = """
SELECT card FROM document JOIN entry USING (seq)
WHERE control = %s AND entry.partition = ANY(%s::int[]) AND fold = %s AND value = %s LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class DatabaseSearch:
    """A search of some partitions, in the transaction of a connection. Methods raise errors of the database.

    ``texts`` is known about the controls that are searched for texts. ``cards`` are those of a short page by document.
    """

    connection: Rows
    scope: Scope
    searched: Sequence[SearchedPartition]
    budget: Budget | None
    texts: KnownTexts
    cards: dict[int, tuple[str, bool, str]] = field(default_factory=dict)

    def find(self, query: Query) -> Hits:
        asked = conditions(self.scope, query, self.searched, self.texts)
        if asked is None or not self.searched:
            return Hits()
        order = PageOrder.of(query, self.searched)
        head = None if query.needs_total else self._from_head_of_list(asked, order)
        total, rows = head or self._rows(asked, order)
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
        return Hits(total, tuple(page), has_more=head is not None)

    def distinct(self, by: Field | str) -> Iterator[str]:
        """Yield the different values of a control or a field, sorted; an empty one for a missing field."""
        asked = conditions(self.scope, Query(), self.searched, {})
        number = (
            int(FACTS[by])
            if isinstance(by, Field)
            else next((found for each in self.searched if (found := each.controls.get(by)) is not None), None)
        )
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

    # Searches.

    def _from_head_of_list(self, asked: SearchConditions, order: PageOrder) -> tuple[int, list[int]] | None:
        """Return the page and a lower bound of the total, if the newest documents have the page and one more."""
        documents = sum(partition.documents for partition in self.searched)
        if order.control is not None or documents <= FIRST_TRIED or not (asked.selections or asked.tests):
            return None
        passing = [*asked.tests, *(each.test for each in asked.all_selections(self._partitions))]
        longer = replace(order, size=order.size + 1)
        page = longer.top_page(self._partitions, joined(" AND ", passing), FIRST_TRIED)
        rows = list(self._one(BoundSql(f"SELECT ARRAY(SELECT seq FROM ({page.text}) p)", page.parameters))[0])
        return (order.offset + len(rows), rows[:-1]) if len(rows) > order.size else None

    def _rows(self, asked: SearchConditions, order: PageOrder) -> tuple[int, list[int]]:
        if asked.is_empty:
            total = sum(partition.documents for partition in self.searched)
            return total, self._scan(order, total)
        selections = asked.all_selections(self._partitions)
        if len(selections) == 1 and not asked.tests:
            return self._counted(order.page_of_selection(selections[0], self.searched), order)
        plan = SearchPlanner(self.connection, tuple(self._partitions)).plan(asked)
        if plan.is_walked and order.control is None:
            found = self._among_newest(plan, order)
            if found is not None:
                return found
        columns = "d.seq, d.modified" if order.control is None else "d.seq, d.modified, d.partition"
        hits = plan.hits(columns)
        page = order.page_of_hits()
        return self._counted(
            BoundSql(
                f"WITH hits AS MATERIALIZED ({hits.text})"
                f" SELECT (SELECT count(*) FROM hits), ARRAY(SELECT seq FROM ({page.text}) p)",
                hits.parameters + page.parameters,
            ),
            order,
        )

    def _counted(self, found: BoundSql, order: PageOrder) -> tuple[int, list[int]]:
        if order.size > _AT_ONCE:
            total, page = self._one(found)
            return int(total), list(page)
        statement = _TOTAL_AND_CARDS.format(found.text).encode()
        rows = self.connection.execute(statement, found.parameters, prepare=False).fetchall()
        self.cards.update((seq, tuple(card)) for _, seq, *card in rows if seq is not None)
        return int(rows[0][0]), [seq for _, seq, *_ in rows if seq is not None]

    def _among_newest(self, plan: SearchPlan, order: PageOrder) -> tuple[int, list[int]] | None:
        total = int(self._one(plan.total())[0])
        documents = sum(partition.documents for partition in self.searched)
        wanted = max(0, min(order.size, total - order.offset))
        if wanted == 0:
            return total, []
        if (order.offset + wanted) * documents > NEWEST_TRIED * total:
            return None
        page = order.top_page(self._partitions, plan.passing, NEWEST_TRIED)
        rows = list(self._one(BoundSql(f"SELECT ARRAY(SELECT seq FROM ({page.text}) p)", page.parameters))[0])
        return (total, rows) if len(rows) == wanted else None

    def _scan(self, order: PageOrder, total: int) -> list[int]:
        if order.offset >= total:
            return []
        walk = order.page_of_all(self.searched)
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
        if asked.is_empty:
            values = {"control": control, "partitions": self._partitions, "most": LEAPS + 1}
            found = self.connection.execute(_LEAPING, values, prepare=False).fetchall()
            if len(found) <= LEAPS:
                none = self.connection.execute(_NONE, (control, self._partitions), prepare=False).fetchone()
                return sorted({*found, *([("", "")] if none is not None else ())})
        planner = SearchPlanner(self.connection, tuple(self._partitions))
        seen = BoundSql("") if asked.is_empty else planner.plan(asked).hits("d.seq")
        text = "SELECT DISTINCT fold, value FROM entry WHERE control = %s AND partition = ANY(%s::int[])"
        among = f" AND seq IN ({seen.text})" if seen.text else ""
        statement = f"{text}{among} ORDER BY fold, value LIMIT {MOST_ROWS}"
        parameters = control, self._partitions, *seen.parameters
        return self.connection.execute(statement.encode(), parameters, prepare=False).fetchall()

    def _value(self, control: int, fold: str, value: str) -> str:
        if is_cut(fold):
            row = self._one(BoundSql(_LONG, (control, self._partitions, fold, value)))
            return next(
                each
                for each in decode(row[0]).of(control)
                if tuple(plain(str(part)) for part in key_of(each)) == (fold, value)
            )
        return fold if value == AS_FOLDED else value
