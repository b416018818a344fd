"""docs/git.md: its commands, as they stand there, publish an older definition again."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import published
from tests.in_process import serving
from tests.service import Service

PAGE = Path(__file__).parents[2] / "docs/git.md"
ONCE, COMMIT, REPUBLISH = re.findall(r"(?ms)^```sh\n(.*?)^```$", PAGE.read_text())
FORM = "hr/leave/form"
V1 = {"Form_Definition_Version": 1}


@pytest.fixture(params=["orbeon", pytest.param("svc", marks=pytest.mark.long)])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path, dialect=request.param, data=tmp_path / "var/data", alone=True) as service:
        yield service


def run(directory: Path, commands: str, dialect: str, damaged: str = "") -> None:
    """Run commands in a shell that finds the command, as a user whom git knows; only one file may be ``damaged``."""
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(directory)}
    who = {f"GIT_{role}_{what}": "mia@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**own, **who, "PERSISTENCE_DIALECT": dialect}
    done = subprocess.run(["sh", "-ec", commands], cwd=directory, env=env, capture_output=True, text=True, check=False)
    said = f"{commands}: {done.stdout}{done.stderr}"
    assert done.returncode in ((4,) if damaged else (0, 3)), said
    remaining = [line for line in done.stdout.splitlines() if line.startswith("damage: ") and "took it in" not in line]
    assert [damaged in line for line in remaining] == ([True] if damaged else []), said


def definition(title: str) -> bytes:
    names = "<application-name>hr</application-name><form-name>leave</form-name>"
    return published.definition(f'{names}<title xml:lang="en">{title}</title>')


def publish(service: Service, title: str) -> None:
    """Publish with an attachment of the version's own, as a runtime does, and one that is replaced."""
    assert service.put(f"{FORM}/{title}.png", title.encode(), **V1).status in (201, 204)
    assert service.put(f"{FORM}/logo.png", title.encode(), **V1).status in (201, 204)
    assert service.put(f"{FORM}/form.xhtml", definition(title), **V1).status in (201, 204)


def titles(service: Service) -> list[bytes]:
    return re.findall(b"<title[^>]*>([^<]*)<", service.raw("GET", f"{service.face}/form/hr/leave").body)


def test_there_are_six_commands() -> None:
    assert len((ONCE + COMMIT + REPUBLISH).splitlines()) == 6


def test_an_older_definition_is_published_again(service: Service, tmp_path: Path) -> None:
    publish(service, "Older")
    assert service.put("hr/leave/data/A/data.xml", **V1).status == 201
    run(tmp_path, ONCE + COMMIT, service.dialect)
    publish(service, "Newer")
    run(tmp_path, COMMIT, service.dialect)
    before = service.get(f"{FORM}/form.xhtml", **V1)
    assert titles(service) == [b"Newer"]

    run(tmp_path, REPUBLISH, service.dialect, damaged="logo.png")
    after = service.get(f"{FORM}/form.xhtml", **V1)
    assert (after.status, after.body) == (200, definition("Older"))
    assert service.get(f"{FORM}/Older.png", **V1).body == b"Older"
    assert service.get(f"{FORM}/logo.png", **V1).status == 500
    run(tmp_path, "persistence check --adopt hr/leave/form/1/logo.png", service.dialect)
    assert service.get(f"{FORM}/logo.png", **V1).body == b"Older"
    assert titles(service) == [b"Older"]
    assert after["ETag"] != before["ETag"]
    modified = service.prefix + "Last-Modified"
    assert str(after[modified]) > str(before[modified])
    assert after[service.prefix + "Last-Modified-By-Username"] == "mia"
    run(tmp_path, COMMIT, service.dialect)
    run(tmp_path, "persistence check --deep", service.dialect)


def test_git_has_definitions_and_nothing_else(service: Service, tmp_path: Path) -> None:
    publish(service, "Older")
    publish(service, "Newer")
    assert service.put("hr/leave/data/A/data.xml", **V1).status == 201
    assert service.put("hr/leave/draft/A/data.xml", **V1).status == 201
    (tmp_path / "var/data/hr/leave/form/1/.form.xhtml.json").write_text("{}")
    run(tmp_path, ONCE + COMMIT, service.dialect)
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", "var/data", "ls-files"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = sorted(
        f"{name}{end}" for name in ("Newer.png", "Older.png", "form.xhtml", "logo.png") for end in ("", ".json")
    )
    assert listed.stdout.split() == [".gitignore", *(f"{FORM}/1/{name}" for name in names)]
