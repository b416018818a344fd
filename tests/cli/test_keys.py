"""``persistence token``, ``api-key``, ``signing-key`` and ``encryption-key``; refusals are in ``golden/access.txt``."""

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from persistence import settings as configuration
from persistence.app import create_app
from persistence.crypto import EncryptionKeys
from persistence.keys import Keys, key_of
from persistence.model.addresses import Form, TokenSubject
from persistence.services.rules import AccessTokens
from persistence.storage import root
from tests.cli.command_runner import PREFIX, Command
from tests.cli.test_commands import PROJECT, gunicorn, persistence
from tests.encrypted_form import DEFINITION, SECRETS, data
from tests.opened import close, opened

SUBJECT = TokenSubject(Form("hr", "leave"), 2, "1b4e28ba")
PLACE = "hr/leave/2/1b4e28ba"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """Run a command in a directory of its own, in which tokens are valid for a week at most."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/persistence.toml").write_text('"svc.access-token.validity.hr.*" = 10080\n')
    return command


def keys_of(directory: Path) -> Keys:
    return Keys(f"{directory}/var/keys.json", tree=f"{directory}/var/data")


def test_the_first_token_makes_the_key_that_signs_it(tmp_path: Path, run: Command) -> None:
    """The token is alone on standard output, so that it can be piped."""
    done = run("token", PLACE, "--operations", "read,update", "--expires", "7d")
    assert (done.status, len(done.out.splitlines()), len(done.errors)) == (0, 1, 1)
    tokens = AccessTokens(keys_of(tmp_path).signing_secrets)
    assert tokens.operations(done.out.strip(), SUBJECT, 10080) == {"read", "update"}
    again = run("token", PLACE, "--expires", "1h")
    assert tokens.operations(again.out.strip(), SUBJECT, 10080) == {"read"}
    assert len(keys_of(tmp_path).signing()) == 1
    assert keys_of(tmp_path).read() == ()
    assert (tmp_path / "var/keys.json").stat().st_mode & 0o777 == 0o600


def test_signing_keys_are_made_listed_and_removed(run: Command, tmp_path: Path) -> None:
    first, second = (run("signing-key", "new").out.strip() for _ in range(2))
    assert [line.split()[::2] for line in run("signing-key", "list").out.splitlines()] == [
        ["ID", "DOES"],
        [first, "only"],
        [second, "signs"],
    ]
    secrets = [key["secret"] for key in json.loads((tmp_path / "var/keys.json").read_text())["signing"]]
    assert not [each for each in secrets if each in run("signing-key", "list").out]
    assert run("signing-key", "retire", first).status == 0
    assert [key.id for key in keys_of(tmp_path).signing()] == [second]
    gone = run("signing-key", "retire", first)
    assert (gone.status, gone.errors) == (1, [f"persistence: there is no signing key {first}"])


def test_there_are_at_most_twenty(run: Command) -> None:
    assert [run("signing-key", "new").status for _ in range(21)] == [0] * 20 + [1]


def test_api_keys_and_signing_keys_keep_each_other(run: Command, tmp_path: Path) -> None:
    run("api-key", "new", "runtime")
    assert "signing" not in (tmp_path / "var/keys.json").read_text()
    run("signing-key", "new")
    run("api-key", "new", "batch")
    run("api-key", "retire", "runtime")
    keys = keys_of(tmp_path)
    assert ([key.name for key in keys.read()], len(keys.signing())) == (["batch"], 1)
    keys.remove_signing(keys.signing()[0].id)
    assert [key.name for key in keys.read()] == ["batch"]
    assert "signing" not in (tmp_path / "var/keys.json").read_text()


def test_a_file_with_signing_keys_that_others_may_read_is_refused(run: Command, tmp_path: Path) -> None:
    run("signing-key", "new")
    (tmp_path / "var/keys.json").chmod(0o644)
    done = run("api-key", "list")
    assert done.status == 1
    assert "chmod 600" in done.errors[-1]


# ``persistence api-key``, and the starts that are refused because nobody, or anybody, could call


ONE = {"PERSISTENCE_WORKERS": "1"}  # where two workers give up at one time, gunicorn may stumble and exit with 1


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """Run the command as its entry point does, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command("api-key", *arguments)


def test_a_key_is_printed_once_and_alone(tmp_path: Path, key: Command) -> None:
    """So that it can be piped to where it is kept; what to do with it is said beside."""
    done = key("new", "runtime")
    assert (done.status, len(done.out.splitlines()), len(done.errors)) == (0, 1, 2)
    assert "Authorization: Bearer KEY" in done.errors[0]
    assert done.errors[0].endswith("From now on callers who are not trusted need a key")
    assert key("new", "another").errors[0].endswith("beside any user name")
    key("retire", "another")
    secret = done.out.strip()
    (made,) = Keys(str(tmp_path / "var/keys.json"), tree=str(tmp_path / "data")).read()
    assert (key_of(secret, [made]), made.name) == (made, "runtime")
    listed = key("list").out
    assert listed.splitlines()[1].startswith("runtime  20")
    assert secret not in listed


@pytest.mark.parametrize(
    ("line", "sent"),
    [("api-key new ann", ""), ("signing-key new", ""), ("encryption-key new", ""), ("password set ann", "p" * 12)],
)
def test_whoever_makes_a_key_in_a_directory_without_settings_learns_where_it_is(
    tmp_path: Path, line: str, sent: str, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """It may be the wrong directory, and the service open as before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(sent))
    done = command(*line.split())
    (file,) = (tmp_path / "var").glob("*keys.json")
    assert done.status == 0
    assert done.errors[-1] == f"persistence: without a settings file here, it is {file}: --config names the service's"
    (tmp_path / "own.toml").write_text('keys = "own.json"\nencryption_keys = "own.json"\n')
    monkeypatch.setattr("sys.stdin", io.StringIO(sent))
    done = command(*line.split(), "--config", "own.toml")
    assert (done.status, [line for line in done.errors if "without a settings file" in line]) == (0, [])


def test_the_list_says_when_a_key_expires_and_when_it_was_used_last(tmp_path: Path, key: Command) -> None:
    key("new", "runtime")
    key("new", "trial", "--expires", "1s")
    assert key("list").out.splitlines()[0].split() == ["NAME", "MADE", "EXPIRES"]
    (tmp_path / "var/data/.pages").mkdir(parents=True)
    (tmp_path / "var/data/.pages/key-uses.json").write_text('{"used":{"runtime":1772600767.089}}')
    head, runtime, trial = (re.split(r" {2,}", line) for line in key("list").out.splitlines())
    assert head == ["NAME", "MADE", "EXPIRES", "LAST USED"]
    assert (len(runtime), runtime[-1]) == (3, "2026-03-04T05:06:07.089Z")
    assert (len(trial), trial[0]) == (3, "trial")


def test_a_note_of_uses_that_is_damaged_does_not_hide_the_keys(tmp_path: Path, key: Command) -> None:
    key("new", "runtime")
    (tmp_path / "var/data/.pages").mkdir(parents=True)
    (tmp_path / "var/data/.pages/key-uses.json").write_text("{")
    done = key("list")
    assert (done.status, done.out.splitlines()[1].split()[0]) == (0, "runtime")


def test_an_administrator_whose_key_is_limited_is_warned_about(
    tmp_path: Path, key: Command, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    warning = (
        "persistence: the setting administrators names limited API keys: reports; they open no pages, and stay within"
        " their limits"
    )
    monkeypatch.setenv("PERSISTENCE_ADMINISTRATORS", "boss,reports")
    assert warning not in key("new", "boss").errors
    assert warning not in key("new", "other", "--scope", "read").errors
    assert key("new", "reports", "--scope", "read").errors[-1] == warning
    root.init("var/data")
    assert warning in command("check").errors
    assert warning not in command("check", "--data", "var/data").errors
    env = {"PERSISTENCE_ADMINISTRATORS": "boss,reports", "PERSISTENCE_LOG_FORMAT": "text"}
    served = persistence("serve", "--bind", "nowhere.invalid:0", cwd=tmp_path, env=env)
    assert served.stderr.splitlines()[0] == warning
    (tmp_path / "var/keys.json").write_text("{")
    assert "keys.json cannot be read" in command("check").errors[0]


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0", "nowhere.invalid:0", "unix:/nowhere/socket"])
def test_a_service_that_nobody_could_call_does_not_start(tmp_path: Path, bind: str) -> None:
    """One line that says the three ways out; under gunicorn's own command with the status at which it gives up."""
    served = persistence("serve", "--bind", bind, cwd=tmp_path)
    assert (served.returncode, len(served.stderr.splitlines())) == (1, 1)
    plain = gunicorn("-b", "127.0.0.1:0", cwd=tmp_path, env={"PERSISTENCE_BIND": bind})
    assert plain.returncode == 4
    for output in (served.stderr, plain.stderr):
        for way in ("persistence: bind is not a loopback address", "persistence api-key new", "trusted", "--insecure"):
            assert way in output


def test_keys_that_cannot_be_read_refuse_the_start(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var/keys.json").write_text("{")
    served = persistence("serve", "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert (served.returncode, len(served.stderr.splitlines())) == (1, 1)
    assert served.stderr.startswith("persistence: the API keys in keys.json cannot be read: ")
    plain = gunicorn("-c", str(PROJECT / "config/gunicorn.conf.py"), "-b", "127.0.0.1:0", cwd=tmp_path, env=ONE)
    assert plain.returncode == 4
    assert "persistence: the API keys in keys.json cannot be read: " in plain.stderr


# ``persistence encryption-key retire``: a key goes when nothing needs it any more, and not before


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
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    """Run a command in a directory with two trees and a directory of attachments."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big").mkdir()
    (tmp_path / "own.toml").write_text(CONFIG + DATASOURCE)

    assert command("init", "--config", "own.toml").status == 0
    return lambda *arguments: command(*arguments, "--config", "own.toml")


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


def delete_one(client: FlaskClient) -> None:
    put(client, "hr/leave/data/1/data.xml")
    assert client.delete(f"{PREFIX}hr/leave/data/1/data.xml").status_code == 204


STORED: dict[str, Callable[[FlaskClient], object]] = {
    "older": lambda client: put(client, "hr/leave/data/1/data.xml"),
    "deleted": delete_one,
    "only a draft": lambda client: put(client, "hr/leave/draft/2/data.xml"),
    "attachment": lambda client: attach(client, "hr/leave/data/1/scan.bin"),
    "body elsewhere": lambda client: attach(client, "apart/leave/data/1/scan.bin"),
    "other tree": lambda client: put(client, "acme/order/data/1/data.xml"),
}


@pytest.mark.parametrize("what", STORED)
def test_a_key_that_something_needs_stays_until_it_was_reencrypted(tmp_path: Path, trees: Command, what: str) -> None:
    old = trees("encryption-key", "new").out.strip()
    with asking() as client:
        for form in ("hr/leave", "apart/leave", "acme/order"):
            put(client, f"{form}/form/form.xhtml", DEFINITION)
        STORED[what](client)
        new = trees("encryption-key", "new").out.strip()
        if what == "older":
            put(client, "hr/leave/data/1/data.xml")
    refused = trees("encryption-key", "retire", old)
    assert (refused.status, refused.errors) == (4, [f"{old} is not retired: run persistence reencrypt first"])
    assert f": 1 revision encrypted with {old}\n" in refused.out.removeprefix("data: ")
    assert key_ids(tmp_path) == [old, new]
    assert trees("reencrypt").status == 0
    assert trees("encryption-key", "retire", old, "--dry-run").errors == [f"nothing is encrypted with {old}"]
    assert key_ids(tmp_path) == [old, new]
    retired = trees("encryption-key", "retire", old)
    assert (retired.status, retired.out) == (0, "")
    assert key_ids(tmp_path) == [new]
    with asking() as client:
        for path in ("hr/leave/data/1", "hr/leave/draft/2", "acme/order/data/1"):
            assert client.get(f"{PREFIX}{path}/data.xml").status_code in (200, 404, 410)


def test_a_retired_key_is_kept_in_a_file_of_its_own(tmp_path: Path, trees: Command) -> None:
    """Backups from before need it."""
    old = trees("encryption-key", "new").out.strip()
    secret = json.loads((tmp_path / "secrets/keys.json").read_text())["keys"][0]
    trees("encryption-key", "new")
    said = trees("encryption-key", "retire", old).errors
    kept = tmp_path / f"secrets/keys.retired-{old}.json"
    assert said == [f"{old} is retired; it is in {kept}: backups made before may need it"]
    assert json.loads(kept.read_text()) == {"format": 1, "keys": [secret]}
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [line.split()[0] for line in trees("encryption-key", "list").out.splitlines()] == ["ID", *key_ids(tmp_path)]


def test_a_retired_key_decrypts_again_when_its_entry_is_copied_back(tmp_path: Path, trees: Command) -> None:
    """An upload may have ended after nothing was found."""
    old = trees("encryption-key", "new").out.strip()
    with asking() as client:
        put(client, "hr/leave/form/form.xhtml", DEFINITION)
        put(client, "hr/leave/data/1/data.xml")
    late = (tmp_path / "data/hr/leave/data/1").rename(tmp_path / "late")
    new = trees("encryption-key", "new").out.strip()
    assert trees("encryption-key", "retire", old).status == 0
    late.rename(tmp_path / "data/hr/leave/data/1")
    with asking() as client:
        assert client.get(f"{PREFIX}hr/leave/data/1/data.xml").status_code == 500
    file, kept = (tmp_path / f"secrets/{name}.json" for name in ("keys", f"keys.retired-{old}"))
    entries = [entry for each in (kept, file) for entry in json.loads(each.read_text())["keys"]]
    file.write_text(json.dumps({"format": 1, "keys": entries}))
    assert key_ids(tmp_path) == [old, new]
    with asking() as client:
        assert SECRETS[0].encode() in client.get(f"{PREFIX}hr/leave/data/1/data.xml").data


def test_a_retirement_that_was_killed_is_completed_by_the_next(tmp_path: Path, trees: Command) -> None:
    """The key is in a file of its own before it is taken out."""
    old, new = (trees("encryption-key", "new").out.strip() for _ in range(2))
    before = (tmp_path / "secrets/keys.json").read_bytes()
    assert trees("encryption-key", "retire", old).status == 0
    (tmp_path / "secrets/keys.json").write_bytes(before)
    assert trees("encryption-key", "retire", old).status == 0
    assert key_ids(tmp_path) == [new]


def test_keys_of_the_environment_are_left_out_there(trees: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ",".join(f"{name}:{'0123456789abcdef' * 4}" for name in ("k2", "k1"))
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEY", given)
    done = trees("encryption-key", "retire", "k1")
    assert (done.status, "leave the key out there" in done.errors[0]) == (1, True)
