"""``persistence move``: trees that are the same afterwards; its output is in ``golden/transfer.txt``."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from persistence.index.sqlite.flat_file import FlatFile
from persistence.postgresql.connections import parse
from persistence.services.moves import Move
from tests import in_process
from tests.cli.command_runner import Command
from tests.http.test_flat_views import publish, save
from tests.orders import named
from tests.postgresql.server import Server, fresh_schema
from tests.service import V1, Service
from tests.services.transferring import tree


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Service]:
    """A service with a document in each of two forms."""
    with in_process.serving(tmp_path / "from", alone=True) as service:
        for form in ("hr/leave", "acme/order"):
            service.put(f"{form}/data/d/data.xml", b"<d/>", **V1)
        yield service


@pytest.fixture
def move(place: Service, tmp_path: Path, command: Command) -> Command:
    """Move the tree of the service to ``to``."""
    (tmp_path / "own.toml").write_text(f'data = "{place.data}"\n')
    common = ("move", "--to", f"{tmp_path}/to", "--config", f"{tmp_path}/own.toml")
    return lambda *options: command(*common, *options)


def test_a_prepared_move_is_ended_by_a_later_call(place: Service, move: Command, tmp_path: Path) -> None:
    assert move("--dry-run").status == 0
    assert not (tmp_path / "to").exists()
    place.put("hr/leave/draft/d/data.xml", b"<draft/>", **V1)
    done = move("--prepare")
    assert (done.status, len(done.errors)) == (0, 1)
    assert (tmp_path / "to/.arriving.json").exists()
    place.put("hr/leave/data/d/data.xml", b"<saved/>", **V1)  # which removes the draft
    assert (move().status, tree(tmp_path / "to")) == (0, tree(place.data))
    assert not (tmp_path / "to/.arriving.json").exists()


def test_after_a_long_first_pass_what_has_changed_is_copied_before_writers_are_kept_out(
    place: Service, move: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persistence.cli.transfer_commands._LONG_PASS", -1.0)
    views = Move.views

    def changing(move: Move) -> Iterator[str]:
        if place.get("hr/leave/data/new/data.xml").status != 200:  # after the first pass
            place.put("hr/leave/data/new/data.xml", b"<new/>", **V1)
        return views(move)

    monkeypatch.setattr(Move, "views", changing)
    done = move()
    assert (done.status, tree(tmp_path / "to")) == (0, tree(place.data))
    said = [line for line in done.errors if not line.startswith("{")]  # the others are the service's, in this process
    assert [line.split(":")[0] for line in said[:4]] == [
        "first pass",
        "second pass",
        "the source can only be read now",
        "last pass",
    ]
    assert "; 1 documents moved, 2 there already" in said[1]
    assert "; 0 documents moved, 3 there already" in said[3]


def test_a_command_runs_while_nobody_may_write(place: Service, move: Command) -> None:
    address = f"http://127.0.0.1:{place.port}/fr/service/persistence/crud/hr/leave/data/d/data.xml"
    put = f"{sys.executable} -c \"import urllib.request as r; r.urlopen(r.Request('{address}', b'<x/>', method='PUT'"
    put += ", headers={'Svc-Form-Definition-Version': '1'}))\""
    done = move("--then", f"! {put}")
    assert done.status == 0, done.errors
    assert move("--then", put).status == 1
    assert place.get("hr/leave/data/d/data.xml").body == b"<d/>"


# Flat views after a move are those of the source, without a rebuild.


Views = dict[str, list[tuple[str, ...]]]


def _read(names: list[str], ask: Callable[[str], list[tuple[object, ...]]]) -> Views:
    return {name: sorted(tuple(map(str, row)) for row in ask(name)) for name in names}


def of_tree(root: Path) -> Views:
    with closing(sqlite3.connect(FlatFile(str(root)).path)) as connection:
        names = [str(name) for (name,) in connection.execute("SELECT view FROM catalogue_views")]
        return _read(names, lambda name: connection.execute(f'SELECT * FROM "{name}"').fetchall())  # noqa: S608


def of_database(uri: str) -> Views:
    address = parse(uri)

    def ask(name: str) -> list[tuple[object, ...]]:
        return connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))).fetchall()

    with psycopg.connect(address.conninfo) as connection:
        connection.execute(f"SET search_path = {address.flat_schema}".encode())
        return _read([str(row[0]) for row in connection.execute("SELECT view FROM catalogue_views")], ask)


def test_flat_views_are_made_there_and_back(tmp_path: Path, database_server: Server, command: Command) -> None:
    uri, file = database_server.uri(fresh_schema()), tmp_path / "own.toml"

    def move(*arguments: str) -> None:
        done = command("move", *arguments, "--config", str(file))
        assert done.status == 0, done.errors
        assert not [line for line in done.errors if "flat views" in line]

    with in_process.serving(tmp_path, alone=True) as service:
        file.write_text(f'data = "{service.data}"\nlocal = "{tmp_path}/local"\n')
        publish(service)
        for name in ("one", "two", "three"):
            save(service, name, named(name, "pump", "valve"))
        move("--to", uri, "--prepare")
        save(service, "one", named("changed", "pump"))
        assert service.delete("acme/order/data/two/data.xml", Form_Definition_Version=1).status == 204
        move("--to", uri)
        root = service.data
    found = of_database(uri)
    assert {len(rows) for rows in found.values()} == {2, 3}, found
    back = tmp_path / "back"
    move("--from", uri, "--to", str(back))
    assert of_tree(back) == found == of_tree(root)
