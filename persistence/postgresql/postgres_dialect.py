"""The SQL of searches in PostgreSQL: the tables of a schema, and indexes of trigrams (pg_trgm) of its texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from persistence.index.cards import Fact, key_of
from persistence.index.search_compiler import Condition, Key, Order, Partition, SearchDialect, Sql, any_of, joined
from persistence.limits import MOST_GATHERED, SAMPLED
from persistence.model.instants import Instant
from persistence.model.queries import ControlFilter, TextMatch
from persistence.postgresql.database import Rows
from persistence.postgresql.index_rows import plain

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

    document = "document"
    entry = "entry"
    seq = "seq"
    control = "control"
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
        partitions = [each.number for each in self.searched]
        found = self.rows(Sql(_LEAPS, (partitions, number, number, most + 1)))
        return [(fold, value) for fold, value in found] if len(found) <= most else None

    def saved(self, low: Instant, high: Instant) -> Condition:
        return self.selected("document", Sql("modified >= ? AND modified < ?", (low, high)), is_distinct=True)

    def created(self, low: Instant, high: Instant) -> Condition:
        return self.entries(Fact.CREATED, Sql("fold >= ? AND fold < ?", (low, high)), is_distinct=True)

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
                {page} ORDER BY {self.ordered(order)} LIMIT {order.size} OFFSET {order.offset}) p)"""
        ((total, rows),) = self.rows(Sql(statement, (*hits.values, *values)))
        return int(total), list(rows)


def _like(text: str) -> str:
    for special in "\\%_":
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"
