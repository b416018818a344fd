"""The commands on a database: they work as on a tree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from flask.testing import FlaskClient
from psycopg import sql

from persistence.app import create_app
from persistence.postgresql.connections import parse
from persistence.settings import Settings
from tests import orders
from tests.cli.command_runner import Ended, ended
from tests.http.test_export import Archive, real_archive
from tests.opened import opened
from tests.orders import named
from tests.postgresql import server as postgresql
from tests.postgresql.server import Server

CRUD = "/fr/service/persistence/crud/acme/order"
BY_ANN = {"Svc-Form-Definition-Version": "1", "Svc-Username": "ann"}
DOCUMENT = "acme/order/data/D"
Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], database_uri: str) -> Run:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: ended([*arguments, "--data", database_uri], monkeypatch, capsys)


@pytest.fixture
def client(tmp_path: Path, database_uri: str) -> FlaskClient:
    """A service on the database, with a form and a document of two revisions that ``ann`` has stored."""
    settings = Settings(data=database_uri, local=str(tmp_path / "local"), keys=str(tmp_path / "keys.json"))
    asking = opened(create_app(settings)).test_client()
    stored = {"form/form.xhtml": orders.definition(), "data/D/a.bin": b"a cat", "data/D/data.xml": named("Ann")}
    for path, body in stored.items():
        assert asking.put(f"{CRUD}/{path}", data=body, headers=BY_ANN).status_code == 201
    assert asking.put(f"{CRUD}/data/D/data.xml", data=named("Bea"), headers=BY_ANN).status_code == 204
    return asking


def _read(client: FlaskClient) -> tuple[int, bytes]:
    answer = client.get(f"{CRUD}/data/D/data.xml", headers=BY_ANN)
    return answer.status_code, answer.data


@pytest.mark.parametrize("history", ["exclude", "include"])
def test_an_archive_of_the_real_system_goes_round(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    database_server: Server,
    history: str,
) -> None:
    """Imported, exported, and imported into an empty database, whose export is equal."""
    other = database_server.uri(postgresql.fresh_schema())
    assert ended(["init", "--data", other], monkeypatch, capsys).status == 0
    (tmp_path / "0.zip").write_bytes(real_archive(history))
    assert run("import", "0.zip", "--dry-run").out == "a/f/data/e: imported: came without an owner\n"
    assert run("import", "0.zip").out == "a/f/data/e: imported: came without an owner\n"
    assert run("export", "1.zip", "--history", history).status == 0
    assert ended(["import", "1.zip", "--data", other], monkeypatch, capsys)[:2] == (0, "")
    assert ended(["export", "2.zip", "--history", history, "--data", other], monkeypatch, capsys).status == 0
    first, second = (Archive((tmp_path / name).read_bytes()) for name in ("1.zip", "2.zip"))
    assert (first.contents, first.metadata) == (second.contents, second.metadata)
    newest = max(name for name in first.contents if "/d/" in name and name.endswith("/data.xml"))
    found = first.sidecar(newest)
    assert (found.creator, found.group, found.modifier, found.stage) == ("ann", "staff", "bob", "started")


def test_a_document_and_a_form_come_back_out_of_a_backup(run: Run, client: FlaskClient, tmp_path: Path) -> None:
    assert run("backup", str(tmp_path / "backups")).status == 0
    assert client.put(f"{CRUD}/data/D/data.xml", data=named("Zoe"), headers=BY_ANN).status_code == 204
    assert run("restore", str(tmp_path / "backups"), "acme/order/D").status == 0
    assert _read(client) == (200, named("Bea"))
    for path in ("form/form.xhtml", "data/D/data.xml"):
        assert client.delete(f"{CRUD}/{path}", headers=BY_ANN).status_code == 204
    assert "1 document came back" in run("restore", str(tmp_path / "backups"), "acme/order").out
    assert _read(client) == (200, named("Bea"))
    assert client.get(f"{CRUD}/form/form.xhtml", headers=BY_ANN).status_code == 200
    assert "Bea" in run("search", "acme/order", "--path", "customer/name=Bea").out
    assert run("check", "--deep").status == 0


def test_a_damaged_document_comes_back(run: Run, client: FlaskClient, tmp_path: Path, database_uri: str) -> None:
    """What is damaged is stored over: a content that is not what its sidecar says is not "as in the backup"."""
    assert run("backup", str(tmp_path / "backups")).status == 0
    with psycopg.connect(parse(database_uri).conninfo, autocommit=True) as connection:
        schema = sql.Identifier(parse(database_uri).schema)
        connection.execute(
            sql.SQL("UPDATE {}.revision SET body = '<x/>' WHERE name = 'data.xml' AND is_current").format(schema)
        )
    assert _read(client)[0] == 500
    assert run("restore", str(tmp_path / "backups"), "acme/order/D").status == 0
    assert _read(client) == (200, named("Bea"))
    assert "its content has 4" in run("check", "--deep").out, "the damaged revision is in the history"


def test_a_revision_is_brought_back(run: Run, client: FlaskClient) -> None:
    assert run("revert", DOCUMENT, "--as", "eve").status == 0
    assert _read(client) == (200, named("Ann"))


def test_old_revisions_are_purged(run: Run, client: FlaskClient) -> None:
    instants = run("history", DOCUMENT, "--json").out.splitlines()
    newest = json.loads(instants[0])["modified"]
    assert "1 revision" in run("purge", "--revisions", "--older-than", newest, "--yes").out
    assert run("history", DOCUMENT).out.splitlines()[-1] == "1 revision"
    assert _read(client) == (200, named("Bea"))


def test_attachments_are_purged_that_no_data_may_name(run: Run, client: FlaskClient) -> None:
    """An encrypted value may name any attachment of its document."""
    sealed = b"<form><x encrypted='true'>sealed</x></form>"
    for name, body in (("E/1.bin", b"x"), ("E/data.xml", sealed), ("F/1.bin", b"x"), ("F/data.xml", b"<form/>")):
        path = f"/crud/acme/order/data/{name}"  # the public API lets no client label a value
        last = client.put(path, data=body, headers=BY_ANN).headers["Svc-Last-Modified"]
    purged = run("purge", "acme/order", "--orphans", "--older-than", last, "--yes")
    assert "2 attachments" in purged.out, purged
    files = ("D/a.bin", "E/1.bin", "F/1.bin")
    assert [client.get(f"{CRUD}/data/{name}", headers=BY_ANN).status_code for name in files] == [404, 200, 404]


def test_a_document_is_erased_with_a_certificate(run: Run, client: FlaskClient, tmp_path: Path) -> None:
    erased = run("erase", DOCUMENT, "--certificate", str(tmp_path / "certificate.json"), "--yes")
    assert erased.status == 0, erased
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert len(certificate["documents"][0]["files"]) == 3
    assert certificate["ended"]
    assert sum("write-ahead log" in each for each in certificate["remaining"]) == 1
    assert _read(client)[0] == 404
    assert run("search", "acme/order").errors == ["0 found"]


@pytest.mark.usefixtures("client")
def test_data_is_reencrypted(run: Run) -> None:
    assert "no encryption key exists" in " ".join(run("reencrypt").errors)
    assert run("reencrypt", "nobody/knows").status == 1


@pytest.mark.usefixtures("client")
def test_a_key_with_which_nothing_in_a_database_is_encrypted_is_retired(run: Run) -> None:
    old, new = (run("encryption-key", "new").out.strip() for _ in range(2))
    assert run("encryption-key", "retire", old).status == 0
    assert [line.split()[0] for line in run("encryption-key", "list").out.splitlines()] == ["ID", new]


def test_settings_are_printed_without_the_password(run: Run) -> None:
    shown = run("config").out
    assert 'data = "postgresql://keeper:***@127.0.0.1' in shown
    assert postgresql.PASSWORD not in shown


def test_keys_and_the_audit_are_files_of_the_instance(run: Run, tmp_path: Path) -> None:
    assert run("api-key", "new", "front").status == 0
    assert [path.name for path in (tmp_path / "var").glob("keys.json")] == ["keys.json"]


def test_flat_views_follow_what_is_stored_over_http(client: FlaskClient, database_uri: str) -> None:
    published = client.put(
        f"{CRUD}/form/form.xhtml", data=orders.definition(), headers={**BY_ANN, "Svc-Create-Flat-View": "true"}
    )
    assert published.status_code == 204
    address = parse(database_uri)
    view = sql.Identifier(address.flat_schema, "svc_f_acme_order_1")

    def names() -> list[object]:
        with psycopg.connect(address.conninfo) as report:
            found = report.execute(sql.SQL("SELECT name FROM {}").format(view))
            return [name for (name,) in found]

    assert names() == ["Bea"]
    assert client.put(f"{CRUD}/data/D/data.xml", data=named("Cid"), headers=BY_ANN).status_code == 204
    assert names() == ["Cid"]
    assert client.post("/fr/service/persistence/reindex", headers=BY_ANN).status_code == 200
    assert client.delete(f"{CRUD}/data/D/data.xml", headers=BY_ANN).status_code == 204
    assert names() == []
