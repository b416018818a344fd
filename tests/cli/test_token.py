"""``persistence token``, the keys that sign, and the options of commands on keys."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from persistence.keys import Keys
from persistence.model.addresses import Form, TokenSubject
from persistence.services.access import AccessTokens
from tests.cli.command_runner import Ended, ended

SUBJECT = TokenSubject(Form("hr", "leave"), 2, "1b4e28ba")
PLACE = "hr/leave/2/1b4e28ba"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run a command in a directory of its own, in which tokens are valid for a week at most."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/persistence.toml").write_text('"svc.access-token.validity.hr.*" = 10080\n')
    return lambda *arguments: ended(list(arguments), monkeypatch, capsys)


def keys_of(directory: Path) -> Keys:
    return Keys(f"{directory}/var/keys.json", tree=f"{directory}/var/data")


def test_the_first_token_makes_the_key_that_signs_it(tmp_path: Path, run: Callable[..., Ended]) -> None:
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


def test_signing_keys_are_made_listed_and_removed(run: Callable[..., Ended], tmp_path: Path) -> None:
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


def test_there_are_at_most_twenty(run: Callable[..., Ended]) -> None:
    assert [run("signing-key", "new").status for _ in range(21)] == [0] * 20 + [1]


def test_api_keys_and_signing_keys_keep_each_other(run: Callable[..., Ended], tmp_path: Path) -> None:
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


def test_a_file_with_signing_keys_that_others_may_read_is_refused(run: Callable[..., Ended], tmp_path: Path) -> None:
    run("signing-key", "new")
    (tmp_path / "var/keys.json").chmod(0o644)
    done = run("api-key", "list")
    assert done.status == 1
    assert "chmod 600" in done.errors[-1]
