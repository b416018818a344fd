"""The version stands in one place, persistence/__init__.py, and everything that shows it agrees."""

import re
from importlib.metadata import metadata
from pathlib import Path

import yaml
from click.testing import CliRunner

from persistence import __version__
from persistence.cli import commands

ROOT = Path(__file__).parents[1]


def test_the_command_shows_the_version() -> None:
    result = CliRunner().invoke(commands, ["--version"], prog_name="persistence")
    assert result.output == f"persistence, version {__version__}\n"


def test_the_interface_has_the_version_and_the_licence() -> None:
    info = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())["info"]
    assert info["version"] == __version__
    assert info["license"]["identifier"] == "MIT"


def test_the_package_reads_its_version_from_the_module() -> None:
    assert "\nversion = attr: persistence.__version__\n" in (ROOT / "setup.cfg").read_text()
    assert metadata("persistence-service")["Version"] == __version__


def test_the_changelog_begins_with_the_version_and_its_date_or_with_what_is_unreleased() -> None:
    headings = re.findall(r"(?m)^## (.+)$", (ROOT / "CHANGELOG.md").read_text())
    newest = headings[1] if headings[0] == "Unreleased" else headings[0]
    assert re.fullmatch(rf"{re.escape(__version__)} - \d{{4}}-\d\d-\d\d", newest)


def test_the_upgrade_from_the_version_before_is_the_first_section_of_a_release() -> None:
    _, newest, before, *_ = re.split(r"(?m)^## (?!Unreleased)", (ROOT / "CHANGELOG.md").read_text())
    assert re.findall(r"(?m)^### (.+)$", newest)[0] == f"Upgrading from {before.split()[0]}"
