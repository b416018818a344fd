"""The controls of a form: kinds, marks and index keys, and the paths to their values."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest

from persistence.errors import BadRequestError, DamagedError
from persistence.forms import controls
from persistence.forms.controls import DESIGNER_KEYS, read_controls, read_index_keys, unusable_marks
from persistence.forms.definition_metadata import MetadataReader
from persistence.limits import MOST_UNUSABLE
from persistence.model.typed_values import OrderedType
from persistence.model.versions import DATA_FORMATS, IndexKey, PathStep
from tests.forms.test_paths import CONTENT, SHAPES, definitions
from tests.forms.vectors import META_4_8, META_2019, V7, V8, Form, bind, cell, grid, published, section, template, use
from tests.orders import DEFINITION as ORDER

NAMED = 'id="c-control" bind="c-bind"'
INPUT = f"<xf:input {NAMED}><fr:index/></xf:input>"
S_G_C = Form("<form/>", bind("s", bind("g", bind("c"))), section("s", grid("g", f"<fr:c>{INPUT}</fr:c>")))


def test_the_path_is_that_of_the_binds_whatever_format_a_definition_says_it_is_in() -> None:
    one, other = (
        {
            each.name: [each.path(version) for version in DATA_FORMATS]
            for each in read_controls(form.document().encode())
        }
        for form in (V7, replace(V7, meta=META_4_8))
    )
    assert one == other


def test_the_controls_of_section_templates_come_last_with_the_path_of_their_section() -> None:
    twice = replace(
        V8,
        binds=bind("who") + bind("whom", bind("whom-iteration")) + V8.binds.replace(bind("who"), ""),
        body=section("whom", use("contact"), CONTENT) + V8.body,
    )
    found = [("/".join(each.path("4.8.0")), each.kind) for each in read_controls(published(twice).encode())]
    assert found == [
        ("main/ref-no", "input"),
        ("whom/whom-iteration/mail", "input"),
        ("whom/whom-iteration/tels/tels-iteration/tel", "input"),
        ("who/mail", "input"),
        ("who/tels/tels-iteration/tel", "input"),
    ]


# The keys of an index: its controls in their order, and the paths to their values


def keyed(form: Form | str, data_format: str = "2019.1.0") -> list[str]:
    text = form if isinstance(form, str) else form.document()
    return [key.path for key in read_index_keys(text.encode(), data_format)]


@pytest.mark.parametrize(
    ("attributes", "inside", "is_indexed", "is_encrypted"),
    [
        (NAMED, "", False, False),
        *((f'{NAMED} class="{each}"', "", True, False)
          for each in ("fr-index", "fr-summary", "fr-search", "x fr-summary\ty")),
        *((f'{NAMED} class="{each}"', "", False, False) for each in ("fr-indexed", "FR-INDEX", "fr-index-no", "")),
        (f'{NAMED} class="fr-encrypt fr-index"', "", True, True),
        (NAMED, "<fr:index/>", True, False),
        (NAMED, "<fr:encrypt/>", False, True),
        (NAMED, "<encrypt/>", False, False),
        (NAMED, '<index xmlns=""/>', True, False),
        (NAMED, '<x:index xmlns:x="urn:x"/>', True, False),
        (NAMED, '<xf:label/><fr:index><fr:summary-show column="false" search="false"/></fr:index>', True, False),
        (NAMED, "<xf:label><fr:index/></xf:label>", False, False),
        *((NAMED, each, False, False) for each in ("<fr:indexed/>", "<!--fr:index-->")),
        *((f'{each} bind="c-bind"', "<fr:index/>", False, False)
          for each in ('id="c"', 'id="-control"', 'id="control"', 'id="c-other"', "")),
        *((f'id="c-control" {each}', "<fr:index/>", False, False)
          for each in ('bind="d-bind"', 'bind="c"', 'bind="fr-form-binds"', "")),
    ],
)  # fmt: skip
def test_a_class_or_an_element_in_any_namespace_marks_a_control_with_a_name_and_a_bind(
    attributes: str, inside: str, *, is_indexed: bool, is_encrypted: bool
) -> None:
    form = replace(S_G_C, body=section("s", grid("g", f"<fr:c><xf:input {attributes}>{inside}</xf:input></fr:c>")))
    assert keyed(form) == ["s/g/c"] * is_indexed
    found = [each for each in read_controls(form.document().encode()) if each.name == "c"]
    assert any(each.is_indexed for each in found) is is_indexed
    assert any(each.is_encrypted for each in found) is is_encrypted


def test_a_control_that_appears_twice_is_one_with_the_marks_of_both_and_a_path_is_a_key_once() -> None:
    again = f'<fr:c><xf:output {NAMED} class="fr-index"/></fr:c>'
    form = replace(S_G_C, body=section("s", grid("g", cell("c") + again)))
    (control,) = read_controls(form.document().encode())
    assert (control.kind, control.is_indexed) == ("input", True)
    twice = INPUT.replace("bind=", 'class="fr-search" bind=') + INPUT.replace("c-control", "other-control")
    assert keyed(replace(S_G_C, body=S_G_C.body.replace(INPUT, twice))) == ["s/g/c"]


@pytest.mark.parametrize("suffix", ["control", "grid", "section", "template", "repeat", "bind"])
def test_any_element_below_the_body_with_a_name_can_be_indexed_but_sections_and_grids(suffix: str) -> None:
    form = replace(S_G_C, body=f'<xf:group><x id="c-{suffix}" bind="c-bind"><index/></x></xf:group>')
    assert keyed(form) == ["s/g/c"]
    assert keyed(replace(S_G_C, body=S_G_C.body.replace("<fr:c>", "<fr:index/><fr:c>"))) == ["s/g/c"]


def test_all_with_an_element_come_before_all_with_a_class_and_the_own_before_those_of_templates() -> None:
    def view(name: str, marks: str, inside: str = "") -> str:
        return f'<fr:c><xf:input id="{name}-control" bind="{name}-bind" class="{marks}">{inside}</xf:input></fr:c>'

    index = "<fr:index/>"
    form = Form(
        "<form/>",
        bind("s", bind("a") + bind("b")) + bind("t") + bind("u"),
        section("t", use()) + section("u", use()) + section("s", view("a", "fr-search") + view("b", "", index)),
        xbl=template("one", bind("c") + bind("d"), view("c", "fr-summary") + view("d", "fr-summary", index)),
    )
    assert keyed(form) == ["s/b", "t/d", "u/d", "s/a", "t/c", "u/c"]


def test_an_old_body_is_a_group_and_what_is_about_the_root_is_not_indexed() -> None:
    old = S_G_C.document().replace("<fr:view><fr:body>", '<xf:group class="x fb-body">')
    assert keyed(old.replace("</fr:body></fr:view>", "</xf:group>")) == ["s/g/c"]
    for ref in ("", "."):
        assert keyed(Form("<form/>", f'<xf:bind id="c-bind" ref="{ref}"/>', INPUT)) == []


OLDEST = ["customer/name", "customer/topics", "customer/email", "customer/status", "items/lines/product"]
LATEST = [*(each.replace("/", "/customer-grid/") for each in OLDEST[:-1]), "items/lines/lines-iteration/product"]
UNLISTED = re.sub("<migration.*</migration>", "", ORDER, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("definition", "data_format", "found"),
    [
        (ORDER, "4.0.0", OLDEST),
        (ORDER, "4.8.0", [*OLDEST[:-1], LATEST[-1]]),
        (ORDER, "2019.1.0", LATEST),
        *((UNLISTED, data_format, LATEST) for data_format in DATA_FORMATS),
    ],
)
def test_the_keys_are_those_of_the_format_that_data_is_stored_in_as_far_as_the_metadata_lists_grids(
    definition: str, data_format: str, found: list[str]
) -> None:
    assert keyed(definition, data_format) == found
    first = read_index_keys(definition.encode(), data_format)[0]
    assert first.steps == tuple(map(PathStep, found[0].split("/")))


def test_a_key_has_the_type_of_its_bind_if_values_of_that_have_an_order() -> None:
    form = ORDER.replace('ref="email"', 'ref="email" type="xf:email"')
    form = form.replace('ref="status"', 'ref="status" type="xf:date"')
    types = {key.path: key.type for key in read_index_keys(form.encode(), "4.0.0")}
    assert types == dict.fromkeys(OLDEST) | {"customer/status": OrderedType.DATE}


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


REPEATED = '<migration version="4.8.0">[{"path":"s/g","iteration-name":"g-iteration"}]</migration>'
META = {
    "old lists have brackets": (
        '<migration version="4.8.0">[{"path":"(s)","iteration-name":"g"}]</migration>', "s/c", "s/g/c",
    ),
    "a repeated grid without iterations": (REPEATED, "s/g/c", "s/g/c"),
    "both lists": (REPEATED + plain("s/g"), "s/c", "s/c"),
    "another grid": (plain("s/h", "g", "s/g/h"), "s/g/c", "s/g/c"),
    "no grid": (plain("t/g"), "s/g/c", "s/g/c"),
    "the first list of a version": (plain("t/g") + plain("s/g"), "s/g/c", "s/g/c"),
    "another version": (plain("s/g").replace("2019.1.0", "2020.1.0"), "s/g/c", "s/g/c"),
}  # fmt: skip


@pytest.mark.parametrize("name", META)
def test_the_lists_of_the_metadata_adapt_a_path(name: str) -> None:
    meta, oldest, middle = META[name]
    form = replace(S_G_C, meta=META_2019 + meta)
    assert [keyed(form, data_format) for data_format in DATA_FORMATS] == [[oldest], [middle], ["s/g/c"]]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '"x"', '{"migrations":3}', '{"migrations":[{"containerPath":[{"value":"s"}]}]}',
     '{"migrations":[{"containerPath":"s","newGridElem":{"value":"g"}}]}', "[" * 100_000, "9" * 100_000,
     '{"migrations":[{"containerPath":[{"value":"s"}],"newGridElem":{"value":["g"]}}]}',
     '[{"path":3}]', '[{"path":null}]', '{"path":"s/g"}'],
)  # fmt: skip
def test_a_list_that_is_none_adapts_nothing(text: str) -> None:
    both = "".join(f'<migration version="{version}">{text}</migration>' for version in ("4.8.0", "2019.1.0"))
    assert keyed(replace(S_G_C, meta=META_2019 + both), "4.0.0") == ["s/g/c"]


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
    form = replace(S_G_C, binds=bind("s", bind("g", own)))
    keys = read_index_keys(form.document().encode(), "2019.1.0")
    assert keys == (() if expected is None else (IndexKey(expected, tuple(map(PathStep, expected.split("/")))),))


def test_a_document_without_a_form_model_has_no_keys_and_one_that_is_not_well_formed_is_damage() -> None:
    assert read_index_keys(b"<form/>", "4.0.0") == ()
    with pytest.raises(DamagedError):
        read_index_keys(b"<form>", "4.0.0")


def many(name: str, count: int, what: Callable[[str], str]) -> str:
    return "".join(what(f"{name}{number}") for number in range(count))


def indexed(name: str) -> str:
    return INPUT.replace('"c-', f'"{name}-')


SHOWN_OFTEN = many("s", 40, bind), many("s", 40, lambda name: section(name, use()))
TOO_MUCH = {
    "steps": Form(
        "<form/>",
        reduce(lambda binds, name: bind(name, binds), "stuvwxyz", many("c", 120, bind)),
        many("c", 120, indexed),
    ),
    "a template with controls that is shown too often": Form(
        "<form/>", *SHOWN_OFTEN, xbl=template("one", many("c", 30, bind), many("c", 30, indexed))
    ),
    "a template without binds that is shown too often": Form(
        "<form/>", *SHOWN_OFTEN, xbl=template("one", "", many("c", 30, indexed))
    ),
    "characters": Form("<form/>", bind("s" * 100, many("c", 50, bind)), many("c", 50, indexed)),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_form_that_would_have_too_much_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, cause = TOO_MUCH[name].document().encode(), "characters" if name == "characters" else "too many controls"
    assert read_index_keys(form, "4.0.0") or "without binds" in name
    monkeypatch.setattr(controls, "MOST_STEPS", 1000)
    monkeypatch.setattr(controls, "MOST_KEY_CHARACTERS", 5000)
    with pytest.raises(BadRequestError, match=cause):
        read_index_keys(form, "4.0.0")


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


# Marks that do not lead to exactly one path of a control: each is found, with its control and the reason


BINDS = bind("s", bind("x"))
MARK_NAMES = {
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


@pytest.mark.parametrize("mark", MARK_NAMES)
@pytest.mark.parametrize("name", CONTROLS)
def test_a_mark_without_one_path_has_no_effect(name: str, mark: str) -> None:
    start, binds, reason = CONTROLS[name]
    (cause,) = causes(form(marked(start, mark), binds))
    what = start.split(maxsplit=1)[0].partition(":")[2]
    assert cause.startswith(f"the mark {MARK_NAMES[mark]} of the element {what}")
    assert reason in cause
    assert "\n" not in cause


@pytest.mark.parametrize("mark", MARK_NAMES)
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


SHOWN = template("one", bind("c"), f"<xf:input {NAMED}><fr:encrypt/></xf:input>")
OUTER = template("two", bind("c"), use() + cell("c"))


@pytest.mark.parametrize(
    "shown",
    [
        Form("<form/>", "", section("s", use()), xbl=SHOWN),
        Form("<form/>", bind("s"), section("s", use(), CONTENT), xbl=SHOWN),
        Form("<form/>", bind("s").replace('ref="s"', 'ref="s[1]"'), section("s", use()), xbl=SHOWN),
        Form("<form/>", bind("s"), section("s", f"<fr:c>{use()}</fr:c>"), xbl=SHOWN),
        Form("<form/>", bind("s"), section("s", use("two")), xbl=SHOWN + OUTER),
        Form("<form/>", bind("s") + bind("t"), section("s", use()) + section("u", use()), xbl=SHOWN),
    ],
    ids=["no bind", "no iterations", "a bind that leads elsewhere", "no section", "in a template", "once of two"],
)
def test_a_mark_in_a_section_template_counts_where_the_section_has_data(shown: Form) -> None:
    (cause,) = causes(shown)
    assert cause.endswith("its section template is shown where it has no data")
    for fine in (Form("<form/>", xbl=SHOWN), Form("<form/>", bind("s"), section("s", use()), xbl=SHOWN)):
        assert causes(fine) == []


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


def test_only_so_many_are_reported_and_publishing_refuses_the_first_one() -> None:
    assert len(causes(form("<xf:input><fr:encrypt/></xf:input>" * (MOST_UNUSABLE + 5)))) == MOST_UNUSABLE
    both = form('<xf:input id="x-control"><fr:index/><fr:encrypt/></xf:input>')
    assert [each.is_encryption for each in unusable_marks(both.document().encode())] == [False, True]
    with pytest.raises(BadRequestError, match=r"<fr:index> of the element input .* has no effect: it has no bind"):
        published(both)


@pytest.mark.parametrize(
    "mark", [*MARK_NAMES, "<fr:summary-show/>", "<fr:default-sort-column/>", "<fr:allow-bulk-edit/>"]
)
def test_the_parser_of_a_definition_that_is_received_notices_each_mark(mark: str) -> None:
    for body, expected in ((marked(X, mark), True), (f"<{X}/>", False)):
        with MetadataReader() as reader:
            assert reader.read([form(body).document().encode()]).has_marks is expected
