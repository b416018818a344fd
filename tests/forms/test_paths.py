"""The path of a control: one for each format, and the same for all who read a definition."""

from dataclasses import replace

import pytest

from persistence.catalog import EncryptedControls
from persistence.forms.controls import read_controls, read_index_keys, read_outline
from persistence.forms.diffs import read_data
from persistence.forms.encryption import ValueEncrypter
from persistence.forms.flat_tables import FlatNaming, RowReader, read_flat_views
from persistence.forms.form_data import CellReader, Column, ValueReader, cell_matcher
from persistence.model import addresses
from persistence.model.versions import DATA_FORMATS, V4_0_0
from tests.forms.vectors import Form, bind, cell, grid, published, section, template, use

CONTENT = ' repeat="content"'
C = cell("c")
B = bind("c")
UNBOUND = f'<fr:grid id="{{}}-grid">{C}</fr:grid>'
IN_GRID = section("s", grid("g", C))

SHAPES = {
    "control in a section": (bind("s", B), section("s", C), "s/c"),
    "plain grid": (bind("s", bind("g", B)), IN_GRID, "s/c s/c s/g/c"),
    "plain grid without a bind": (bind("s", B), section("s", UNBOUND.format("g")), "s/c"),
    "section and grid of one name": (bind("s", B), section("s", UNBOUND.format("s")), "s/c"),
    "grid around a control from elsewhere": (bind("s", bind("g")) + bind("t", B), IN_GRID, "t/c"),
    "repeated grid": (
        bind("s", bind("r", bind("it", B))),
        section("s", grid("r", C, CONTENT)),
        "s/r/c s/r/it/c s/r/it/c",
    ),
    "legacy repeated grid": (bind("s", bind("r", B)), section("s", grid("r", C, ' repeat="true"')), "s/r/c"),
    "grid in a repeated section": (
        bind("s", bind("it", bind("g", B))),
        section("s", grid("g", C), CONTENT),
        "s/it/c s/it/c s/it/g/c",
    ),
    "nested sections": (
        bind("s", bind("t", bind("g", B))),
        section("s", section("t", grid("g", C))),
        "s/t/c s/t/c s/t/g/c",
    ),
    "grid in a grid": (
        bind("s", bind("g", bind("h", B))),
        section("s", grid("g", f"<fr:c>{grid('h', C)}</fr:c>")),
        "s/c s/c s/g/h/c",
    ),
    "repeated grid in a grid": (
        bind("s", bind("g", bind("r", bind("it", B)))),
        section("s", grid("g", f"<fr:c>{grid('r', C, CONTENT)}</fr:c>")),
        "s/r/c s/r/it/c s/g/r/it/c",
    ),
    "grid in the body": (bind("g", B), grid("g", C), "c c g/c"),
    "grid in a dialog": (bind("s", bind("g", B)), section("s", f"<xxf:dialog>{grid('g', C)}</xxf:dialog>"), "s/g/c"),
    "nodeset": (bind("s", bind("g", B)).replace("ref=", "nodeset="), IN_GRID, "s/c s/c s/g/c"),
    "bind to the same node on the way": (bind("s", bind("g", B)).replace('ref="s"', 'ref="."'), IN_GRID, "c c g/c"),
    "bind of several steps": ('<xf:bind id="c-bind" ref="s/t/c"/>', C, "s/t/c"),
    "bind of each language": (bind("s", B).replace('ref="c"', 'ref="c[@xml:lang = $fb-lang]"'), section("s", C), "s/c"),
    "bind that has another name than its element": (
        bind("s", B).replace('ref="s"', 'ref="other"'),
        section("s", C),
        "other/c",
    ),
    "section template": (bind("s"), section("s", use()), "s/c s/c s/g/c"),
    "section template in iterations": (
        bind("s", bind("it")),
        section("s", use(), CONTENT),
        "s/it/r/c s/it/r/r-iteration/c s/it/r/r-iteration/c",
    ),
}
"""Shapes of definitions: binds, body, and the paths of their control in each format, which may be one.

Where no grid is listed, the path is that of the last format in all of them.
"""

TEMPLATES = {
    "section template": template("one", bind("g", B), grid("g", C)),
    "section template in iterations": template("one", bind("r", bind("r-iteration", B)), grid("r", C, CONTENT)),
}


def definitions(name: str, marks: str = "") -> list[tuple[bytes, tuple[str, ...]]]:
    """The definition with lists of its grids and without them, each with the expected paths."""
    binds, body, paths = SHAPES[name]
    form = Form("<form/>", binds, body, xbl=TEMPLATES.get(name, ""))
    if marks:
        plain, marked = '<xf:input id="c-control" bind="c-bind"', f">{marks}</xf:input>"
        form = replace(
            form, **{part: getattr(form, part).replace(f"{plain}/>", plain + marked) for part in ("body", "xbl")}
        )
    listed = (paths.split() * 3)[:3]
    return [(published(form).encode(), tuple(listed)), (form.document().encode(), (listed[-1],) * len(DATA_FORMATS))]


def data_at(path: str) -> bytes:
    """Data with one value at a path."""
    steps = path.split("/")
    begin, end = ("".join(f"<{mark}{step}>" for step in each) for mark, each in (("", steps), ("/", steps[::-1])))
    return f"<form>{begin}secret{end}</form>".encode()


@pytest.mark.parametrize("name", SHAPES)
def test_the_path_of_a_control_goes_by_its_binds_and_by_the_listed_grids(name: str) -> None:
    for definition, expected in definitions(name):
        (control,) = read_controls(definition)
        assert tuple("/".join(control.path(version)) for version in DATA_FORMATS) == expected


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("name", SHAPES)
def test_all_who_read_a_definition_find_a_value_at_the_same_path(name: str, data_format: str) -> None:
    for definition, expected in definitions(name, "<fr:index/><fr:encrypt/>"):
        path = expected[DATA_FORMATS.index(data_format)]
        steps, data = tuple(path.split("/")), data_at(path)
        controls = read_controls(definition)
        keys = read_index_keys(definition, data_format)
        assert ValueReader(keys).read([data]).values == {path: ("secret",)}
        with CellReader(cell_matcher(Column(each.path(data_format), each.takes_files) for each in controls)) as reader:
            assert reader.read([data]).cells == {0: ["secret"]}
        encrypted = EncryptedControls.of(controls)
        with ValueEncrypter(
            encrypted.paths, encrypted.values, lambda *_: ("0", None), lambda: "s", lambda *_: False
        ) as encrypter:
            assert b"secret" not in b"".join(encrypter.edited([data]))
        outline = read_outline(definition, data_format)
        assert outline.root.at(steps).name == "c"
        node = read_data([data], outline)
        for step in steps:
            (node,) = node.at(step)
        assert node.value.text == "secret"
        if data_format == V4_0_0:
            naming = FlatNaming("f_", 63, prefixes_in_main=False)
            rows = RowReader(read_flat_views(definition, addresses.Form("a", "b"), 1, naming)).read([data])
            assert [row[-1] for each in rows.values() for row in each if "secret" in row] == ["secret"]


def test_what_may_be_in_data_of_any_format_is_encrypted_even_if_grids_are_not_listed() -> None:
    """A client may have migrated the definition, which dissolves grids whether or not they are listed."""
    (_, (definition, _)) = definitions("repeated grid in a grid", "<fr:encrypt/>")
    paths = EncryptedControls.of(read_controls(definition)).paths
    assert paths == {("s", "r", "c"), ("s", "r", "it", "c"), ("s", "g", "r", "it", "c")}
