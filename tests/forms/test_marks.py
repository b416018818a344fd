"""Marks that do not lead to exactly one path of a control: each is found, with its control and the reason."""

from __future__ import annotations

import pytest

from persistence.errors import BadRequestError
from persistence.forms.controls import read_controls, unusable_marks
from persistence.forms.definition_metadata import MetadataReader
from persistence.limits import MOST_UNUSABLE
from tests.forms.test_paths import CONTENT, SHAPES, USE, definitions, template
from tests.forms.vectors import Form, bind, published, section

BINDS = bind("s", bind("x"))
MARKS = {
    "<fr:encrypt/>": "<fr:encrypt>",
    "<fr:index/>": "<fr:index>",
    "<fr:index><fr:summary-show/></fr:index>": "<fr:index>",
    'class="fr-encrypt"': "class fr-encrypt",
    'class="a fr-index"': "class fr-index",
    'class="fr-summary"': "class fr-summary",
    'class="fr-search"': "class fr-search",
}


def marked(start: str, mark: str) -> str:
    """An element with a mark, which is an element in it or an attribute."""
    name = start.split(maxsplit=1)[0]
    if mark.startswith("class"):
        return f"<{start} {mark}></{name}>"
    return f"<{start}>{mark}</{name}>"


def form(body: str, binds: str = BINDS, xbl: str = "") -> Form:
    return Form("<form><s><x/></s></form>", binds, section("s", body), xbl=xbl)


def causes(form: Form | str) -> list[str]:
    stored = form if isinstance(form, str) else form.document()
    return [mark.cause for mark in unusable_marks(stored.encode())]


X = 'xf:input id="x-control" bind="x-bind"'
ELSEWHERE = ("x[1]", "p:x", "*", "@x", "..", "./x", "s//x", "/s/x", "instance('other')/x", "x | y", "x/", "")
CONTROLS = {
    "no id": ('xf:input bind="x-bind"', BINDS, "it has no id"),
    "another suffix": ('xf:input id="x-input" bind="x-bind"', BINDS, "its id does not end in -control"),
    "no bind": ('xf:input id="x-control"', BINDS, "it has no bind"),
    "a ref": ('xf:input id="x-control" ref="instance(\'fr-form-instance\')/s/x"', BINDS, "it has no bind"),
    "a bind that is not there": ('xf:input id="x-control" bind="y-bind"', BINDS, "fr-form-binds has no bind 'y-bind'"),
    "the bind of all": ('xf:input id="x-control" bind="fr-form-binds"', BINDS, "does not lead to an element"),
    "two binds of one id": (X, BINDS + bind("t", bind("x")), "there are several binds 'x-bind'"),
    "a bind around that leads elsewhere": (X, BINDS.replace('ref="s"', 'ref="s[1]"'), "does not lead to an element"),
    "a section": ('fr:section id="x-section" bind="x-bind"', BINDS, "it is not a control"),
    "a grid": ('fr:grid id="x-grid" bind="x-bind"', BINDS, "it is not a control"),
    "a repeat": ('fr:repeat id="x-repeat" bind="x-bind"', BINDS, "it is not a control"),
    "a cell": ("fr:c", BINDS, "it has no id"),
    **{
        f"a bind to {ref!r}": (X, BINDS.replace('ref="x"', f'ref="{ref}"'), "does not lead to an element")
        for ref in ELSEWHERE
    },
}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("name", CONTROLS)
def test_a_mark_without_one_path_has_no_effect(name: str, mark: str) -> None:
    start, binds, reason = CONTROLS[name]
    (cause,) = causes(form(marked(start, mark), binds))
    what = start.split(maxsplit=1)[0].partition(":")[2]
    assert cause.startswith(f"the mark {MARKS[mark]} of the element {what}")
    assert reason in cause
    assert "\n" not in cause


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_outside_of_the_body_has_no_effect(mark: str) -> None:
    control = marked(X, mark)
    good = form(f"<{X}/>").document()
    for place in ("</fr:view>", "</xf:model>", "</xh:head>"):
        (cause,) = causes(good.replace(place, f"{control}{place}"))
        assert "outside of the body" in cause
        assert "'x-control'" in cause


def test_a_mark_that_is_not_directly_in_the_control_has_no_effect() -> None:
    (cause,) = causes(form(f"<{X}><xf:label><fr:encrypt/></xf:label></xf:input>"))
    assert cause == "the mark <fr:encrypt> of the element label has no effect: it has no id"


@pytest.mark.parametrize("name", ["summary-show", "summary-search", "summary-edit", "allow-bulk-edit"])
def test_a_mark_for_the_summary_page_counts_in_the_mark_of_an_indexed_control_only(name: str) -> None:
    (cause,) = causes(form(f"<{X}><fr:{name}/></xf:input>"))
    assert cause.endswith(
        f"<fr:{name}> of the element input with the id 'x-control' has no effect: it is not in <fr:index>"
    )
    assert causes(form(f"<{X}><fr:index><fr:{name}/></fr:index></xf:input>")) == []


def test_a_definition_without_a_model_has_no_place_for_marks() -> None:
    document = form(marked(X, "<fr:encrypt/>")).document()
    for gone in ('id="fr-form-model"', 'id="fr-form-instance"'):
        (cause,) = causes(document.replace(gone, 'id="other"'))
        assert "no model fr-form-model" in cause


TEMPLATE = template(bind("c"), '<xf:input id="c-control" bind="c-bind"><fr:encrypt/></xf:input>')
OUTER = (
    TEMPLATE.replace('element="k|one"', 'element="k|two"')
    .replace("<xf:input", USE + "<xf:input")
    .replace("<fr:encrypt/>", "")
)


@pytest.mark.parametrize(
    "shown",
    [
        Form("<form/>", "", section("s", USE), xbl=TEMPLATE),
        Form("<form/>", bind("s"), section("s", USE, CONTENT), xbl=TEMPLATE),
        Form("<form/>", bind("s").replace('ref="s"', 'ref="s[1]"'), section("s", USE), xbl=TEMPLATE),
        Form("<form/>", bind("s"), section("s", f"<fr:c>{USE}</fr:c>"), xbl=TEMPLATE),
        Form("<form/>", bind("s"), section("s", USE.replace("k:one", "k:two")), xbl=TEMPLATE + OUTER),
        Form("<form/>", bind("s") + bind("t"), section("s", USE) + section("u", USE), xbl=TEMPLATE),
    ],
    ids=["no bind", "no iterations", "a bind that leads elsewhere", "no section", "in a template", "once of two"],
)
def test_a_mark_in_a_section_template_counts_where_the_section_has_data(shown: Form) -> None:
    (cause,) = causes(shown)
    assert cause.endswith("its section template is shown where it has no data")


def test_a_section_template_that_is_not_shown_has_no_data_to_be_marked() -> None:
    assert causes(Form("<form/>", xbl=TEMPLATE)) == []
    assert causes(Form("<form/>", bind("s"), section("s", USE), xbl=TEMPLATE)) == []


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("mark", ["<fr:encrypt/>", "<fr:index><fr:summary-show/></fr:index>", '<index xmlns=""/>'])
def test_a_mark_that_leads_to_a_path_is_usable(name: str, mark: str) -> None:
    for definition, _ in definitions(name, mark):
        assert unusable_marks(definition) == ()
        (control,) = read_controls(definition)
        assert control.is_encrypted or control.is_indexed


@pytest.mark.parametrize(
    "document",
    [
        form(f'<{X}/><x id="p"><index xmlns="urn:x"/></x>').document(),
        form(f'<{X} class="fr-indexed fr-index-x"/>').document(),
        form(f"<{X}/>").document().replace("<x/>", '<x class="fr-encrypt"><fr:encrypt/></x>'),
        "<form/>",
        '<xh:html xmlns:xh="http://www.w3.org/1999/xhtml"/>',
    ],
    ids=["an index of another", "other classes", "data", "no definition", "nothing in it"],
)
def test_what_is_not_a_mark_is_not_reported(document: str) -> None:
    assert causes(document) == []


def test_only_so_many_are_reported() -> None:
    assert len(causes(form("<xf:input><fr:encrypt/></xf:input>" * (MOST_UNUSABLE + 5)))) == MOST_UNUSABLE


def test_which_marks_are_of_encryption_is_said() -> None:
    found = unusable_marks(form("<xf:input><fr:index/><fr:encrypt/></xf:input>").document().encode())
    assert [each.is_encryption for each in found] == [False, True]


def test_publishing_refuses_the_first_one() -> None:
    with pytest.raises(BadRequestError, match=r"<fr:index> of the element input .* has no effect: it has no bind"):
        published(form('<xf:input id="x-control"><fr:index/><fr:encrypt/></xf:input>'))


@pytest.mark.parametrize("mark", [*MARKS, "<fr:summary-show/>", "<fr:default-sort-column/>", "<fr:allow-bulk-edit/>"])
def test_the_parser_of_a_definition_that_is_received_notices_each_mark(mark: str) -> None:
    for body, expected in ((marked(X, mark), True), (f"<{X}/>", False)):
        with MetadataReader() as reader:
            assert reader.read([form(body).document().encode()]).has_marks is expected
