"""``persistence export --parquet`` and ``format=parquet``: files, the types of columns, and what is not of its type."""

from __future__ import annotations

import io
import sys
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from persistence.forms.controls import Label, Outline, OutlineNode
from persistence.forms.diffs import DataNode, HeldValue
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.sidecar import DocumentFacts
from persistence.model.texts import Instant
from persistence.services import parquet as parquets
from tests.cli.command_runner import Place, ended
from tests.pages.test_shown_values import FIRST, FORM, LAST, definition, filled
from tests.published import Planter

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
        planter.save(str(FORM), "e", filled(title="<title/>", cost="<cost>much</cost>"), LAST, User("ann"))
    return tmp_path / "data"


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
    assert rows(found[FORM_FILE])[0] == {
        "Document": "d",
        "Created (UTC)": MOMENT,
        "Last modified (UTC)": MOMENT,
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
        "The at": MOMENT,
        "The signed": "[picture]",
        "The file": "Plan März.pdf",
    }
    expected = [("d", "1", "Sand", "3"), ("d", "2", "Lime", "4"), ("e", "1", "Sand", "3"), ("e", "2", "Lime", "4")]
    assert [tuple(each.values()) for each in rows(found["rows.parquet"])] == expected


def test_a_value_of_another_type_is_null_and_reported(tree: Path) -> None:
    done = Place(tree).run("export", str(tree.parent / "x.zip"), "--parquet", "--match", str(FORM))
    assert done.exit_code == 4
    assert f"{FORM}/data/e/data.xml: a value of s/cost is not a valid decimal: it is null" in done.output
    second = rows(files((tree.parent / "x.zip").read_bytes())[FORM_FILE])[1]
    assert (second["The cost"], second["The title"], second["Stage"]) == (None, None, None)


def test_labels_are_those_of_a_language(tree: Path) -> None:
    assert "Der Titel" in exported(tree, "--lang", "de", status=4)[FORM_FILE].schema.names


def test_two_versions_share_columns_which_have_the_type_of_the_latest(tree: Path) -> None:
    with Planter(tree) as planter:
        planter.define(str(FORM), 2, typed_definition("A title", "xf:integer"), LAST)
        planter.save(str(FORM), "f", filled(cost="<cost>12</cost>"), LAST, version=2)
    table = exported(tree, status=4)[FORM_FILE]
    assert str(table.schema.field("The cost").type) == "int64"
    found = [(each["Document"], each["Form version"], each["The cost"], each["A title"]) for each in rows(table)]
    assert found == [("d", 1, None, "A garage"), ("e", 1, None, None), ("f", 2, 12, "A garage")]
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
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "persistence.services.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    target = tree.parent / "x.zip"
    Place(tree)
    done = ended(["export", str(target), "--parquet", "--match", str(FORM), "--data", str(tree)], monkeypatch, capsys)
    assert (done.status, done.out) == (1, "")
    told = "this needs pyarrow, which is not installed: install the service with its extra [parquet], as docs/"
    assert done.errors == [f"persistence: {told}installing.md says"]
    assert not target.exists()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("x.parquet",), "--parquet writes a table"),
        (("-", "--parquet", "--xlsx"), "exclude each other"),
        (("-", "--parquet", "--content", "form-data"), "exclude each other"),
        (("-", "--parquet", "--all-controls"), "--all-controls of --csv and --jsonl"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tree: Path, options: tuple[str, ...], cause: str) -> None:
    done = Place(tree).run("export", *options)
    assert done.exit_code == 2
    assert cause in done.output
