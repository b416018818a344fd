"""``persistence erase``: nothing of a document is left, in any file, and a certificate says what was there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from persistence.errors import DiskError
from persistence.maintenance import backup as backups
from persistence.storage import files, store
from tests import orders
from tests.failing import ending
from tests.in_process import serving
from tests.maintenance import kills
from tests.maintenance.test_backup import backup
from tests.maintenance.workshop import ATTACHMENT, DATA, DOCUMENT, DRAFT, Workshop, copy_tree, furnished
from tests.service import alone
from tests.waiting import eventually

SECRET = b"Wolpertinger-4711"


def run(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(commands, ["erase", "--data", str(root), *arguments])


def erased(workshop: Workshop, *arguments: str) -> dict[str, Any]:
    workshop.close()
    file = workshop.root.parent / "certificate.json"
    done = run(workshop.root, *arguments, "--yes", "--certificate", str(file))
    assert done.exit_code == 0, (done.output, done.exception)
    assert file.stat().st_mode & 0o777 == 0o600
    found: dict[str, Any] = json.loads(file.read_text())
    assert found["ended"] > found["began"]
    return found


def having(root: Path, text: bytes) -> list[str]:
    """Return the files below a directory that have some bytes, in names or contents; an index has small letters."""
    return [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if text.decode() in path.name or (path.is_file() and text.lower() in path.read_bytes().lower())
    ]


def _parts_of_indexes(root: Path) -> set[str]:
    """Return the directories in ``.index`` with a file that has the secret."""
    return {path.split("/")[1] for path in having(root, SECRET) if path.startswith(".index/")}


def test_an_index_that_cannot_be_removed_keeps_the_erasure_from_being_complete(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.put(DATA, b"<d>%s</d>" % SECRET)
    workshop.close()
    assert CliRunner().invoke(commands, ["reindex", "--data", str(workshop.root)]).exit_code == 0
    assert "form" in "".join(path for path in having(workshop.root, SECRET) if path.startswith(".index/"))
    file = workshop.root.parent / "certificate.json"
    arguments = DOCUMENT, "--yes", "--certificate", str(file)
    remove = files.remove

    def refused(path: str) -> None:
        if path.endswith(".sqlite"):
            raise OSError(errno.EIO, "Input/output error", path)
        remove(path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "remove", refused)
        done = run(workshop.root, *arguments)
    assert isinstance(done.exception, DiskError)
    assert having(workshop.root, SECRET)
    assert run(workshop.root, *arguments).exit_code == 0
    assert having(workshop.root, SECRET) == []


@pytest.mark.parametrize("serves", [True, False], ids=["beside a service", "alone"])
def test_the_id_of_a_document_is_left_nowhere(tmp_path: Path, *, serves: bool) -> None:
    """Not in the journal of the index either, also if nobody searches."""
    path = f"a/form/data/{SECRET.decode()}/data.xml"
    root, certificate = tmp_path / "data", str(tmp_path / "certificate.json")
    with serving(tmp_path, alone=True) as service:
        assert service.put(path, Form_Definition_Version=1).status == 201
        if serves:
            done = run(root, path.removesuffix("/data.xml"), "--yes", "--certificate", certificate)
    if not serves:
        done = run(root, path.removesuffix("/data.xml"), "--yes", "--certificate", certificate)
    assert done.exit_code == 0, (done.output, done.exception)
    assert having(root, SECRET) == []


def test_nothing_is_left_of_a_document(workshop: Workshop) -> None:
    old = workshop.file(ATTACHMENT).read_bytes()
    workshop.put(ATTACHMENT, SECRET)
    workshop.put(DATA, b"<d>%s</d>" % SECRET)
    workshop.put(DRAFT.replace("draft/draft", "draft/document"), b"<d>%s</d>" % SECRET)
    found = erased(workshop, DOCUMENT, "--reason", "Art. 17")
    assert having(workshop.root, SECRET) == []
    assert not workshop.file(DOCUMENT).exists()
    [document] = found["documents"]
    assert (document["form"], document["document"], document["owner"], found["reason"]) == (
        "form",
        "document",
        "lea",
        "Art. 17",
    )
    digests = {each["path"]: each["digest"] for each in document["files"]}
    assert digests[ATTACHMENT] == f"sha256:{hashlib.sha256(SECRET).hexdigest()}"
    assert f"sha256:{hashlib.sha256(old).hexdigest()}" in digests.values()
    assert SECRET.decode() not in json.dumps(found)
    assert workshop.get(DATA)[0] == 404
    workshop.put(DATA, b"<d/>")
    workshop.close()
    assert workshop.check("--deep").kinds == []


def test_no_value_stays_in_an_index_or_a_table_for_reports(tmp_path: Path) -> None:
    """Neither in free pages of a database nor in its log; others are found as before, by a service that runs."""
    own = {"Form_Definition_Version": 1, "Create_Flat_View": "true"}
    query = (
        b"<search><query>%s</query><drafts>include</drafts><page-size>10</page-size>"
        b"<page-number>1</page-number></search>"
    )
    with alone(tmp_path) as service:  # a process that closes a file of SQLite would lose its locks of it
        assert service.put("acme/order/form/form.xhtml", orders.definition(), **own).status == 201
        for number in range(40):
            text = SECRET if number == 7 else b"other"
            body = b"<form><customer><name>%s %d</name></customer></form>" % (text, number)
            assert service.put(f"acme/order/data/D{number}/data.xml", body, **own).status == 201
        found = service.raw("POST", f"{service.face}/search/acme/order", {}, query % SECRET).body
        assert b'name="D7"' in found
        eventually(lambda: {"acme", ".flat"} <= _parts_of_indexes(service.data))
        certificate = tmp_path / "certificate.json"
        arguments = ("acme/order/data/D7", "--yes", "--certificate", str(certificate))
        assert run(service.data, *arguments).exit_code == 0
        assert b'search-total="0"' in service.raw("POST", f"{service.face}/search/acme/order", {}, query % SECRET).body
        assert b'search-total="39"' in service.raw("POST", f"{service.face}/search/acme/order", {}, query % b"").body
    assert having(service.data, SECRET) == []


def test_what_a_repair_and_a_lease_have_left_goes_too(workshop: Workshop) -> None:
    workshop.put(DATA, b"<d>%s</d>" % SECRET)
    workshop.close()
    workshop.file(f"{DATA}.json").write_bytes(b"{}")
    workshop.check("--repair", "--adopt", DATA)
    assert [path for path in having(workshop.root, b"data.xml") if path.startswith(".quarantine")]
    links = workshop.root / ".serve/1"
    links.mkdir(parents=True)
    (links / ("0" * 40)).hardlink_to(workshop.file(ATTACHMENT))
    erased(workshop, DOCUMENT)
    assert having(workshop.root, SECRET) == []
    assert list(links.iterdir()) == []
    assert [path for path in having(workshop.root, b"data.xml") if "document" in path] == []


def test_a_run_that_goes_on_keeps_what_the_certificate_says_of_backups(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run has removed the copies from one backup; the second one finds none there."""
    workshop.put(ATTACHMENT, SECRET)
    both = {str(backup(workshop, tmp_path / "backups")) for _ in range(2)}
    workshop.close()
    file = tmp_path / "certificate.json"
    own = ("--yes", "--certificate", str(file))
    with monkeypatch.context() as patched:
        refusing = ending(1, backups.remove_copies, DiskError("the disk refuses"))
        patched.setattr(backups, "remove_copies", refusing)
        options = ("--backups", str(tmp_path / "backups"), "--from-backups", "--reason", "Art. 17")
        assert run(workshop.root, DOCUMENT, *options, *own).exit_code == 1
    begun = json.loads(file.read_text())
    assert "ended" not in begun
    assert run(workshop.root, DOCUMENT, *own).exit_code == 0
    found = json.loads(file.read_text())
    assert (found["began"], found["reason"]) == (begun["began"], "Art. 17")
    assert {each["backup"] for each in found["backups"]} == both
    for each in found["backups"]:
        assert (each["removed"], ATTACHMENT in {file["path"] for file in each["files"]}) == (True, True)
    assert having(tmp_path / "backups", SECRET) == []


def test_a_certificate_is_not_written_into_a_pipe(workshop: Workshop, tmp_path: Path) -> None:
    workshop.close()
    os.mkfifo(tmp_path / "pipe")
    state = workshop.state()
    assert run(workshop.root, DOCUMENT, "--certificate", str(tmp_path / "pipe")).exit_code == 2
    assert workshop.state() == state


@pytest.mark.parametrize("step", [29, pytest.param(9, marks=pytest.mark.long)])
def test_an_erasure_that_is_killed_goes_on_with_its_certificate(tmp_path: Path, step: int) -> None:
    """At each step: nothing for a check but what a repair removes, and after the next run nothing at all."""
    workshop = furnished(tmp_path / "pristine")
    workshop.put(ATTACHMENT, SECRET)
    workshop.close()
    at = 0
    while True:
        at += step
        here = Workshop(tmp_path / f"killed-{at}")
        copy_tree(workshop.root, here.root)
        file = tmp_path / f"certificate-{at}.json"
        arguments = ["erase", "--data", str(here.root), "--owner", "lea", "--yes", "--certificate", str(file)]
        ended = kills.run(arguments, tmp_path / "said", at=at)
        if not ended.struck:
            break
        assert {kind for kind, _ in here.check("--deep").kinds} <= {"stray-temporary"}
        if not file.exists() or json.loads(file.read_text()).get("ended") is None:
            assert CliRunner().invoke(commands, arguments).exit_code == 0
        assert having(here.root, SECRET) == []
        assert not here.file(DOCUMENT).exists()
        found = json.loads(file.read_text())
        assert [each["document"] for each in found["documents"]] == ["document"]
        assert here.check("--deep").kinds == []
    assert at > 10


def test_a_document_that_is_saved_while_it_is_erased_is_there_or_refused(workshop: Workshop) -> None:
    """A save that is acknowledged after the erasure stays, whole."""
    certificates, is_over, saved = iter(range(100)), threading.Event(), 0

    def erase() -> None:
        for _ in range(4):
            file = workshop.root.parent / f"certificate-{next(certificates)}.json"
            run(workshop.root, "app/form/data/busy", "--yes", "--certificate", str(file))
        is_over.set()

    workshop.put("app/form/data/busy/data.xml", b"<d/>")
    erasing = threading.Thread(target=erase)
    erasing.start()
    while not is_over.is_set():
        saved += 1
        assert workshop.try_put("app/form/data/busy/data.xml", b"<d>%d</d>" % saved) in {201, 204}
    erasing.join()
    assert workshop.try_put("app/form/data/busy/data.xml", b"<d>last</d>") in {201, 204}
    assert workshop.get("app/form/data/busy/data.xml") == (200, b"<d>last</d>")
    workshop.close()
    assert workshop.check("--deep").kinds == []


@pytest.mark.parametrize("place", ["the tree", "a backup"])
def test_what_cannot_be_removed_is_not_certified(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A folder that may not be written to, or a faulty disk: the file stays, and so the erasure is not complete."""
    workshop.put(ATTACHMENT, SECRET)
    workshop.close()
    copies = tmp_path / "backups"
    mine = backup(workshop, copies)
    file = tmp_path / "certificate.json"
    arguments = (DOCUMENT, "--yes", "--certificate", str(file), "--backups", str(copies), "--from-backups")
    removed = files.remove_tree
    kept = workshop.root if place == "the tree" else mine

    def refused(path: str) -> None:
        if not path.startswith(f"{kept}/"):
            removed(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "remove_tree", refused)
        patch.setattr(store, "_PATIENCE", 0.1)
        failed = run(workshop.root, *arguments)
    assert (failed.exit_code, isinstance(failed.exception, DiskError)) == (1, True)
    assert "Directory not empty" in str(failed.exception)
    assert "ended" not in json.loads(file.read_text())
    assert having(kept, SECRET)
    assert run(workshop.root, *arguments).exit_code == 0
    assert "ended" in json.loads(file.read_text())
    assert having(tmp_path, SECRET) == []


def test_a_link_in_the_place_of_a_document_is_erased_alone(workshop: Workshop, tmp_path: Path) -> None:
    """What it leads to is not of the document: neither removed nor certified."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_bytes(SECRET)
    folder = workshop.file(DOCUMENT)
    shutil.rmtree(folder)
    folder.symlink_to(other)
    found = erased(workshop, DOCUMENT)
    assert [each["path"] for each in found["documents"][0]["files"]] == [DOCUMENT]
    assert not folder.is_symlink()
    assert (other / "file").read_bytes() == SECRET
