"""``persistence history``: the revisions of a document or an attachment."""

import json
from pathlib import Path

import pytest

from tests.cli.command_runner import Place

D = "hr/leave/data/d"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


def test_a_table_of_a_document_newest_first(place: Place) -> None:
    """Empty columns are left out."""
    place.put(f"{D}/data.xml", b"<d/>", Username="lea")
    first = place.instant(f"{D}/data.xml")
    place.put(f"{D}/data.xml", b"<d>2</d>", Username="bob", Workflow_Stage="sent")
    second = place.instant(f"{D}/data.xml")
    lines = place.lines("history", D)
    assert lines == [
        "MODIFIED BY OWNER STAGE VERSION BYTES",
        f"{second} bob lea sent 1 8",
        f"{first} lea lea 1 4",
        "2 revisions",
    ]
    place.delete(f"{D}/data.xml", user="eve")
    lines = place.lines("history", D)
    assert lines[0] == "MODIFIED BY OWNER STAGE VERSION BYTES NOTES"
    assert lines[1].split()[1:] == ["eve", "lea", "1", "deleted"]
    assert lines[-1] == "3 revisions, 1 deletion"


def test_an_attachment_and_json(place: Place) -> None:
    place.put(f"{D}/data.xml", b"<d/>")
    place.put(f"{D}/a.bin", b"abc", Username="lea")
    found = [json.loads(line) for line in place.lines("history", f"{D}/a.bin", "--json")]
    instant = found[0]["modified"]
    assert found == [
        {
            "modified": instant,
            "modified_by": "lea",
            "created": instant,
            "owner": "lea",
            "version": 1,
            "size": 3,
            "deleted": False,
        }
    ]


def test_a_damaged_older_revision_has_a_line_and_a_status(place: Place) -> None:
    for _ in range(2):
        place.put(f"{D}/data.xml", b"<d/>")
    [sidecar] = (place.root / D / ".history").glob("*.json")
    sidecar.write_bytes(b"{}")
    assert place.lines("history", D, status=4)[2].endswith("damaged: persistence check says more")
    found = [json.loads(line) for line in place.lines("history", D, "--json", status=4)]
    assert [each.get("damaged") for each in found] == [None, True]


@pytest.mark.parametrize("path", ["hr/leave", "hr/leave/draft/d", "hr/leave/1", "hr/leave/data/d/a/b"])
def test_a_path_that_is_none_is_wrong_usage(place: Place, path: str) -> None:
    assert place.run("history", path).exit_code == 2


def test_what_was_never_stored_is_a_failure(place: Place) -> None:
    assert "does not exist" in str(place.run("history", D).exception)
