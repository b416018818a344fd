"""Leases and the turns of jobs in a database: one for all nodes, by the database's clock."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.postgresql.connections import Session
from persistence.postgresql.database_storage import DatabaseStorage
from tests.postgresql.storages import storage_at
from tests.storage.leases_contract import LEA, LeasesContract, Leasing, address

Nodes = tuple[DatabaseStorage, DatabaseStorage]


@pytest.fixture
def nodes(storage_uri: str, tmp_path: Path) -> Nodes:
    one, other = (storage_at(storage_uri, tmp_path / name, lock_timeout=0.5) for name in "ab")
    return one, other


def passes(node: DatabaseStorage, seconds: float) -> None:
    with node.database.apart("waiting") as connection:
        connection.execute("UPDATE lease SET ends = ends - make_interval(secs => %s)", (seconds,))


class TestLeases(LeasesContract):
    @pytest.fixture
    def leasing(self, nodes: Nodes) -> Leasing:
        one, other = nodes
        return Leasing(one.leases, other.leases, partial(passes, one), lambda: one.writing(address()))


def test_leases_are_bounded_and_expired_ones_make_room(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persistence.postgresql.database_storage._BUCKETS", 1)
    monkeypatch.setattr("persistence.postgresql.database_storage.MOST_LEASES_OF_A_DIRECTORY", 3)
    one, _ = nodes
    for number in range(3):
        one.leases.lock(address(str(number)), LEA, 600)
    with pytest.raises(BusyError, match="too many documents are leased"):
        one.leases.lock(address("3"), LEA, 600)
    one.leases.lock(address("0"), LEA, 600)
    passes(one, 601)
    one.leases.lock(address("3"), LEA, 600)
    assert [each.document for each in one.leases.listed()] == ["3"]


def test_one_node_has_the_turn_of_a_job_and_all_see_its_report(nodes: Nodes) -> None:
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

        def take() -> None:
            with other.turn("busy", 30, lambda: False):
                other.write(b"taken")

        waiting = threading.Thread(target=take)
        waiting.start()
    waiting.join()
    assert other.read() == b"taken"
    assert not one.is_taken()


def test_the_turn_of_a_job_is_free_before_its_connection_ends(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
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
