"""The command line as a whole: options, help and exit statuses of all commands, and what a misspelt one is answered."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from persistence import __version__
from persistence.cli import commands
from persistence.cli.declarations import STATUSES, USAGE
from tests.cli.samples import FILES
from tests.docs.commands import leaves

COLUMNS = 80


RUN = {" ".join(path): command for path, command in leaves()}
COMMANDS = {
    "": commands,
    **{
        name: commands.get_command(click.Context(commands), name)
        for name in commands.list_commands(click.Context(commands))
    },
    **RUN,
}
"""All commands and groups by their names, the whole one as an empty name."""

COMMON = {"data", "file", "dialect"}
DEVIATIONS = {
    "config-files": COMMON,  # it reads no settings
    "demo": COMMON,  # it makes a directory of its own, with its own settings
    "help": COMMON,  # it reads no settings
    "version": COMMON,  # it reads no settings
    "health": {"data"},  # it asks over HTTP: --url names the service
    "move": {"data"},  # --from and --to name the places
}
"""The common options that a command has not."""

ON_TREES = {name for name, each in RUN.items() if "datasource" in {option.name for option in each.params}}

_NO_TREE = "it belongs to the service, and to no tree"
NOT_ON_TREES = {
    **{name: _NO_TREE for name in COMMANDS if name.split(" ")[0] in {"api-key", "signing-key", "password", "audit"}},
    **dict.fromkeys(("encryption-key new", "encryption-key list", "token"), _NO_TREE),
    "encryption-key retire": "it must look everywhere",
    **dict.fromkeys(
        ("serve", "health", "check-runtime", "config", "config property", "config route"), "it is about all trees"
    ),
    **dict.fromkeys(("export", "import"), "each form goes where the properties say"),
    "move": "--from and --to name the places",
    **dict.fromkeys(("config-files", "demo", "help", "version"), "it reads no settings"),
}
"""The commands without --datasource, and why."""


def shown(name: str) -> str:
    done = CliRunner().invoke(commands, [*name.split(), "--help"], terminal_width=COLUMNS)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_the_terminal_and_nothing_in_it_is_cut(name: str) -> None:
    text = shown(name)
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []
    assert [line for line in text.partition("Commands:")[2].splitlines() if line.endswith("...")] == []


@pytest.mark.parametrize("name", RUN)
def test_all_have_the_common_options_or_a_reason(name: str) -> None:
    assert COMMON - {option.name for option in RUN[name].params} == DEVIATIONS.get(name, set())


def test_commands_that_can_be_quiet_print_nothing_in_a_transcript() -> None:
    """Where nothing is wrong; cron then sends no mail."""
    transcripts = "".join(file.read_text() for file in FILES)
    silent = re.findall(r"(?m)^\$ ([a-z-]+) .*--quiet\n(?=[$@]|\Z)", transcripts)
    assert set(silent) == {name for name, each in RUN.items() if "quiet" in {option.name for option in each.params}}


def test_commands_on_trees_can_be_told_which_one() -> None:
    assert {name for name in RUN if name not in NOT_ON_TREES} == ON_TREES


def test_equal_options_are_spelt_and_described_alike() -> None:
    found = dict[str, set[tuple[str, ...]]]()
    for command in COMMANDS.values():
        for option in command.params:
            if isinstance(option, click.Option) and option.name in {"file", "dialect", "datasource"}:
                found.setdefault(option.name, set()).add((*option.opts, str(option.metavar)))
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(found, 1)


@pytest.mark.parametrize("name", RUN)
def test_help_states_the_exit_statuses(name: str) -> None:
    text = " ".join(shown(name).partition("Exit status:")[2].split())
    assert text == " ".join(f"{status} {meaning}" for status, meaning in STATUSES[name].items())


def test_each_command_has_statuses_and_no_other_has() -> None:
    assert set(STATUSES) == set(RUN)


@pytest.mark.parametrize("name", sorted(ON_TREES - {"init"}))
def test_a_missing_or_empty_data_directory_is_a_failure_and_nothing_is_made(name: str, tmp_path: Path) -> None:
    """An unmounted disk is an empty directory."""
    arguments = {
        "search": ["hr/leave"],
        "show": ["hr/leave"],
        **{f"definition {each}": ["hr/leave"] for each in ("show", "diff", "pull")},
        "backup": [str(tmp_path / "backups")],
        "restore": [str(tmp_path)],
        "erase": ["--owner", "lea"],
        "purge": ["--older-than", "30d", "--drafts"],
        "change": ["hr/leave/data/1", "--stage", "x"],
        **{each: ["hr/leave/data/1"] for each in ("history", "diff", "revert")},
    }
    (tmp_path / "unmounted").mkdir()
    for data in ("missing/deep", "unmounted"):
        done = CliRunner().invoke(commands, [*name.split(), *arguments.get(name, []), "--data", str(tmp_path / data)])
        assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert [path.name for path in tmp_path.rglob("*")] == ["unmounted"]


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["sreve"], "serve"),
        (["key", "add"], "api-key"),
        (["api-key", "nwe"], "new"),
        (["config", "rote"], "route"),
        (["help", "sreve"], "serve"),
        (["help", "audit", "verfy"], "verify"),
    ],
)
def test_a_misspelt_command_names_the_nearest(arguments: list[str], near: str) -> None:
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == USAGE
    assert done.stderr.endswith(f" Did you mean '{near}'?\n")


def test_a_word_like_none_is_refused_without_a_guess() -> None:
    done = CliRunner().invoke(commands, ["xyzzy"])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (USAGE, "Error: No such command 'xyzzy'.")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_with_a_command_prints_what_its_option_prints(name: str) -> None:
    done = CliRunner().invoke(commands, ["help", *name.split()], terminal_width=COLUMNS)
    assert (done.exit_code, done.stdout) == (0, shown(name))


def test_a_command_without_subcommands_has_no_help_on_them() -> None:
    done = CliRunner().invoke(commands, ["help", "forms", "x"])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (USAGE, "Error: forms has no subcommands")


def test_the_version_is_a_command_and_an_option() -> None:
    printed = {CliRunner().invoke(commands, [each]).stdout for each in ("version", "--version")}
    assert printed == {f"persistence, version {__version__}\n"}
