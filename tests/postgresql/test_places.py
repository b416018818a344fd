"""A database as a place of forms: what keeps a service from it is one line, without the password."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import persistence.postgresql
import persistence.providers.database_provider
from persistence.app import create_app
from persistence.cli import main
from persistence.errors import PersistenceError, StartupError
from persistence.postgresql.connections import parse
from persistence.properties.properties import Properties
from persistence.providers.opened import probe
from persistence.providers.router import engine_of
from persistence.settings import Settings, load
from tests.opened import opened
from tests.postgresql import server as postgresql
from tests.postgresql.server import PASSWORD, Server

CRUD = "/fr/service/persistence/crud/a/b/data/D/data.xml"
NOTHING = Properties.load({}, "svc.")


def refused(settings: Settings) -> str:
    """The one line that says why a service does not start."""
    with pytest.raises(PersistenceError) as error:
        probe(settings, NOTHING)
    line = str(error.value)
    assert "\n" not in line
    assert PASSWORD not in line
    return line


def test_what_keeps_a_service_from_starting_is_said(database_server: Server, tmp_path: Path) -> None:
    name = postgresql.fresh_schema()
    own = {"local": str(tmp_path / "local"), "lock_timeout": 2.0}
    cases = {
        database_server.uri(name): "is empty: 'persistence serve --init' prepares it",
        database_server.uri(name, password="wrong"): "password authentication failed",  # noqa: S106 - is to be wrong
        database_server.uri(name, database="none"): 'database "none" does not exist',
        f"postgresql://keeper:{'x' * 9}@127.0.0.1:{postgresql.free_port()}/forms": "refused",
    }
    for uri, said in cases.items():
        line = refused(Settings(data=uri, **own))  # type: ignore[arg-type]  # each is of its type
        assert said in line, line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "DELETE FROM {0}.step WHERE number = (SELECT max(number) FROM {0}.step)",
            "'persistence upgrade' brings it up",
        ),
        ("INSERT INTO {0}.step VALUES (99, 'of tomorrow', now())", "of a newer version of the service than this one"),
    ],
)
def test_tables_of_another_version_are_refused(
    database_server: Server, database_uri: str, tmp_path: Path, change: str, said: str
) -> None:
    database_server.execute(change.format(parse(database_uri).schema))
    assert said in refused(Settings(data=database_uri, local=str(tmp_path / "local")))


def test_a_database_that_can_only_be_read_is_not_ready(
    database_server: Server, database_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service goes on reading; a writer is told to come back."""
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on")
    app = opened(create_app(Settings(data=database_uri, local=str(tmp_path / "local"), keys=str(tmp_path / "k"))))
    client = app.test_client()
    assert client.get("/healthz").status_code == 200
    ready = client.get("/readyz")
    assert (ready.status_code, "can only be read" in ready.text) == (503, True)
    put = client.put(CRUD, data=b"<d/>", headers={"Svc-Form-Definition-Version": "1"})
    assert (put.status_code, "Retry-After" in put.headers) == (503, True), put.text
    assert client.get(CRUD).status_code == 404
    assert PASSWORD not in ready.text + put.text
    assert database_server.pid


def test_a_database_that_is_lost_is_not_ready(tmp_path: Path) -> None:
    with postgresql.running() as server:
        uri = postgresql.prepared(server.uri("forms"))
        settings = Settings(data=uri, local=str(tmp_path / "local"), keys=str(tmp_path / "k"), lock_timeout=2.0)
        client = opened(create_app(settings)).test_client()
        assert client.get("/readyz").status_code == 200
        server.stop()
        answers = [client.get(path) for path in ("/healthz", "/readyz", CRUD)]
        assert [each.status_code for each in answers] == [200, 503, 503]
        assert "Retry-After" in answers[2].headers
        assert " within 2." in answers[2].text  # and not the five seconds that a connection may take


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
        engine_of("persistence.providers.database_provider:Databases")


def test_an_address_that_cannot_be_read_is_refused_without_any_of_it(tmp_path: Path) -> None:
    line = refused(Settings(data="postgresql://u:se/cret@h/d", local=str(tmp_path / "local")))
    assert "cret" not in line


def test_a_provider_may_be_a_database(
    database_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'"svc.persistence.provider.acme.*.*" = "far"\n"svc.persistence.far.uri" = "{database_uri}"\n')
    assert load(str(file), environment={}).properties.form_providers
    shown = ""
    for arguments in (["config"], ["config", "route", "acme/order", "data"]):
        monkeypatch.setattr(sys, "argv", ["persistence", *arguments, "--config", str(file)])
        with pytest.raises(SystemExit):
            main()
        shown += capsys.readouterr().out
    assert urlsplit(database_uri).password not in shown
    assert "provider far is a database, postgresql://keeper:***@127.0.0.1" in shown
