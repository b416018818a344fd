"""The updater keeps up with those who write: it takes full batches at once, and writers wait where too much waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from persistence.errors import BusyError
from persistence.index.sync import updater
from persistence.index.sync.updater import Updater
from persistence.model.addresses import Form
from tests.opened import opened
from tests.waiting import eventually

FORM = Form("hr", "leave")


@dataclass
class Index:
    """An index that takes in documents while ``may`` is set, and says which."""

    may: threading.Event = field(default_factory=threading.Event)
    taken: list[list[str]] = field(default_factory=list)

    def refresh(self, _form: Form, documents: Iterable[str]) -> None:
        self.may.wait(20)
        self.taken.append(list(documents))

    def make_ready(self, _form: Form) -> None:
        """Nothing is to be made."""

    def merge(self, _form: Form) -> bool:
        return False

    def restore(self) -> None:
        """Nothing is to be restored."""


class Journal:
    def write(self, _form: Form, document: str) -> str:
        return document

    def strike(self, tickets: Iterable[str]) -> None:
        list(tickets)


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.may.set()


@pytest.fixture
def updating(index: Index, monkeypatch: pytest.MonkeyPatch) -> Updater:
    monkeypatch.setattr(updater, "MOST_WAITING", 30)
    monkeypatch.setattr(updater, "_AT_ONCE", 20)
    flat = Index()
    flat.may.set()
    made = Updater(Journal(), index, flat, lambda: None, lambda _form, _error: None)  # type: ignore[arg-type]
    return opened(made)


def _write(updating: Updater, names: Iterable[int]) -> float:
    began = time.monotonic()
    for name in names:
        updating.changing(FORM, str(name))
        updating.changed(FORM, str(name))
    return time.monotonic() - began


def test_a_full_batch_is_taken_without_a_pause(
    updating: Updater, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.may.set()
    monkeypatch.setattr(updater, "_GATHERING", 60)
    _write(updating, range(19))
    time.sleep(0.1)
    assert not index.taken
    _write(updating, range(19, 40))
    eventually(lambda: len(index.taken) >= 2)
    assert [len(each) for each in index.taken] == [20, 20]


def test_a_writer_waits_while_too_many_changes_wait_but_not_for_ever(
    updating: Updater, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updater, "_GATHERING", 0.0)
    monkeypatch.setattr(updater, "LONGEST_TURN", 1.0)
    _write(updating, range(30))
    while len(updating._changed) == 30:  # noqa: SLF001 - until a batch is taken, which then waits for the index
        time.sleep(0.01)
    room = 30 - len(updating._changed)  # noqa: SLF001
    assert _write(updating, range(30, 30 + room)) < 1.0
    assert _write(updating, (98,)) >= 1.0
    monkeypatch.setattr(updater, "LONGEST_TURN", 20)
    threading.Timer(0.3, index.may.set).start()
    assert 0.2 <= _write(updating, (99,)) < 15
    assert len(updating._changed) <= 30  # noqa: SLF001


def test_writers_do_not_wait_for_a_flat_view_that_is_filled_for_long(
    index: Index, updating: Updater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that are tried again are not counted, and are not lost."""
    monkeypatch.setattr(updater, "_GATHERING", 0.0)
    monkeypatch.setattr(updater, "LONGEST_TURN", 20)
    index.may.set()
    filling, tried = threading.Event(), list[list[str]]()
    filling.set()

    def refresh(_form: Form, documents: Iterable[str]) -> None:
        if filling.is_set():
            raise BusyError("another process makes views")
        tried.append(list(documents))

    monkeypatch.setattr(updating._flat, "refresh", refresh)  # noqa: SLF001
    assert _write(updating, range(200)) < 15
    eventually(lambda: sum(map(len, index.taken)) >= 200)
    filling.clear()
    eventually(lambda: {each for part in tried for each in part} == set(map(str, range(200))))
    eventually(lambda: not updating.delay)


def test_a_writer_that_waits_goes_on_when_the_process_ends(
    updating: Updater, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updater, "LONGEST_TURN", 20)
    monkeypatch.setattr(updater, "_GATHERING", 20)
    index.may.set()
    _write(updating, range(19))
    monkeypatch.setattr(updater, "MOST_WAITING", 0)
    ending = threading.Timer(0.2, updating.close)
    ending.start()
    assert _write(updating, (19,)) < 15
    ending.join()
