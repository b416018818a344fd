"""Workbooks and Parquet files of ``persistence export`` and of the pages: sheets, headings, columns and typed cells.

Options that do not go together are in ``golden/tables.txt``.
"""

from __future__ import annotations

import io
import sys
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lxml import etree
from pyarrow import parquet

from persistence.forms import diffs
from persistence.forms.controls import Label, Outline, OutlineNode
from persistence.forms.diffs import DataNode, HeldValue
from persistence.limits import SHEET_CHARACTERS
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.sidecar import DocumentFacts
from persistence.model.texts import Instant
from persistence.services import parquet as parquets
from persistence.services import spreadsheets
from tests.cli.command_runner import Command, Place
from tests.pages.administrator import administrator
from tests.pages.test_shown_values import FIRST, FORM, LAST, definition, filled, row
from tests.published import Planter

ROW = {
    "Document": "d",
    "Owner": "bob",
    "Last modified by": "bob",
    "Stage": "new",
    "Form version": 1,
    "The title": "A garage",
    "The kind": "Commercial",
    "The tags": "Alpha; Beta",
    "The colour": "Deep red",
    "The review": "Fine work",
    "The agreed": True,
    "The cost": 240000.5,
    "The signed": "[picture]",
    "The file": "Plan März.pdf",
}
"""A document as either file has it, without its instants."""


def typed_definition(title: str = "The title", cost: str = "xf:decimal") -> bytes:
    text = definition().decode().replace("<label>The title</label>", f"<label>{title}</label>")
    text = text.replace('name="cost" type="xf:decimal"', f'name="cost" type="{cost}"')
    german = '<resource xml:lang="de"><title><label>Der Titel</label></title></resource></resources>'
    return text.replace("</resources>", german).encode()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    with Planter(tmp_path / "data") as planter:
        planter.define(str(FORM), 1, typed_definition(), FIRST)
        planter.save(str(FORM), "d", filled(), FIRST, User("bob"), "new")
        planter.save(str(FORM), "e", filled(title="<title>=1+1</title>", cost="<cost>much</cost>"), LAST, User("ann"))
    return tmp_path / "data"


# Workbooks


_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
Sheets = dict[str, list[dict[str, Any]]]


def sheets(workbook: bytes) -> Sheets:
    """The rows of each sheet, as values by their headings."""
    archive = zipfile.ZipFile(io.BytesIO(workbook))
    assert archive.testzip() is None
    names = [each.get("name") for each in etree.fromstring(archive.read("xl/workbook.xml")).iter(f"{_MAIN}sheet")]
    found: Sheets = {}
    for number, name in enumerate(names, 1):
        tree = etree.fromstring(archive.read(f"xl/worksheets/sheet{number}.xml"))
        rows = [{cell.get("r").rstrip("0123456789"): value(cell) for cell in each} for each in tree.iter(f"{_MAIN}row")]
        headings, *others = rows
        found[str(name)] = [{headings[column]: text for column, text in each.items()} for each in others]
    return found


def value(cell: Any) -> Any:
    if cell.get("t") == "inlineStr":
        return "".join(cell.itertext())
    number = cell.findtext(f"{_MAIN}v")
    return number == "1" if cell.get("t") == "b" else float(number)


def workbook_of(tree: Path, *options: str) -> Sheets:
    done = Place(tree).run("export", "-", "--xlsx", "--match", str(FORM), *options)
    assert done.exit_code == 0, done.output
    return sheets(done.stdout_bytes)


def test_a_workbook_has_typed_cells_and_a_sheet_for_each_repeat(tree: Path) -> None:
    found = workbook_of(tree)
    assert list(found) == ["Documents", "rows"]
    first, second = sorted(found["Documents"], key=lambda each: each["Document"])
    days = 45414  # since 1899-12-30
    assert first == ROW | {
        "Created (UTC)": pytest.approx(days + 10 / 24),
        "Last modified (UTC)": pytest.approx(days + 10 / 24),
        "The at": "2024-05-02 10:00:00",
    }
    assert (second["The title"], second["The cost"]) == ("=1+1", "much")
    rows = [(each["Document"], each["Row"], each["What"], each["Many"]) for each in found["rows"]]
    assert sorted(rows) == [(name, *each) for name in "de" for each in (("1", "Sand", "3"), ("2", "Lime", "4"))]


def test_a_workbook_of_a_page_has_what_its_table_finds(tree: Path) -> None:
    found = administrator(tree.parent)
    answer = found.get(f"/admin/forms/{FORM}/documents.xlsx?owner=ann")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="town-permit.xlsx"'
    assert [each["Document"] for each in sheets(answer.data)["Documents"]] == ["e"]
    answer = found.get(f"/admin/forms/{FORM}/1/documents.xlsx?q=nothing-like-it")
    assert sheets(answer.data) == {"Documents": [], "rows": []}


def test_a_workbook_of_a_page_names_what_it_leaves_out(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheets, "SHEET_CHARACTERS", 200)
    monkeypatch.setattr(diffs, "MOST_DIFFED_ELEMENTS", 30)
    found = administrator(tree.parent)
    with Planter(tree) as planter:
        planter.save(str(FORM), "d", filled(title=f"<title>{'x y ' * 51}</title>"), LAST, User("bob"))
        planter.save(str(FORM), "e", filled(title="<title/>" * 30), LAST, User("ann"))
    read = sheets(found.get(f"/admin/forms/{FORM}/documents.xlsx").data)
    assert [each["Document"] for each in read["Documents"]] == ["d"]
    assert [each["Problems"] for each in read["Problems"]] == [
        f"{FORM}/data/e/data.xml has too many elements for a workbook",
        f"{FORM}/data/d/data.xml: a cell has at most 200 characters: a value is cut",
    ]


def test_what_does_not_fit_is_cut_and_reported(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheets, "SHEET_ROWS", 3)
    with Planter(tree) as planter:
        body = filled(title=f"<title>{'x y ' * (SHEET_CHARACTERS // 4 + 1)}</title>").replace(
            row("Lime", "4").encode(), b""
        )
        planter.save(str(FORM), "d", body, LAST, User("bob"))
    done = Place(tree).run("export", str(tree.parent / "x.xlsx"), "--xlsx", "--match", str(FORM))
    assert done.exit_code == 4
    assert f"a cell has at most {SHEET_CHARACTERS} characters: a value is cut" in done.output
    assert "a sheet has at most 3 rows: the others are left out" in done.output
    found = sheets((tree.parent / "x.xlsx").read_bytes())
    assert [len(each) for each in found.values()] == [2, 2]
    assert max(len(each["The title"]) for each in found["Documents"]) == SHEET_CHARACTERS


@pytest.mark.parametrize(
    ("label", "sheet"),
    [
        ("\U0001f600" * 31, "\U0001f600" * 15),
        ("History", "History 2"),
        ("documents", "documents 2"),
        ("a:\n\tb", "a b"),
        ("'", "Rows"),
        ("x" * 40, "x" * 31),
    ],
)
def test_a_sheet_has_a_name_that_excel_takes(label: str, sheet: str) -> None:
    """It counts characters beyond the first 65,536 as two, and has a name of its own."""
    repeat = OutlineNode("rows", Label({"": label}, is_html=False), is_iteration=True)
    outline = Outline(OutlineNode(inside={"rows": repeat}), ())
    assert list(sheets(b"".join(spreadsheets.workbook([], [outline], None, [])))) == ["Documents", sheet]


def test_a_workbook_has_so_many_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an open file until the workbook is written."""
    monkeypatch.setattr(spreadsheets, "MOST_SHEETS", 3)
    repeats = {f"r{number}": OutlineNode("same", is_iteration=True) for number in range(5)}
    problems: list[str] = []
    book = b"".join(spreadsheets.workbook([], [Outline(OutlineNode(inside=repeats), ())], None, problems))
    assert list(sheets(book)) == ["Documents", "same", "same 2"]
    assert problems == [f"a workbook has at most 3 sheets: r{number} has none" for number in (2, 3, 4)]


# Parquet files


FORM_FILE = "documents.parquet"
MOMENT = datetime(2024, 5, 2, 10, tzinfo=UTC)
ADDRESS = DocumentAddress(Form("a", "b"), Collection.DATA, "d", DATA_XML)
FACTS = DocumentFacts(created=Instant(FIRST), modified=Instant(LAST), version=1)
Files = dict[str, pa.Table]


def files(archive: bytes) -> Files:
    """The tables of an archive by the names of their files."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert opened.testzip() is None
        names = [name for name in opened.namelist() if name != "problems.txt"]
        return {name: parquet.read_table(io.BytesIO(opened.read(name))) for name in names}


def exported(tree: Path, *options: str, status: int = 0, match: str = str(FORM)) -> Files:
    done = Place(tree).run("export", "-", "--parquet", "--match", match, *options)
    assert done.exit_code == status, done.output
    return files(done.stdout_bytes)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=lambda each: (each["Document"], each.get("Row") or ""))


def test_columns_have_the_types_of_their_binds_and_each_repeat_a_file(tree: Path) -> None:
    found = exported(tree, status=4)
    assert list(found) == [FORM_FILE, "rows.parquet"]
    schema = found[FORM_FILE].schema
    assert {name: str(schema.field(name).type) for name in schema.names} == {
        "Document": "string",
        "Created (UTC)": "timestamp[ms, tz=UTC]",
        "Last modified (UTC)": "timestamp[ms, tz=UTC]",
        "Owner": "string",
        "Last modified by": "string",
        "Stage": "string",
        "Form version": "int64",
        "The title": "string",
        "The kind": "string",
        "The tags": "string",
        "The colour": "string",
        "The review": "string",
        "The agreed": "bool",
        "The cost": "double",
        "The at": "timestamp[ms, tz=UTC]",
        "The signed": "string",
        "The file": "string",
    }
    assert schema.field("The cost").metadata == {b"path": b"s/cost", b"type": b"decimal"}
    assert found["rows.parquet"].schema.field("Many").metadata[b"path"] == b"s/rows/rows-iteration/many"
    moments = dict.fromkeys(("Created (UTC)", "Last modified (UTC)", "The at"), MOMENT)
    assert rows(found[FORM_FILE])[0] == ROW | moments
    expected = [("d", "1", "Sand", "3"), ("d", "2", "Lime", "4"), ("e", "1", "Sand", "3"), ("e", "2", "Lime", "4")]
    assert [tuple(each.values()) for each in rows(found["rows.parquet"])] == expected


def test_a_value_of_another_type_is_null_and_reported(tree: Path) -> None:
    done = Place(tree).run("export", str(tree.parent / "x.zip"), "--parquet", "--match", str(FORM))
    assert done.exit_code == 4
    assert f"{FORM}/data/e/data.xml: a value of s/cost is not a valid decimal: it is null" in done.output
    second = rows(files((tree.parent / "x.zip").read_bytes())[FORM_FILE])[1]
    assert (second["The cost"], second["The title"], second["Stage"]) == (None, "=1+1", None)


def test_labels_are_those_of_a_language(tree: Path) -> None:
    assert "Der Titel" in exported(tree, "--lang", "de", status=4)[FORM_FILE].schema.names


def test_two_versions_share_columns_which_have_the_type_of_the_latest(tree: Path) -> None:
    with Planter(tree) as planter:
        planter.define(str(FORM), 2, typed_definition("A title", "xf:integer"), LAST)
        planter.save(str(FORM), "f", filled(title="<title/>", cost="<cost>12</cost>"), LAST, version=2)
    table = exported(tree, status=4)[FORM_FILE]
    assert str(table.schema.field("The cost").type) == "int64"
    found = [(each["Document"], each["Form version"], each["The cost"], each["A title"]) for each in rows(table)]
    assert found == [("d", 1, None, "A garage"), ("e", 1, None, "=1+1"), ("f", 2, 12, None)]
    assert exported(tree, match=f"{FORM}/2")[FORM_FILE].num_rows == 1


def test_what_an_older_version_has_as_a_number_is_no_page_in_a_text(tree: Path) -> None:
    with Planter(tree) as planter:
        planter.define(str(FORM), 2, typed_definition(cost="xf:string"), LAST)
    assert [each["The cost"] for each in rows(exported(tree)[FORM_FILE])] == ["240000.5", "much"]


def test_a_form_without_documents_has_files_without_rows(tmp_path: Path) -> None:
    with Planter(tmp_path / "data") as planter:
        planter.define(str(FORM), 1, definition(), FIRST)
    found = exported(tmp_path / "data")
    assert {name: table.num_rows for name, table in found.items()} == {FORM_FILE: 0, "rows.parquet": 0}
    assert str(found[FORM_FILE].schema.field("The cost").type) == "double"


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        ("boolean", "1", True),
        ("boolean", "yes", None),
        ("date", "2024-05-02", date(2024, 5, 2)),
        ("date", "2024-02-30", None),
        ("dateTime", "2024-05-02T12:00:00+02:00", MOMENT),
        ("dateTime", "2024-05-02", None),
        ("integer", "-7", -7),
        ("integer", "7.5", None),
        ("integer", str(1 << 63), None),
        ("double", "1e3", 1000.0),
        ("double", "INF", float("inf")),
        ("decimal", "1,5", None),
        ("time", "10:00:00", "10:00:00"),
        ("anyURI", "x y", "x y"),
    ],
)
def test_a_value_is_of_its_type_or_null(of: str, text: str, value: object) -> None:
    table, problems = written(OutlineNode("c", is_control=True, kind="input", type=of), HeldValue(text))
    assert (table["c"].to_pylist(), len(problems)) == ([value], 1 if value is None else 0)


def written(node: OutlineNode, held: HeldValue, count: int = 1) -> tuple[pa.Table, list[str]]:
    outline, problems = Outline(OutlineNode(inside={"c": node}), ()), list[str]()
    data = DataNode(inside={"c": [DataNode(value=held)]})
    documents = [(ADDRESS, FACTS, outline, data)] * count
    archive = b"".join(parquets.parquet_files(documents, [outline], None, problems))
    return files(archive)[FORM_FILE], problems


@pytest.mark.parametrize("of", ["", "decimal"])
def test_encrypted_values_are_null_and_reported_once(of: str) -> None:
    node = OutlineNode("c", is_control=True, kind="input", type=of)
    table, problems = written(node, HeldValue("secret", is_encrypted=True), count=3)
    assert table["c"].to_pylist() == [None] * 3
    assert problems == ["c has encrypted values: they are null"]


@pytest.mark.parametrize(("name", "most"), [("PARQUET_ROWS", 4), ("PARQUET_HELD", 2_000)])
def test_rows_are_written_in_groups(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    """A group ends where it has enough rows, or all of them have enough values."""
    monkeypatch.setattr(parquets, name, most)
    repeat = OutlineNode("r", Label({"": "Rows"}, is_html=False), is_iteration=True)
    repeat.inside["c"] = OutlineNode("c", is_control=True, kind="input", type="integer")
    outline = Outline(OutlineNode(inside={"r": repeat}), ())
    iterations = [DataNode(inside={"c": [DataNode(value=HeldValue(str(number)))]}) for number in range(3)]
    documents = [(ADDRESS, FACTS, outline, DataNode(inside={"r": iterations}))] * 10
    archive = b"".join(parquets.parquet_files(documents, [outline], None, []))
    found = files(archive)
    assert (found[FORM_FILE].num_rows, found["Rows.parquet"]["c"].to_pylist()) == (10, [0, 1, 2] * 10)
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        written = parquet.ParquetFile(io.BytesIO(opened.read("Rows.parquet")))
        assert written.metadata.num_row_groups > 3


def test_without_the_library_a_line_names_the_extra(
    tree: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.delitem(sys.modules, "persistence.services.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    target = tree.parent / "x.zip"
    done = command("export", str(target), "--parquet", "--match", str(FORM), "--data", str(tree))
    assert (done.status, done.out) == (1, "")
    told = "this needs pyarrow, which is not installed: install the service with its extra [parquet], as docs/"
    assert done.errors == [f"persistence: {told}installing.md says"]
    assert not target.exists()
