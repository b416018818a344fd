"""Tables, ratios, medians and plots of the benchmarks."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from report import Aim, aims, medians, number, plot, ratio, replaced, table

_SVG = "{http://www.w3.org/2000/svg}"


def test_a_table_aligns_numbers_right() -> None:
    assert table(("", "a second"), [("GET", "4711"), ("PUT", "17.5")]) == (
        "|  | a second |\n| --- | --: |\n| GET | 4711 |\n| PUT | 17.5 |\n"
    )


def test_medians_are_of_each_column() -> None:
    assert medians([(1.0, 30.0), (9.0, 10.0), (2.0, 20.0)]) == (2.0, 20.0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0.00"), (0.0256, "0.026"), (0.256, "0.26"), (9.999, "10.00"), (17.46, "17.5"), (4711.4, "4711")],
)
def test_numbers_have_the_digits_that_count(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(("value", "other", "shown"), [(3, 4, "0.75"), (300, 4, "75"), (3, 0, "-")])
def test_a_ratio_to_nothing_is_a_dash(value: float, other: float, shown: str) -> None:
    assert ratio(value, other) == shown


def test_an_aim_is_reached_from_its_own_side() -> None:
    shown = aims([Aim("GET", 0.8, 0.8), Aim("GET", 0.7, 0.8), Aim("start", 0.9, 1, is_least=False, unit="s")])
    assert [line.split(" | ")[1:] for line in shown.splitlines()[2:]] == [
        ["0.80", "≥ 0.80", "yes |"],
        ["0.70", "≥ 0.80", "no |"],
        ["0.90 s", "≤ 1.00 s", "yes |"],
    ]


def test_a_plot_has_a_bar_for_each_value_and_escapes_names() -> None:
    drawn = plot([("GET & PUT", [("a<b", "own", 200.0), ("c", "peer", 50.0)]), ("none", [])])
    root = ET.fromstring(drawn)  # noqa: S314 - drawn here
    bars = [bar for bar in root.iter(f"{_SVG}rect") if bar.get("x")]
    assert [float(bar.get("width", "0")) for bar in bars] == [360.0, 90.0]
    assert [text.text for text in root.iter(f"{_SVG}text")] == ["GET & PUT", "a<b", "200", "c", "50.0", "none"]


def test_only_the_named_part_of_a_page_is_replaced() -> None:
    page = "a\n<!-- mix -->\nold\n<!-- end of mix -->\nb\n"
    once = replaced(page, "mix", "new\n")
    assert once == "a\n<!-- mix -->\n\nnew\n\n<!-- end of mix -->\nb\n"
    assert replaced(once, "mix", "new") == once


def test_a_page_without_the_part_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for aims"):
        replaced("<!-- mix -->\n<!-- end of mix -->", "aims", "new")
