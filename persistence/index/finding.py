"""Searching an index: which condition leads to documents, and which tell of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from persistence.index.budget import Budget
from persistence.index.conditions import Condition, Narrowing, among, conditions, tested
from persistence.index.ordering import Paging
from persistence.index.parts import told_by_card
from persistence.index.records import decode
from persistence.index.sampling import Rarity
from persistence.index.shelves import Shelf, controls_of, shelves
from persistence.index.sql import Arms, Sql
from persistence.model.search import Hit, Query, Scope
from persistence.model.users import User

_FEW = 20_000
"""Documents that are gathered at once; where more are found, the list is walked along in its order."""

_WORTH_READING = 4
"""Rows of a condition that are read for each document of another: to look for one takes longer than to read as many."""

_SAMPLES = 2_000, 20_000, 200_000
"""Up to how many documents it is counted where each condition leads, until one leads to fewer."""


@dataclass(frozen=True, slots=True)
class Found:
    """A document that was found, and the mark of the state of its files that the index has."""

    hit: Hit
    mark: str


def find(
    connection: sqlite3.Connection, scope: Scope, query: Query, rarity: Rarity, budget: Budget | None
) -> tuple[int, list[Found]]:
    """How many documents a search finds, and those on the page.

    Raises:
        BadRequestError: it asks for more than the budget.
        sqlite3.Error: the index cannot be read.
    """
    controls = controls_of(connection)
    searched = shelves(connection, scope)
    if budget is not None:
        budget.allow_for(sum(shelf.documents for shelf in searched))
    paging = Paging(connection, query, controls, searched, budget)
    total, rows = _Search(connection, searched, conditions(scope, query, controls, rarity, searched), paging).run()
    wanted = None if query.paths is None else frozenset(query.paths)
    paths = {number: path for path, number in controls.numbers.items() if wanted is None or path in wanted}
    page = []
    for row in connection.execute(_PAGE, (json.dumps(rows),)):
        found = _found(row, paths)
        if budget is not None:
            budget.check()
            budget.hold(found.hit, query.paths or ())
        page.append(found)
    return total, page


_PAGE = (
    "SELECT d.document, d.draft, d.mark, d.card FROM json_each(?) j CROSS JOIN documents d ON d.row = j.value"
    " ORDER BY j.key"
)


def _found(row: tuple[str, int, str, str], paths: Mapping[int, str]) -> Found:
    document, draft, mark, text = row
    card = decode(text)
    reader = card.reader
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
        saved_owner=None if reader is None else User(reader.creator, reader.group, organization=reader.organization),
    )
    return Found(hit, mark)


class _Search:
    """One search."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        searched: Sequence[Shelf],
        found: Sequence[Condition] | None,
        paging: Paging,
    ) -> None:
        self._connection = connection
        self._shelves = searched
        self._conditions = found
        self._paging = paging

    def run(self) -> tuple[int, list[int]]:
        """The number of documents, and the rows of the page."""
        if self._conditions is None or not self._shelves:
            return 0, []
        if not self._conditions:
            total = self._documents()
            return total, self._paging.walked(total, tested(()))
        leading, reach = self._leading(self._conditions)
        tests = [each for each in self._conditions if each is not leading]
        if leading.narrowing is not None:
            narrowed = self._narrowed(leading.narrowing)
            if narrowed is not None:
                return self._found(leading, self._on_shelves(narrowed), tested(self._conditions))
        elif reach is not None and reach < _FEW:
            return self._met(leading, tests)
        return self._found(leading, self._on_shelves(leading.leads), tested(tests))

    def _met(self, leading: Condition, tests: Iterable[Condition]) -> tuple[int, list[int]]:
        """The number of documents that meet all of some conditions, and the page of them, where few meet the first.

        Of a condition that goes by row, all rows between the first and the last of these are read, if they are not many
        more: that is much quicker than to look for each.
        """
        rows, left = self._rows(self._on_shelves(leading.leads)), []
        for each in tests:
            between = self._between(each, rows) if each.is_ordered and rows else None
            if between is None:
                left.append(each)
            else:
                rows = [row for row in rows if row in between]
        others = [each for each in left if each.part is None]
        if others and rows:
            rows = self._those(rows, tested(others))
        parts = [each.part for each in left if each.part is not None]
        if parts and rows:
            rows = self._those(rows, told_by_card(parts, "c.card"))
        return len(rows), self._paging.gathered(rows)

    def _those(self, rows: Sequence[int], where: Sql) -> list[int]:
        """Those of some documents of which something is true."""
        selected = f"SELECT c.row FROM json_each(?) j CROSS JOIN documents c ON c.row = j.value WHERE {where.text}"
        return self._rows(Sql(selected, (json.dumps(rows), *where.parameters)))

    def _between(self, condition: Condition, rows: Sequence[int]) -> frozenset[int] | None:
        """The rows that meet an ordered condition and lie among others; ``None`` where these are too many."""
        most = len(rows) * _WORTH_READING
        leads = self._on_shelves(condition.leads)
        text = f"SELECT row FROM ({leads.text}) WHERE row BETWEEN ? AND ? LIMIT {most + 1}"
        found = self._rows(Sql(text, (*leads.parameters, min(rows), max(rows))))
        return frozenset(found) if len(found) <= most else None

    def _rows(self, selecting: Sql) -> list[int]:
        cursor = self._connection.execute(selecting.text, selecting.parameters)
        cursor.row_factory = _only
        return cursor.fetchall()

    def _found(self, leading: Condition, source: Sql, where: Sql) -> tuple[int, list[int]]:
        """The number of documents that a source selects and that pass the tests, and the page of them."""
        selected = f"FROM ({source.text}) c WHERE {where.text}"
        parameters = source.parameters + where.parameters
        cursor = self._connection.execute(f"SELECT c.row {selected}", parameters)
        cursor.row_factory = _only
        found = cursor.fetchmany(_FEW + 1)
        if len(found) <= _FEW:
            return len(found), self._paging.gathered(found)
        if leading.is_ordered and self._paging.is_by_save:
            total = int(self._connection.execute(f"SELECT count(*) {selected}", parameters).fetchone()[0])
            return total, self._paging.walked(total, where, leading.leads)
        if self._paging.is_by_save and self._paging.is_near:
            return self._paging.foremost(found, lambda: cursor.fetchmany(_FEW))
        total = len(found)
        while more := len(cursor.fetchmany(_FEW)):
            total += more
        return total, self._paging.walked(total, tested(self._conditions or ()))

    def _leading(self, found: Sequence[Condition]) -> tuple[Condition, int | None]:
        """The condition that leads to the fewest documents, as far as that is told quickly, and to how many.

        ``None`` where there was nothing to choose between.
        """
        quick = [condition for condition in found if not condition.is_scan]
        if len(quick) < 2:  # noqa: PLR2004 - nothing to choose between
            return next(iter(quick or found)), None
        sources = [each.narrowing.narrows if each.narrowing else each.leads for each in quick]
        for most in _SAMPLES:
            reached = [self._reach(source, most) for source in sources]
            if min(reached) < most:
                break
        return quick[reached.index(min(reached))], min(reached)

    def _narrowed(self, narrowing: Narrowing) -> Sql | None:
        """The documents to look at, if there are few enough."""
        narrows = narrowing.narrows
        found = self._connection.execute(f"{narrows.text} LIMIT {_FEW + 1}", narrows.parameters).fetchall()
        if len(found) <= _FEW:
            narrows = Sql("SELECT value AS text FROM json_each(?)", (json.dumps([text for (text,) in found]),))
        else:
            most = int(self._documents() * narrowing.worth)
            if self._reach(narrows, most) >= most:
                return None
        return among(narrows)

    def _reach(self, source: Sql | Arms, most: int) -> int:
        """How many documents there are to look at, counted up to a limit."""
        bound = self._on_shelves(source)
        text = f"SELECT count(*) FROM ({bound.text} LIMIT {most})"
        return int(self._connection.execute(text, bound.parameters).fetchone()[0])

    def _documents(self) -> int:
        return sum(shelf.documents for shelf in self._shelves)

    def _on_shelves(self, source: Sql | Arms) -> Sql:
        return source.on(shelf.number for shelf in self._shelves)


def _only(_cursor: sqlite3.Cursor, row: tuple[int, ...]) -> int:
    return row[0]
