"""``persistence export --xlsx`` and the workbook of a table on the pages: sheets, headings, and typed cells."""

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from persistence.forms import diffs
from persistence.forms.controls import Label, Outline, OutlineNode
from persistence.limits import SHEET_CHARACTERS
from persistence.model.permissions import User
from persistence.services import spreadsheets
from tests.cli.command_runner import Place
from tests.pages.administrator import administrator
from tests.pages.test_shown_values import FIRST, FORM, LAST, definition, filled, row
from tests.published import Planter

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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    with Planter(tmp_path / "data") as planter:
        planter.define(str(FORM), 1, definition(), FIRST)
        planter.save(str(FORM), "d", filled(), FIRST, User("bob"), "new")
        planter.save(str(FORM), "e", filled(title="<title>=1+1</title>", cost="<cost>much</cost>"), LAST, User("ann"))
    return tmp_path / "data"


def exported(tree: Path, *options: str) -> Sheets:
    done = Place(tree).run("export", "-", "--xlsx", "--match", str(FORM), *options)
    assert done.exit_code == 0, done.output
    return sheets(done.stdout_bytes)


def test_a_workbook_has_typed_cells_and_a_sheet_for_each_repeat(tree: Path) -> None:
    found = exported(tree)
    assert list(found) == ["Documents", "rows"]
    first, second = sorted(found["Documents"], key=lambda each: each["Document"])
    days = 45414  # since 1899-12-30
    assert first == {
        "Document": "d",
        "Created (UTC)": pytest.approx(days + 10 / 24),
        "Last modified (UTC)": pytest.approx(days + 10 / 24),
        "Owner": "bob",
        "Last modified by": "bob",
        "Stage": "new",
        "Form version": 1.0,
        "The title": "A garage",
        "The kind": "Commercial",
        "The tags": "Alpha; Beta",
        "The colour": "Deep red",
        "The review": "Fine work",
        "The agreed": True,
        "The cost": 240000.5,
        "The at": "2024-05-02 10:00:00",
        "The signed": "[picture]",
        "The file": "Plan März.pdf",
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


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("x.xlsx",), "--xlsx writes a table"),
        (("-", "--xlsx", "--csv"), "exclude each other"),
        (("-", "--xlsx", "--history", "include"), "exclude each other"),
        (("-", "--xlsx", "--bom"), "--bom of --csv"),
        (("-", "--xlsx", "--all-controls"), "--all-controls of --csv and --jsonl"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tree: Path, options: tuple[str, ...], cause: str) -> None:
    done = Place(tree).run("export", *options)
    assert done.exit_code == 2
    assert cause in done.output
