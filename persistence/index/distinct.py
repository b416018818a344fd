"""The different values of a control or a fact (spec search 3)."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator
from itertools import groupby

from persistence.index.budget import Budget
from persistence.index.conditions import conditions, tested
from persistence.index.records import AS_FOLDED, FACTS, NOTHING, Fold, Value, decode, is_cut, key_of, order_of
from persistence.index.sampling import Rarity
from persistence.index.shelves import Shelf, controls_of, shelves
from persistence.index.sql import Sql
from persistence.model.search import Field, Query, Scope

_LEAPS = 2_000
"""Values up to which it is gone from one to the next; beyond, all entries are read."""

_EVERYTHING = tested(())

_Key = tuple[Fold, Value]

_NEXT = (
    "SELECT fold, value FROM entries WHERE number = ? AND shelf = ? AND (fold, value) > (?, ?)"
    " ORDER BY fold, value LIMIT 1"
)


def distinct(
    connection: sqlite3.Connection, scope: Scope, by: Field | str, rarity: Rarity, budget: Budget | None
) -> Iterator[str]:
    """The different values, sorted; of a field an empty one where a document has none.

    Raises:
        BadRequestError: there are more than the budget allows.
        sqlite3.Error: the index cannot be read.
    """
    controls = controls_of(connection)
    number = FACTS[by] if isinstance(by, Field) else controls.numbers.get(by)
    if number is None:
        return
    searched = shelves(connection, scope)
    found_by = conditions(scope, Query(), controls, rarity, searched)
    if found_by is None:
        return
    where = tested(found_by)
    if budget is not None:
        budget.allow_for(sum(shelf.documents for shelf in searched))
    found = (_keys(connection, int(number), shelf, where) for shelf in searched)
    for key, _ in groupby(heapq.merge(*found, key=order_of)):
        if budget is not None:
            budget.check()
        if key[0] == NOTHING and not isinstance(by, Field):
            continue
        value = "" if key[0] == NOTHING else _value(connection, int(number), key)
        if budget is not None:
            budget.hold_value(value)
        yield value


def _keys(connection: sqlite3.Connection, number: int, shelf: Shelf, where: Sql) -> Iterator[_Key]:
    last: _Key = (-1, -1)
    for _ in range(_LEAPS if where == _EVERYTHING else 0):
        found = connection.execute(_NEXT, (number, shelf.number, *last)).fetchone()
        if found is None:
            return
        last = found
        yield last
    yield from connection.execute(
        "SELECT DISTINCT fold, value FROM entries c WHERE number = ? AND shelf = ? AND (fold, value) > (?, ?)"
        f" AND {where.text} ORDER BY fold, value",
        (number, shelf.number, *last, *where.parameters),
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
