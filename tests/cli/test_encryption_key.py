"""``persistence encryption-key retire``: a key goes when nothing needs it any more, and not before."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from persistence import settings as configuration
from persistence.app import create_app
from persistence.crypto.encryption_keys import EncryptionKeys
from tests.cli.command_runner import PREFIX, Ended, ended
from tests.encrypted_form import DEFINITION, SECRETS, data
from tests.opened import close, opened

Run = Callable[..., Ended]

CONFIG = """\
data = "data"
encryption_keys = "secrets/keys.json"
"svc.persistence.provider.acme.*.*" = "second"
"svc.persistence.second.datasource" = "disk2"
"svc.persistence.provider.apart.*.data.attachments" = "big"
"svc.persistence.big.base-path" = "big"
"""
DATASOURCE = """\
[datasource.disk2]
data = "disk2"
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a directory with two trees and a directory of attachments."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big").mkdir()
    (tmp_path / "own.toml").write_text(CONFIG + DATASOURCE)

    def run(*arguments: str) -> Ended:
        return ended([*arguments, "--config", "own.toml"], monkeypatch, capsys)

    assert run("init").status == 0
    return run


def key_ids(directory: Path) -> list[str]:
    return [
        each.id for each in EncryptionKeys(str(directory / "secrets/keys.json"), trees=[str(directory / "data")]).list()
    ]


@contextmanager
def asking() -> Iterator[FlaskClient]:
    """A client of a service with the settings of the test."""
    effective = configuration.load("own.toml", environment={})
    app = opened(create_app(effective.settings, effective.properties))
    yield app.test_client()
    close(app)


def put(client: FlaskClient, path: str, body: bytes = data(), **own: str) -> None:
    headers = {f"Svc-{name.replace('_', '-')}": value for name, value in own.items()}
    answer = client.put(PREFIX + path, data=body, headers={"Svc-Form-Definition-Version": "1", **headers})
    assert answer.status_code in (201, 204), answer.text


def attach(client: FlaskClient, path: str, **own: str) -> None:
    put(client, path, b"bytes", Path_To_Holder="person/scan", **own)


def older(client: FlaskClient) -> None:
    put(client, "hr/leave/data/1/data.xml")


def deleted(client: FlaskClient) -> None:
    put(client, "hr/leave/data/1/data.xml")
    assert client.delete(f"{PREFIX}hr/leave/data/1/data.xml").status_code == 204


def only_a_draft(client: FlaskClient) -> None:
    put(client, "hr/leave/draft/2/data.xml")


def attachment(client: FlaskClient) -> None:
    attach(client, "hr/leave/data/1/scan.bin")


def body_elsewhere(client: FlaskClient) -> None:
    attach(client, "apart/leave/data/1/scan.bin")


def other_tree(client: FlaskClient) -> None:
    put(client, "acme/order/data/1/data.xml")


@pytest.mark.parametrize("store", [older, deleted, only_a_draft, attachment, body_elsewhere, other_tree])
def test_a_key_that_something_needs_stays_until_it_was_reencrypted(
    tmp_path: Path, run: Run, store: Callable[[FlaskClient], None]
) -> None:
    old = run("encryption-key", "new").out.strip()
    with asking() as client:
        for form in ("hr/leave", "apart/leave", "acme/order"):
            put(client, f"{form}/form/form.xhtml", DEFINITION)
        store(client)
        new = run("encryption-key", "new").out.strip()
        if store is older:
            put(client, "hr/leave/data/1/data.xml")
    refused = run("encryption-key", "retire", old)
    assert (refused.status, refused.errors) == (4, [f"{old} is not retired: run persistence reencrypt first"])
    assert f": 1 revision encrypted with {old}\n" in refused.out.removeprefix("data: ")
    assert key_ids(tmp_path) == [old, new]
    assert run("reencrypt").status == 0
    assert run("encryption-key", "retire", old, "--dry-run").errors == [f"nothing is encrypted with {old}"]
    assert key_ids(tmp_path) == [old, new]
    retired = run("encryption-key", "retire", old)
    assert (retired.status, retired.out) == (0, "")
    assert key_ids(tmp_path) == [new]
    with asking() as client:
        for path in ("hr/leave/data/1", "hr/leave/draft/2", "acme/order/data/1"):
            assert client.get(f"{PREFIX}{path}/data.xml").status_code in (200, 404, 410)


def test_a_retired_key_is_kept_in_a_file_of_its_own(tmp_path: Path, run: Run) -> None:
    """Backups from before need it."""
    old = run("encryption-key", "new").out.strip()
    secret = json.loads((tmp_path / "secrets/keys.json").read_text())["keys"][0]
    run("encryption-key", "new")
    said = run("encryption-key", "retire", old).errors
    kept = tmp_path / f"secrets/keys.retired-{old}.json"
    assert said == [f"{old} is retired; it is in {kept}: backups made before may need it"]
    assert json.loads(kept.read_text()) == {"format": 1, "keys": [secret]}
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [line.split()[0] for line in run("encryption-key", "list").out.splitlines()] == ["ID", *key_ids(tmp_path)]


def test_a_retired_key_decrypts_again_when_its_entry_is_copied_back(tmp_path: Path, run: Run) -> None:
    """An upload may have ended after nothing was found."""
    old = run("encryption-key", "new").out.strip()
    with asking() as client:
        put(client, "hr/leave/form/form.xhtml", DEFINITION)
        put(client, "hr/leave/data/1/data.xml")
    late = (tmp_path / "data/hr/leave/data/1").rename(tmp_path / "late")
    new = run("encryption-key", "new").out.strip()
    assert run("encryption-key", "retire", old).status == 0
    late.rename(tmp_path / "data/hr/leave/data/1")
    with asking() as client:
        assert client.get(f"{PREFIX}hr/leave/data/1/data.xml").status_code == 500
    file, kept = (tmp_path / f"secrets/{name}.json" for name in ("keys", f"keys.retired-{old}"))
    entries = [entry for each in (kept, file) for entry in json.loads(each.read_text())["keys"]]
    file.write_text(json.dumps({"format": 1, "keys": entries}))
    assert key_ids(tmp_path) == [old, new]
    with asking() as client:
        assert SECRETS[0].encode() in client.get(f"{PREFIX}hr/leave/data/1/data.xml").data


def test_a_retirement_that_was_killed_is_completed_by_the_next(tmp_path: Path, run: Run) -> None:
    """The key is in a file of its own before it is taken out."""
    old, new = (run("encryption-key", "new").out.strip() for _ in range(2))
    before = (tmp_path / "secrets/keys.json").read_bytes()
    assert run("encryption-key", "retire", old).status == 0
    (tmp_path / "secrets/keys.json").write_bytes(before)
    assert run("encryption-key", "retire", old).status == 0
    assert key_ids(tmp_path) == [new]


def test_keys_of_the_environment_are_left_out_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ",".join(f"{name}:{'0123456789abcdef' * 4}" for name in ("k2", "k1"))
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEY", given)
    done = run("encryption-key", "retire", "k1")
    assert (done.status, "leave the key out there" in done.errors[0]) == (1, True)
