"""A service that nobody uses removes contents that no revision has had for long."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from persistence import limits
from persistence.postgresql import revision_rows
from persistence.postgresql.connections import parse
from persistence.providers import opened
from tests.in_process import serving
from tests.postgresql.server import prepared
from tests.postgresql.storages import rows, storage_at
from tests.waiting import eventually

_OLD = [f"{number:040x}" for number in range(25)]
_YOUNG = "f" * 40


def _leave(uri: str) -> None:
    address = parse(uri)
    with psycopg.connect(address.conninfo) as connection:
        connection.execute(f"SET search_path TO {address.schema}".encode())
        for content in (*_OLD, _YOUNG):
            seconds = 0 if content == _YOUNG else limits.UNCLAIMED_SECONDS + 60
            connection.execute(
                "INSERT INTO unclaimed (id, folder, since) VALUES (%s, 'd', now() - make_interval(secs => %s))",
                (content, seconds),
            )
            connection.execute("INSERT INTO piece (id, number, bytes) VALUES (%s, 0, 'x')", (content,))


def _left(uri: str, directory: Path) -> set[str]:
    return {each.removeprefix(".spool/") for each in rows(storage_at(uri, directory / "looking"))}


def test_a_quiet_service_sweeps(database_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(database_uri)
    _leave(database_uri)
    monkeypatch.setattr(opened, "SWEEP_EVERY", 0.05)
    with serving(tmp_path, place=database_uri, alone=True):
        eventually(lambda: _left(database_uri, tmp_path) == {_YOUNG})


def test_one_sweep_is_bounded(database_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_at(database_uri, tmp_path / "local")
    _leave(database_uri)
    monkeypatch.setattr(revision_rows, "MOST_SWEPT", 2 * limits.SWEPT_AT_ONCE)
    revision_rows.sweep_all(storage.database)
    assert len(_left(database_uri, tmp_path)) == 1 + len(_OLD) - 2 * limits.SWEPT_AT_ONCE
    revision_rows.sweep_all(storage.database)
    assert _left(database_uri, tmp_path) == {_YOUNG}
