"""One set of paths: pages, units, crontabs and nginx name the same command, settings file and data directory.

A crontab that names other settings than the unit backs up another tree, and succeeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.settings import load
from tests.cli.command_runner import ended
from tests.docs.markdown import DOCS

CONFIG = DOCS.parent / "config"
UNIT = (CONFIG / "persistence.service").read_text()
PAGES = sorted(DOCS.glob("*.md"))
FILES = sorted(path for path in CONFIG.rglob("*") if path.is_file() and path.suffix != ".pyc")
_OURS = r"(?<![\w.}])(/(?:srv|var/lib|etc|opt)/persistence\b[\w./-]*)"


def in_unit(pattern: str) -> str:
    found = re.search(pattern, UNIT)
    assert found is not None
    return found[1]


COMMAND = in_unit(r"ExecStart=(\S+) serve")
SETTINGS = in_unit(r"ExecStart=.* --config (\S+)")
DIRECTORY = in_unit(r"ReadWritePaths=(\S+)")


def paths() -> Iterator[tuple[str, str]]:
    """Each path below a directory of this name, with the page or file that names it."""
    for path in (*PAGES, *FILES):
        for found in re.findall(_OURS, path.read_text()):
            yield path.name, found.rstrip("./")


def lines(pattern: str) -> list[str]:
    """The lines of all pages and files that match."""
    return [line for path in (*PAGES, *FILES) for line in path.read_text().splitlines() if re.search(pattern, line)]


def test_init_makes_the_settings_of_the_unit_and_the_data_directory_of_nginx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    assert f"persistence init {DIRECTORY}" in (DOCS / "installing.md").read_text()
    assert ended(["init", str(made)], monkeypatch, capsys).status == 0
    settings = made / Path(SETTINGS).relative_to(DIRECTORY)
    data = load(str(settings), environment={}).settings.data
    assert Path(data).is_dir()
    served = f"{DIRECTORY}/{Path(data).relative_to(made)}"
    (alias,) = re.findall(r"alias +(\S+);", (CONFIG / "nginx.conf").read_text())
    assert alias == f"{served}/.serve/"
    assert {found for _, found in paths() if found.endswith("/data")} == {served}


def test_crontabs_and_units_name_the_command_and_the_settings_of_the_service() -> None:
    scheduled = lines(r"^(?:[\d*]+ +){5}|^ExecStart=")
    assert len(scheduled) > 4
    for line in scheduled:
        assert f"{COMMAND} " in line
        assert f"--config {SETTINGS}" in line


def test_all_absolute_settings_files_are_the_same() -> None:
    named = {found for _, found in paths() if found.endswith(".toml")}
    assert named == {SETTINGS}


def test_the_clone_has_the_program_and_nothing_of_the_service() -> None:
    clone = f"{COMMAND.partition('/.venv')[0]}/"
    inside = {found.removeprefix(clone).partition("/")[0] for _, found in paths() if found.startswith(clone)}
    assert inside <= {".venv", "bin", "config", "docs", "gunicorn.conf.py"}
