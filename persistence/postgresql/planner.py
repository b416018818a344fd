"""The order in which a database looks at the conditions of a search.

PostgreSQL takes texts for rarer than they are. So conditions are counted up to a limit, and tried out on the newest
documents, before one of them is chosen to begin with; the others are looked up for each document that meets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from persistence.limits import FEW_FOUND, MOST_GATHERED, SAMPLED
from persistence.postgresql.conditions import SearchConditions
from persistence.postgresql.database import Rows
from persistence.postgresql.selections import BoundSql, Reach, Selection, joined

_BROAD = 0.02
"""The part of the newest documents that makes a selection a broad one."""

_NEWEST = """
SELECT d.* FROM unnest(%s::int[]) AS number, LATERAL (
    SELECT seq, modified, form, document FROM document WHERE partition = number
    ORDER BY modified DESC, seq DESC LIMIT %s
) AS d LIMIT %s
"""


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
