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
from tests.forms.vectors import COMPONENT, Form, bind, cell, grid, published, section

CONTENT = ' repeat="content"'
IN_GRID = section("s", grid("g", cell("c")))
UNBOUND = f'<fr:grid id="{{}}-grid">{cell("c")}</fr:grid>'


def template(binds: str, body: str) -> str:
    return f"""<xbl:xbl><xbl:binding class="fr-section-component" element="k|one" xmlns:k="{COMPONENT}">
      <xbl:implementation><xf:model><xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">{binds}</xf:bind>
      </xf:model></xbl:implementation><xbl:template><xf:group>{body}</xf:group></xbl:template></xbl:binding></xbl:xbl>"""


USE = f'<k:one xmlns:k="{COMPONENT}"/>'
SHAPES: dict[str, tuple[Form, tuple[str, str, str], str]] = {
    "control in a section": (Form("<form/>", bind("s", bind("c")), section("s", cell("c"))), ("s/c",) * 3, "s/c"),
    "plain grid": (Form("<form/>", bind("s", bind("g", bind("c"))), IN_GRID), ("s/c", "s/c", "s/g/c"), "s/g/c"),
    "plain grid without a bind": (
        Form("<form/>", bind("s", bind("c")), section("s", UNBOUND.format("g"))),
        ("s/c",) * 3,
        "s/c",
    ),
    "section and grid of one name": (
        Form("<form/>", bind("s", bind("c")), section("s", UNBOUND.format("s"))),
        ("s/c",) * 3,
        "s/c",
    ),
    "grid around a control from elsewhere": (
        Form("<form/>", bind("s", bind("g")) + bind("t", bind("c")), IN_GRID),
        ("t/c",) * 3,
        "t/c",
    ),
    "repeated grid": (
        Form("<form/>", bind("s", bind("r", bind("it", bind("c")))), section("s", grid("r", cell("c"), CONTENT))),
        ("s/r/c", "s/r/it/c", "s/r/it/c"),
        "s/r/it/c",
    ),
    "legacy repeated grid": (
        Form("<form/>", bind("s", bind("r", bind("c"))), section("s", grid("r", cell("c"), ' repeat="true"'))),
        ("s/r/c",) * 3,
        "s/r/c",
    ),
    "grid in a repeated section": (
        Form("<form/>", bind("s", bind("it", bind("g", bind("c")))), section("s", grid("g", cell("c")), CONTENT)),
        ("s/it/c", "s/it/c", "s/it/g/c"),
        "s/it/g/c",
    ),
    "nested sections": (
        Form("<form/>", bind("s", bind("t", bind("g", bind("c")))), section("s", section("t", grid("g", cell("c"))))),
        ("s/t/c", "s/t/c", "s/t/g/c"),
        "s/t/g/c",
    ),
    "grid in a grid": (
        Form(
            "<form/>",
            bind("s", bind("g", bind("h", bind("c")))),
            section("s", grid("g", f"<fr:c>{grid('h', cell('c'))}</fr:c>")),
        ),
        ("s/c", "s/c", "s/g/h/c"),
        "s/g/h/c",
    ),
    "repeated grid in a grid": (
        Form(
            "<form/>",
            bind("s", bind("g", bind("r", bind("it", bind("c"))))),
            section("s", grid("g", f"<fr:c>{grid('r', cell('c'), CONTENT)}</fr:c>")),
        ),
        ("s/r/c", "s/r/it/c", "s/g/r/it/c"),
        "s/g/r/it/c",
    ),
    "grid in the body": (Form("<form/>", bind("g", bind("c")), grid("g", cell("c"))), ("c", "c", "g/c"), "g/c"),
    "grid in a dialog": (
        Form(
            "<form/>", bind("s", bind("g", bind("c"))), section("s", f"<xxf:dialog>{grid('g', cell('c'))}</xxf:dialog>")
        ),
        ("s/g/c",) * 3,
        "s/g/c",
    ),
    "nodeset": (
        Form("<form/>", bind("s", bind("g", bind("c"))).replace("ref=", "nodeset="), IN_GRID),
        ("s/c", "s/c", "s/g/c"),
        "s/g/c",
    ),
    "bind to the same node on the way": (
        Form("<form/>", bind("s", bind("g", bind("c"))).replace('ref="s"', 'ref="."'), IN_GRID),
        ("c", "c", "g/c"),
        "g/c",
    ),
    "bind of several steps": (
        Form("<form/>", '<xf:bind id="c-bind" ref="s/t/c"/>', cell("c")),
        ("s/t/c",) * 3,
        "s/t/c",
    ),
    "bind of each language": (
        Form(
            "<form/>", bind("s", bind("c")).replace('ref="c"', 'ref="c[@xml:lang = $fb-lang]"'), section("s", cell("c"))
        ),
        ("s/c",) * 3,
        "s/c",
    ),
    "bind that has another name than its element": (
        Form("<form/>", bind("s", bind("c")).replace('ref="s"', 'ref="other"'), section("s", cell("c"))),
        ("other/c",) * 3,
        "other/c",
    ),
    "section template": (
        Form("<form/>", bind("s"), section("s", USE), xbl=template(bind("g", bind("c")), grid("g", cell("c")))),
        ("s/c", "s/c", "s/g/c"),
        "s/g/c",
    ),
    "section template in iterations": (
        Form(
            "<form/>",
            bind("s", bind("it")),
            section("s", USE, CONTENT),
            xbl=template(bind("r", bind("r-iteration", bind("c"))), grid("r", cell("c"), CONTENT)),
        ),
        ("s/it/r/c", "s/it/r/r-iteration/c", "s/it/r/r-iteration/c"),
        "s/it/r/r-iteration/c",
    ),
}
"""Shapes of definitions, with the paths of their control in each format as published, and the path where no grid is
listed."""


def definitions(name: str, marks: str = "") -> list[tuple[bytes, tuple[str, ...]]]:
    """The definition with lists of its grids and without them, each with the expected paths."""
    form, listed, unlisted = SHAPES[name]
    if marks:
        marked = f'<xf:input id="c-control" bind="c-bind">{marks}</xf:input>'
        plain = '<xf:input id="c-control" bind="c-bind"/>'
        form = replace(form, body=form.body.replace(plain, marked), xbl=form.xbl.replace(plain, marked))
    return [(published(form).encode(), listed), (form.document().encode(), (unlisted,) * len(DATA_FORMATS))]


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
            views = read_flat_views(
                definition, addresses.Form("a", "b"), 1, FlatNaming("f_", 63, prefixes_in_main=False)
            )
            rows = RowReader(views).read([data])
            assert [row[-1] for each in rows.values() for row in each if "secret" in row] == ["secret"]


def test_what_may_be_in_data_of_any_format_is_encrypted_even_if_grids_are_not_listed() -> None:
    """A client may have migrated the definition, which dissolves grids whether or not they are listed."""
    (_, (definition, _)) = definitions("repeated grid in a grid", "<fr:encrypt/>")
    paths = EncryptedControls.of(read_controls(definition)).paths
    assert paths == {("s", "r", "c"), ("s", "r", "it", "c"), ("s", "g", "r", "it", "c")}
