"""The manual page is the help of the commands, and a page that the programs for manual pages take."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs import manual_page
from tests.docs.commands import leaves


@pytest.fixture
def page(tmp_path: Path) -> Path:
    written = tmp_path / "persistence.1"
    written.write_text(manual_page.page("2026-03-04"))
    return written


@pytest.mark.parametrize("program", [("groff", "-man", "-ww", "-z", "-Tutf8"), ("mandoc", "-Tlint")])
def test_programs_for_manual_pages_find_nothing_wrong(program: tuple[str, ...], page: Path) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    done = subprocess.run([*program, page], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_man_shows_every_command_and_its_exit_statuses(page: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    environment = {"MANWIDTH": "100", "PATH": os.environ["PATH"]}
    done = subprocess.run(["man", "-l", page], capture_output=True, text=True, check=True, env=environment)
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "persistence backup [OPTIONS] DEST" in lines
    assert lines.count("Exit status:") == len(list(leaves()))
    assert "persistence search hr/leave 'back pain' --drafts exclude" in lines
