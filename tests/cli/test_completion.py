"""Completion by shells: the script that the command makes, sourced by a shell, asks the command."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from persistence.cli import commands
from tests.cli.command_runner import Place
from tests.published import definition

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("PERSISTENCE_")},
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}
IN_BASH = """
eval "$(_PERSISTENCE_COMPLETE=bash_source persistence)"
complete -p persistence | grep -q _persistence_completion
for line in "$@"; do
    COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _persistence_completion persistence
    printf '%s\\n' "${COMPREPLY[@]}"
done
"""


def offered(*words: str) -> list[str]:
    """Return what is offered for the last of some words, in this process."""
    completing = BashComplete(commands, {}, "persistence", "_PERSISTENCE_COMPLETE")
    return [each.value for each in completing.get_completions(list(words[:-1]), words[-1])]


IN_ZSH = """
autoload -Uz compinit; compinit -u -D
eval "$(_PERSISTENCE_COMPLETE=zsh_source persistence)"
keep() { print -r -- "$BUFFER" >> kept; BUFFER=; zle .accept-line }
zle -N keep; bindkey '^X' keep; PS1='ready> '
"""
"""Keeps the line when Ctrl-X is pressed, in place of running it."""

IN_FISH = "_PERSISTENCE_COMPLETE=fish_source persistence | source; for line in $argv; complete -C $line; end"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_what_is_typed(place: Place, tmp_path: Path) -> None:
    """In a terminal: zsh completes nothing without one."""
    (tmp_path / ".zshrc").write_text(IN_ZSH)
    ours, theirs = pty.openpty()
    env = {**ENVIRONMENT, "ZDOTDIR": str(tmp_path), "TERM": "dumb"}
    shell = subprocess.Popen(
        ["zsh", "-i", "+o", "globalrcs"],
        cwd=tmp_path,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        prompted(ours)
        for line in ("persistence api-key re", "persistence leases --br", f"persistence show --data {place.root} it/"):
            os.write(ours, f"{line}\t\x18".encode())
            prompted(ours)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    assert (tmp_path / "kept").read_text().splitlines() == [
        "persistence api-key retire ",
        "persistence leases --break ",
        f"persistence show --data {place.root} it/desk ",
    ]


def prompted(terminal: int) -> None:
    """Read from a terminal until there is a new prompt."""
    shown = b""
    while not shown.endswith(b"ready> ") and b"ready> \x1b[?2004h" not in shown:
        assert select.select([terminal], [], [], 60)[0], shown
        shown += os.read(terminal, 1 << 16)


DESCRIBED = ["retire\tLet an API key open nothing from now on.", "--break\tEnd the lease of this document.", "it/desk"]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        pytest.param(["bash", "-c", IN_BASH, "bash"], ["retire", "--break", "it/desk"], id="bash"),
        pytest.param(["fish", "--no-config", "--command", IN_FISH], DESCRIBED, id="fish"),
    ],
)
def test_a_shell_completes_commands_options_and_forms(
    place: Place, tmp_path: Path, shell: list[str], expected: list[str]
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    lines = ("api-key re", "leases --br", f"show --data {place.root} it/")
    done = subprocess.run(
        [*shell, *(f"persistence {line}" for line in lines)],
        cwd=tmp_path,
        env={**ENVIRONMENT, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


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
