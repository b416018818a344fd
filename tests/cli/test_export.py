"""``persistence export``: an archive in a file or on standard output; contents are in ``golden/archives.txt``."""

import csv
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from persistence.services import exporting
from persistence.storage import files
from tests.cli.command_runner import Command, Place
from tests.cli.samples import LABELLED

FORM = b'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Leave</title></head></html>'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "data")
    place.put("hr/leave/form/form.xhtml", FORM)
    for document in ("a", "b"):
        place.put(f"hr/leave/data/{document}/data.xml", b"<d>1</d>", Username="lea")
        place.put(f"hr/leave/data/{document}/data.xml", b"<d>2</d>", Username="lea")
    place.put("hr/leave/data/a/x.bin", b"123")
    place.put("hr/leave/draft/c/data.xml", b"<d>3</d>", Username="lea")
    place.put("hr/other/data/o/data.xml", b"<d>4</d>")
    return place


def contents(archive: Path | bytes) -> dict[str, bytes]:
    """The contents in an archive, by the end of their names."""
    file = zipfile.ZipFile(io.BytesIO(archive) if isinstance(archive, bytes) else archive)
    assert file.testzip() is None
    names = [name for name in file.namelist() if not name.endswith(".metadata.xml")]
    assert len(file.namelist()) == 2 * len(names) - ("export-errors.txt" in names)
    return {name: file.read(name) for name in names}


def test_standard_output_has_nothing_but_the_archive(place: Place) -> None:
    done = place.run("export", "-")
    assert done.exit_code == 0
    assert len(contents(done.stdout_bytes)) == 5


@pytest.mark.parametrize("is_unnamed", [True, False])
def test_a_disk_that_fills_leaves_the_file_as_it_was(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, *, is_unnamed: bool
) -> None:
    target = tmp_path / "x.zip"
    target.write_bytes(b"before")
    if not is_unnamed:
        monkeypatch.setattr(files, "open_unnamed", lambda *_: None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    done = command("export", str(target), "--data", str(place.root))
    assert done.status == 1
    assert "No space left" in done.errors[-1]
    assert target.read_bytes() == b"before"
    assert sorted(os.listdir(tmp_path)) == ["data", "x.zip"]
    monkeypatch.undo()
    if not is_unnamed:
        monkeypatch.setattr(files, "open_unnamed", lambda *_: None)
    assert place.run("export", str(target)).exit_code == 0
    assert contents(target)
    assert sorted(os.listdir(tmp_path)) == ["data", "x.zip"]


def test_a_disk_that_cannot_be_read_leaves_no_file(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(exporting._Directory, "append", refuse)  # noqa: SLF001 - no disk breaks at will
    done = command("export", str(tmp_path / "x.zip"), "--data", str(place.root))
    assert (done.status, "Input/output error" in done.errors[-1]) == (1, True)
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.parametrize(("to", "said"), [("/dev/full", "No space left on device"), ("a closed pipe", "")])
def test_a_standard_output_that_takes_no_more_is_no_traceback(place: Place, to: str, said: str) -> None:
    reader, writer = os.pipe() if to != "/dev/full" else (os.open(to, os.O_RDONLY), os.open(to, os.O_WRONLY))
    os.close(reader)
    command = [sys.executable, "-m", "persistence.cli", "export", "-", "--data", str(place.root)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, text=True)
    os.close(writer)
    assert done.returncode != 0
    assert done.stderr.startswith(f"persistence: writing to standard output: {said}\n" if said else "")
    assert "Traceback" not in done.stderr


def table(place: Place, *options: str) -> list[dict[str, str]]:
    """Return the rows of the form with labels after its only document was stored."""
    done = place.run("export", "-", "--csv", "--match", "acme/order", *options)
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.stdout_bytes.decode())))


def test_a_signature_is_its_type_and_size_in_a_row_and_as_it_is_in_json(place: Place) -> None:
    signature = f"data:image/png;base64,{'iVBORw0KGgoAAAAN' * 1000}"
    place.put("acme/order/form/form.xhtml", LABELLED.encode())
    place.put("acme/order/data/s/data.xml", f"<form><customer><notes>{signature}</notes></customer></form>".encode())
    assert [row["stage (customer/notes)"] for row in table(place, "--all-controls")] == ["[image/png, 12 KB]"]
    assert signature in place.run("export", "-", "--jsonl", "--all-controls").stdout


@pytest.mark.parametrize("value", ["=1", " =1", "\xa0+1+1", "\ufeff=1", "\u200b@x", "\uff1d1+1", "\n=1", "\nx", "--1"])
def test_what_a_spreadsheet_may_take_for_a_formula_is_guarded(place: Place, value: str) -> None:
    """It skips blanks before a formula, and some take full-width signs."""
    place.put("acme/order/form/form.xhtml", LABELLED.encode())
    place.put("acme/order/data/d/data.xml", f"<form><customer><name>{value}</name></customer></form>".encode())
    assert [row["Name"] for row in table(place)] == [f"'{value}"]
