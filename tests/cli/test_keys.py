"""``persistence token`` and the starts that keys refuse; what the commands print is in ``golden``.

``access.txt`` has the refusals, ``keys.txt`` and ``needed-keys.txt`` how keys are made, listed and retired.
"""

from pathlib import Path

import pytest

from persistence.keys import Keys
from persistence.model.addresses import Form, TokenSubject
from persistence.services.rules import AccessTokens
from tests.cli.command_runner import Command
from tests.cli.test_commands import persistence


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    """The keys of the current directory."""
    monkeypatch.chdir(tmp_path)
    return Keys(f"{tmp_path}/var/keys.json", tree=f"{tmp_path}/var/data")


def test_the_first_token_makes_the_key_that_signs_it(keys: Keys, tmp_path: Path, command: Command) -> None:
    """The token is alone on standard output, so that it can be piped."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/persistence.toml").write_text(
        '"svc.access-token.validity.hr.*" = 10080\nkeys = "../var/keys.json"\n'
    )
    tokens, subject = AccessTokens(keys.signing_secrets), TokenSubject(Form("hr", "leave"), 2, "1b4e28ba")
    for options, granted in (
        (("--operations", "read,update", "--expires", "7d"), {"read", "update"}),
        (("--expires", "1h"), {"read"}),
    ):
        done = command("token", "hr/leave/2/1b4e28ba", *options)
        assert (done.status, len(done.out.splitlines())) == (0, 1)
        assert tokens.operations(done.out.strip(), subject, 10080) == granted
    assert (len(keys.signing()), keys.read()) == (1, ())
    assert (tmp_path / "var/keys.json").stat().st_mode & 0o777 == 0o600


def test_there_are_at_most_twenty_that_sign(keys: Keys, command: Command) -> None:
    assert [command("signing-key", "new").status for _ in range(21)] == [0] * 20 + [1]
    assert len(keys.signing()) == 20


def test_an_administrator_whose_key_is_limited_is_warned_about_at_the_start(keys: Keys, tmp_path: Path) -> None:
    keys.add("reports", None, ["read"])
    env = {"PERSISTENCE_ADMINISTRATORS": "boss,reports", "PERSISTENCE_LOG_FORMAT": "text"}
    served = persistence("serve", "--bind", "nowhere.invalid:0", cwd=tmp_path, env=env)
    first = served.stderr.splitlines()[0]
    assert first.startswith("persistence: the setting administrators names limited API keys: reports; ")
