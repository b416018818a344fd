"""The sample of texts by which trigrams are told to be rare."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from persistence.index.sqlite.sqlite_dialect import Sample
from persistence.index.sqlite.tables import COLUMNS, FIELDS, TABLES

_MARKS = ", ".join("?" * COLUMNS)


def test_a_document_with_many_long_texts_adds_no_more_than_one_with_a_single_long_one() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        connection.execute("INSERT INTO texts VALUES (1, 1)")
        connection.execute("INSERT INTO free_text (rowid, text) VALUES (1, '')")
        text = f"abc{'-' * 1000}xyz"
        connection.execute(f"INSERT INTO fields (rowid, {', '.join(FIELDS)}) VALUES (1, {_MARKS})", (text,) * COLUMNS)  # noqa: S608 - names of columns
        sample = Sample(connection)
        assert sample.rarity("abc", 3) > 0
        assert sample.rarity("xyz", 3) == 0
