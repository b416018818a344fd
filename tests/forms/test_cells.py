"""The values of controls as cells of a row."""

from __future__ import annotations

import pytest

from persistence.errors import BadRequestError, MalformedXmlError
from persistence.forms import form_data
from persistence.forms.form_data import CellReader, Column, cell_matcher

MATCHER = cell_matcher(
    [
        Column(("a", "b")),
        Column(("files",), takes_files=True),
        Column(("r", "i", "x"), iteration=("r", "i")),
        Column(("r", "i", "f"), takes_files=True, iteration=("r", "i")),
        Column(("s", "i", "t", "j", "y"), iteration=("s", "i", "t", "j")),
    ]
)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("", {}),
        ("<a><b>1</b><c>2</c></a><b>3</b>", {0: ["1"]}),
        ("<a><b> </b></a>", {}),
        ("<a><b> 1\n2 </b></a>", {0: [" 1\n2 "]}),
        ("<a><b><![CDATA[<x>]]>&amp;</b></a>", {0: ["<x>&"]}),
        ("<a><b encrypted='true'>cipher</b></a>", {0: ["cipher"]}),
        ("<files filename='a.pdf'>/fr/x</files>", {1: ["a.pdf"]}),
        ("<files>/fr/x</files>", {1: ["/fr/x"]}),
        ("<files filename='a.pdf'/>", {}),
        ("<files><_ filename='a'>/1</_> <_>/2</_></files>", {1: ["a", "/2"]}),
        ("<r><i><x>1</x></i><i/><i><x>2</x></i></r>", {2: ["1", "", "2"], 3: ["", "", ""]}),
        (
            "<r><i><x/><f><_ filename='a'>/1</_><_>/2</_></f></i><i><x>2</x><f/></i></r>",
            {2: ["", "2"], 3: ["a", "/2", ""]},
        ),
        (
            "<s><i><t><j><y/></j><j><y>1</y></j></t></i><i><t/></i><i><t><j/><j><y>2</y></j></t></i></s>",
            {4: ["", "1", "", "2"]},
        ),
    ],
)
def test_values_are_collected_by_column(inside: str, expected: dict[int, list[str]]) -> None:
    with CellReader(MATCHER) as reader:
        assert reader.read([f"<form>{inside}</form>".encode()]).cells == expected


def test_a_row_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form_data, "MOST_CELL_CHARACTERS", 5)
    with CellReader(MATCHER) as reader:
        assert reader.read([b"<form><a><b>12345</b></a><c>123456789</c></form>"]).cells == {0: ["12345"]}
    with CellReader(MATCHER) as reader, pytest.raises(BadRequestError):
        reader.read([b"<form><a><b>123</b><b>456</b></a></form>"])
    with CellReader(MATCHER) as reader, pytest.raises(BadRequestError):
        reader.read([b"<form><r><i/><i/><i/></r></form>"])


def test_malformed_data_is_refused() -> None:
    with CellReader(MATCHER) as reader, pytest.raises(MalformedXmlError):
        reader.read([b"<form><a>"])
