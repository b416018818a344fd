"""The order in which a search lists documents, and the queries for a page of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from persistence.index.cards import FACTS, Edge
from persistence.limits import FEW_FOUND, HIT_COSTS, LARGEST_FOUND, MOST_GATHERED, NEWEST_TRIED
from persistence.model.search import Field, Query
from persistence.postgresql.conditions import SearchedPartition
from persistence.postgresql.selections import BoundSql, Selection, joined

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
