"""``persistence forms`` and ``persistence show``: names, odd texts, terminals, and a tree that others use or damaged.

What they print of versions, documents and drafts is in ``golden/reports.txt`` and ``golden/definitions.txt``.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from persistence.cli.terminal import safe
from persistence.storage import commit
from persistence.storage.layout import UNFINISHED_LEASE, Layout
from persistence.storage.locks import LockFile
from tests.cli.command_runner import Command, Place
from tests.published import definition
from tests.sidecars import resealed, said

D = "hr/leave/data/d"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


def test_names_on_disk_are_shown_as_in_the_url(tmp_path: Path) -> None:
    place = Place(tmp_path / os.fsdecode(b"d\xff"))
    place.put(f"{D}/50% up.json", b"scan")
    lines = place.lines("show", D)
    assert lines[-1] == "50% up.json application/octet-stream 4"
    assert f"file {tmp_path}/d\N{REPLACEMENT CHARACTER}/{D}/data.xml" in lines


@pytest.mark.parametrize("name", ["data", "1", "form", "a b", "ä", "50%", "%41", "x.json", "con:"])
def test_the_number_of_names_tells_what_is_meant(place: Place, name: str) -> None:
    for path in (f"{name}/{name}/form/form.xhtml", f"{name}/data/form/form.xhtml"):
        place.put(path, definition(""))
    place.put(f"{name}/{name}/data/{name}/data.xml")
    place.put(f"{name}/data/draft/1/data.xml")
    for path, title in {
        f"{name}/{name}": f"{name}/{name} version 1",
        f"{name}/data": f"{name}/data version 1",
        f"{name}/data/1": f"{name}/data version 1",
        f"{name}/{name}/data/{name}": f"{name}/{name}/data/{name}",
        f"{name}/data/draft/1": f"{name}/data/draft/1",
    }.items():
        assert place.lines("show", path)[0] == title
    assert {line.split(" 1 ")[0] for line in place.lines("forms", name)[1:-1]} == {f"{name}/{name}", f"{name}/data"}


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("x" * 256, "a name in the path is too long: 255 bytes are allowed"),
        ("\x1b[31m", "a name in the path holds a character that is not allowed: '\\x1b[31m'"),
        ("\udcff", "a name in the path holds a character that is not allowed: '\\udcff'"),
    ],
)
def test_a_name_that_is_not_allowed_is_refused_in_one_line(
    place: Place, command: Command, name: str, cause: str
) -> None:
    done = command("show", f"hr/leave/data/{name}", "--data", str(place.root))
    assert (done.status, done.out, done.errors[-1]) == (2, "", f"Error: {cause}")


def test_text_from_files_cannot_command_the_terminal(place: Place) -> None:
    form, document = "hr/\u202eleave", "hr/\u202eleave/data/\u202ed"
    place.put(f"{form}/form/form.xhtml", definition("<title>TITLE</title>"))
    place.put(f"{document}/\u2066a.bin", b"scan", Content_Type="image/TYPE")
    for _ in range(2):
        place.put(f"{document}/data.xml", Username="USER", Workflow_Stage="STAGE")
    for sidecar in place.root.rglob("*.json"):
        text = json.dumps(said(sidecar))
        for word in ("TITLE", "TYPE", "USER", "STAGE"):
            text = text.replace(word, rf"{word}\u001b[31m\n\u009b2J")
        if "address" in text:
            resealed(sidecar, **json.loads(text))
    for arguments, words in (("forms", "TITLE"), (f"show {form}", "TITLE"), (f"show {document}", "TYPE USER STAGE")):
        out = place.run(*arguments.split()).stdout
        assert all(safe(line) == line for line in out.split("\n"))
        assert "hr/�leave" in out
        assert all(f"{each}�[31m��2J" in out for each in words.split())


def test_what_the_encoding_lacks_is_a_question_mark(place: Place) -> None:
    place.put("hr/leave/form/form.xhtml", definition("<title>请假 für</title>"))
    command = [sys.executable, "-m", "persistence.cli", "forms", "--data", str(place.root)]
    env = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, env=env, timeout=60, check=True, capture_output=True)
    assert "?? für" in done.stdout.decode("latin-1")


@pytest.mark.parametrize("own", [(), (".locks", ".spool", ".trash", ".serve", ".quarantine", ".index")])
def test_nothing_is_changed_and_nothing_made_that_is_missing(place: Place, own: tuple[str, ...]) -> None:
    place.put("hr/leave/form/form.xhtml", definition("<title>Leave</title>"))
    place.put(f"{D}/data.xml")
    for name in own:
        shutil.rmtree(place.root / name)
    before = place.everything()
    for command in (("forms",), ("show", "hr/leave"), ("show", D), ("show", "hr/leave/1")):
        place.lines(*command)
    assert place.everything() == before


def test_nobody_is_waited_for(place: Place) -> None:
    place.put("hr/leave/form/form.xhtml", definition(""))
    place.put(f"{D}/data.xml")
    with ExitStack() as stack:
        for lock in (place.root / ".locks").rglob("*"):
            if lock.is_file() and lock.name not in ("service", "lease"):  # which the service itself shares
                stack.enter_context(LockFile(str(lock)).exclusive("in use"))
        assert len(place.lines("forms")) == 3
        assert place.lines("show", D)[0] == D


def test_what_a_killed_lock_left_is_removed_when_it_is_nobodys_work_any_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Path(Layout(str(place.root)).lease("d") + UNFINISHED_LEASE)
    left.parent.mkdir(parents=True)
    left.write_bytes(b'{"docu')
    left.chmod(0o640)
    assert place.lines("check", "--repair") == []
    assert left.exists()
    monkeypatch.setattr(commit, "ABANDONED_AFTER", -1.0)
    (line,) = place.lines("check", "--repair", status=3)
    assert "stray-temporary" in line
    assert not left.exists()
