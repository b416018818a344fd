"""The texts of a new index that a thread of their own indexes: all are found, and no failure is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from persistence.index.sqlite.rests_file import RestsFile
from persistence.index.sqlite.state import TABLES

_BATCHES = [[(number, f"text{number:04} of the batch") for number in range(first, first + 7)] for first in (1, 8, 15)]


@pytest.fixture
def rests(tmp_path: Path) -> Iterator[RestsFile]:
    with closing(RestsFile(str(tmp_path / "index-rests"))) as rests:
        yield rests


@pytest.fixture
def index(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "index", isolation_level=None)) as connection:
        connection.executescript(TABLES)
        yield connection


def test_all_texts_are_found_in_the_index(rests: RestsFile, index: sqlite3.Connection, tmp_path: Path) -> None:
    for batch in _BATCHES:
        rests.add(batch)
    rests.finish()
    rests.move_into(index)
    found = index.execute("SELECT rowid, rest FROM rests WHERE rests MATCH 'bat' ORDER BY rowid").fetchall()
    assert found == [row for batch in _BATCHES for row in batch]
    index.execute("INSERT INTO rests (rests) VALUES ('integrity-check')")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_texts_can_be_changed_after_that(rests: RestsFile, index: sqlite3.Connection) -> None:
    rests.add(_BATCHES[0])
    rests.finish()
    rests.move_into(index)
    index.execute("DELETE FROM rests WHERE rowid = 3")
    index.execute("INSERT INTO rests (rowid, rest) VALUES (3, 'another')")
    assert index.execute("SELECT rowid FROM rests WHERE rests MATCH 'ano'").fetchall() == [(3,)]
    assert index.execute("SELECT count(*) FROM rests WHERE rests MATCH 'bat'").fetchone() == (6,)
    index.execute("INSERT INTO rests (rests) VALUES ('integrity-check')")


def test_a_failure_of_the_thread_is_raised(rests: RestsFile, index: sqlite3.Connection) -> None:
    rests.add(_BATCHES[0])
    rests.add(_BATCHES[0])
    rests.finish()
    with pytest.raises(sqlite3.IntegrityError):
        rests.move_into(index)


def test_nothing_more_can_be_added_after_it_was_closed(rests: RestsFile) -> None:
    rests.add(_BATCHES[0])
    rests.close()
    with pytest.raises(RuntimeError):
        rests.add(_BATCHES[1])
