"""Leases and the turns of jobs in a database: one for all nodes, by the database's clock."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import pytest

from persistence.errors import BadAddressError, BusyError, LockedError, NotFoundError, PreconditionError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.versions import LeaseHolder
from persistence.postgresql.connections import Session
from persistence.postgresql.database_storage import DatabaseStorage
from tests.postgresql.storages import storage_at
from tests.storage.contract import write
from tests.waiting import at_once

LEA, BOB = LeaseHolder("lea", "staff"), LeaseHolder("bob")
DATA = DocumentAddress(Form("hr", "leave"), Collection.DATA, "D", "data.xml")


@pytest.fixture
def nodes(storage_uri: str, tmp_path: Path) -> tuple[DatabaseStorage, DatabaseStorage]:
    """Two nodes with one database."""
    return storage_at(storage_uri, tmp_path / "a", lock_timeout=0.5), storage_at(
        storage_uri, tmp_path / "b", lock_timeout=0.5
    )


def passes(node: DatabaseStorage, seconds: float) -> None:
    """Let time pass for all leases."""
    with node.database.apart("waiting") as connection:
        connection.execute("UPDATE lease SET ends = ends - make_interval(secs => %s)", (seconds,))


def test_a_lease_is_known_to_all_nodes_until_it_ends(nodes: tuple[DatabaseStorage, DatabaseStorage]) -> None:
    one, other = nodes
    one.leases.lock(DATA, LEA, 600)
    for call in (
        lambda: other.leases.lock(DATA, BOB, 600),
        lambda: other.leases.unlock(DATA, BOB),
        lambda: other.leases.require(DATA, User(name="bob")),
    ):
        with pytest.raises(LockedError, match=r"lea has leased the document D for (600|599) more seconds") as refused:
            call()
        assert (refused.value.user, refused.value.group) == ("lea", "staff")
    other.leases.require(DATA, User(name="lea"))
    other.leases.lock(DATA, LEA, 10)
    passes(one, 10)
    one.leases.require(DATA, User(name="bob"))
    one.leases.lock(DATA, BOB, 600)
    with pytest.raises(LockedError):
        other.leases.require(DATA, User(name="lea"))
    one.leases.unlock(DATA, BOB)
    other.leases.lock(DATA, LEA, 1)


def test_of_many_that_lease_at_once_one_does(nodes: tuple[DatabaseStorage, DatabaseStorage]) -> None:
    def lease(number: int) -> bool:
        try:
            nodes[number % 2].leases.lock(DATA, LeaseHolder(f"user {number}"), 600)
        except LockedError:
            return False
        return True

    assert sum(at_once(*(partial(lease, number) for number in range(8)))) == 1


def test_nobody_leases_a_document_while_it_is_saved(nodes: tuple[DatabaseStorage, DatabaseStorage]) -> None:
    """Until the commit, also where the block of the lease ends before that of the save."""
    one, other = nodes
    with one.writing(DATA):
        with one.leases.protecting(DATA, User(name="bob")):
            pass
        with pytest.raises(BusyError, match="another request has the lock"):
            at_once(partial(other.leases.lock, DATA, LEA, 600))
    other.leases.lock(DATA, LEA, 600)
    with one.writing(DATA), pytest.raises(LockedError), one.leases.protecting(DATA, User(name="bob")):
        pass
    with pytest.raises(LockedError), one.leases.protecting(DATA, User(name="bob")):
        pass
    with one.leases.protecting(DATA, User(name="lea")):
        write(one, DATA, "one")


def test_an_administrator_lists_and_breaks_leases(nodes: tuple[DatabaseStorage, DatabaseStorage]) -> None:
    one, other = nodes
    for name in ("c", "a", "b"):
        one.leases.lock(DocumentAddress(DATA.form, Collection.DATA, name, "data.xml"), LEA, 600)
    assert [each.document for each in other.leases.listed()] == ["a", "b", "c"]
    with pytest.raises(PreconditionError, match="lea has leased the document b now"):
        other.leases.broken("b", "bob")
    assert other.leases.broken("b", "lea").user == "lea"
    with pytest.raises(NotFoundError):
        one.leases.broken("b")
    passes(one, 601)
    with pytest.raises(NotFoundError):
        one.leases.broken("a")
    assert [each.document for each in other.leases.listed()] == ["c"]


def test_leases_are_bounded_and_expired_ones_make_room(
    nodes: tuple[DatabaseStorage, DatabaseStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persistence.postgresql.database_storage._BUCKETS", 1)
    monkeypatch.setattr("persistence.postgresql.database_storage.MOST_LEASES_OF_A_DIRECTORY", 3)
    one, _ = nodes
    addresses = [DocumentAddress(DATA.form, Collection.DATA, str(number), "data.xml") for number in range(4)]
    for each in addresses[:3]:
        one.leases.lock(each, LEA, 600)
    with pytest.raises(BusyError, match="too many documents are leased"):
        one.leases.lock(addresses[3], LEA, 600)
    one.leases.lock(addresses[0], LEA, 600)
    passes(one, 601)
    one.leases.lock(addresses[3], LEA, 600)
    assert [each.document for each in one.leases.listed()] == ["3"]


def test_a_name_that_no_document_can_have_is_refused(nodes: tuple[DatabaseStorage, DatabaseStorage]) -> None:
    with pytest.raises(BadAddressError):
        nodes[0].leases.lock(DocumentAddress(DATA.form, Collection.DATA, "a/b", "data.xml"), LEA, 600)


def test_one_node_has_the_turn_of_a_job_and_all_see_its_report(nodes: tuple[DatabaseStorage, DatabaseStorage]) -> None:
    one, other = (node.reencryption for node in nodes)
    assert (one.read(), other.is_taken()) == (b"", False)
    with one.turn("busy", 1, lambda: False):
        one.write(b"half")
        assert (other.read(), other.is_taken()) == (b"half", True)
        with pytest.raises(BusyError, match="busy"), other.turn("busy", 0.2, lambda: False):
            pass
        began = time.monotonic()
        with pytest.raises(BusyError, match="busy"), other.turn("busy", 30, lambda: True):
            pass
        assert time.monotonic() - began < 10
        waiting = threading.Thread(target=lambda: _take(other))
        waiting.start()
    waiting.join()
    assert other.read() == b"taken"
    assert not one.is_taken()


def test_the_turn_of_a_job_is_free_before_its_connection_ends(
    nodes: tuple[DatabaseStorage, DatabaseStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may take a while to notice that a connection has ended; whoever is next does not wait for that."""
    one, other = (node.reencryption for node in nodes)
    assert not other.is_taken()  # its pool has a connection from here on
    close = Session.close
    taken: list[bool] = []

    def closing(session: Session) -> None:
        taken.append(other.is_taken())
        close(session)

    with one.turn("busy", 1, lambda: False):
        assert other.is_taken()
        monkeypatch.setattr(Session, "close", closing)
    monkeypatch.setattr(Session, "close", close)
    assert taken == [False]


def _take(job: object) -> None:
    with job.turn("busy", 30, lambda: False):  # type: ignore[attr-defined]
        job.write(b"taken")  # type: ignore[attr-defined]
