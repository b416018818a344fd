"""Searching an index: which condition leads, and in what order documents come."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from persistence.index.conditions import Condition, Controls, Narrowing, Sql, among, conditions, tested
from persistence.index.records import FACTS, NOTHING, Edge, Fold, Value, decode, key_of, order_of
from persistence.index.sampling import Rarity
from persistence.model.search import Drafts, Field, Hit, Query, Scope

_FEW = 20_000
"""Documents that are gathered at once; where more are found, the list is walked along in its order."""

_SAMPLES = 2_000, 20_000, 200_000
"""Up to how many documents it is counted where each condition leads, until one leads to fewer."""

_NEAR = 1_000
"""Up to which place of the list documents are kept while many are counted."""

_MOST_ARMS = 400
"""Queries in one statement; SQLite allows 500."""

_WALKING, _SORTING = 1, 10
"""What a document costs that is passed by on a walk, and one that is sorted; only their ratio matters."""


@dataclass(frozen=True, slots=True)
class Found:
    """A document that was found, and the mark of the state of its files that the index has."""

    hit: Hit
    mark: str


def find(connection: sqlite3.Connection, scope: Scope, query: Query, rarity: Rarity) -> tuple[int, list[Found]]:
    """How many documents a search finds, and those on the page; raises ``sqlite3.Error``."""
    controls = controls_of(connection)
    total, rows = _Search(connection, scope, query, controls, rarity).run()
    wanted = None if query.paths is None else frozenset(query.paths)
    paths = {number: path for path, number in controls.numbers.items() if wanted is None or path in wanted}
    return total, [_found(row, paths) for row in connection.execute(_PAGE, (json.dumps(rows),))]


_PAGE = (
    "SELECT d.document, d.draft, d.mark, d.card FROM json_each(?) j CROSS JOIN documents d ON d.row = j.value"
    " ORDER BY j.key"
)


def _found(row: tuple[str, int, str, str], paths: Mapping[int, str]) -> Found:
    document, draft, mark, text = row
    card = decode(text)
    hit = Hit(
        document=document,
        version=card.version,
        is_draft=bool(draft),
        created=card.created,
        modified=card.modified,
        creator=card.creator,
        group=card.group,
        organization=card.organization,
        modifier=card.modifier,
        stage=card.stage,
        values={paths[number]: values for number, values in card.values.items() if number in paths},
    )
    return Found(hit, mark)


def controls_of(connection: sqlite3.Connection) -> Controls:
    """The controls that an index knows."""
    found = connection.execute("SELECT path, number, several FROM controls").fetchall()
    return Controls({path: number for path, number, _ in found}, frozenset(row[1] for row in found if row[2]))


@dataclass(frozen=True, slots=True)
class Shelf:
    """The saved documents, or the drafts, of one version, and which controls its documents have entries of."""

    number: int
    documents: int
    controls: frozenset[int]


def shelves(connection: sqlite3.Connection, scope: Scope) -> list[Shelf]:
    """The shelves that a search looks at, without empty ones."""
    found = connection.execute(
        "SELECT s.number, s.documents, e.controls, s.version, s.draft FROM shelves s JOIN editions e USING (version)"
        " WHERE NOT s.hidden AND s.documents > 0 ORDER BY s.number"
    )
    wanted = {Drafts.INCLUDE: (0, 1), Drafts.EXCLUDE: (0,), Drafts.ONLY: (1,)}[scope.drafts.kind]
    return [
        Shelf(number, documents, frozenset(json.loads(controls or "[]")))
        for number, documents, controls, version, draft in found
        if draft in wanted and (scope.versions is None or version in scope.versions)
    ]


class _Search:
    """One search."""

    def __init__(
        self, connection: sqlite3.Connection, scope: Scope, query: Query, controls: Controls, rarity: Rarity
    ) -> None:
        self._connection = connection
        self._query = query
        self._shelves = shelves(connection, scope)
        self._controls = controls
        self._conditions = conditions(scope, query, controls, rarity)

    def run(self) -> tuple[int, list[int]]:
        """The number of documents, and the rows of the page."""
        if self._conditions is None or not self._shelves:
            return 0, []
        if not self._conditions:
            total = sum(shelf.documents for shelf in self._shelves)
            return total, self._walk(total, tested(()))
        leading = self._leading(self._conditions)
        source = leading.leads
        tests = [each for each in self._conditions if each is not leading]
        if leading.narrowing is not None:
            narrowed = self._narrowed(leading.narrowing)
            if narrowed is not None:
                source, tests = narrowed, self._conditions
        return self._gathered(source, tested(tests), leading)

    def _gathered(self, source: Sql, where: Sql, leading: Condition) -> tuple[int, list[int]]:
        """The number of documents that a source selects and that pass the tests, and the page of them."""
        leads = self._bound(source, self._shelves)
        cursor = self._connection.execute(
            f"SELECT c.row FROM ({leads.text}) c WHERE {where.text}", leads.parameters + where.parameters
        )
        cursor.row_factory = _only
        found = cursor.fetchmany(_FEW + 1)
        if len(found) <= _FEW:
            return len(found), self._page(found)
        if leading.is_ordered and self._sorted_by() is None:
            text = f"SELECT count(*) FROM ({leads.text}) c WHERE {where.text}"
            total = int(self._connection.execute(text, leads.parameters + where.parameters).fetchone()[0])
            return total, self._walk(total, where, leading)
        end = self._query.offset + self._query.size
        if self._sorted_by() is None and end <= _NEAR:
            return self._foremost(found, cursor, end)
        total = len(found)
        while more := len(cursor.fetchmany(_FEW)):
            total += more
        return total, self._walk(total, tested(self._conditions or ()))

    def _foremost(self, found: list[int], cursor: sqlite3.Cursor, end: int) -> tuple[int, list[int]]:
        """The number of documents and the page, where it is one of the first: what comes later need not be kept."""
        foremost = heapq.nlargest if self._is_newest_first() else heapq.nsmallest
        total, kept = 0, list[int]()
        while found:
            total += len(found)
            kept = foremost(end, kept + found)
            found = cursor.fetchmany(_FEW)
        return total, kept[self._query.offset :]

    def _leading(self, found: Sequence[Condition]) -> Condition:
        """The condition that leads to the fewest documents, as far as that is told quickly."""
        quick = [condition for condition in found if not condition.is_scan]
        if len(quick) < 2:  # noqa: PLR2004 - nothing to choose between
            return next(iter(quick or found))
        for most in _SAMPLES:
            reached = [
                self._reach(condition.narrowing.narrows if condition.narrowing else condition.leads, most)
                for condition in quick
            ]
            if min(reached) < most:
                break
        return quick[reached.index(min(reached))]

    def _reach(self, source: Sql, most: int) -> int:
        """How many documents there are to look at, counted up to a limit."""
        bound = self._bound(source, self._shelves)
        text = f"SELECT count(*) FROM ({bound.text} LIMIT {most})"
        return int(self._connection.execute(text, bound.parameters).fetchone()[0])

    def _narrowed(self, narrowing: Narrowing) -> Sql | None:
        """The documents to look at, if there are few enough."""
        narrows = narrowing.narrows
        found = self._connection.execute(f"{narrows.text} LIMIT {_FEW + 1}", narrows.parameters).fetchall()
        if len(found) <= _FEW:
            narrows = Sql("SELECT value AS text FROM json_each(?)", (json.dumps([text for (text,) in found]),))
        else:
            most = int(sum(shelf.documents for shelf in self._shelves) * narrowing.worth)
            if self._reach(narrows, most) >= most:
                return None
        return among(narrows)

    def _page(self, rows: list[int]) -> list[int]:
        """The page of documents that were gathered."""
        begin, end = self._query.offset, self._query.offset + self._query.size
        sort, number = self._query.sort, self._sorted_by()
        if begin >= len(rows):
            return []
        if number is None:
            return sorted(rows, reverse=self._is_newest_first())[begin:end]
        passed = end / len(rows) * sum(shelf.documents for shelf in self._shelves)
        if passed * _WALKING < len(rows) * _SORTING:
            return self._walk(len(rows), Sql("c.row IN (SELECT value FROM json_each(?))", (json.dumps(rows),)))
        rows.sort(reverse=True)
        rows.sort(key=partial(self._sort_key, number), reverse=sort.is_descending)
        return rows[begin:end]

    def _sort_key(self, number: int, row: int) -> tuple[bool, Fold, Value]:
        card = decode(self._connection.execute("SELECT card FROM documents WHERE row = ?", (row,)).fetchone()[0])
        keys = [order_of(key_of(value)) for value in card.of(number)] or [order_of((NOTHING, NOTHING))]
        return max(keys) if self._query.sort.is_descending else min(keys)

    def _walk(self, total: int, where: Sql, leading: Condition | None = None) -> list[int]:
        """The page, by going along the documents in their order, or along those to which a condition leads."""
        begin, size = self._query.offset, self._query.size
        if begin >= total:
            return []
        number = self._sorted_by()
        if number is None:
            order = f"row {'DESC' if self._is_newest_first() else 'ASC'}"
        else:
            direction = "DESC" if self._query.sort.is_descending else "ASC"
            order = f"fold {direction}, value {direction}, row DESC"
        found: list[Sql] = []
        for shelf in self._shelves:
            source = self._bound(leading.leads, [shelf]) if leading is not None else self._along(shelf, number)
            text = f"SELECT c.* FROM ({source.text}) c WHERE {where.text} ORDER BY {order}"
            found.append(Sql(text, source.parameters + where.parameters))
        if len(found) == 1:
            text, parameters = found[0].text, found[0].parameters
        elif begin + size <= _NEAR:
            return self._merged(found)
        else:
            arms = [f"SELECT * FROM ({each.text} LIMIT {begin + size})" for each in found]
            text = f"SELECT * FROM ({_united(arms)}) ORDER BY {order}"
            parameters = tuple(parameter for each in found for parameter in each.parameters)
        rows = self._connection.execute(f"{text} LIMIT {size} OFFSET {begin}", parameters)
        return [row[0] for row in rows]

    def _merged(self, walks: Iterable[Sql]) -> list[int]:
        """The page of several walks, where it is one of the first: a statement of all would hold a sorter for each."""
        end, is_descending = self._query.offset + self._query.size, self._query.sort.is_descending
        found: list[tuple[Any, ...]] = []
        for walk in walks:
            found += self._connection.execute(f"{walk.text} LIMIT {end}", walk.parameters)
            if len(found) > _NEAR:
                found = self._in_order(found, is_descending=is_descending)[:end]
        return [row[0] for row in self._in_order(found, is_descending=is_descending)[self._query.offset : end]]

    def _in_order(self, found: list[tuple[Any, ...]], *, is_descending: bool) -> list[tuple[Any, ...]]:
        if self._sorted_by() is None:
            return sorted(found, reverse=self._is_newest_first())
        newest = sorted(found, key=itemgetter(0), reverse=True)
        return sorted(newest, key=lambda row: order_of((row[2], row[3])), reverse=is_descending)

    def _along(self, shelf: Shelf, number: int | None) -> Sql:
        """The documents of a shelf with what they are sorted by."""
        if number is None:
            return Sql("SELECT row, shelf FROM documents WHERE shelf = ?", (shelf.number,))
        if number > 0 and number not in shelf.controls:
            return Sql(
                f"SELECT row, shelf, {NOTHING} AS fold, {NOTHING} AS value FROM documents WHERE shelf = ?",
                (shelf.number,),
            )
        edge = Edge.HIGHEST if self._query.sort.is_descending else Edge.LOWEST
        return Sql(
            "SELECT row, shelf, fold, value FROM entries WHERE number = ? AND shelf = ? AND edge & ?",
            (number, shelf.number, int(edge)),
        )

    def _sorted_by(self) -> int | None:
        """The number of the control or fact that documents are sorted by; ``None`` where it is the last save."""
        by = self._query.sort.by
        if by is Field.LAST_MODIFIED:
            return None
        return FACTS[by] if isinstance(by, Field) else self._controls.numbers.get(by)

    def _is_newest_first(self) -> bool:
        """Whether the last save comes first: also where nothing has a value of what is sorted by."""
        sort = self._query.sort
        return sort.is_descending or sort.by is not Field.LAST_MODIFIED

    @staticmethod
    def _bound(sql: Sql, among: Iterable[Shelf]) -> Sql:
        numbers = ", ".join(str(shelf.number) for shelf in among)
        return Sql(sql.text.replace("{shelves}", f"({numbers})"), sql.parameters)


def _united(arms: list[str]) -> str:
    while len(arms) > _MOST_ARMS:
        parts = [arms[at : at + _MOST_ARMS] for at in range(0, len(arms), _MOST_ARMS)]
        arms = [f"SELECT * FROM ({' UNION ALL '.join(part)})" for part in parts]
    return " UNION ALL ".join(arms)


def _only(_cursor: sqlite3.Cursor, row: tuple[int, ...]) -> int:
    return row[0]
