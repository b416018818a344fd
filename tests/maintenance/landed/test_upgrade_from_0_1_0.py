"""A directory of version 0.1.0 is upgraded with the commands of the changelog, and nothing of it is lost.

``tree-0.1.0.tar.xz`` is the directory of a service that version 0.1.0 has written over HTTP, with its settings, keys
and a backup. ``answers-0.1.0.json.xz`` has its API key, and what that version then answered about every form,
document, draft and attachment.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import forkserver
from tests.docs.markdown import ROOT, blocks
from tests.maintenance.landed.archive import answers, unpack
from tests.service import Service, alone

pytestmark = pytest.mark.xdist_group("landed-0.1.0")

RECORDED = answers("0.1.0")
DOCUMENTS = 7  # with the deleted one
REVISIONS = {"demo/expense-claim": 15, "hr/leave": 1}  # saves of form data, and the deletion
_MOVED = re.compile(r'(?m)^(data|keys|encryption_keys) = "var/')


def commands(step: str) -> list[list[str]]:
    """The commands of this version in a block of the changelog that begins with a comment."""
    (block,) = (each for each in blocks(ROOT / "CHANGELOG.md") if each.text.startswith(f"# {step}"))
    found = [line.partition("#")[0].split() for line in block.text.splitlines()]
    return [words[1:] for words in found if words[:1] == ["persistence"]]


def run(directory: Path, *arguments: str) -> tuple[int, str, str]:
    env = {name: text for name, text in os.environ.items() if not name.startswith("PERSISTENCE_")}
    done = forkserver.run("persistence.cli", list(arguments), cwd=directory, env=env)
    return done.returncode, done.stdout, done.stderr


def unpacked(directory: Path) -> Path:
    """The directory of version 0.1.0, with backups in it."""
    directory.mkdir(exist_ok=True)
    unpack("0.1.0", directory)
    return directory


def edit(file: Path, name: str, value: str) -> None:
    file.write_text(re.sub(rf'(?m)^{name} = ".*"$', f'{name} = "{value}"', file.read_text()))


def edit_settings(directory: Path) -> None:
    """Do what the changelog says of the settings file and of gunicorn's."""
    file = directory / "config/persistence.toml"
    file.write_text(_MOVED.sub(r'\1 = "../var/', file.read_text()))
    edit(file, "gunicorn", "gunicorn.conf.py")
    shutil.copy(ROOT / "config/gunicorn.conf.py", directory / "config")


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = unpacked(tmp_path_factory.mktemp("upgraded"))
    edit_settings(directory)
    found = commands("with the new version")
    assert [words[0] for words in found] == ["upgrade", "reindex", "config"]
    for words in found:
        status, out, errors = run(directory, *words)
        assert status == 0, out + errors
    return directory


@pytest.fixture(scope="module")
def service(upgraded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = ("--config", "config/persistence.toml")
    with alone(
        upgraded, data=upgraded / "var/data", log=tmp_path_factory.mktemp("log") / "log", options=options
    ) as own:
        yield own


def asked(service: Service, question: dict[str, Any]) -> tuple[int, dict[str, str], str]:
    body = question["body"] and question["body"].encode()
    headers = {"Authorization": f"Bearer {RECORDED['key']}", **question["headers"]}
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)) as connection:
        connection.request(question["method"], question["path"], body, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode("utf-8", "surrogateescape")


def test_the_old_settings_and_the_old_tree_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """One line at a time, until only the format of the tree is left; the service changes nothing meanwhile."""
    directory, refused = unpacked(tmp_path), list[str]()
    file = directory / "config/persistence.toml"
    for _ in range(9):
        status, _, errors = run(directory, "serve", "--bind", "127.0.0.1:0")
        assert status == 1
        if "config/var/data is not a data directory" in errors:
            edit(file, "data", "../var/data")
            continue
        found = re.search(r"(\w+) = '(\S+)' starts in the directory of the file, .* write '(\S+)'", errors)
        if found is None:
            break
        edit(file, found[1], found[3])
        refused.append(found[1])
    assert sorted(refused) == ["encryption_keys", "gunicorn", "keys"]
    assert "'persistence upgrade' brings it to 3" in errors
    assert json.loads((directory / "var/data/layout.json").read_text())["format"] == 2


def different(service: Service) -> list[tuple[object, ...]]:
    """The questions that are answered otherwise than by version 0.1.0, but for the quotes of entity tags."""
    found: list[tuple[object, ...]] = []
    for question in RECORDED["answers"]:
        status, headers, body = asked(service, question)
        fields = dict(question["fields"])
        if "ETag" in fields:
            fields["ETag"] = f'"{fields["ETag"]}"'
        if (status, body) != (question["status"], question["answer"]) or fields.items() - headers.items():
            found.append((question["method"], question["path"], status, body[:200], headers))
    return found


def test_every_answer_is_as_before(service: Service) -> None:
    assert len(RECORDED["answers"]) > 20
    assert different(service) == []


def test_all_older_revisions_are_there_and_readable(upgraded: Path, service: Service) -> None:
    del service
    counted = dict.fromkeys(REVISIONS, 0)
    for form in counted:
        for directory in (upgraded / "var/data" / form / "data").iterdir():
            status, out, _ = run(upgraded, "history", f"{form}/data/{directory.name}", "--json")
            assert status == 0
            counted[form] += len(out.splitlines())
    assert counted == REVISIONS
    assert len(list((upgraded / "var/data").glob("*/*/data/*"))) == DOCUMENTS


def test_commands_work_on_it_and_encrypted_values_are_brought_to_the_new_format(
    service: Service, upgraded: Path
) -> None:
    assert different(service) == []  # its searches take in what the old version has noted
    for words in commands("when it runs"):
        status, out, errors = run(upgraded, *words)
        assert status == 0, out + errors
    texts = [path.read_text() for path in (upgraded / "var/data/demo").rglob("data.xml")]
    assert [text for text in texts if "enc1:" in text] == []
    assert [text for text in texts if "enc2:" in text] != []
    assert different(service) == []
    assert run(upgraded, "check", "--deep")[0] == 0
    assert len(list((upgraded / "backups").iterdir())) == 2


def test_the_backup_of_the_old_version_is_restored_and_upgraded(tmp_path: Path) -> None:
    directory = unpacked(tmp_path / "here")
    edit_settings(directory)
    shutil.move(directory / "var/data", tmp_path / "lost")
    for words in (["restore", "backups"], ["upgrade"], ["reindex"], ["check", "--deep"]):
        status, out, errors = run(directory, *words)
        assert status == 0, (words, out, errors)
    for path in (tmp_path / "lost").glob("*/*/*/*/*"):
        if path.is_file() and path.suffix != ".json":
            assert (directory / "var/data" / path.relative_to(tmp_path / "lost")).read_bytes() == path.read_bytes()
