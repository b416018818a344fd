"""Searches and distinct values of one form, by the statements of one transaction that sees one state of everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from persistence.index.cards import AS_FOLDED, FACTS, Edge, decode, hit_of, is_cut, key_of
from persistence.index.protocol import Budget
from persistence.limits import (
    FEW_FOUND,
    FIRST_TRIED,
    HIT_COSTS,
    LARGEST_FOUND,
    LEAPS,
    MOST_GATHERED,
    NEWEST_TRIED,
    SAMPLED,
)
from persistence.model.queries import Field, Hits, Query, Scope
from persistence.postgresql.database import Rows
from persistence.postgresql.index_rows import plain
from persistence.postgresql.search_conditions import (
    BoundSql,
    KnownTexts,
    Reach,
    SearchConditions,
    SearchedPartition,
    Selection,
    conditions,
    joined,
)

MOST_ROWS = LARGEST_FOUND // HIT_COSTS + 1
"""Documents of a page that are looked for: so many are too large an answer already."""

_LAST = 1 << 62


@dataclass(frozen=True, slots=True)
class PageOrder:
    """The order and page that a query asks for. ``control`` is ``None`` for the order by last save."""

    control: int | None
    is_descending: bool
    offset: int
    size: int

    @classmethod
    def of(cls, query: Query, searched: Sequence[SearchedPartition]) -> PageOrder:
        by = query.sort.by
        if isinstance(by, Field):
            control: int | None = FACTS.get(by)
        else:
            control = next((each.controls[by] for each in searched if by in each.controls), None)
        # A control that no document has a value of leaves the second order: the last save comes first.
        is_descending = query.sort.is_descending or (control is None and by is not Field.LAST_MODIFIED)
        number = None if control is None else int(control)
        return cls(number, is_descending, min(query.offset, _LAST), min(query.size, MOST_ROWS))

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

    def page_of_selection(self, selection: Selection, searched: Sequence[SearchedPartition]) -> BoundSql:
        """Return the query for the number of documents of one selection, and the page of them.

        The page of many is looked for among the first in order of saves; if these are too few for it, all are sorted.
        """
        partitions = [partition.number for partition in searched]
        found, on = selection.sql, "d.partition = ANY(%s::int[])"
        if not selection.is_distinct:
            found = BoundSql(f"SELECT DISTINCT seq FROM ({found.text}) s", found.parameters)
        kept = "NOT MATERIALIZED" if selection.is_distinct else "MATERIALIZED"  # a range is read again more quickly
        walked = self._walked(selection, partitions, sum(partition.documents for partition in searched))
        page = self.page_of_hits()
        is_whole = f"cardinality(page) = least({self.size}, greatest(n - {self.offset}, 0))"
        counted = "false" if selection.is_of_all else is_whole
        return BoundSql(
            f"""
            WITH found AS {kept} ({found.text}),
            counted AS MATERIALIZED (SELECT count(*) AS n FROM found),
            hits AS MATERIALIZED (
                SELECT d.seq, d.modified, d.partition FROM document d
                WHERE (SELECT n FROM counted) <= {MOST_GATHERED} AND {on} AND d.seq = ANY(ARRAY(SELECT seq FROM found))
                UNION ALL
                SELECT d.seq, d.modified, d.partition FROM document d
                WHERE (SELECT n FROM counted) > {MOST_GATHERED} AND {on} AND d.seq IN (SELECT seq FROM found)
            ),
            walked AS MATERIALIZED (SELECT {walked.text} AS page FROM counted)
            SELECT CASE WHEN {counted} THEN n ELSE (SELECT count(*) FROM hits) END,
            CASE WHEN {is_whole} THEN page ELSE ARRAY(SELECT seq FROM ({page.text}) p) END FROM counted, walked""",
            (*found.parameters, partitions, partitions, *walked.parameters, *page.parameters),
        )

    def _walked(self, selection: Selection, partitions: list[int], documents: int) -> BoundSql:
        if self.control is not None:
            return BoundSql("NULL::bigint[]")
        enough = max(FEW_FOUND, (self.offset + self.size) * documents // NEWEST_TRIED)
        looked_up = self.top_page(partitions, selection.test, NEWEST_TRIED)
        if not selection.is_of_time:
            return BoundSql(f"CASE WHEN n > {enough} THEN ARRAY({looked_up.text}) END", looked_up.parameters)
        gathered = self.top_page(partitions, BoundSql("d.seq IN (SELECT seq FROM found)"), NEWEST_TRIED)
        return BoundSql(
            f"CASE WHEN n <= {enough} THEN NULL WHEN n <= {MOST_GATHERED} THEN ARRAY({gathered.text})"
            f" ELSE ARRAY({looked_up.text}) END",
            gathered.parameters + looked_up.parameters,
        )

    def page_of_all(self, searched: Sequence[SearchedPartition]) -> BoundSql:
        """Return the query for the page of all documents on some partitions."""
        if self.control is not None:
            arms = joined(" UNION ALL ", [self._sorted_arm(partition) for partition in searched])
            return BoundSql(
                f"SELECT d.seq, e.fold, e.value, d.modified FROM ({arms.text}) e JOIN document d USING (seq)"
                f" ORDER BY {self._by_value} {self._page}",
                arms.parameters,
            )
        arm = "SELECT seq, modified FROM document WHERE partition = %s"
        arms = joined(" UNION ALL ", [BoundSql(arm, (partition.number,)) for partition in searched])
        return BoundSql(f"SELECT seq FROM ({arms.text}) d ORDER BY {self._by_save} {self._page}", arms.parameters)

    def top_page(self, partitions: Sequence[int], where: BoundSql, tried: int) -> BoundSql:
        """Return the query for the page of the documents ``d`` that pass a test, among the first ``tried`` by save."""
        top = f"""
            SELECT d.* FROM unnest(%s::int[]) AS number, LATERAL (
                SELECT seq, modified, form, document FROM document WHERE partition = number
                ORDER BY {self._by_save} LIMIT {tried}
            ) AS d ORDER BY {self._by_save} LIMIT {tried}"""
        return BoundSql(
            f"SELECT seq FROM ({top}) d WHERE {where.text} ORDER BY {self._by_save} {self._page}",
            (list(partitions), *where.parameters),
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


_BROAD = 0.02  # The part of the newest documents that makes a selection a broad one

_NEWEST = """
SELECT d.* FROM unnest(%s::int[]) AS number, LATERAL (
    SELECT seq, modified, form, document FROM document WHERE partition = number
    ORDER BY modified DESC, seq DESC LIMIT %s
) AS d LIMIT %s
"""


# The order in which a database looks at the conditions of a search.
#
# PostgreSQL takes texts for rarer than they are. So conditions are counted up to a limit, and tried out on the newest
# documents, before one of them is chosen to begin with; the others are looked up for each document that meets it.


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """``first`` is met first, and ``others`` are looked up for what meets it; without it no selection is narrow.

    ``is_walked`` says that the page may be found among the newest documents.
    """

    first: Selection | None
    others: tuple[Selection, ...]
    tests: tuple[BoundSql, ...]
    partitions: tuple[int, ...]
    is_walked: bool

    def hits(self, columns: str) -> BoundSql:
        """Return the query for columns of the documents ``d`` that meet all conditions."""
        on = BoundSql("d.partition = ANY(%s::int[])", (list(self.partitions),))
        if self.first is None:
            among = [BoundSql(f"d.seq IN ({each.sql.text})", each.sql.parameters) for each in self.others]
            where = joined(" AND ", [on, *self.tests, *among])
            return BoundSql(f"SELECT {columns} FROM document d WHERE {where.text}", where.parameters)
        # Nothing is pulled out of a query with an offset: so the database goes on in this order.
        found = f"SELECT DISTINCT seq FROM ({self.first.sql.text}) s"
        looked_up = joined(" AND ", [BoundSql("true"), *(each.test for each in self.others)])
        where = joined(" AND ", [on, *self.tests])
        return BoundSql(
            f"SELECT {columns} FROM (SELECT d.seq FROM ({found} OFFSET 0) d WHERE {looked_up.text} OFFSET 0) c,"
            f" LATERAL (SELECT * FROM document WHERE seq = c.seq OFFSET 0) d WHERE {where.text}",
            self.first.sql.parameters + looked_up.parameters + where.parameters,
        )

    def total(self) -> BoundSql:
        own = next((each for each in self.others if not each.is_of_all), None)
        if own is None or self.tests or self.first is not None:
            hits = self.hits("d.seq")
            return BoundSql(f"SELECT count(*) FROM ({hits.text}) h", hits.parameters)
        others = [each.sql for each in self.others if each is not own]
        among = [BoundSql(f"seq IN ({each.text})", each.parameters) for each in others]
        where = joined(" AND ", [BoundSql("true"), *among])
        return BoundSql(
            f"SELECT count(*) FROM (SELECT DISTINCT seq FROM ({own.sql.text}) s WHERE {where.text}) h",
            own.sql.parameters + where.parameters,
        )

    @property
    def passing(self) -> BoundSql:
        """The conditions as a test of a document ``d``."""
        return joined(" AND ", [*self.tests, *(each.test for each in self.others)])


@dataclass(frozen=True, slots=True)
class SearchPlanner:
    """Plans a search of some partitions, in the transaction of a connection. Raises errors of the database."""

    connection: Rows
    partitions: tuple[int, ...]

    def plan(self, asked: SearchConditions) -> SearchPlan:
        selections = asked.all_selections(self.partitions)
        tests = tuple(asked.tests)
        first = self._narrowest(selections) if selections else None
        if first is None or (len(selections) == 1 and first.reach is Reach.RANGES):
            return SearchPlan(None, tuple(selections), tests, self.partitions, is_walked=bool(selections) and not first)
        others = tuple(each for each in selections if each is not first)
        return SearchPlan(first, others, tests, self.partitions, is_walked=False)

    def _narrowest(self, selections: Sequence[Selection]) -> Selection | None:
        """Return the narrowest selection, as far as that is quickly found; ``None`` if all are broad.

        All is found in one round trip, and each count only where the ones before have found nothing narrow.
        """
        ranges = [each for each in selections if each.reach is Reach.RANGES]
        texts = [each for each in selections if each.reach is not Reach.RANGES]
        texts.sort(key=lambda each: each.reach is Reach.SCAN)
        few, many, newest = _counts(ranges, FEW_FOUND), _counts(ranges, MOST_GATHERED), self._newest(texts)
        statement = f"""
            WITH few AS MATERIALIZED (SELECT {few.text} AS n),
            many AS MATERIALIZED (
                SELECT {many.text} AS n FROM few WHERE coalesce((SELECT min(c) > {FEW_FOUND} FROM unnest(n) c), true)
            )
            SELECT few.n, many.n,
                CASE WHEN coalesce((SELECT min(c) > {MOST_GATHERED} FROM unnest(many.n) c), true)
                THEN ({newest.text}) END
            FROM few LEFT JOIN many ON true"""
        values = few.parameters + many.parameters + newest.parameters
        row = self.connection.execute(statement.encode(), values, prepare=False).fetchone() or ([], [], None)
        for reached, most in ((row[0], FEW_FOUND), (row[1] or [], MOST_GATHERED)):
            if reached and min(reached) <= most:
                return ranges[reached.index(min(reached))]
        sampled, *counts = row[2] or [0]
        return next((each for each, n in zip(texts, counts, strict=False) if n <= sampled * _BROAD), None)

    def _newest(self, texts: Sequence[Selection]) -> BoundSql:
        if not texts:
            return BoundSql("NULL::bigint[]")
        counts = joined(
            ", ",
            [BoundSql(f"count(*) FILTER (WHERE {each.test.text})", each.test.parameters) for each in texts],
        )
        values = *counts.parameters, list(self.partitions), SAMPLED, SAMPLED
        return BoundSql(f"SELECT ARRAY[count(*), {counts.text}] FROM ({_NEWEST}) d", values)


def _counts(selections: Sequence[Selection], most: int) -> BoundSql:
    counts = [
        BoundSql(f"(SELECT count(*) FROM ({each.sql.text} LIMIT {most + 1}) c)", each.sql.parameters)
        for each in selections
    ]
    every = joined(", ", counts)
    return BoundSql(f"ARRAY[{every.text}]::bigint[]", every.parameters)


_AT_ONCE = 32  # Documents of a page that are in memory at once

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
