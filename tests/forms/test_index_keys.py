"""The keys of an index: its controls in their order, and the paths to their values."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from persistence.errors import BadRequestError, DamagedError
from persistence.forms.controls import DESIGNER_KEYS, read_index_keys
from persistence.limits import MOST_KEY_CHARACTERS, MOST_STEPS
from persistence.model.versions import DATA_FORMATS, IndexKey, PathStep
from tests.forms.vectors import COMPONENT, META_2019, Form, bind, grid, section
from tests.orders import DEFINITION as FORM

MARKED = '<xf:input id="c-control" bind="c-bind"><fr:index/></xf:input>'
S_C = Form("<form/>", bind("s", bind("g", bind("c"))), section("s", grid("g", f"<fr:c>{MARKED}</fr:c>")))


def paths(form: Form | str, data_format: str = "2019.1.0") -> list[str]:
    text = form if isinstance(form, str) else form.document()
    return [key.path for key in read_index_keys(text.encode(), data_format)]


def plain(*entries: str) -> str:
    """Metadata that lists plain grids by their paths."""
    said = [
        {
            "containerPath": [{"value": step} for step in entry.split("/")[:-1]],
            "newGridElem": {"value": entry.split("/")[-1]},
        }
        for entry in entries
    ]
    return f'<migration version="2019.1.0">{json.dumps({"migrations": said})}</migration>'


def repeated(*entries: str) -> str:
    """Metadata that lists repeated grids by their paths."""
    said = [{"path": entry, "iteration-name": f"{entry.split('/')[-1]}-iteration"} for entry in entries]
    return f'<migration version="4.8.0">{json.dumps(said)}</migration>'


ORDER = ["customer/name", "customer/topics", "customer/email", "customer/status", "items/lines/product"]
LATEST = [
    "customer/customer-grid/name",
    "customer/customer-grid/topics",
    "customer/customer-grid/email",
    "customer/customer-grid/status",
    "items/lines/lines-iteration/product",
]


def test_the_order_form_has_five_keys_those_with_an_element_first() -> None:
    assert paths(FORM, "4.0.0") == ORDER
    assert read_index_keys(FORM.encode(), "4.0.0")[0].steps == (PathStep("customer"), PathStep("name"))


def test_the_keys_are_those_of_the_format_that_data_is_stored_in() -> None:
    assert paths(FORM, "4.8.0") == [*ORDER[:-1], LATEST[-1]]
    assert paths(FORM, "2019.1.0") == LATEST


@pytest.mark.parametrize("data_format", DATA_FORMATS)
def test_without_the_migration_metadata_paths_stay_as_the_binds_have_them(data_format: str) -> None:
    without = re.sub("<migration.*</migration>", "", FORM, flags=re.DOTALL)
    assert paths(without, data_format) == LATEST


@pytest.mark.parametrize("more", ["fr-index", "fr-summary", "fr-search", "x fr-summary\ty"])
def test_a_class_marks_what_is_indexed(more: str) -> None:
    form = replace(S_C, body=S_C.body.replace("<fr:index/>", "").replace('c-bind">', f'c-bind" class="{more}">'))
    assert paths(form) == ["s/g/c"]


@pytest.mark.parametrize("more", ["fr-indexed", "FR-INDEX", "fr-index-no", ""])
def test_another_class_does_not(more: str) -> None:
    form = replace(S_C, body=S_C.body.replace("<fr:index/>", "").replace('c-bind">', f'c-bind" class="{more}">'))
    assert paths(form) == []


@pytest.mark.parametrize(
    "inside",
    [
        "<fr:index/>",
        '<index xmlns=""/>',
        '<x:index xmlns:x="urn:x"/>',
        '<xf:label/><fr:index><fr:summary-show column="false" search="false"/></fr:index>',
    ],
)
def test_an_element_marks_what_is_indexed_in_any_namespace(inside: str) -> None:
    assert paths(replace(S_C, body=S_C.body.replace("<fr:index/>", inside))) == ["s/g/c"]


@pytest.mark.parametrize("inside", ["<xf:label><fr:index/></xf:label>", "<fr:indexed/>", "<!--fr:index-->", ""])
def test_another_element_does_not(inside: str) -> None:
    assert paths(replace(S_C, body=S_C.body.replace("<fr:index/>", inside))) == []


@pytest.mark.parametrize("suffix", ["control", "grid", "section", "template", "repeat", "bind"])
def test_any_element_below_the_body_with_a_name_can_be_indexed_but_sections_and_grids(suffix: str) -> None:
    form = replace(S_C, body=f'<xf:group><x id="c-{suffix}" bind="c-bind"><index/></x></xf:group>')
    assert paths(form) == ["s/g/c"]
    assert paths(replace(S_C, body=S_C.body.replace("<fr:c>", "<fr:index/><fr:c>"))) == ["s/g/c"]


@pytest.mark.parametrize("other", ['id="c"', 'id="-control"', 'id="control"', 'id="c-other"', ""])
def test_an_element_without_a_name_cannot(other: str) -> None:
    assert paths(replace(S_C, body=S_C.body.replace('id="c-control"', other))) == []


@pytest.mark.parametrize("other", ['bind="d-bind"', 'bind="c"', 'bind="fr-form-binds"', ""])
def test_what_has_no_bind_is_not_indexed(other: str) -> None:
    assert paths(replace(S_C, body=S_C.body.replace('bind="c-bind"', other))) == []


def test_all_with_an_element_come_before_all_with_a_class_and_the_own_before_those_of_templates() -> None:
    def view(name: str, marks: str, inside: str = "") -> str:
        return f'<fr:c><xf:input id="{name}-control" bind="{name}-bind" class="{marks}">{inside}</xf:input></fr:c>'

    index = "<fr:index/>"
    form = Form(
        "<form/>",
        bind("s", bind("a") + bind("b")) + bind("t") + bind("u"),
        "".join(section(name, f'<k:one xmlns:k="{COMPONENT}"/>') for name in ("t", "u"))
        + section("s", view("a", "fr-search") + view("b", "", index)),
        xbl=library("one", bind("c") + bind("d"), view("c", "fr-summary") + view("d", "fr-summary", index)),
    )
    assert paths(form) == ["s/b", "t/d", "u/d", "s/a", "t/c", "u/c"]


def library(name: str, binds: str, body: str) -> str:
    return f"""<xbl:xbl><xbl:binding class="fr-section-component" element="k|{name}" xmlns:k="{COMPONENT}">
      <xbl:implementation><xf:model><xf:bind id="fr-form-binds" ref="instance('fr-form-instance')">{binds}</xf:bind>
      </xf:model></xbl:implementation><xbl:template><xf:group>{body}</xf:group></xbl:template></xbl:binding></xbl:xbl>"""


TEMPLATE = Form(
    "<form/>",
    bind("who", bind("who-iteration")),
    section("who", f'<k:one xmlns:k="{COMPONENT}"/>', ' repeat="content"'),
    xbl=library(
        "one",
        bind("g", bind("c")) + bind("r", bind("r-iteration", bind("d"))),
        grid("g", f"<fr:c>{MARKED}</fr:c>")
        + grid("r", f"<fr:c>{MARKED.replace('c-', 'd-')}</fr:c>", ' repeat="content"'),
    ),
    meta=META_2019 + plain("who/who-iteration/g") + repeated("who/who-iteration/r"),
)


def test_a_repeated_section_keeps_its_iteration_in_all_formats_and_template_grids_are_listed_with_their_section() -> (
    None
):
    assert paths(TEMPLATE, "4.0.0") == ["who/who-iteration/c", "who/who-iteration/r/d"]
    assert paths(TEMPLATE, "4.8.0") == ["who/who-iteration/c", "who/who-iteration/r/r-iteration/d"]
    assert paths(TEMPLATE, "2019.1.0") == ["who/who-iteration/g/c", "who/who-iteration/r/r-iteration/d"]


def test_an_old_body_is_a_group() -> None:
    old = S_C.document().replace("<fr:view><fr:body>", '<xf:group class="x fb-body">')
    assert paths(old.replace("</fr:body></fr:view>", "</xf:group>")) == ["s/g/c"]


def test_a_path_is_a_key_once() -> None:
    twice = MARKED.replace("bind=", 'class="fr-search" bind=') + MARKED.replace("c-control", "other-control")
    assert paths(replace(S_C, body=S_C.body.replace(MARKED, twice))) == ["s/g/c"]


@pytest.mark.parametrize("written", ["", "."])
def test_what_is_about_the_root_is_not_indexed(written: str) -> None:
    assert paths(Form("<form/>", f'<xf:bind id="c-bind" ref="{written}"/>', MARKED)) == []


META = {
    "old lists have brackets": (
        '<migration version="4.8.0">[{"path":"(s)","iteration-name":"g"}]</migration>',
        "s/c",
        "s/g/c",
    ),
    "a repeated grid without iterations": (repeated("s/g"), "s/g/c", "s/g/c"),
    "both lists": (repeated("s/g") + plain("s/g"), "s/c", "s/c"),
    "another grid": (plain("s/h", "g", "s/g/h"), "s/g/c", "s/g/c"),
    "no grid": (plain("t/g"), "s/g/c", "s/g/c"),
    "the first list of a version": (plain("t/g") + plain("s/g"), "s/g/c", "s/g/c"),
    "another version": (plain("s/g").replace("2019.1.0", "2020.1.0"), "s/g/c", "s/g/c"),
}


@pytest.mark.parametrize("name", META)
def test_the_lists_of_the_metadata_adapt_a_path(name: str) -> None:
    meta, oldest, middle = META[name]
    form = replace(S_C, meta=META_2019 + meta)
    assert [paths(form, data_format) for data_format in DATA_FORMATS] == [[oldest], [middle], ["s/g/c"]]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '"x"', '{"migrations":3}', '{"migrations":[{"containerPath":[{"value":"s"}]}]}',
     '{"migrations":[{"containerPath":"s","newGridElem":{"value":"g"}}]}', "[" * 100_000, "9" * 100_000,
     '{"migrations":[{"containerPath":[{"value":"s"}],"newGridElem":{"value":["g"]}}]}',
     '[{"path":3}]', '[{"path":null}]', '{"path":"s/g"}'],
)  # fmt: skip
def test_a_list_that_is_none_adapts_nothing(text: str) -> None:
    both = "".join(f'<migration version="{version}">{text}</migration>' for version in ("4.8.0", "2019.1.0"))
    assert paths(replace(S_C, meta=META_2019 + both), "4.0.0") == ["s/g/c"]


REFERENCES = {
    "c": "s/g/c",
    " c ": "s/g/c",
    "a/b": "s/g/a/b",
    ".": "s/g",
    "title[@xml:lang = $fb-lang]": "s/g/title",
    **dict.fromkeys(
        ["*", "p:c", "n:c", "p:*", "*:c", "c[@id='x']", "*[ @id = &quot;x/z&quot; ]/d", "@c", "..", "./c", "a//b", "a/",
         "/a", "", "a[1]", "instance('x')/a", "title[@xml:lang = 'en']", "1", "a / b", "a/" * 300 + "b"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("written", REFERENCES)
def test_a_key_leads_by_the_names_of_elements_and_there_is_none_where_a_bind_does_not(written: str) -> None:
    own = f'<xf:bind id="c-bind" ref="{written}" xmlns:p="urn:inner"/>'
    expected = REFERENCES[written]
    form = replace(S_C, binds=bind("s", bind("g", own)))
    keys = read_index_keys(form.document().encode(), "2019.1.0")
    assert keys == (() if expected is None else (IndexKey(expected, tuple(map(PathStep, expected.split("/")))),))


def test_a_document_without_a_form_model_has_no_keys() -> None:
    assert read_index_keys(b"<form/>", "4.0.0") == ()


def test_a_stored_definition_that_is_not_well_formed_is_damage() -> None:
    with pytest.raises(DamagedError):
        read_index_keys(b"<form>", "4.0.0")


def test_too_many_steps_are_refused() -> None:
    names = range(MOST_STEPS // 200)
    binds = "".join(bind(f"c{n}") for n in names)
    for level in range(200):
        binds = bind(f"s{level}", binds)
    body = "".join(MARKED.replace('"c-', f'"c{n}-') for n in names)
    with pytest.raises(BadRequestError, match="too many controls"):
        read_index_keys(Form("<form/>", binds, body).document().encode(), "4.0.0")


def test_a_section_template_that_is_shown_too_often_is_refused() -> None:
    names = range(700)
    use = f'<k:one xmlns:k="{COMPONENT}"/>'
    form = Form(
        "<form/>",
        "".join(bind(f"s{n}") for n in names),
        "".join(section(f"s{n}", use) for n in names),
        xbl=library(
            "one", "".join(bind(f"c{n}") for n in names), "".join(MARKED.replace('"c-', f'"c{n}-') for n in names)
        ),
    )
    with pytest.raises(BadRequestError, match="too many controls"):
        read_index_keys(form.document().encode(), "4.0.0")


def test_too_long_paths_are_refused() -> None:
    names = range(500)
    binds = bind("s" * (MOST_KEY_CHARACTERS // 490), "".join(bind(f"c{n}") for n in names))
    body = "".join(MARKED.replace('"c-', f'"c{n}-') for n in names)
    with pytest.raises(BadRequestError, match="characters"):
        read_index_keys(Form("<form/>", binds, body).document().encode(), "4.0.0")


def test_the_keys_of_the_designer_are_its_metadata() -> None:
    around = "xh:head/xf:model[@id = 'fr-form-model']/xf:instance[@id = 'fr-form-metadata']/*/"
    names = ["application-name", "form-name", "title", "description", "thumbnail", "allow-template-use"]
    assert [key.path for key in DESIGNER_KEYS] == [around + name for name in names]
    assert DESIGNER_KEYS[2].steps == (
        PathStep("head", "http://www.w3.org/1999/xhtml"),
        PathStep("model", "http://www.w3.org/2002/xforms", "fr-form-model"),
        PathStep("instance", "http://www.w3.org/2002/xforms", "fr-form-metadata"),
        PathStep(""),
        PathStep("title"),
    )


def test_the_keys_of_real_definitions_can_all_be_followed(corpus: Path) -> None:
    total = 0
    for path in sorted(corpus.rglob("form.xhtml")):
        for data_format in DATA_FORMATS:
            keys = read_index_keys(path.read_bytes(), data_format)
            assert all("/".join(step.name for step in key.steps) == key.path for key in keys), path
            total += len(keys)
    assert total > 30
