"""Commands about a form whose grids are not listed, or whose binds are odd: all go by the paths of a search."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.command_runner import Place
from tests.forms.test_paths import data_at, definitions
from tests.forms.vectors import changed

FORMS = ["plain grid", "repeated grid", "section and grid of one name", "bind of several steps", "grid in a grid"]


@pytest.mark.parametrize("name", FORMS)
def test_values_are_found_shown_exported_and_compared_at_the_path_that_show_prints(tmp_path: Path, name: str) -> None:
    (_, (definition, (path, *_))) = definitions(name, "<fr:index/>")
    place = Place(tmp_path / "data")
    place.put("a/f/form/form.xhtml", definition)
    for text in ("alpha", "gamma"):
        place.put("a/f/data/d/data.xml", changed(data_at(path).decode(), "secret", text).encode())
    assert place.lines("show", "a/f/1")[-1] == f"c input {path} indexed"
    assert place.lines("search", "a/f", "--path", path)[1].endswith(" gamma")
    (row,) = csv.DictReader(io.StringIO(place.run("export", "-", "--csv", "--match", "a/f/1").stdout))
    assert row["c"] == "gamma"
    (line,) = place.run("export", "-", "--jsonl", "--match", "a/f/1").stdout.splitlines()
    assert json.loads(line)["values"] == {"c": ["gamma"]}
    assert f"{path}: 'alpha' -> 'gamma'" in place.lines("diff", "a/f/data/d")
