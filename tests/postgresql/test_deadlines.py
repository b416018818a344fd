"""A server that is stopped: it keeps no thread past its deadline, and is found again when it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from persistence.errors import BusyError, OutcomeUnknownError
from persistence.postgresql import connections
from persistence.postgresql.database import Database
from tests.opened import opened
from tests.postgresql.server import Server, prepared, running
from tests.postgresql.stopping import stopped


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def database(server: Server, monkeypatch: pytest.MonkeyPatch) -> Database:
    for name in ("STATEMENT_SECONDS", "STATEMENT_ANSWER_SECONDS"):
        monkeypatch.setattr(f"persistence.postgresql.connections.{name}", 1)
    return opened(Database(prepared(f"{server.uri('stopped')}&connect_timeout=2"), lock_timeout=1))


def _ask(database: Database) -> object:
    with database.reading("asking") as connection:
        return connection.execute("SELECT count(*) FROM form").fetchone()


def test_a_statement_and_a_connection_end_at_their_deadlines(server: Server, database: Database) -> None:
    assert _ask(database) == (0,)
    with stopped(server):
        began = time.monotonic()
        with pytest.raises(BusyError, match="asking: the database cannot be had: the server has not answered for 2 s"):
            _ask(database)
        assert 1.9 < time.monotonic() - began < 4
        began = time.monotonic()
        with pytest.raises(BusyError, match="no connection to database"):
            _ask(database)
        assert time.monotonic() - began < 10
    began = time.monotonic()
    while time.monotonic() - began < 20:
        with suppress(BusyError):
            assert _ask(database) == (0,)
            break
    else:
        pytest.fail("the server is not found again")


def test_a_commit_that_is_not_answered_has_an_unknown_outcome(server: Server, database: Database) -> None:
    def save() -> None:
        with database.transaction("saving", "a form") as connection:
            connection.execute("INSERT INTO form (app, name) VALUES ('a', 'b')")
            began.append(time.monotonic())
            stop.__enter__()

    began: list[float] = []
    stop = stopped(server)
    try:
        with pytest.raises(OutcomeUnknownError, match=r"saving a form: .* lost within the commit"):
            save()
        assert time.monotonic() - began[0] < 10
    finally:
        stop.__exit__(None, None, None)
    assert _ask(database) in {(0,), (1,)}


def test_the_waits_of_a_transaction_have_one_deadline(database: Database) -> None:
    """A disk that is slow lets each statement of a save wait; all of them may not wait as long as each."""

    def save(statements: int) -> None:
        with database.transaction("saving", first=None) as connection:
            for _ in range(statements):
                connection.execute("SELECT pg_sleep(0.7)").fetchone()

    began = time.monotonic()
    with pytest.raises(BusyError, match=r"saving: the database cannot be had: the server has not answered for"):
        save(10)
    assert time.monotonic() - began < 4
    save(2)  # the next one has all of the time


_SLOW_COMMIT = """
CREATE FUNCTION stopped.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.4); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON stopped.form DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION stopped.slow()
"""


def test_after_a_slow_commit_one_is_tried_out(
    server: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the next one begins, that is; while it is tried out, nothing is refused that could be stored."""
    monkeypatch.setattr("persistence.postgresql.connections.STATEMENT_SECONDS", 5)
    tried: list[bool] = []
    monkeypatch.setattr(connections, "_is_confirmed", lambda _: tried.append(True) or True)
    server.execute(_SLOW_COMMIT)
    try:
        database.require_committing()
        assert not tried
        with database.transaction("saving", first=None) as connection:
            connection.execute("INSERT INTO form (app, name) VALUES ('slow', 'b')")
        for _ in range(3):
            database.require_committing()
        assert tried == [True]
    finally:
        server.execute("DROP TRIGGER slow ON stopped.form; DROP FUNCTION stopped.slow()")
