"""Files edited, replaced or dropped by hand: served as they are, told of by a check, and taken in by ``--adopt``."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.test_commands import persistence
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DOCUMENT, DRAFT, FORM, NEW, Workshop

EDITED = b"<d>edited in place</d>"


def edit_in_place(path: Path, body: bytes) -> None:
    path.write_bytes(body)


def replace(path: Path, body: bytes) -> None:
    """Replace a file as editors, git and rsync do."""
    fresh = path.with_name(f"{path.name}.fresh")
    fresh.write_bytes(body)
    fresh.rename(path)


@pytest.mark.parametrize("change", [edit_in_place, replace])
@pytest.mark.parametrize(("path", "body"), [(DATA, EDITED), (DRAFT, EDITED), (FORM, EDITED)])
def test_an_edited_file_is_served_said_and_taken_in(workshop: Workshop, change: object, path: str, body: bytes) -> None:
    before, tag = workshop.sidecar(path), workshop.head(path)["ETag"]
    assert callable(change)
    change(workshop.file(path), body)
    assert workshop.get(path) == (200, body)
    assert workshop.head(path)["ETag"] != tag
    checked = workshop.check("--repair")
    assert (checked.kinds, checked.status) == ([("edited", path)], 5)
    assert workshop.sidecar(path) == before
    assert workshop.check("--adopt", "--all", "--as", "mia").status == 3
    after = workshop.sidecar(path)
    assert after["modifier"] == "mia"
    assert str(after["modified"]) > str(before["modified"])
    assert after["size"] == len(body)
    for name in ("version", "created", "creator", "content_type", "stage"):
        assert after.get(name) == before.get(name)
    assert workshop.get(path) == (200, body)
    assert workshop.head(path)["ETag"] == f'"{after["id"]}"'
    assert workshop.check("--deep").findings == []
    workshop.put(path, NEW)
    if path == DATA:
        assert workshop.get(path, str(after["modified"])) == (200, body)
    assert workshop.check("--deep").findings == []


@pytest.mark.parametrize("change", [edit_in_place, replace])
def test_an_attachment_that_was_changed_is_damage_unless_it_is_named(workshop: Workshop, change: object) -> None:
    """Nobody can tell another PDF from a broken one, but for the person who has put it there."""
    stored = workshop.get(ATTACHMENT)[1]
    assert callable(change)
    change(workshop.file(ATTACHMENT), b"other bytes")
    assert workshop.get(ATTACHMENT) == (500, b"")
    assert workshop.try_put(ATTACHMENT, b"next") == 500
    for flags in ((), ("--adopt", "--all"), ("--adopt", DOCUMENT)):
        checked = workshop.check(*flags)
        assert (checked.kinds, checked.status) == ([("content-damaged", ATTACHMENT)], 4)
    assert workshop.file(ATTACHMENT).read_bytes() == b"other bytes"
    adopted = workshop.check("--adopt", ATTACHMENT, "--as", "mia")
    assert adopted.status == 3
    assert workshop.get(ATTACHMENT) == (200, b"other bytes")
    assert workshop.sidecar(ATTACHMENT)["modifier"] == "mia"
    assert workshop.check("--deep").findings == []
    assert stored != b"other bytes"


def test_only_the_file_that_is_named_is_adopted(workshop: Workshop) -> None:
    for path in (DATA, DRAFT):
        replace(workshop.file(path), EDITED)
    other = f"{DOCUMENT}/dropped.txt"
    workshop.file(other).write_bytes(b"put here")
    workshop.check("--adopt", f"{DATA}.json")
    assert sorted(workshop.check().kinds) == [("edited", DRAFT), ("no-sidecar", other)]


def test_a_dry_run_shows_sizes_digests_and_a_diff_and_changes_nothing(workshop: Workshop) -> None:
    stored = workshop.sidecar(DATA)
    modified = str(stored["modified"])
    kept = workshop.file(f"{DOCUMENT}/.history/{modified.replace(':', '-')}.data.xml")
    os.link(workshop.file(DATA), kept)
    os.link(workshop.file(f"{DATA}.json"), kept.with_name(f"{kept.name}.json"))
    replace(workshop.file(DATA), EDITED)
    before = workshop.state()
    checked = workshop.check("--repair", "--adopt", "--all", "--dry-run")
    assert workshop.state() == before
    assert (checked.status, checked.summary["edits"]) == (5, 1)
    (finding,) = checked.findings
    digest = hashlib.sha256(EDITED).hexdigest()
    assert finding["said"] == (
        f"would be adopted: {len(NEW)} bytes {stored['digest']} -> {len(EDITED)} bytes sha256:{digest}"
    )
    assert finding["difference"].splitlines() == [
        f"--- stored at {modified}",
        "+++ as it is",
        "@@ -1 +1 @@",
        f"-{NEW.decode()}",
        f"+{EDITED.decode()}",
    ]
    shown = persistence("check", "--data", str(workshop.root), "--adopt", DATA, "--dry-run", cwd=workshop.root.parent)
    assert f"\n    +{EDITED.decode()}\n" in shown.stdout


def test_a_dry_run_says_what_would_be_refused_and_repaired(workshop: Workshop) -> None:
    replace(workshop.file(DATA), b"<d>half")
    before = workshop.state()
    named = workshop.check("--adopt", DATA, "--dry-run")
    assert "would not be adopted: the body is not well-formed" in named.findings[0]["said"]
    repaired = workshop.check("--repair", "--dry-run")
    assert "would be repaired: goes back to the newest whole revision" in repaired.findings[0]["said"]
    assert workshop.state() == before


def test_a_definition_whose_permissions_are_not_known_is_not_taken_in(workshop: Workshop) -> None:
    """A definition with unknown permissions is refused, as by PUT: its author would believe that they hold."""
    head = (
        b'<html xmlns="http://www.w3.org/1999/xhtml"><head><f:model xmlns:f="http://www.w3.org/2002/xforms"'
        b' id="fr-form-model"><f:instance id="fr-form-metadata"><metadata xmlns="">'
    )
    permissions = b'<permissions><permission operations="readd"/></permissions>'
    workshop.file(FORM).write_bytes(head + permissions + b"</metadata></f:instance></f:model></head></html>")
    before = workshop.sidecar(FORM)
    noticed = workshop.check()
    assert (noticed.kinds, noticed.status) == ([("edited", FORM)], 5)
    assert "unknown operation: 'readd'" in noticed.findings[0]["what"]
    checked = workshop.check("--adopt", "--all")
    assert checked.status == 4
    assert "unknown operation: 'readd'" in checked.findings[0]["said"]
    assert workshop.sidecar(FORM) == before


def test_an_edit_of_the_same_length_right_after_the_save_is_noticed(workshop: Workshop) -> None:
    tag = workshop.put(DATA, b"<d>1</d>")
    workshop.file(DATA).write_bytes(b"<d>2</d>")
    assert workshop.get(DATA) == (200, b"<d>2</d>")
    assert workshop.head(DATA)["ETag"] != tag
    assert workshop.check().kinds == [("edited", DATA)]


def test_the_sidecar_of_the_content_that_was_edited_away_is_kept_aside(workshop: Workshop) -> None:
    """Its content is gone, so it is no revision any more; what it said is not lost."""
    sidecar = workshop.file(f"{DATA}.json").read_bytes()
    edit_in_place(workshop.file(DATA), EDITED)
    workshop.check("--adopt", "--all")
    assert [path.read_bytes() for path in workshop.file(".quarantine").rglob("data.xml.json")] == [sidecar]
    assert len(workshop.history(DATA)) == 1


def test_a_revision_that_is_whole_in_the_history_stays_there(workshop: Workshop) -> None:
    """A refused write may have kept it before the edit."""
    modified = str(workshop.sidecar(DATA)["modified"])
    kept = workshop.file(f"{DOCUMENT}/.history/{modified.replace(':', '-')}.data.xml")
    os.link(workshop.file(DATA), kept)
    os.link(workshop.file(f"{DATA}.json"), kept.with_name(f"{kept.name}.json"))
    replace(workshop.file(DATA), EDITED)
    assert workshop.check("--repair").kinds == [("edited", DATA)]
    workshop.check("--adopt", "--all")
    assert workshop.get(DATA, modified) == (200, NEW)
    assert workshop.get(DATA) == (200, EDITED)
    assert workshop.check("--deep").findings == []


@pytest.mark.parametrize("arguments", [("--adopt", "--all"), ("--adopt", DATA)])
def test_what_is_no_xml_is_damage_and_never_taken_in(workshop: Workshop, arguments: tuple[str, ...]) -> None:
    replace(workshop.file(DATA), b"<d>half")
    assert workshop.get(DATA) == (500, b"")
    checked = workshop.check(*arguments)
    assert checked.status == 4
    assert checked.kinds == [("content-damaged", DATA)]
    assert "not well-formed" in checked.findings[0]["what"]
    assert list(workshop.file(".quarantine").iterdir()) == []
    assert workshop.get(DATA) == (500, b"")


def test_a_new_document_is_taken_in_with_its_attachments(workshop: Workshop) -> None:
    """The version is the latest published one; nobody owns it."""
    workshop.put("app/form/form/form.xhtml", b"<html/>", {"Svc-Form-Definition-Version": "next"})
    folder = workshop.file("app/form/data/dropped")
    folder.mkdir()
    (folder / "data.xml").write_bytes(EDITED)
    (folder / "picture.png").write_bytes(b"png")
    path = "app/form/data/dropped/data.xml"
    assert workshop.get(path) == (404, b"")
    checked = workshop.check()
    assert checked.kinds == [("no-sidecar", path), ("no-sidecar", "app/form/data/dropped/picture.png")]
    assert (checked.status, checked.summary["edits"]) == (5, 2)
    assert workshop.check("--adopt", "--all", "--repair").status == 3
    assert workshop.get(path) == (200, EDITED)
    sidecar = workshop.sidecar(path)
    assert (sidecar["version"], sidecar.get("creator"), sidecar["content_type"]) == (2, None, "application/xml")
    assert workshop.head("app/form/data/dropped/picture.png")["Content-Type"] == "image/png"
    assert workshop.check("--deep").findings == []


def test_a_whole_form_is_taken_in(workshop: Workshop) -> None:
    """A folder of definitions and data, as somebody would unpack it: the version is the folder's name."""
    for path in ("new/form/data/D", "new/form/draft/E", "new/form/form/3"):
        workshop.file(path).mkdir(parents=True)
    workshop.file("new/form/form/3/form.xhtml").write_bytes(b"<html><head/></html>")
    workshop.file("new/form/data/D/data.xml").write_bytes(b"<d/>")
    workshop.file("new/form/draft/E/data.xml").write_bytes(b"<d/>")
    assert workshop.check("--adopt", "new").status == 3
    assert workshop.sidecar("new/form/form/3/form.xhtml")["version"] == 3
    assert workshop.sidecar("new/form/data/D/data.xml")["version"] == 3
    assert workshop.get("new/form/data/D/data.xml") == (200, b"<d/>")
    assert workshop.get("new/form/draft/E/data.xml") == (200, b"<d/>")


def test_a_file_put_back_after_a_deletion_lives_again(workshop: Workshop) -> None:
    """The tombstone goes into the history, as with a PUT."""
    tombstone = workshop.sidecar(DELETED)
    workshop.file(DELETED).write_bytes(EDITED)
    assert workshop.get(DELETED) == (404, b"")
    assert workshop.check().kinds == [("no-sidecar", DELETED)]
    workshop.check("--adopt", "--all")
    assert workshop.get(DELETED) == (200, EDITED)
    assert workshop.sidecar(DELETED)["created"] == workshop.sidecar(DELETED)["modified"]
    kept = [path.read_text() for path in workshop.file("app/form/data/deleted/.history").glob("*.json")]
    assert any(str(tombstone["id"]) in text for text in kept)
    assert workshop.check("--deep").findings == []


def test_an_edit_keeps_the_draft(workshop: Workshop) -> None:
    workshop.put("app/form/draft/document/data.xml", b"<d>unsaved</d>")
    edit_in_place(workshop.file(DATA), EDITED)
    assert workshop.check("--adopt", "--all", "--repair").status == 3
    assert workshop.check().findings == []
    assert workshop.get("app/form/draft/document/data.xml") == (200, b"<d>unsaved</d>")


def test_what_is_taken_in_is_closed_to_others(workshop: Workshop) -> None:
    """An editor has given it the permissions of its own user."""
    replace(workshop.file(DATA), EDITED)
    workshop.file(DATA).chmod(0o644)
    workshop.check("--adopt", "--all")
    assert workshop.file(DATA).stat().st_mode & 0o777 == 0o640


def test_a_deleted_document_is_restored_by_a_copy_from_the_history(workshop: Workshop) -> None:
    """By hand, without its time; with its time it is what a copying tool has left behind."""
    kept = workshop.history(DELETED)[0]
    shutil.copyfile(kept, workshop.file(DELETED))
    assert workshop.check("--repair", "--adopt", "--all").status == 3
    assert workshop.get(DELETED) == (200, b"<d>gone</d>")


def test_a_checkout_of_content_and_sidecar_together_is_only_a_matter_of_times(workshop: Workshop) -> None:
    """Git brings both back and keeps no times: the digest says that they belong together."""
    tag = workshop.head(DATA)["ETag"]
    for path in (workshop.file(DATA), workshop.file(f"{DATA}.json")):
        shutil.copyfile(path, path.with_name("fresh"))
        path.with_name("fresh").chmod(0o640)
        path.with_name("fresh").rename(path)
    checked = workshop.check()
    assert (checked.kinds, checked.status) == ([("times-lost", DATA)], 0)
    assert workshop.head(DATA)["ETag"] == tag
    assert workshop.check("--repair").status == 3
    assert workshop.head(DATA)["ETag"] == tag
    assert workshop.check().findings == []


def test_nothing_is_taken_in_while_it_is_being_edited(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(workshop.file(DATA), EDITED)
    original = os.lstat
    calls = iter(range(1000))

    def restless(path: str) -> os.stat_result:
        if str(path).endswith("/data.xml"):
            workshop.file(DATA).write_bytes(EDITED + b" " * next(calls))
        return original(path)

    monkeypatch.setattr("persistence.maintenance.repair.os.lstat", restless)
    checked = workshop.check("--adopt", "--all")
    monkeypatch.undo()
    assert checked.status == 4
    assert "is being edited" in checked.findings[0]["said"]
    assert workshop.get(DATA)[0] == 200
