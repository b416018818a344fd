"""The next search is right, or says that it cannot be yet: whatever happens to the files of an index."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.index import connections, facts, identity
from persistence.index.index import Index
from persistence.index.indexer import Indexer
from persistence.index.pending import Pending
from persistence.model.search import (
    ControlFilter,
    Drafts,
    Field,
    FieldFilter,
    Comparison,
    Match,
    Query,
    Scope,
    Sort,
    WhichDrafts,
)
from tests.index import asked
from tests.index.memory import FORM, Content, Memory, index_of, plain

_EVERYTHING = Query(size=10_000)


def content(text: str, number: int, version: int = 1) -> Content:
    when = asked.instant(number * 1000)
    return Content(
        version, when, when, creator=f"user{number % 3}", values={"name": (text,), "free": (f"free {text}",)}
    )


def token(text: str) -> Query:
    return Query(controls=(ControlFilter("name", Match.EXACT, text),))


def names(index: Index, query: Query = _EVERYTHING) -> list[str]:
    return [hit.document for hit in index.search(FORM, Scope(), query).page]


@pytest.fixture
def memory() -> Memory:
    memory = Memory()
    memory.publish(1, ("name",))
    for number in range(5):
        memory.put(f"d{number}", content(f"text {number}", number))
    return memory


def file_of(root: Path) -> Path:
    (pointer,) = root.glob(".index/*/*/current")
    return pointer.parent / pointer.read_text()


def change(memory: Memory, pending: Pending, document: str, text: str, number: int) -> None:
    """Save it, noted as the service notes it; the process dies before the index hears of it."""
    pending.note(FORM, document)
    memory.put(document, content(text, number))


# What is lost of the files under a running service, which has them open.


def _remove_all(root: Path) -> None:
    shutil.rmtree(root / ".index")


def _remove_file(root: Path) -> None:
    file_of(root).unlink()


def _remove_log(root: Path) -> None:
    os.unlink(f"{file_of(root)}-wal")


def _remove_shared_memory(root: Path) -> None:
    os.unlink(f"{file_of(root)}-shm")


def _remove_companions(root: Path) -> None:
    _remove_log(root)
    _remove_shared_memory(root)


def _remove_pointer(root: Path) -> None:
    next(root.glob(".index/*/*/current")).unlink()


def _point_to_nothing(root: Path) -> None:
    next(root.glob(".index/*/*/current")).write_text("0" * 40 + ".sqlite")


def _point_astray(root: Path) -> None:
    next(root.glob(".index/*/*/current")).write_text("../../../layout.json")


def _put_another(root: Path) -> None:
    path = file_of(root)
    shutil.copy(path, f"{path}.copy")
    os.rename(f"{path}.copy", path)


def _another_schema(root: Path) -> None:
    path = file_of(root)
    with closing(sqlite3.connect(path)) as connection:
        facts.write(connection, facts.SCHEMA_FACT, 10**6)
        connection.commit()


LOSSES: tuple[Callable[[Path], None], ...] = (
    _remove_all,
    _remove_file,
    _remove_log,
    _remove_shared_memory,
    _remove_companions,
    _remove_pointer,
    _point_to_nothing,
    _point_astray,
    _put_another,
)


@pytest.mark.parametrize("lose", LOSSES)
def test_files_that_are_lost_under_a_running_service_are_made_anew(
    lose: Callable[[Path], None], memory: Memory, tmp_path: Path
) -> None:
    index, pending = index_of(tmp_path, memory)
    other, _ = index_of(tmp_path, memory)
    assert len(names(index)) == len(names(other)) == 5
    change(memory, pending, "d1", "before", 11)
    index.take_in(FORM, ["d1"])
    pending.leave()
    for log in list(pending.abandoned()):
        log.remove()
    lose(tmp_path)
    for each in (index, other, index_of(tmp_path, memory)[0]):
        assert names(each, token("before")) == ["d1"]
        assert names(each, token("text 1")) == []
    change(memory, pending, "d2", "after", 12)
    for each in (other, index, index_of(tmp_path, memory)[0]):
        assert names(each, token("after")) == ["d2"]
        assert len(names(each)) == 5


@pytest.mark.parametrize("lose", [*LOSSES, _another_schema])
def test_files_that_are_lost_while_nobody_serves_are_made_anew(
    lose: Callable[[Path], None], memory: Memory, tmp_path: Path
) -> None:
    """As after kill -9 of all workers: the last changes are in the log only."""
    index, pending = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    change(memory, pending, "d1", "before", 11)
    index.take_in(FORM, ["d1"])
    copy = tmp_path / "as it was"
    shutil.copytree(tmp_path / ".index", copy)
    index._close(FORM)  # noqa: SLF001 - and its files are as those of a process that was killed
    shutil.rmtree(tmp_path / ".index")
    shutil.copytree(copy, tmp_path / ".index")
    shutil.rmtree(tmp_path / ".index/.pending")
    with suppress(FileNotFoundError):
        lose(tmp_path)
    again, _ = index_of(tmp_path, memory)
    assert names(again, token("before")) == ["d1"]
    assert names(again, token("text 1")) == []
