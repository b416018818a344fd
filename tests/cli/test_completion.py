"""Completion by bash: the script that click makes, sourced by a bash, asks the command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from persistence.cli import commands
from tests.cli.command_runner import Place
from tests.published import definition

BASH = shutil.which("bash")
ASKED = """
eval "$(_PERSISTENCE_COMPLETE=bash_source persistence)"
complete -p persistence | grep -q _persistence_completion
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_persistence_completion persistence
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(*words: str) -> list[str]:
    """Return what is offered for the last of some words, in this process."""
    completing = BashComplete(commands, {}, "persistence", "_PERSISTENCE_COMPLETE")
    return [each.value for each in completing.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for words, expected in (("api-key", "re"), ["retire"]), (("leases", "--br"), ["--break"]):
        done = subprocess.run(
            ["bash", "-c", ASKED, "bash", "persistence", *words],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout.split(), done.stderr) == (expected, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("re",), ["revert", "reindex", "reencrypt", "restore"]),
        (("encryption-key", ""), ["list", "new", "retire"]),
        (("search", "--match", "e"), ["exact"]),
    ],
)
def test_commands_options_and_choices_are_offered(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "data")
    for form in ("hr/leave", "hr/sick-note", "it/desk"):
        place.put(f"{form}/form/form.xhtml", definition(""))
    return place


@pytest.mark.parametrize(
    "command", ["config route", "forms", "show", "search", "reindex", "reencrypt --dry-run", "purge"]
)
def test_forms_are_offered_where_a_command_takes_one(place: Place, command: str) -> None:
    assert offered(*command.split(), "--data", str(place.root), "hr/") == ["hr/leave", "hr/sick-note"]
    assert offered(*command.split(), "--data", str(place.root), "x") == []


def test_nothing_is_offered_or_said_where_forms_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.toml").write_text("dta = 1\n")
    assert offered("show", "--config", str(tmp_path / "odd.toml"), "h") == []
    assert offered("show", "--data", str(tmp_path / "none"), "h") == []
    assert offered("show", "--datasource", "none", "h") == []
    assert capsys.readouterr() == ("", "")
