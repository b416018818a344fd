"""``persistence revert``: older revisions and deleted documents come back."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.cli.command_runner import PREFIX, Place

D = "hr/leave/data/d"
DATA = f"{D}/data.xml"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


def content(place: Place, path: str) -> bytes | int:
    answer = place.client.get(PREFIX + path)
    return answer.data if answer.status_code == 200 else answer.status_code


def naming(*names: str) -> bytes:
    return f"<d>{''.join(f'<a>{PREFIX}{D}/{name}</a>' for name in names)}</d>".encode()


def test_the_revision_before_the_current_one_comes_back(place: Place) -> None:
    """The history says what was restored, and by whom; a second time it goes back and forth."""
    place.put(DATA, b"<d>1</d>", Username="lea")
    first = place.instant(DATA)
    place.put(DATA, b"<d>2</d>", Username="bob")
    second = place.instant(DATA)
    lines = place.lines("revert", D, "--as", "ann")
    assert lines == ["FILE COMES BACK BY BYTES INSTEAD OF", f"data.xml {first} lea 8 {second}", "1 file came back"]
    assert content(place, DATA) == b"<d>1</d>"
    assert place.lines("history", D)[1] == f"{place.instant(DATA)} ann lea 1 8 restored {first}"
    found = [json.loads(line) for line in place.lines("history", D, "--json")]
    assert [each.get("restored") for each in found] == [first, None, None]
    place.lines("revert", D)
    assert content(place, DATA) == b"<d>2</d>"


def test_a_named_revision_comes_back(place: Place) -> None:
    place.put(DATA, b"<d>1</d>")
    first = place.instant(DATA)
    for text in (b"<d>2</d>", b"<d>3</d>"):
        place.put(DATA, text)
    place.lines("revert", D, first)
    assert content(place, DATA) == b"<d>1</d>"
    for instant in ("2001-02-03T04:05:06.789Z", place.instant(DATA).replace("20", "19", 1)):
        assert place.run("revert", D, instant).exit_code == 1
    for instant in ("x", "2025-02-30T00:00:00.000Z", "2025-03-04"):
        assert place.run("revert", D, instant).exit_code == 2


def test_a_deleted_document_comes_back_with_its_attachments(place: Place) -> None:
    place.put(f"{D}/a.bin", b"a")
    place.put(f"{D}/b.bin", b"b")
    place.put(DATA, naming("a.bin", "b.bin", "c.bin"), Username="lea")
    time.sleep(0.002)  # instants are milliseconds: what goes within that of the save is not there at that of the save
    place.delete(f"{D}/a.bin")
    place.delete(DATA)
    before = {path: state for path, state in place.everything().items() if "/hr/" in path}
    lines = place.lines("revert", D, "--dry-run")
    assert (lines[1].split()[0], lines[2].split()[0], lines[1].split()[-1]) == ("a.bin", "data.xml", "deleted")
    assert lines[-2:] == [
        "attachments that it names were missing already at that time: c.bin",
        "2 files would come back",
    ]
    assert {path: state for path, state in place.everything().items() if "/hr/" in path} == before
    place.lines("revert", D)
    assert [content(place, f"{D}/{name}") for name in ("a.bin", "b.bin")] == [b"a", b"b"]
    assert content(place, DATA) == naming("a.bin", "b.bin", "c.bin")


def test_a_search_finds_what_came_back(place: Place) -> None:
    place.put(DATA, b"<d>needle</d>")
    place.delete(DATA)

    def found() -> list[str]:
        return [json.loads(line)["document"] for line in place.lines("search", "hr/leave", "needle", "--json")]

    assert found() == []
    place.lines("revert", D)
    assert found() == ["d"]


def test_an_attachment_comes_back(place: Place) -> None:
    place.put(DATA)
    place.put(f"{D}/a.bin", b"1")
    place.put(f"{D}/a.bin", b"2")
    place.lines("revert", f"{D}/a.bin")
    assert content(place, f"{D}/a.bin") == b"1"
    place.delete(f"{D}/a.bin")
    place.lines("revert", f"{D}/a.bin")
    assert content(place, f"{D}/a.bin") == b"1"


def test_what_cannot_come_back_is_a_failure(place: Place) -> None:
    assert "does not exist" in str(place.run("revert", D).exception)
    place.put(DATA)
    assert "no older revision" in str(place.run("revert", D).exception)
    place.delete(DATA)
    gone = json.loads(place.lines("history", D, "--json")[0])["modified"]
    assert "was deleted" in str(place.run("revert", D, gone).exception)
    assert content(place, DATA) == 404
    place.put(DATA, version=2)
    assert "has form definition version 2, not 1" in str(place.run("revert", D).exception)


@pytest.mark.parametrize("path", ["hr/leave", "hr/leave/draft/d", "hr/leave/1", "hr/leave/data/d/a/b"])
def test_a_path_that_is_none_is_wrong_usage(place: Place, path: str) -> None:
    assert place.run("revert", path).exit_code == 2
