"""Passwords of administrators: the file that keeps them, the command, and what is compared."""

import io
import json
from pathlib import Path

import pytest

from persistence import keys as passwords
from persistence.errors import BadRequestError, DamagedError, NotFoundError
from persistence.keys import Keys
from tests.cli.command_runner import Command

LONG = "correct horse battery staple"


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(str(tmp_path / "var/keys.json"), tree=str(tmp_path / "data"))


def test_only_a_digest_is_kept_and_only_the_owner_reads_it(keys: Keys, tmp_path: Path) -> None:
    keys.set_password("ada", LONG)
    file = tmp_path / "var/keys.json"
    assert LONG not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    (kept,) = keys.passwords()
    assert passwords.is_right_password(LONG, kept)
    assert not passwords.is_right_password(LONG + "x", kept)
    assert LONG not in repr(kept) + repr(keys.passwords())
    assert kept.scrypt not in repr(kept)


def test_a_name_without_a_password_costs_a_comparison_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(passwords.hashlib, "scrypt", lambda *_, **__: calls.append(1) or bytes(32))
    assert not passwords.is_right_password(LONG, None)
    assert not passwords.is_right_password("x" * 1025, None)  # too long: not compared at all
    assert calls == [1]


@pytest.mark.parametrize(
    ("name", "text"), [("ada", "x" * 11), ("ada", "x" * 1025), ("ada", "é" * 600), ("a b", LONG), ("trusted", LONG)]
)
def test_what_is_not_acceptable_is_refused(keys: Keys, name: str, text: str) -> None:
    with pytest.raises(BadRequestError):
        keys.set_password(name, text)
    assert keys.passwords() == ()


def test_a_password_replaces_that_of_the_same_name_alone(keys: Keys) -> None:
    keys.set_password("ada", LONG)
    keys.set_password("bob", LONG)
    before = keys.session_secret()
    keys.set_password("ada", "another long one")
    assert [each.name for each in keys.passwords()] == ["bob", "ada"]
    assert keys.session_secret() == before
    keys.remove_password("bob")
    with pytest.raises(NotFoundError):
        keys.remove_password("bob")
    assert [each.name for each in keys.passwords()] == ["ada"]


def test_a_file_that_others_can_read_is_refused(keys: Keys, tmp_path: Path) -> None:
    keys.set_password("ada", LONG)
    (tmp_path / "var/keys.json").chmod(0o644)
    with pytest.raises(DamagedError, match="chmod 600"):
        Keys(str(tmp_path / "var/keys.json"), tree=str(tmp_path / "data")).passwords()


def test_the_command_sets_lists_and_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, text: str = "") -> tuple[int, str, list[str]]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        done = command("password", *arguments)
        return done.status, done.out, done.errors

    assert run("list") == (0, "", ["there are no passwords"])
    assert run("set", "ada", text="short\n")[0] == 2
    status, out, errors = run("set", "ada", text=f"{LONG}\nmore\n")
    assert (status, out, len(errors)) == (0, "", 2)
    assert "without a settings file here" in errors[1]
    heading, listed = (line.split() for line in run("list")[1].splitlines())
    assert (heading, listed[0]) == (["NAME", "SET"], "ada")
    kept = json.loads((tmp_path / "var/keys.json").read_text())["passwords"]
    assert [each["name"] for each in kept] == ["ada"]
    assert run("remove", "ada")[0] == 0
    assert run("remove", "ada")[2] == ["persistence: ada has no password"]
