"""Files edited, replaced or dropped by hand: served as they are, told of by a check, and taken in by ``--adopt``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.maintenance.workshop import ATTACHMENT, DATA, DOCUMENT, DRAFT, FORM, NEW, Workshop

EDITED = b"<d>edited in place</d>"
Change = Callable[[Path, bytes], None]


def edit_in_place(path: Path, body: bytes) -> None:
    path.write_bytes(body)


def replace(path: Path, body: bytes) -> None:
    """Replace a file as editors, git and rsync do."""
    fresh = path.with_name(f"{path.name}.fresh")
    fresh.write_bytes(body)
    fresh.rename(path)


@pytest.mark.parametrize("change", [edit_in_place, replace])
@pytest.mark.parametrize("path", [DATA, DRAFT, FORM])
def test_an_edited_file_is_served_said_and_taken_in(workshop: Workshop, change: Change, path: str) -> None:
    before, tag = workshop.sidecar(path), workshop.head(path)["ETag"]
    change(workshop.file(path), EDITED)
    assert workshop.get(path) == (200, EDITED)
    assert workshop.head(path)["ETag"] != tag
    checked = workshop.check("--repair")
    assert (checked.kinds, checked.status) == ([("edited", path)], 5)
    assert workshop.sidecar(path) == before
    assert workshop.check("--adopt", "--all", "--as", "mia").status == 3
    after = workshop.sidecar(path)
    assert after["modifier"] == "mia"
    assert str(after["modified"]) > str(before["modified"])
    assert after["size"] == len(EDITED)
    for name in ("version", "created", "creator", "content_type", "stage"):
        assert after.get(name) == before.get(name)
    assert workshop.get(path) == (200, EDITED)
    assert workshop.head(path)["ETag"] == f'"{after["id"]}"'
    assert workshop.check("--deep").findings == []
    workshop.put(path, NEW)
    if path == DATA:
        assert workshop.get(path, str(after["modified"])) == (200, EDITED)
    assert workshop.check("--deep").findings == []


@pytest.mark.parametrize("change", [edit_in_place, replace])
def test_an_attachment_that_was_changed_is_damage_unless_it_is_named(workshop: Workshop, change: Change) -> None:
    """Nobody can tell another PDF from a broken one, but for the person who has put it there."""
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


def test_a_revision_that_is_whole_in_the_history_stays_there(workshop: Workshop) -> None:
    """A refused write may have kept it before the edit."""
    modified = str(workshop.sidecar(DATA)["modified"])
    kept = workshop.file(f"{DOCUMENT}/.history/{modified.replace(':', '-')}.data.xml")
    os.link(workshop.file(DATA), kept)
    os.link(workshop.file(f"{DATA}.json"), kept.with_name(f"{kept.name}.json"))
    replace(workshop.file(DATA), EDITED)
    before = workshop.state()
    checked = workshop.check("--repair", "--adopt", "--all", "--dry-run")
    assert (checked.kinds, checked.summary["edits"], workshop.state()) == ([("edited", DATA)], 1, before)
    assert checked.findings[0]["difference"].startswith(f"--- stored at {modified}\n")
    assert workshop.check("--adopt", "--all").status == 3
    assert workshop.get(DATA, modified) == (200, NEW)
    assert workshop.get(DATA) == (200, EDITED)
    assert workshop.check("--deep").findings == []


def test_what_is_taken_in_is_closed_to_others(workshop: Workshop) -> None:
    """An editor has given it the permissions of its own user."""
    replace(workshop.file(DATA), EDITED)
    workshop.file(DATA).chmod(0o644)
    workshop.check("--adopt", "--all")
    assert workshop.file(DATA).stat().st_mode & 0o777 == 0o640


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
