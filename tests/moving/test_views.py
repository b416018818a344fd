"""Flat views after a move: they are those of the source, without a rebuild."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
from psycopg import sql

from persistence.index.sqlite.flat_file import FlatFile
from persistence.postgresql.connections import parse
from tests import in_process
from tests.cli.command_runner import Command
from tests.http.test_flat_views import publish, save
from tests.orders import named
from tests.postgresql.server import Server, fresh_schema

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
