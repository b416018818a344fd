"""The tables of a database: made in an empty one, refused where they are newer or older, upgraded in order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from persistence.errors import StartupError
from persistence.postgresql import schema
from persistence.postgresql.database import Database, lock_key
from persistence.postgresql.schema import Step
from tests.postgresql.server import Server, fresh_schema
from tests.waiting import at_once


@pytest.fixture
def empty(database_server: Server) -> Iterator[Database]:
    name = fresh_schema()
    with Database(database_server.uri(name), lock_timeout=5) as database:
        yield database
    database_server.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def test_an_empty_database_is_prepared_only_where_that_is_asked_for(empty: Database) -> None:
    assert schema.missing(empty) == [step.name for step in schema.STEPS]
    with pytest.raises(StartupError, match=r"is empty: 'persistence serve --init'"):
        schema.require(empty)
    assert schema.init(empty)
    schema.require(empty)
    assert schema.missing(empty) == []
    assert not schema.init(empty)


def test_an_older_schema_is_upgraded_only_where_that_is_asked_for(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.init(empty)
    later = Step("one more", "CREATE TABLE later (id int); CREATE TABLE latest (id int)")
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, later))
    with pytest.raises(StartupError, match=r"older version of the service: 'persistence upgrade' .*one more"):
        schema.require(empty)
    assert not schema.init(empty)
    assert schema.missing(empty) == ["one more"]
    assert schema.upgrade(empty) == ["one more"]
    schema.require(empty)
    assert schema.upgrade(empty) == []


def test_reports_of_jobs_stay_when_the_record_of_reindexing_becomes_one_of_them(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [step.name for step in schema.STEPS]
    at = steps.index("one record of jobs")
    with monkeypatch.context() as before:
        before.setattr(schema, "STEPS", schema.STEPS[:at])
        schema.init(empty)
    with empty.apart("filling") as connection:
        connection.execute("INSERT INTO job VALUES ('encryption anew', 'so far')")
        connection.execute("INSERT INTO reindexing (current, total) VALUES (3, 7)")
    assert schema.upgrade(empty) == steps[at:]
    with empty.reading("looking") as connection:
        found = connection.execute("SELECT name, convert_from(report, 'UTF8') FROM job ORDER BY name").fetchall()
    assert found == [("encryption anew", "so far"), ("reading of documents", '{"current" : 3, "total" : 7}')]


def test_an_upgrade_that_another_instance_is_at_is_refused_after_the_deadline_of_locks(
    empty: Database, database_server: Server
) -> None:
    schema.init(empty)
    with empty.connected() as other, Database(database_server.uri(empty.address.schema), lock_timeout=0.1) as waiting:
        other.execute("SELECT pg_advisory_lock(%s)", (lock_key(empty.address.schema, "steps"),))
        with pytest.raises(StartupError, match="another request has the lock"):
            schema.upgrade(waiting)
    assert schema.upgrade(empty) == []


def test_a_newer_schema_is_refused(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    schema.init(empty)
    monkeypatch.setattr(schema, "STEPS", schema.STEPS[:-1])
    for call in (schema.require, schema.missing, schema.upgrade, schema.init):
        with pytest.raises(StartupError, match=r"newer version of the service than this one: it has the step"):
            call(empty)


def test_a_step_that_fails_leaves_nothing_and_the_steps_before_stay(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.init(empty)
    steps = (Step("good", "CREATE TABLE good (id int)"), Step("bad", "CREATE TABLE bad (id int); SELEC"))
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, *steps))
    with pytest.raises(StartupError, match="preparing database"):
        schema.upgrade(empty)
    assert schema.missing(empty) == ["bad"]
    with empty.reading("looking") as connection:
        assert connection.execute("SELECT to_regclass('good') IS NULL, to_regclass('bad') IS NULL").fetchone() == (
            False,
            True,
        )


def test_a_preparation_that_ends_in_the_middle_leaves_an_empty_database(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = schema.STEPS
    monkeypatch.setattr(schema, "STEPS", (*steps[:3], Step("bad", "SELEC"), *steps[3:]))
    with pytest.raises(StartupError, match="preparing database"):
        schema.init(empty)
    assert len(schema.missing(empty)) == len(schema.STEPS)
    monkeypatch.setattr(schema, "STEPS", steps)
    assert schema.init(empty)
    schema.require(empty)


def test_an_instance_of_the_version_before_finds_indexed_versions_under_their_old_name(empty: Database) -> None:
    schema.init(empty)
    with empty.apart("filling") as connection:
        connection.execute("INSERT INTO edition VALUES (1, 1, 0, 'UNKNOWN', '', '', '[]') ON CONFLICT DO NOTHING")
        connection.execute("SELECT round FROM edition WHERE form = 1 AND version = 1 FOR UPDATE")
        connection.execute("UPDATE edition SET round = 1, keys = '[1]' WHERE form = 1 AND version = 1")
        assert connection.execute("SELECT form, version, round, keys FROM indexed_version").fetchall() == [
            (1, 1, 1, "[1]")
        ]


def test_nodes_that_start_at_once_apply_each_step_once(empty: Database) -> None:
    assert sorted(at_once(*[partial(schema.init, empty)] * 4)) == [False] * 3 + [True]
    schema.require(empty)
