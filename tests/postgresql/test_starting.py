"""What keeps a service from a database is one line without a password: its address, server, tables or driver."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

import persistence.postgresql
import persistence.providers.database_provider
from persistence.dialect import SVC
from persistence.errors import ConfigurationError, StartupError
from persistence.model.addresses import Form
from persistence.postgresql.connections import parse
from persistence.properties.properties import Properties
from persistence.properties.property_table import Address
from persistence.providers.opened import Providers, unheard
from persistence.providers.router import loaded
from persistence.settings import Settings
from tests.cli.command_runner import ended
from tests.docs.markdown import DOCS
from tests.docs.sandbox import shell
from tests.docs.test_shell_examples import examples as shell_examples
from tests.postgresql import server as postgresql
from tests.postgresql.server import Server, fresh_schema, require_no_password


@pytest.mark.parametrize(
    ("uri", "schema", "described"),
    [
        ("postgresql://u:p@h:5432/d", "persistence", "database d at h:5432 as u, schema persistence"),
        ("postgres://h/d?schema=hr", "hr", "database d at h, schema hr"),
        (
            "postgresql://u:p%2F%40@a:1,b:2/d?sslmode=require&schema=hr&target_session_attrs=read-write",
            "hr",
            "database d at a:1,b:2 as u, schema hr",
        ),
        ("postgresql:///d?host=/run/pg&user=me", "persistence", "database d at /run/pg as me, schema persistence"),
        ("postgresql://[::1]:7/d", "persistence", "database d at ::1:7, schema persistence"),
    ],
)
def test_an_address_says_where_a_database_is(uri: str, schema: str, described: str) -> None:
    address = parse(uri)
    assert (address.schema, str(address)) == (schema, described)
    assert "schema" not in conninfo_to_dict(address.conninfo)
    assert "p%2F" not in repr(address)


def test_a_database_is_opened_once_whether_its_address_shows_its_password(database_uri: str, tmp_path: Path) -> None:
    """Two would have connections of their own: the index of one does not see what the other one is about to store."""
    settings = Settings(data=database_uri, local=str(tmp_path / "local"))
    with Providers(settings, Properties.load({}, SVC.property_prefix), listener_at=unheard) as providers:
        assert (type(database_uri), type(settings.roots.default)) == (str, Address)
        assert providers.at(database_uri) is providers.at(settings.roots.default)
        assert providers.at(database_uri).catalog is providers.catalog_of(Form("hr", "leave"))


def test_what_libpq_knows_reaches_it() -> None:
    known = conninfo_to_dict(parse("postgresql://u:p%2F@a:1,b:2/d?sslmode=require&connect_timeout=2").conninfo)
    assert (known["host"], known["port"], known["sslmode"]) == ("a,b", "1,2", "require")
    assert (known["password"], known["connect_timeout"]) == ("p/", "2")


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:se/cret@h/d",
        "postgresql://u:se@cret@h/d",
        "postgresql://u:se%zzcret@h/d",
        "postgresql://u:secret@h:port/d",
        "postgresql://u:secret@h/d?unknown=1",
        "postgresql://u:secret@h/d?schema=",
        "postgresql://u:secret@h/d?schema=a-b",
        f"postgresql://u:secret@h/d?schema={'s' * 64}",
        "host=h password=secret",
        "http://u:secret@h/d",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_any_of_it(uri: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(uri)
    assert "cret" not in str(refused.value)


def test_a_schema_cannot_be_that_of_the_flat_views_of_another() -> None:
    taken = parse("postgresql://u@h/d?schema=x").flat_schema
    with pytest.raises(ConfigurationError, match="must not end in _flat"):
        parse(f"postgresql://u@h/d?schema={taken}")


Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command on a database, and returns the one line with which it is refused."""
    monkeypatch.chdir(tmp_path)

    def line(command: str, uri: str) -> str:
        said = ended([command, "--data", uri], monkeypatch, capsys)
        assert (said.status, said.out, len(said.errors)) == (1, "", 1), said
        require_no_password(said.errors[0])
        return said.errors[0]

    return line


WRONG = "wr0ng/@"
STARTS: dict[str, tuple[Callable[[Server], str], str]] = {
    "wrong password": (lambda server: server.uri("s", password=WRONG), "password authentication failed for user"),
    "unknown user": (lambda server: server.uri("s", user="stranger"), "password authentication failed for user"),
    "database missing": (lambda server: server.uri("s", database="nowhere"), 'database "nowhere" does not exist'),
    "server not there": (
        lambda server: server.uri("s").replace(f":{server.port}/", f":{postgresql.free_port()}/"),
        "Connection refused",
    ),
    "no tables": (lambda server: server.uri(fresh_schema()), "is empty: 'persistence serve --init' prepares it"),
    "address that cannot be read": (lambda _: "postgresql://u:se/cret@h/d", "the address of a database cannot be read"),
}


@pytest.mark.parametrize("command", ["serve", "forms"])
@pytest.mark.parametrize("fault", STARTS)
def test_a_database_that_cannot_be_used_is_one_line_at_the_start(
    database_server: Server, refused: Refused, fault: str, command: str
) -> None:
    make, text = STARTS[fault]
    said = refused(command, make(database_server))
    assert text in said
    assert not {WRONG[:5], "cret"} & set(re.split(r"[^a-z0-9]", said))


@pytest.mark.parametrize("command", ["init", "serve", "forms", "upgrade"])
def test_a_server_that_is_too_old_is_one_line(
    database_server: Server, refused: Refused, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("persistence.postgresql.database.OLDEST_SERVER", 1000)
    assert refused(command, database_server.uri(fresh_schema())).endswith("is older than PostgreSQL 1000")


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        ("", "CREATE SCHEMA IF NOT EXISTS"),
        ("CREATE SCHEMA {s} AUTHORIZATION keeper", "CREATE EXTENSION IF NOT EXISTS pg_trgm"),
        ("CREATE SCHEMA {s} AUTHORIZATION keeper; CREATE EXTENSION pg_trgm", "CREATE SCHEMA IF NOT EXISTS {s}_flat"),
    ],
)
def test_what_a_role_may_not_make_is_one_line_that_says_what_to_run(
    database_server: Server, refused: Refused, prepare: str, text: str
) -> None:
    name = fresh_schema()
    database_server.execute(f"CREATE DATABASE {name}", "postgres")
    try:
        if prepare:
            database_server.execute(prepare.format(s=name), name)
        said = refused("init", database_server.uri(name, database=name))
        assert "an administrator of the database has to run" in said
        assert text.format(s=name) in said.replace('"', "").replace("\\", "")
    finally:
        database_server.execute(f"DROP DATABASE {name} WITH (FORCE)", "postgres")


@pytest.fixture
def without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver is installed. What the test imports instead of it goes with it, also from the packages above."""
    monkeypatch.setattr(persistence, "postgresql", persistence.postgresql)
    monkeypatch.setattr(persistence.providers, "database_provider", persistence.providers.database_provider)
    for name in [each for each in sys.modules if each.startswith(("psycopg", "persistence.postgresql"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "persistence.providers.database_provider", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)


def test_a_driver_that_is_missing_is_named_with_what_installs_it(without_driver: None) -> None:
    del without_driver
    with pytest.raises(StartupError, match=r"psycopg.* is not installed: .* extra \[postgresql\]"):
        loaded("persistence.providers.database_provider:Databases")


ADDRESS = "postgresql://forms:a-password@db.example.org/forms"


def test_the_examples_of_the_documentation_work_literally(database_server: Server, tmp_path: Path) -> None:
    """docs/postgresql.md, with the server of the tests in place of db.example.org."""
    name, found = fresh_schema(), shell_examples(DOCS / "postgresql.md")
    assert ADDRESS in found[0].text
    try:
        with shell(tmp_path, 1) as sandbox:
            made, served, upgraded = (
                sandbox.run(replace(block, text=block.text.replace(ADDRESS, database_server.uri(name))))
                for block in found
            )
    finally:
        database_server.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    assert name in made
    assert "Listening at" in served
    assert "nothing to do" in upgraded
