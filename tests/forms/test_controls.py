"""The controls of a form: their order, kinds and marks. Which there are, their index keys say (``test_index_keys``)."""

from dataclasses import replace

import pytest

from persistence.forms.controls import read_controls
from persistence.model.versions import DATA_FORMATS
from tests.forms.vectors import COMPONENT, META_4_8, V7, V8, Form, bind, cell, grid, published, section


def paths(form: Form) -> dict[str, dict[str, str]]:
    found = read_controls(form.document().encode())
    return {each.name: {version: "/".join(each.path(version)) for version in DATA_FORMATS} for each in found}


S_C = Form("<form/>", bind("s", bind("g", bind("c"))), section("s", grid("g", cell("c"))))


def test_the_path_is_that_of_the_binds_whatever_format_a_definition_says_it_is_in() -> None:
    assert paths(V7) == paths(replace(V7, meta=META_4_8))
    assert paths(S_C)["c"] == dict.fromkeys(DATA_FORMATS, "s/g/c")


def test_the_controls_of_section_templates_come_last_with_the_path_of_their_section() -> None:
    twice = replace(
        V8,
        binds=bind("who") + bind("whom", bind("whom-iteration")) + V8.binds.replace(bind("who"), ""),
        body=section("whom", f'<component:contact xmlns:component="{COMPONENT}"/>', ' repeat="content"') + V8.body,
    )
    found = [("/".join(each.path("4.8.0")), each.kind) for each in read_controls(published(twice).encode())]
    assert found == [
        ("main/ref-no", "input"),
        ("whom/whom-iteration/mail", "input"),
        ("whom/whom-iteration/tels/tels-iteration/tel", "input"),
        ("who/mail", "input"),
        ("who/tels/tels-iteration/tel", "input"),
    ]


MARKS = [
    ('<xf:input id="c-control" bind="c-bind"/>', False, False),
    ('<xf:input id="c-control" bind="c-bind"><fr:index/></xf:input>', True, False),
    ('<xf:input id="c-control" bind="c-bind"><fr:encrypt/></xf:input>', False, True),
    ('<xf:input id="c-control" bind="c-bind"><encrypt/></xf:input>', False, False),
    ('<xf:input id="c-control" bind="c-bind" class="fr-encrypt fr-index"/>', True, True),
]


@pytest.mark.parametrize(("view", "is_indexed", "is_encrypted"), MARKS)
def test_a_control_is_marked_by_an_element_or_by_a_class(view: str, *, is_indexed: bool, is_encrypted: bool) -> None:
    form = replace(S_C, body=section("s", grid("g", f"<fr:c>{view}</fr:c>")))
    (control,) = read_controls(form.document().encode())
    assert (control.is_indexed, control.is_encrypted) == (is_indexed, is_encrypted)


def test_a_control_that_appears_twice_is_one_with_the_marks_of_both() -> None:
    again = '<fr:c><xf:output id="c-control" bind="c-bind" class="fr-index"/></fr:c>'
    (control,) = read_controls(replace(S_C, body=section("s", grid("g", cell("c") + again))).document().encode())
    assert (control.kind, control.is_indexed) == ("input", True)
