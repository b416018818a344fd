"""Searches as a relational implementation does them: a row for each value, joins, and LIKE."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from orders import APP, FORM, PATHS, Order, Orders

_TABLES = """
CREATE TABLE i_current (data_id INTEGER PRIMARY KEY, app TEXT, form TEXT, form_version INT, document_id TEXT, draft INT,
  created TEXT, last_modified TEXT, last_modified_by TEXT, username TEXT, groupname TEXT, stage TEXT);
CREATE TABLE i_control_text (data_id INT, control TEXT, pos INT, val TEXT);
CREATE TABLE form_data (data_id INTEGER PRIMARY KEY, xml TEXT);
"""
_INDEXES = """
CREATE UNIQUE INDEX i_document ON i_current (app, form, document_id, draft);
CREATE INDEX i_data ON i_control_text (data_id, control);
CREATE INDEX i_value ON i_control_text (control, val);
"""
_BATCH = 10_000


@dataclass(frozen=True)
class Like:
    """A condition on a control, by LIKE or by equality."""

    path: str
    text: str
    is_exact: bool = False


@dataclass(frozen=True)
class Relational:
    """A search."""

    controls: tuple[Like, ...] = ()
    between: tuple[str, str, str] | None = None
    text: str = ""
    creator: str = ""
    created: tuple[str, str] | None = None
    sort: str = ""
    offset: int = 0

    def run(self, connection: sqlite3.Connection) -> tuple[int, list[str]]:
        """The number of documents, and the ids on a page of ten."""
        joins, where, parameters = self._conditions()
        order = "c.last_modified DESC"
        sorted_by: tuple[str, ...] = ()
        ordering = ""
        if self.sort:
            ordering = " LEFT JOIN i_control_text s ON s.data_id = c.data_id AND s.control = ?"
            sorted_by, order = (self.sort,), f"s.val ASC, {order}"
        rest = f"WHERE {' AND '.join(where)}"
        total = connection.execute(f"SELECT count(*) FROM i_current c {joins} {rest}", parameters).fetchone()[0]
        page = connection.execute(
            f"SELECT c.document_id FROM i_current c {joins}{ordering} {rest} ORDER BY {order} LIMIT 10 OFFSET ?",
            (*parameters[: 2 * len(self.controls)], *sorted_by, *parameters[2 * len(self.controls) :], self.offset),
        )
        return total, [row[0] for row in page]

    def _conditions(self) -> tuple[str, list[str], tuple[str, ...]]:
        joins, where, parameters = "", ["c.app = ?", "c.form = ?", "c.form_version = 1"], list[str]()
        for at, control in enumerate(self.controls):
            compared = "=" if control.is_exact else "LIKE"
            joins += f" JOIN i_control_text t{at} ON t{at}.data_id = c.data_id AND t{at}.control = ?"
            joins += f" AND t{at}.val {compared} ?"
            parameters += [control.path, control.text if control.is_exact else f"%{control.text}%"]
        if self.between is not None:
            joins += " JOIN i_control_text b ON b.data_id = c.data_id AND b.control = ? AND b.val BETWEEN ? AND ?"
            parameters += self.between
        parameters += [APP, FORM]
        if self.text:
            joins += " JOIN form_data x ON x.data_id = c.data_id"
            where.append("x.xml LIKE ?")
            parameters.append(f"%{self.text}%")
        if self.creator:
            where.append("c.username = ?")
            parameters.append(self.creator)
        if self.created is not None:
            where += ["c.created >= ?", "c.created < ?"]
            parameters += self.created
        return joins, where, tuple(parameters)


def fill(path: Path, orders: Orders) -> sqlite3.Connection:
    """A database of the orders."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.executescript(_TABLES)
    connection.execute("BEGIN")
    rows = enumerate(orders)
    while batch := list(islice(rows, _BATCH)):
        connection.executemany(
            "INSERT INTO i_current VALUES (?, ?, ?, 1, ?, 0, ?, ?, ?, ?, 'sales', ?)", map(_current, batch)
        )
        connection.executemany("INSERT INTO i_control_text VALUES (?, ?, 1, ?)", _values(batch))
        connection.executemany(
            "INSERT INTO form_data VALUES (?, ?)", ((at, order.xml().decode()) for at, order in batch)
        )
    connection.execute("COMMIT")
    connection.executescript(_INDEXES)
    return connection


def _current(row: tuple[int, Order]) -> tuple[object, ...]:
    number, order = row
    return number, APP, FORM, order.id, order.saved, order.saved, order.creator, order.creator, order.stage


def _values(batch: Iterable[tuple[int, Order]]) -> Iterator[tuple[int, str, str]]:
    for number, order in batch:
        for path, value in zip(PATHS, order.values, strict=True):
            yield number, path, value
