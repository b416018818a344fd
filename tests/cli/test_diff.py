"""``persistence diff``: the differences between two revisions of a document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from persistence.app import create_app
from persistence.settings import Settings
from tests.cli.command_runner import Place
from tests.encrypted_form import DEFINITION, SECRETS, data
from tests.forms.test_diffs import TRIP, trip
from tests.forms.vectors import published
from tests.http.test_encryption import keys_of
from tests.opened import opened

D = "hr/leave/data/d"
DATA = f"{D}/data.xml"
FORM = published(TRIP).encode()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "data")
    place.put("hr/leave/form/form.xhtml", FORM, Content_Type="application/xhtml+xml")
    return place


def saved(place: Place, *revisions: bytes) -> list[str]:
    instants = []
    for each in revisions:
        place.put(DATA, each)
        instants.append(place.instant(DATA))
    return instants


def test_the_current_revision_and_the_one_before_it(place: Place) -> None:
    first, second, third = saved(place, *(trip(each).encode() for each in ("<x/>", "<y/>", "<z/>")))
    assert place.lines("diff", D)[0] == f"{second} -> {third}"
    assert place.lines("diff", D, first)[0] == f"{first} -> {third}"
    assert place.lines("diff", D, first, second)[0] == f"{first} -> {second}"
    place.delete(DATA)
    assert place.lines("diff", D)[0] == f"{second} -> {third}"


def test_values_iterations_and_elements_with_their_labels(place: Place) -> None:
    saved(place, trip("1", "ab").encode(), trip("2", "xab").encode())
    assert place.lines("diff", D)[1:] == [
        "trip/code (Code <b>1</b>): '1' -> '2'",
        "trip/legs (Legs): 1 iteration added: 1",
        "trip/legs/dest (Destination): '' -> 'x'",
        "3 differences",
    ]
    saved(place, trip(top="", dests="xa").encode())
    assert place.lines("diff", D, "--lang", "fr")[1:] == [
        "trip/code (Code <b>1</b>): removed",
        "trip/legs (Legs): 1 iteration removed: 3",
        "2 differences",
    ]
    saved(place, trip(top="", dests="xlong").encode())
    assert "trip/legs[2]/dest (Lieu): 'a' -> 'l'" in place.lines("diff", D, "--lang", "fr")


def test_json(place: Place) -> None:
    saved(place, trip("1").encode(), trip("a long value", "b").encode())
    assert [json.loads(line) for line in place.lines("diff", D, "--json", "--truncate", "4", "--lang", "fr")] == [
        {
            "type": "value-changed",
            "name": "code",
            "label": "Code <b>1</b>",
            "place": "trip/code",
            "from": {"text": "1"},
            "to": {"text": "a l…"},
        },
        {"type": "iteration-added", "name": "legs", "label": "Legs", "place": "trip/legs", "count": 1},
        {
            "type": "value-changed",
            "name": "dest",
            "label": "Lieu",
            "place": "trip/legs/dest",
            "from": {"text": ""},
            "to": {"text": "b"},
        },
    ]


def test_nothing_and_something_else(place: Place) -> None:
    saved(place, trip("1").encode(), trip("1").encode())
    assert place.lines("diff", D)[1:] == ["0 differences"]
    saved(place, trip("1", legs="<x>\x7f</x>").encode())
    assert place.lines("diff", D)[1:] == ["elsewhere: something differs", "1 difference"]


def test_of_the_designers_data_only_that_something_differs(place: Place) -> None:
    for body in (b"<d>1</d>", b"<d>2</d>"):
        place.put("svc/builder/data/d/data.xml", body)
    assert place.lines("diff", "svc/builder/data/d")[1:] == ["elsewhere: something differs", "1 difference"]


def test_encrypted_values_are_shown_only_if_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys_of(tmp_path).new()
    keys = str(tmp_path / "var/encryption-keys.json")
    place = Place(tmp_path / "data")
    place.client = opened(create_app(Settings(data=str(place.root), encryption_keys=keys))).test_client()
    place.put("hr/leave/form/form.xhtml", DEFINITION, Content_Type="application/xhtml+xml")
    saved(place, data(), data().replace(SECRETS[0].encode(), b"other secret"))
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEYS", keys)
    assert place.lines("diff", D)[1:] == ["0 differences"]
    assert place.lines("diff", D, "--decrypt")[1:] == [f"person/ssn: '{SECRETS[0]}' -> 'other secret'", "1 difference"]


def test_what_cannot_be_compared_is_a_failure(place: Place) -> None:
    assert "does not exist" in str(place.run("diff", D).exception)
    [first] = saved(place, trip().encode())
    assert "no revision before" in str(place.run("diff", D).exception)
    assert "no revision of" in str(place.run("diff", D, "2001-02-03T04:05:06.789Z").exception)
    assert "no revision of" in str(place.run("diff", D, first, "2001-02-03T04:05:06.789Z").exception)
    place.delete(DATA)
    place.put("hr/leave/form/form.xhtml", FORM, version=2, Content_Type="application/xhtml+xml")
    place.put(DATA, trip().encode(), version=2)
    assert "has form definition version 1, not 2" in str(place.run("diff", D).exception)
    place.put("hr/unpublished/data/d/data.xml")
    place.put("hr/unpublished/data/d/data.xml")
    assert "not published" in str(place.run("diff", "hr/unpublished/data/d").exception)


@pytest.mark.parametrize("arguments", [("hr/leave",), (f"{D}/a.bin",), (D, "x"), (D, "--truncate", "0")])
def test_wrong_usage(place: Place, arguments: tuple[str, ...]) -> None:
    assert place.run("diff", *arguments).exit_code == 2
