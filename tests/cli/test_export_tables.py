"""``persistence export --csv`` and ``--jsonl``: a row for each document, with the labels of its form."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests import orders
from tests.cli.command_runner import Place

RESOURCES = """<xf:instance id="fr-form-resources"><resources>
<resource xml:lang="en"><name><label>Name</label></name><email><label>Mail</label></email>
<notes><label>stage</label></notes><product><label>&lt;b&gt;Product&lt;/b&gt;</label></product>
<status><label>Topics</label></status><topics><label>Topics</label></topics></resource>
<resource xml:lang="de"><name><label>Name, Vorname</label></name><email><label>E-Mail</label></email></resource>
</resources></xf:instance>"""
LABEL = '<xf:label ref="$form-resources/product/label" mediatype="text/html"/>'
FORM = orders.DEFINITION.replace(
    '<xf:instance id="fr-form-metadata">', f'{RESOURCES}<xf:instance id="fr-form-metadata">'
)
FORM = FORM.replace(
    'bind="product-bind" class="fr-summary"/>', f'bind="product-bind" class="fr-summary">{LABEL}</xf:input>'
)
DATA = (
    b"<form><customer><name>Ada</name><email>=cmd|' /C calc'!A0</email><notes>n</notes><topics>a b</topics>"
    b"<status>-5</status></customer><items><lines><product>p 1</product></lines>"
    b'<lines><product>"p", 2</product></lines>'
    b"<lines><product> </product></lines></items></form>"
)
ORDERS = "acme/order"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "data")
    place.put(f"{ORDERS}/form/form.xhtml", FORM.encode())
    place.put(f"{ORDERS}/data/d1/data.xml", DATA, Username="lea", Workflow_Stage="sent")
    place.put(f"{ORDERS}/data/d1/a.bin", b"1")
    place.put(f"{ORDERS}/data/d2/data.xml", "<form><customer><name>Zoë</name></customer></form>".encode())
    place.put(f"{ORDERS}/data/d3/data.xml", b"<form/>")
    place.delete(f"{ORDERS}/data/d3/data.xml")
    return place


def rows(place: Place, *options: str) -> list[dict[str, str]]:
    done = place.run("export", "-", "--csv", "--match", ORDERS, *options)
    assert done.exit_code == 0, done.output
    return sorted(csv.DictReader(io.StringIO(done.stdout_bytes.decode())), key=lambda row: row["document"])


def test_a_row_has_the_facts_and_the_indexed_controls_of_a_document(place: Place) -> None:
    first, second = rows(place)
    created = place.instant(f"{ORDERS}/data/d1/data.xml")
    assert first == {
        "document": "d1",
        "created": created,
        "last-modified": created,
        "owner": "lea",
        "last-modified-by": "lea",
        "stage": "sent",
        "form-version": "1",
        "Name": "Ada",
        "Mail": "'=cmd|' /C calc'!A0",
        "Topics (customer/topics)": "a b",
        "Topics (customer/status)": "-5",
        "Product": 'p 1; "p", 2; ',
    }
    assert (second["document"], second["Name"], second["Product"], second["owner"]) == ("d2", "Zoë", "", "")


def test_labels_are_in_the_language_that_is_asked_for(place: Place) -> None:
    assert "Name, Vorname" in rows(place, "--lang", "de")[0]
    assert "Name" in rows(place, "--lang", "xx")[0]


def test_all_controls_have_columns_if_asked_for(place: Place) -> None:
    """One that is called as a fact gets its path."""
    assert rows(place, "--all-controls")[0]["stage (customer/notes)"] == "n"


def test_a_signature_is_its_type_and_size(place: Place) -> None:
    """JSON lines have it as it is."""
    signature = f"data:image/png;base64,{'iVBORw0KGgoAAAAN' * 1000}"
    place.put(f"{ORDERS}/data/s/data.xml", f"<form><customer><notes>{signature}</notes></customer></form>".encode())
    assert rows(place, "--all-controls")[2]["stage (customer/notes)"] == "[image/png, 12 KB]"
    done = place.run("export", "-", "--jsonl", "--all-controls")
    assert signature in done.stdout


def test_json_lines_have_values_as_they_are(place: Place) -> None:
    place.put("hr/leave/form/form.xhtml", FORM.encode())
    place.put("hr/leave/data/e/data.xml", DATA)
    done = place.run("export", "-", "--jsonl", "--lang", "en")
    assert done.exit_code == 0, done.output
    found = {each["document"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == {"d1", "d2", "e"}
    assert found["d2"]["values"] == {"Name": ["Zoë"]}
    assert (found["e"]["app"], found["e"]["form"], found["e"]["form-version"]) == ("hr", "leave", 1)
    assert found["e"]["values"]["Product"] == ["p 1", '"p", 2', ""]
    assert found["d1"]["values"]["Mail"] == ["=cmd|' /C calc'!A0"]
    assert "owner" not in found["d2"]


def test_an_iteration_without_a_value_keeps_its_place(place: Place) -> None:
    """Orbeon's lists and formhub's tables: Bob's number stood beside Ann; what nobody has is not a value."""
    lines = b"<lines><product/></lines><lines><product>p 2</product></lines>"
    for document, inside in (("g1", lines), ("g2", lines.replace(b"p 2", b""))):
        place.put(f"{ORDERS}/data/{document}/data.xml", b"<form><items>" + inside + b"</items></form>")
    assert [row["Product"] for row in rows(place)[2:]] == ["; p 2", ""]
    done = place.run("export", "-", "--jsonl", "--lang", "en")
    exported = {line["document"]: line["values"] for line in map(json.loads, done.stdout.splitlines())}
    assert (exported["g1"], exported["g2"]) == ({"Product": ["", "p 2"]}, {})


def test_the_mark_for_excel_is_written_on_demand(place: Place) -> None:
    for options, has_mark in (((), False), (("--bom",), True)):
        done = place.run("export", "-", "--csv", "--match", f"{ORDERS}/1", *options)
        assert done.stdout_bytes.startswith(b"\xef\xbb\xbf") is has_mark


@pytest.mark.parametrize(
    ("options", "status", "cause"),
    [
        (("--csv", "--jsonl"), 2, "exclude each other"),
        (("--csv", "--history", "include"), 2, "exclude each other"),
        (("--jsonl", "--bom"), 2, "--bom of --csv"),
        (("--lang", "de"), 2, "options of --csv"),
        (("--csv",), 2, "2 forms match"),
        (("--csv", "--match", "hr/leave"), 2, "name one of 1, 2"),
        (("--csv", "--match", "nothing//"), 2, "0 forms match"),
    ],
)
def test_bad_options_are_refused(place: Place, options: tuple[str, ...], status: int, cause: str) -> None:
    for version in (1, 2):
        place.put("hr/leave/form/form.xhtml", FORM.encode(), version=version)
    done = place.run("export", "-", *options)
    assert (done.exit_code, done.stdout) == (status, "")
    assert cause in " ".join(done.stderr.split())


def test_what_cannot_be_read_is_left_out_and_named(place: Place) -> None:
    place.put("hr/leave/data/e/data.xml", DATA)
    place.put("hr/leave/data/f/data.xml", DATA)
    (place.root / ORDERS / "data/d2/data.xml.json").write_bytes(b"{}")
    done = place.run("export", "-", "--jsonl")
    assert done.exit_code == 4
    assert done.stderr.count("version 1 of hr/leave is not published") == 1
    assert "d2/data.xml.json" in done.stderr
    found = {each["document"]: each["values"] for each in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == {"d1", "e", "f"}
    assert found["e"] == {}


def test_a_damaged_definition_file_is_nothing_to_a_table(place: Place) -> None:
    place.put(f"{ORDERS}/form/logo.png", b"logo")
    (place.root / ORDERS / "form/1/logo.png.json").write_bytes(b"{}")
    done = place.run("export", "-", "--csv", "--match", ORDERS)
    assert (done.exit_code, "exported 2 documents" in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize("value", ["=1", " =1", "\xa0+1+1", "\ufeff=1", "\u200b@x", "\uff1d1+1", "\n=1", "\nx", "--1"])
def test_what_a_spreadsheet_may_take_for_a_formula_is_guarded(place: Place, value: str) -> None:
    """It skips blanks before a formula, and some take full-width signs."""
    place.put(f"{ORDERS}/data/d1/data.xml", f"<form><customer><name>{value}</name></customer></form>".encode())
    assert rows(place)[0]["Name"] == f"'{value}"
