"""``persistence forms``: a line for each published version, and what is in it."""

import json
import os
import pty
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from persistence.cli.terminal import safe
from persistence.errors import StartupError
from persistence.storage.locks import LockFile
from tests.cli.command_runner import Place, ended
from tests.published import definition
from tests.sidecars import resealed, said

HEADINGS = "FORM VERSION TITLE MODIFIED BY DOCUMENTS BYTES SAVED NOTES"
TITLES = '<title xml:lang="de">Urlaubsantrag</title><title xml:lang="en">Leave request</title>'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


def second(place: Place, path: str, version: int) -> str:
    """Return the instant at which a file of a version was stored last, to the second."""
    return f"{place.instant(path, version)[:19]}Z"


def size_of(place: Place, document: str) -> int:
    """Return the bytes of the files of a document."""
    return sum(each.stat().st_size for each in (place.root / document).rglob("*") if each.is_file())


def test_versions_are_sorted_by_application_form_and_number(place: Place) -> None:
    for form in ("b/a", "a/b", "a/a"):
        place.put(f"{form}/form/form.xhtml", definition(""))
    place.put("a/b/form/form.xhtml", definition(""), version=10)
    place.put("a/b/form/form.xhtml", definition(""), version=2)
    lines = place.lines("forms")
    assert [line.split()[:2] for line in lines[1:-1]] == [
        ["a/a", "1"],
        ["a/b", "1"],
        ["a/b", "2"],
        ["a/b", "10"],
        ["b/a", "1"],
    ]
    assert lines[-1] == "3 forms, 5 versions, 0 documents, 0 deleted, 0 drafts"
    assert [line.split()[0] for line in place.lines("forms", "a")[1:-1]] == ["a/a", "a/b", "a/b", "a/b"]
    assert [line.split()[:2] for line in place.lines("forms", "b/a")[1:-1]] == [["b/a", "1"]]
    assert place.lines("forms", "b/a")[-1].startswith("1 form, 1 version")


@pytest.mark.parametrize(
    ("properties", "notes"),
    [
        ("", "permissions: open to all"),
        ('"svc.permissions.hr.*" = \'{"anyone": []}\'', "permissions: by property"),
        ('"svc.persistence.*.permissions" = false', "permissions: switched off"),
        ("svc.detail.singleton.enabled.hr.leave = true", "singleton; permissions: open to all"),
    ],
)
def test_properties_count_where_the_definition_is_silent(
    place: Place, tmp_path: Path, properties: str, notes: str
) -> None:
    (tmp_path / "own.toml").write_text(properties)
    place.put("hr/leave/form/form.xhtml", definition(""))
    assert place.lines("forms", "--config", str(tmp_path / "own.toml"))[1].endswith(f"Z {notes}")


def test_a_document_whose_sidecar_is_damaged_is_none_of_the_deleted_ones(place: Place) -> None:
    """Nothing tells that it was deleted; `check` says what it is."""
    for name in ("a", "b", "c"):
        place.put(f"hr/leave/data/{name}/data.xml")
    for name in ("b", "c"):
        place.delete(f"hr/leave/data/{name}/data.xml")
    (place.root / "hr/leave/data/c/data.xml.json").write_text("{")
    (place.root / "hr/leave/data/stray.txt").write_text("no document")
    assert place.lines("forms")[-1] == "0 forms, 0 versions, 2 documents, 1 deleted, 0 drafts"


def test_forms_are_sorted_by_what_is_asked_for(place: Place) -> None:
    for form, documents in (("a/a", 1), ("a/b", 3), ("b/a", 2)):
        place.put(f"{form}/form/form.xhtml", definition(""))
        for number in range(documents):
            place.put(f"{form}/data/{form[0]}{form[2]}{number}/data.xml")
    place.delete("a/a/data/aa0/data.xml")
    for by, names in (("documents", "a/b b/a a/a"), ("deleted", "a/a a/b b/a"), ("bytes", "a/b b/a a/a")):
        assert [line.split()[0] for line in place.lines("forms", "--sort", by)[1:-1]] == names.split()
    assert place.lines("forms", "--sort", "saved")[1].startswith("a/a")


def test_deleted_versions_and_an_empty_tree_have_no_line(place: Place) -> None:
    assert place.lines("forms") == ["0 forms, 0 versions, 0 documents, 0 deleted, 0 drafts"]
    place.put("hr/leave/form/form.xhtml", definition(""))
    place.delete("hr/leave/form/form.xhtml")
    assert place.lines("forms") == ["0 forms, 0 versions, 0 documents, 0 deleted, 0 drafts"]


def test_a_damaged_version_is_said_and_the_others_are_listed(place: Place) -> None:
    for version in (1, 2, 3):
        place.put("hr/leave/form/form.xhtml", definition(""), version=version)
    (place.root / "hr/leave/form/1/form.xhtml.json").write_text("{")
    (place.root / "hr/leave/form/2/form.xhtml").unlink()
    lines = place.lines("forms", status=4)
    assert lines[1].startswith("hr/leave 1 damaged: the sidecar hr/leave/form/1/form.xhtml.json cannot be read: ")
    assert lines[2] == "hr/leave 2 damaged: the content hr/leave/form/2/form.xhtml is missing"
    assert lines[3].startswith("hr/leave 3 ")
    assert lines[4] == "1 form, 3 versions, 0 documents, 0 deleted, 0 drafts; 2 versions damaged"


def test_a_version_edited_by_hand_is_listed_as_it_is(place: Place) -> None:
    place.put("hr/leave/form/form.xhtml", definition("<title>Old</title>"))
    (place.root / "hr/leave/form/1/form.xhtml").write_bytes(definition("<title>New</title>"))
    assert place.lines("forms")[1].startswith("hr/leave 1 New ")


@pytest.mark.parametrize("name", ["a b", "ä", "50%", "%41", "form", "1", "con:", "x.json"])
def test_names_are_those_of_the_url(place: Place, name: str) -> None:
    place.put(f"{name}/{name}/form/form.xhtml", definition(""))
    assert place.lines("forms", name)[1].startswith(f"{name}/{name} 1 ")


def test_text_from_files_cannot_command_the_terminal(place: Place) -> None:
    place.put("hr/\u202eleave/form/form.xhtml", definition("<title>T</title>"))
    sidecar = place.root / "hr/\u202eleave/form/1/form.xhtml.json"
    resealed(sidecar, **json.loads(json.dumps(said(sidecar)).replace('"T"', r'"a\u001b[31m\nb\u009b2J"')))
    out = place.run("forms").stdout
    assert "hr/�leave" in out
    assert "a�[31m�b�2J" in out
    assert all(safe(line) == line for line in out.split("\n"))


def test_what_the_encoding_lacks_is_a_question_mark(place: Place, tmp_path: Path) -> None:
    place.put("hr/leave/form/form.xhtml", definition("<title>请假 für</title>"))
    done = subprocess.run(
        [sys.executable, "-m", "persistence.cli", "forms", "--data", str(place.root)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert "?? für" in done.stdout.decode("latin-1")


def on_terminal(place: Place, columns: int) -> list[str]:
    """Return the lines of the command on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "persistence.cli", "forms", "--data", str(place.root)],
        env={**os.environ, "COLUMNS": str(columns)},
        stdout=theirs,
        timeout=60,
        check=True,
    )
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        text = terminal.read(1 << 16).decode()
    assert done.returncode == 0
    return text.splitlines()


def test_only_a_terminal_has_wide_titles_cut(place: Place) -> None:
    title = "A title that is a good deal wider than most terminals " * 3
    place.put("hr/leave/form/form.xhtml", definition(f"<title>{title}</title>"))
    assert title.strip() in place.run("forms").stdout
    line = on_terminal(place, 90)[1]
    assert " A title that is a good…  " in line
    assert len(line) == 90


@pytest.mark.parametrize(
    ("arguments", "status", "cause"),
    [
        (("shop", "--data", "data"), 1, "persistence: shop does not exist"),
        (("--data", "none"), 1, "persistence: {}/none is not a data directory (no layout.json): "),
        (("--data", "other"), 1, "persistence: "),
        (("hr/other", "--data", "data"), 1, "persistence: hr/other does not exist"),
        (("hr/leave/1", "--data", "data"), 2, "Error: hr/leave/1 is not APP or APP/FORM"),
        (("hr/", "--data", "data"), 2, "Error: hr/ is not APP or APP/FORM"),
        ((".locks", "--data", "data"), 2, "Error: a name in the path must not start with a dot: '.locks'"),
        (("", "--data", "data"), 2, "Error: a name in the path is empty"),
        (("a", "b", "--data", "data"), 2, "Error: Got unexpected extra argument (b)"),
    ],
)
def test_what_cannot_be_listed_is_said_in_one_line(
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    status: int,
    cause: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    place.put("hr/leave/form/form.xhtml", definition(""))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/layout.json").write_text('{"format":99}')
    done = ended(["forms", *arguments], monkeypatch, capsys)
    assert (done.status, done.out) == (status, "")
    assert done.errors[-1].startswith(cause.format(tmp_path))
    assert status == 2 or len(done.errors) == 1
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("own", [(), (".locks", ".spool", ".trash", ".serve", ".quarantine", ".index")])
def test_nothing_is_changed_and_nothing_made_that_is_missing(place: Place, own: tuple[str, ...]) -> None:
    place.put("hr/leave/form/form.xhtml", definition(TITLES))
    place.put("hr/leave/data/d/data.xml")
    for name in own:
        (shutil.rmtree if name.startswith(".") else os.remove)(place.root / name)
    before = place.everything()
    for command in (("forms",), ("show", "hr/leave"), ("show", "hr/leave/data/d"), ("show", "hr/leave/1")):
        place.lines(*command)
    assert place.everything() == before


def test_nobody_is_waited_for(place: Place) -> None:
    place.put("hr/leave/form/form.xhtml", definition(""))
    place.put("hr/leave/data/d/data.xml")
    with ExitStack() as stack:
        for lock in (place.root / ".locks").rglob("*"):
            if lock.is_file() and lock.name not in ("service", "lease"):  # which the service itself shares
                stack.enter_context(LockFile(str(lock)).exclusive("in use"))
        assert len(place.lines("forms")) == 3
        assert place.lines("show", "hr/leave/data/d")[0] == "hr/leave/data/d"


def test_a_tree_that_is_not_whole_is_not_shown(place: Place) -> None:
    (place.root / "layout.json").write_text('{"format":2,"restoring":"x"}')
    assert isinstance(place.run("forms").exception, StartupError)
