"""``persistence api-key``, and the starts that are refused because nobody, or anybody, could call."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from persistence.keys import Keys, key_of
from persistence.storage import root
from tests.cli.command_runner import Ended, ended
from tests.cli.test_commands import PROJECT, gunicorn, persistence

ONE = {"PERSISTENCE_WORKERS": "1"}  # where two workers give up at one time, gunicorn may stumble and exit with 1


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the command as its entry point does, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: ended(["api-key", *arguments], monkeypatch, capsys)


def test_a_key_is_printed_once_and_alone(tmp_path: Path, key: Callable[..., Ended]) -> None:
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
    ("command", "sent"),
    [("api-key new ann", ""), ("signing-key new", ""), ("encryption-key new", ""), ("password set ann", "p" * 12)],
)
def test_whoever_makes_a_key_in_a_directory_without_settings_learns_where_it_is(
    tmp_path: Path, command: str, sent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be the wrong directory, and the service open as before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(sent))
    done = ended(command.split(), monkeypatch, capsys)
    (file,) = (tmp_path / "var").glob("*keys.json")
    assert done.status == 0
    assert done.errors[-1] == f"persistence: without a settings file here, it is {file}: --config names the service's"
    (tmp_path / "own.toml").write_text('keys = "own.json"\nencryption_keys = "own.json"\n')
    monkeypatch.setattr("sys.stdin", io.StringIO(sent))
    done = ended([*command.split(), "--config", "own.toml"], monkeypatch, capsys)
    assert (done.status, [line for line in done.errors if "without a settings file" in line]) == (0, [])


def test_the_list_says_when_a_key_expires_and_when_it_was_used_last(tmp_path: Path, key: Callable[..., Ended]) -> None:
    key("new", "runtime")
    key("new", "trial", "--expires", "1s")
    assert key("list").out.splitlines()[0].split() == ["NAME", "MADE", "EXPIRES"]
    (tmp_path / "var/data/.pages").mkdir(parents=True)
    (tmp_path / "var/data/.pages/key-uses.json").write_text('{"used":{"runtime":1772600767.089}}')
    head, runtime, trial = (re.split(r" {2,}", line) for line in key("list").out.splitlines())
    assert head == ["NAME", "MADE", "EXPIRES", "LAST USED"]
    assert (len(runtime), runtime[-1]) == (3, "2026-03-04T05:06:07.089Z")
    assert (len(trial), trial[0]) == (3, "trial")


def test_a_note_of_uses_that_is_damaged_does_not_hide_the_keys(tmp_path: Path, key: Callable[..., Ended]) -> None:
    key("new", "runtime")
    (tmp_path / "var/data/.pages").mkdir(parents=True)
    (tmp_path / "var/data/.pages/key-uses.json").write_text("{")
    done = key("list")
    assert (done.status, done.out.splitlines()[1].split()[0]) == (0, "runtime")


def test_an_administrator_whose_key_is_limited_is_warned_about(
    tmp_path: Path, key: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    assert warning in ended(["check"], monkeypatch, capsys).errors
    assert warning not in ended(["check", "--data", "var/data"], monkeypatch, capsys).errors
    env = {"PERSISTENCE_ADMINISTRATORS": "boss,reports", "PERSISTENCE_LOG_FORMAT": "text"}
    served = persistence("serve", "--bind", "nowhere.invalid:0", cwd=tmp_path, env=env)
    assert served.stderr.splitlines()[0] == warning
    (tmp_path / "var/keys.json").write_text("{")
    assert "keys.json cannot be read" in ended(["check"], monkeypatch, capsys).errors[0]


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


def test_an_entry_of_trusted_that_means_nothing_refuses_the_start(tmp_path: Path) -> None:
    done = persistence("serve", cwd=tmp_path, env={"PERSISTENCE_TRUSTED": "127.0.0.1,10.0.0.300"})
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "'10.0.0.300' does not appear to be" in done.stderr
