"""Marks of states: each change makes another one, and a last pass looks at nothing but what has another one."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.sidecar import tombstone
from persistence.postgresql.database_check import maintained
from persistence.services import moves
from persistence.services.moves import UnitState, state_of
from persistence.services.transfers import TransferResult
from persistence.storage import reader
from persistence.storage.storage import Revisions, StateMark, Storage
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.opened import opened
from tests.postgresql.server import requires_postgresql
from tests.postgresql.storages import storage_at
from tests.services.transferring import moved
from tests.storage.contract import next_sidecar, put

FORM = Form("pics", "album")
D = DocumentAddress(FORM, Collection.DATA, "d", DATA_XML)
SCAN, DRAFT = D.moved(Collection.DATA, "scan.bin"), D.moved(Collection.DRAFT)
V1, LOGO = DefinitionAddress(FORM, 1, FORM_XHTML), DefinitionAddress(FORM, 1, "logo.bin")
_SETTLED = 0.02


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SETTLED", _SETTLED * 1e9)


@pytest.fixture(params=["tree", pytest.param("database", marks=requires_postgresql)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "tree":
        yield opened(Store(initialised(tmp_path / "from"), lock_timeout=5))
    else:
        yield storage_at(request.getfixturevalue("database_uri"), tmp_path / "local")


def marked(storage: Storage) -> dict[Address, StateMark]:
    """The marks, once none is too young."""
    time.sleep(_SETTLED * 2)
    found = {each.main: each for each in storage.marks(FORM)}
    assert all(each.value for each in found.values())
    return found


def _delete(storage: Storage, address: Address) -> None:
    with storage.writing(address) as writer:
        over = writer.current(address)
        modified = next_sidecar(type("Upload", (), {"id": "0" * 40, "size": 0, "digest": ""}), over).modified
        writer.delete(address, tombstone(over.sidecar, modified=modified, modifier=None), over=over)


def _save(storage: Storage) -> None:
    put(storage, D, b"<three/>")
    _discard(storage)  # as it would be outdated


def _discard(storage: Storage) -> None:
    with storage.writing(D) as writer:
        writer.discard_draft(FORM, "d")


def _purge(storage: Storage) -> None:
    with storage.writing(D) as writer:
        assert writer.remove_older(D, storage.revisions(D)[:1]) == 1


CHANGES: list[Callable[[Storage], object]] = [
    _save,
    lambda storage: put(storage, SCAN, b"scan"),
    lambda storage: put(storage, DRAFT, b"<draft2/>"),
    lambda storage: put(storage, DRAFT.moved(Collection.DRAFT, "scan.bin"), b"scan"),
    _discard,
    _purge,
    lambda storage: _delete(storage, D),
]


def filled(storage: Storage) -> None:
    for body in (b"<one/>", b"<two/>"):
        put(storage, D, body)
    put(storage, DRAFT, b"<draft/>")
    put(storage, V1, b"<html/>")
    for other in "ef":
        put(storage, DocumentAddress(FORM, Collection.DATA, other, DATA_XML), b"<other/>")


def test_each_change_makes_another_mark_of_its_document(storage: Storage) -> None:
    filled(storage)
    before = marked(storage)
    assert set(before) == {V1, D, *(DocumentAddress(FORM, Collection.DATA, each, DATA_XML) for each in "ef")}
    for change in CHANGES:
        change(storage)
        now = marked(storage)
        assert {main for main in now if now[main] != before[main]} == {D}
        before = now
    put(storage, LOGO, b"logo")
    now = marked(storage)
    assert {main for main in now if now[main] != before[main]} == {V1}


def test_a_state_has_the_mark_that_was_made_before_it_was_read(storage: Storage) -> None:
    filled(storage)
    for change in CHANGES:
        for mark in marked(storage).values():
            assert state_of(storage, mark.main).has(mark)
        change(storage)


def test_a_draft_that_comes_and_goes_after_the_mark_is_not_in_the_state_of_the_mark(storage: Storage) -> None:
    """Afterwards the mark is the same again."""
    put(storage, D, b"<one/>")
    before = marked(storage)[D]
    put(storage, DRAFT, b"<draft/>")
    assert not state_of(storage, D).has(before)
    _discard(storage)
    assert marked(storage)[D] == before
    assert state_of(storage, D).has(before)


def test_what_is_young_has_no_mark_in_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SETTLED", 60e9)
    store = opened(Store(initialised(tmp_path / "from"), lock_timeout=5))
    put(store, D, b"<one/>")
    (mark,) = store.marks(FORM)
    assert mark.value == ""
    assert not state_of(store, D).has(mark)


@requires_postgresql
@pytest.mark.parametrize("kind", ["tree", "into a database", "out of a database"])
def test_a_last_pass_looks_at_nothing_but_what_has_changed(
    kind: str, tmp_path: Path, database_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = maintained(storage_at(database_uri, tmp_path / "local"))
    tree = opened(Store(initialised(tmp_path / "from"), lock_timeout=5))
    source = database.storage if kind == "out of a database" else tree
    filled(source)
    time.sleep(_SETTLED * 2)
    read = list[Address]()

    def reading(revisions: Revisions, main: Address) -> UnitState:
        read.append(main)
        return state_of(revisions, main)

    def meanwhile() -> None:
        put(source, D, b"<three/>")
        monkeypatch.setattr(moves, "state_of", reading)

    there = database if kind == "out of a database" else tmp_path / "from"
    outcomes = moved(there, database if kind == "into a database" else tmp_path / "to", meanwhile=meanwhile)
    assert set(read) == {D}
    assert sorted(each.result is TransferResult.MOVED for each in outcomes) == [False, False, False, True]
