"""The command: what it prints, and its exit statuses."""

import json
import subprocess
from pathlib import Path

import pytest

from persistence.cli import transfer_commands
from persistence.dialect import SVC
from persistence.index.sync.staleness import IndexCondition
from persistence.model.addresses import Form as Named
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.settings import Settings
from tests.cli.command_runner import Place
from tests.commands import persistence
from tests.forms.vectors import Form
from tests.imports.archives import tree, zipped
from tests.imports.test_json_lines import T1, line
from tests.initialised import initialised


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(initialised(tmp_path / "data"))


def imported(data: Path, content: bytes, *options: str) -> subprocess.CompletedProcess[str]:
    (data.parent / "x").write_bytes(content)
    return persistence("import", str(data.parent / "x"), *options, data=data)


def test_documents_without_an_owner_are_named_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_commands, "MOST_NAMED", 2)
    place, archive = Place(tmp_path / "data"), str(tmp_path / "x.zip")
    Path(archive).write_bytes(zipped({f"a/f/1/data/{each}/latest/data.xml": b"<d/>" for each in "123"}))
    line = "a/f/data/{}: imported: came without an owner"
    for options in (("--dry-run",), ()):
        done = place.run("import", archive, *options)
        assert (done.exit_code, done.stdout.splitlines()) == (0, [line.format(1), line.format(2)])
        assert "documents without an owner: 3" in done.stderr.splitlines()
    other = Place(tmp_path / "other").run("import", archive, "--json").stdout.splitlines()
    assert [json.loads(each).get("without_owner") for each in other] == [None, None, 3]
    assert json.loads(other[0]) == {"name": "a/f/data/1", "result": "imported", "cause": "came without an owner"}
    assert place.run("import", archive).stdout == ""


def test_a_mark_without_effect_is_imported_with_a_note(data: Path) -> None:
    """What another service has taken is not to be lost; a check goes on reporting it."""
    view = "<xf:input><fr:encrypt/></xf:input>"
    done = imported(data, zipped({"a/f/1/form/latest/form.xhtml": Form("<form/>", body=view).document().encode()}))
    assert done.returncode == 0, done.stderr
    assert "note: the mark <fr:encrypt> of the element input has no effect: it has no id (1 times)" in done.stderr


@pytest.mark.parametrize(
    ("content", "cause"),
    [(b"text", "not a ZIP file or JSON lines"), (b"PK\x03\x04", "cut off"), (b"PK\x05\x06", "cut off")],
)
def test_what_is_nothing_that_can_be_imported_is_one_line(data: Path, content: bytes, cause: str) -> None:
    done = imported(data, content)
    assert (done.returncode, cause in done.stderr, done.stderr.count("\n")) == (1, True, 1), done.stderr
    assert tree(data) == {}


def test_the_index_is_there_when_an_import_has_ended(data: Path) -> None:
    """Nobody has to wait for it in the first search."""
    assert imported(data, line(document="d", data="<d/>", modified=T1)).returncode == 0
    settings, properties = Settings(data=str(data)), Properties.load({}, SVC.property_prefix)
    with open_index(settings, properties, str(data)) as index:
        assert index.rebuild_of(Named("a", "f")).condition() is IndexCondition.READY
        assert index.waiting() == 0
