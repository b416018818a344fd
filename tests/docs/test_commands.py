"""Every command and option is described, also in the manual page, and no page mentions one that does not exist."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from persistence.cli import commands
from tests.docs import commands as reference
from tests.docs import manual_page
from tests.docs.markdown import DOCS, PAGES, blocks, prose, rows, spans

Words = tuple[str, ...]

_MENTION = re.compile(r"(?:^|\$ |bin/|[;&(\"'] *)persistence +([a-z][a-z-]*)( .*)?")
_NAME = re.compile("[a-z][a-z-]*( [a-z][a-z-]*)?")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_OF_OTHERS = frozenset({"--build-arg", "--delete", "--env", "--format", "--proxied", "--seconds"})
"""Options of podman, rsync, pytest and the rigs, which the prose names."""
_REMOVED = {"CHANGELOG.md": {"--server"}}
"""Options that only this page names, to say that they were removed."""


def described(text: str) -> set[Words]:
    """Return the commands in the tables of docs/cli.md."""
    words = [span.split()[1:] for cells in rows(text, "Command") for span in spans(cells[0])]
    return {path for each in words if (path := _command(each)) is not None}


def _command(words: list[str]) -> Words | None:
    """Return the longest command with which words begin."""
    known = dict(reference.leaves())
    return next((path for at in range(len(words), 0, -1) if (path := tuple(words[:at])) in known), None)


def wrong(text: str, page: Path) -> list[str]:
    """Return the commands and options that a page mentions and that do not exist."""
    lines = [line for block in blocks(page, text) for line in re.sub(r"\\?\n {8,}", " ", block.text).splitlines()]
    found = []
    for mention in (*lines, *spans(prose(text))):
        for match in _MENTION.finditer(_COMMENT.sub("", mention)):
            found += _wrong([match[1], *(match[2] or "").split()])
    named = {" ".join(path[:at]) for path, _ in reference.leaves() for at in (1, 2)}
    found += [
        f"persistence {span}"
        for cells in rows(prose(text), "Command")
        for span in spans(cells[0])
        if not re.search("`(make|persistence) ", cells[0]) and _NAME.fullmatch(span) and span not in named
    ]
    known = {name for _, command in reference.leaves() for each in command.params for name in each.opts}
    options = {option for span in spans(prose(text)) for option in _OPTION.findall(span) if span.startswith("--")}
    return found + sorted(options - known - _OF_OTHERS - _REMOVED.get(page.name, set()))


def _wrong(words: list[str]) -> list[str]:
    command: click.Command | None = commands
    for at, word in enumerate(words):
        if not isinstance(command, click.Group):
            break
        below = command.get_command(click.Context(command), word)
        if below is None and re.fullmatch("[a-z][a-z-]*", word):
            return [" ".join(("persistence", *words[: at + 1]))]
        if below is None:
            break
        command = below
    known = {name for each in (command.params if command else ()) for name in each.opts} | {"--help"}
    return [f"persistence {words[0]} {name}" for name in _OPTION.findall(" ".join(words)) if name not in known]


def test_the_page_of_all_options_has_every_command_and_option() -> None:
    sections = dict(part.split("\n", 1) for part in reference.page().split("\n## ")[1:])
    assert sections.keys() == {" ".join(path) for path, _ in reference.leaves()}
    for path, command in reference.leaves():
        shown = {name for each in command.params if not getattr(each, "hidden", False) for name in each.opts}
        assert {each for each in shown if each.startswith("--")} <= set(_OPTION.findall(sections[" ".join(path)]))


def test_every_command_is_described_with_its_purpose_and_the_reverse() -> None:
    assert described((DOCS / "cli.md").read_text()) == {path for path, _ in reference.leaves()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_a_page_mentions_exist(page: Path) -> None:
    assert wrong(page.read_text(), page) == []


def test_a_command_that_is_left_out_is_found() -> None:
    text = (DOCS / "cli.md").read_text()
    assert {path for path, _ in reference.leaves()} - described(
        text.replace("`persistence backup DEST`", "a backup")
    ) == {("backup",)}
    assert reference.page() != reference.page().replace("--keys", "--kees")


def test_a_command_that_does_not_exist_is_found() -> None:
    assert wrong("| Command | Does |\n|---|---|\n| `check`, `chekc` | |\n", DOCS / "cli.md") == ["persistence chekc"]
    text = "`persistence serf` and `persistence backup --fast`, `persistence config rout`, `--slow`\n\n"
    text += "```sh\n/srv/.venv/bin/persistence purge --older-then 2y # persistence is\npersistence check hr\n```\n"
    assert wrong(text, DOCS / "cli.md") == [
        "persistence purge --older-then",
        "persistence serf",
        "persistence backup --fast",
        "persistence config rout",
        "--slow",
    ]


# The manual page


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    written = tmp_path / "persistence.1"
    written.write_text(manual_page.page("2026-03-04"))
    return written


@pytest.mark.parametrize("program", [("groff", "-man", "-ww", "-z", "-Tutf8"), ("mandoc", "-Tlint")])
def test_programs_for_manual_pages_find_nothing_wrong(program: tuple[str, ...], manual: Path) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    done = subprocess.run([*program, manual], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_man_shows_every_command_and_its_exit_statuses(manual: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    environment = {"MANWIDTH": "100", "PATH": os.environ["PATH"]}
    done = subprocess.run(["man", "-l", manual], capture_output=True, text=True, check=True, env=environment)
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "persistence backup [OPTIONS] DEST" in lines
    assert lines.count("Exit status:") == len(list(reference.leaves()))
    assert "persistence search hr/leave 'back pain' --drafts exclude" in lines
