"""Migration of definitions: the vectors of the specification, its rules, and real definitions."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree

from persistence.errors import BadRequestError, DamagedError
from persistence.forms.controls import read_controls
from persistence.forms.definition_tree import (
    DefinitionTree,
    Tree,
    control_name,
    is_content_repeat,
    is_legacy_repeat,
    is_plain_grid,
    is_repeated,
    on_tree,
)
from persistence.forms.migration import migrate, source_format
from persistence.model.versions import DATA_FORMATS
from tests.forms.vectors import (
    COMPONENT,
    META_4_8,
    META_2019,
    META_LEGACY,
    V1,
    V2,
    V7,
    V7_HALF,
    V8,
    VECTORS,
    Form,
    bind,
    cell,
    grid,
    infoset,
    section,
    template,
    use,
    without,
)

FR = "http://orbeon.org/oxf/xml/form-runner"
CONTENT = ' repeat="content"'


def migrated(form: Form, target: str) -> Form:
    """The slots of the result, as what stands in the four of them; the definition stays unpublished."""
    root = etree.fromstring(migrate(form.document().encode(), target, is_unpublished=True))
    model = root[0][0]
    binds = next(child for child in model if child.get("id") == "fr-form-binds")
    templates = [child for child in model if str(child.get("id")).endswith("-template")]
    return replace(
        form,
        data="".join(map(_text, model[0])),
        binds="".join(map(_text, binds)),
        body="".join(map(_text, root[1][0][0])),
        templates="".join(map(_text, templates)),
    )


def _text(element: etree._Element) -> str:
    """An element as it would stand in the envelope, where its prefixes are declared."""
    return re.sub(
        r' xmlns:(xh|xf|xxf|fr|fb|xbl)="[^"]*"', "", etree.tostring(element, encoding="unicode", with_tail=False)
    )


def created(release: str) -> str:
    return f"<created-with-version>{release}</created-with-version>"


def updated(release: str) -> str:
    return f"<updated-with-version>{release}</updated-with-version>"


def listed(release: str, inside: str = "[]") -> str:
    return f'<migration version="{release}">{inside}</migration>'


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ("", "4.8.0"),
        (created("2018.2.3.201905172253 PE"), "4.8.0"),
        (created("2018.2.3 PE") + updated("2020.1.2 PE"), "2019.1.0"),
        (created("2019.1.0.201910220207 PE"), "2019.1.0"),
        (created("2022.1-SNAPSHOT CE"), "2019.1.0"),
        (listed("4.8.0"), "4.8.0"),
        (created("2018.1 CE") + listed("4.8.0") + listed("2019.1.0"), "2019.1.0"),
        (created("4.7.0.201410092230 PE"), "4.0.0"),
        (created("4.10.1 CE") + updated("4.5.0 CE"), "4.8.0"),
        (created("3.9.1"), "4.8.0"),
        (created("2023"), "4.8.0"),
        (created("4.5.0 CE") + updated("4.6.0 CE") + updated("2021.1 PE"), "2019.1.0"),
        (created("4.7.0") + listed("4.0.0") + listed("2020.1.0"), "4.0.0"),
        (created("  4.7.0\n") + updated("") + updated(" "), "4.0.0"),
        ("".join(map(created, ("x.y.z", "v4.9", "4.٩", "4..9", "+4.9", "9" * 20 + ".1"))) + updated("4.1"), "4.0.0"),
        (listed("2019.1.0", " <!-- x --> "), "4.8.0"),
        (listed("2019.1.0", '[{"path": '), "2019.1.0"),
        ('<created-with-version xmlns="urn:x">2023.1</created-with-version>', "4.8.0"),
        (created(f"4.8.{'.' * 3_000_000}"), "4.8.0"),
    ],
    ids=range(19),
)
def test_the_source_format_is_that_of_the_newest_release_named(meta: str, expected: str) -> None:
    """By a blank list of grids none is named; and a text is not split further than it is read."""

    def work(tree: Tree) -> str:
        definition = DefinitionTree.read(tree)
        assert definition is not None
        return source_format(definition)

    assert on_tree(Form("<form/>", meta=meta).document().encode(), work) == expected


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        *(("main-grid", "main"), ("grid-1-grid", "grid-1")),
        *((f"a-{suffix}", "a") for suffix in ("control", "bind", "section", "template", "repeat")),
        *((each, None) for each in ("fb-body", "-grid", "grid", "a-grid-", "", None)),
    ],
)
def test_the_name_is_the_id_without_its_last_suffix(identifier: str | None, name: str | None) -> None:
    element = etree.Element("x")
    if identifier is not None:
        element.set("id", identifier)
    assert control_name(element) == name


@pytest.mark.parametrize(
    ("tag", "attributes", "kind"),
    [
        ("grid", {}, "plain"),
        ("grid", {"repeat": "false"}, "plain"),
        ("grid", {"repeat": "maybe"}, "plain"),
        ("grid", {"repeat": "content"}, "content"),
        ("grid", {"repeat": "content", "min": "1"}, "content"),
        ("grid", {"repeat": "true"}, "legacy"),
        ("grid", {"repeat": "false", "min": "0"}, "legacy"),
        *(("grid", {name: value}, "legacy") for name, value in (("min", ""), ("max", "1"))),
        *(("grid", {name: "1"}, "legacy") for name in ("minOccurs", "maxOccurs")),
        ("section", {}, "section"),
        ("section", {"repeat": "content"}, "content"),
        ("section", {"max": "2"}, "legacy"),
    ],
)
def test_a_grid_or_section_repeats_by_its_attributes(tag: str, attributes: dict[str, str], kind: str) -> None:
    element = etree.Element(f"{{{FR}}}{tag}", attributes)
    assert is_content_repeat(element) == (kind == "content")
    assert is_legacy_repeat(element) == (kind == "legacy")
    assert is_repeated(element) == (kind in {"content", "legacy"})
    assert is_plain_grid(element) == (kind == "plain")


def unbound(name: str, cells: str) -> str:
    return f'<fr:grid id="{name}-grid">{cells}</fr:grid>'


A, B, G_A = cell("a"), cell("b"), grid("g", cell("a"))
BINDS_A = bind("s", bind("g", bind("a")))
EMPTY = Form("<form><s><g/></s></form>", bind("s", bind("g")), section("s", grid("g", "")))
ALONE = Form("<form><g><a>1</a></g></form>", bind("g", bind("a")), G_A)
NESTED = Form(
    "<form><s><g1><g2><b/></g2><a/></g1></s></form>",
    bind("s", bind("g1", bind("g2", bind("b")) + bind("a"))),
    section("s", grid("g1", A + f"<fr:c>{grid('g2', B)}</fr:c>")),
)
TWO_IN_A_CELL = '<fr:c><xf:input id="a-control" bind="a-bind"/><xf:input id="b-control" bind="b-bind"/></fr:c>'
WHO = section("who", use("contact"), CONTENT)
IN_V3 = VECTORS["V3 the same to 4.0.0"].expected

DOWN_AND_UP = {
    "a grid in the body, whose container is the data root": (
        ALONE,
        {"data": "<form><a>1</a></form>", "binds": bind("a"), "body": unbound("g", A)},
    ),
    "grids in grids, from the inside out and from the outside in": (
        NESTED,
        {
            "data": "<form><s><a/><b/></s></form>",
            "binds": bind("s", bind("b") + bind("a")),
            "body": without(NESTED.body, ' bind="g1-bind"', ' bind="g2-bind"'),
        },
    ),
}
"""Forms in 2019.1.0, and what stands in their slots in 4.8.0."""

RULES: dict[str, tuple[Form, str, dict[str, str]]] = {
    **{f"{name}, down": (form, "4.8.0", slots) for name, (form, slots) in DOWN_AND_UP.items()},
    **{
        f"{name}, up": (
            replace(form, **slots, meta=META_4_8),
            "2019.1.0",
            {slot: getattr(form, slot) for slot in slots},
        )
        for name, (form, slots) in DOWN_AND_UP.items()
    },
    "a second control in a cell": (
        Form(
            "<form><s><g><b/><!-- why --><a/></g></s></form>",
            bind("s", bind("g", bind("a") + bind("b"))),
            section("s", grid("g", TWO_IN_A_CELL)),
        ),
        "4.8.0",
        {"data": "<form><s><a/><b/><!-- why --></s></form>", "binds": bind("s", bind("a") + bind("b"))},
    ),
    "the bind of a grid is looked up by its name": (
        Form(
            "<form><s><g><a/></g></s></form>",
            BINDS_A,
            section("s", f'<fr:grid id="g-grid" bind="o-bind">{A}</fr:grid>'),
        ),
        "4.8.0",
        {"data": "<form><s><a/></s></form>", "binds": bind("s", bind("a")), "body": section("s", unbound("g", A))},
    ),
    "a grid that has only data": (
        Form("<form><s><g><a/></g></s></form>", bind("s", bind("a")), section("s", G_A)),
        "4.8.0",
        {"data": "<form><s><a/></s></form>", "binds": bind("s", bind("a"))},
    ),
    "a section template that is not inlined": (
        replace(V8, xbl=""),
        "4.0.0",
        {"data": V8.data.replace("<mg><ref-no>7</ref-no></mg>", "<ref-no>7</ref-no>")},
    ),
    "a section template that uses itself": (
        replace(V8, xbl=V8.xbl.replace("<xf:group>", f"<xf:group>{section('again', use('contact'))}")),
        "4.8.0",
        {"data": without(VECTORS["V8 section template"].expected.data, ' fr:data-format-version="4.8.0"')},
    ),
    "a grid in a legacy repeated grid": (
        Form(
            "<form><s><r><b/></r><r><b/></r></s></form>",
            bind("s", bind("r", bind("b"))),
            section("s", grid("r", f"<fr:c>{unbound('g', B)}</fr:c>", ' repeat="true"')),
            meta=META_LEGACY,
        ),
        "2019.1.0",
        {
            "data": f"<form><s><r>{'<r-iteration><g><b/></g></r-iteration>' * 2}</r></s></form>",
            "binds": bind("s", bind("r", bind("r-iteration", bind("g", bind("b"))))),
        },
    ),
    "binds of a grid's controls that are elsewhere": (
        Form(
            "<form><s/><t><a/></t></form>",
            bind("s") + bind("t", bind("a")),
            section("s", unbound("g", A)),
            meta=META_4_8,
        ),
        "2019.1.0",
        {"data": "<form><s><g/></s><t><a/></t></form>", "binds": bind("s", bind("g")) + bind("t", bind("a"))},
    ),
    "text in a grid goes with it, and text behind it stays": (
        replace(EMPTY, data="<form><s>1<g>lost<a/>lost</g>2<g/>3</s></form>"),
        "4.8.0",
        {"data": "<form><s>1<a/>23</s></form>"},
    ),
    "binds that use nodeset": (
        replace(V2, binds=V2.binds.replace("ref=", "nodeset=")),
        "4.0.0",
        {
            "data": without(IN_V3.data, ' fr:data-format-version="4.0.0"'),
            "binds": IN_V3.binds.replace("ref=", "nodeset="),
            "body": IN_V3.body,
        },
    ),
    "no iteration is nothing in 4.0.0": (
        replace(V2, data="<form><trip><top><code/></top><legs/><bottom><note/></bottom></trip></form>"),
        "4.0.0",
        {"data": "<form><trip><code/><note/></trip></form>"},
    ),
    "no iteration is an empty wrapper since": (
        replace(V7, data="<form><list><head/></list></form>"),
        "4.8.0",
        {"data": "<form><list><head/><row/></list></form>"},
    ),
    "iterations keep attributes and content whatever they are called": (
        replace(
            V2, data='<form><trip><legs x="1"><odd y="2">t<dest/><!-- c --></odd><legs-iteration/></legs></trip></form>'
        ),
        "4.0.0",
        {"data": '<form><trip><legs y="2">t<dest/><!-- c --></legs><legs/></trip></form>'},
    ),
}
"""Definitions, the format that is asked for, and what then stands in some of their slots."""


@pytest.mark.parametrize("name", RULES)
def test_rules_of_migration(name: str) -> None:
    form, target, slots = RULES[name]
    result = migrated(form, target)
    for slot, expected in slots.items():
        assert infoset(Form(f"<x>{getattr(result, slot)}</x>").document()) == infoset(
            Form(f"<x>{expected}</x>").document()
        )


UNNAMED = Form("<form><s><a/></s></form>", bind("s", bind("a")))
NO_BIND = Form("<form><s><r><it><a/></it></r></s></form>", bind("s"), section("s", grid("r", A, CONTENT)))
IN_DIALOG = section("s", f"<xxf:dialog>{G_A}</xxf:dialog>")
UNCHANGED = {
    **{
        f"a grid whose name cannot be used{identifier}, to {target}": (
            replace(UNNAMED, body=section("s", f"<fr:grid{identifier}>{A}</fr:grid>"), meta=meta),
            target,
        )
        for identifier in ("", ' id="odd"', ' id="a b-grid"', ' id="1-grid"', ' id="{u}x-grid"')
        for meta, target in ((META_2019, "4.0.0"), (META_4_8, "2019.1.0"))
    },
    "a repeated grid without a bind, down": (NO_BIND, "4.0.0"),
    "a repeated grid without a bind, up": (replace(NO_BIND, meta=META_LEGACY), "2019.1.0"),
    "a repeated section without an iteration": (
        replace(V8, data="<form><who><cgrid><mail/></cgrid></who></form>", binds=bind("who"), body=WHO),
        "4.8.0",
    ),
    "a form that is in 2019.1.0 without saying so": (replace(V1, meta=""), "2019.1.0"),
    "a grid in a dialog": (Form("<form><s><g><a/></g></s></form>", BINDS_A, IN_DIALOG), "4.8.0"),
    "a repeated grid in a dialog": (
        Form(
            "<form><s><g><i><a/></i></g></s></form>",
            bind("s", bind("g", bind("i", bind("a")))),
            IN_DIALOG.replace('bind="g-bind"', f'bind="g-bind"{CONTENT}'),
        ),
        "4.0.0",
    ),
    "a legacy repeat whose bind has no iterations": (replace(V7, meta=META_4_8), "4.0.0"),
    "a legacy repeat that has been migrated": (
        replace(V7_HALF, data=without(V7_HALF.data, ' fr:data-format-version="4.8.0"')),
        "4.8.0",
    ),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_is_not_migrated(name: str) -> None:
    form, target = UNCHANGED[name]
    assert infoset(migrated(form, target).document()) == infoset(form.document())


def test_the_body_is_that_of_the_form_or_the_group_of_a_designers_working_copy() -> None:
    document = V1.document()
    for stored in (
        document.replace("<fr:view>", "<fr:grid><fr:body/></fr:grid><fr:view>"),
        document.replace("<fr:body>", '<xf:group id="fb-body">').replace("</fr:body>", "</xf:group>"),
    ):
        assert b"<person><first-name>Ada" in migrate(stored.encode(), "4.8.0", is_unpublished=True)


def test_migration_elements_stay_although_they_describe_the_stored_format() -> None:
    meta = listed("2019.1.0", '{"migrations":[]}')
    stored = replace(V1, meta=META_2019 + meta).document().encode()
    assert meta.encode() in migrate(stored, "4.8.0", is_unpublished=False)


def of_leaf(control: str, more: str = "") -> Form:
    """A repeated grid with one control, and a template to be filled."""
    view = grid("r", f'<fr:c><{control} id="a-control" bind="a-bind"/></fr:c>', CONTENT)
    return Form("<form><r/></form>", bind("r", bind("it", bind("a") + more)), view, "<xf:instance id='r-template'/>")


def of_iterations(iterations: str) -> Form:
    """A repeated grid in a repeated section, which begins with as many iterations as the data has first."""
    return Form(
        f"<form><s><it><r>{iterations}</r></it><it><r><i/><i/></r></it></s></form>",
        bind("s", bind("it", bind("r", bind("i")))),
        section("s", grid("r", "", f'{CONTENT} fb:initial-iterations="first"'), CONTENT),
        "<xf:instance id='s-template'/>",
    )


TEMPLATES = {
    "author's own": (
        replace(V2, templates="<xf:instance id='my-template'><x y='1'>t</x></xf:instance>"),
        "<x y='1'>t</x>",
    ),
    "of a section that does not repeat": (
        replace(V2, templates="<xf:instance id='trip-template'><x/></xf:instance>"),
        "<x/>",
    ),
    "leaves keep attributes and text": (
        replace(V2, templates="<xf:instance id='legs-template'><it a='b'><dest c='d'>e</dest></it></xf:instance>"),
        "<legs-iteration><dest c='d'>e</dest></legs-iteration>",
    ),
    "new leaves are empty": (
        replace(V2, templates="<xf:instance id='legs-template'/>"),
        "<legs-iteration><dest/></legs-iteration>",
    ),
    **{
        f"a new leaf of {control}": (of_leaf(control), f"<it>{leaf}</it>")
        for control, leaf in {
            "fr:attachment": "<a filename='' mediatype='' size='' hash-algorithm='' hash-value=''/>",
            'fr:attachment multiple="true"': "<a/>",
            "fr:image-attachment": "<a filename='' mediatype='' size=''/>",
            "fr:video-attachment": "<a filename='' mediatype='' size=''/>",
            "fr:image": "<a filename='' mediatype=''/>",
            "fr:video": "<a filename='' mediatype=''/>",
            "fr:checkbox-input": "<a>false</a>",
            "xf:input": "<a/>",
        }.items()
    },
    "binds to attributes and to the same node": (
        of_leaf("xf:input", '<xf:bind id="x-bind" ref="@x" name="x"/><xf:bind id="y-bind" ref="." name="y"/>'),
        "<it x=''><a/></it>",
    ),
    **{
        f"first {count} iterations": (of_iterations("<i/>" * count), f"<it><r>{'<i/>' * count}</r></it>")
        for count in (0, 1, 3)
    },
}
"""Definitions with one template, and what this holds then, in 2019.1.0."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_repeats_are_rebuilt_and_no_others(name: str) -> None:
    form, content = TEMPLATES[name]
    assert infoset(inside(migrated(form, "2019.1.0").templates)) == infoset(content)


def inside(template: str) -> str:
    return template[template.index(">") + 1 : template.rindex("<")]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_initial_iterations_in_4_0_0_have_no_wrapper(count: int) -> None:
    result = migrated(of_iterations("<i/>" * count), "4.0.0")
    assert infoset(inside(result.templates)) == infoset(f"<it>{'<r/>' * count}</it>")


@pytest.mark.parametrize(
    "document",
    [
        b"<form/>",
        V1.document().replace("fr-form-model", "other").encode(),
        V1.document().replace('"fr-form-instance"', '"other"').encode(),
        V1.document().replace("xhtml", "html").encode(),
        b"<?xml version='1.0'  encoding='ISO-8859-1' ?><r  x = '\xe9'/>\n",
    ],
)
def test_what_has_no_form_model_or_instance_comes_back_as_it_is(document: bytes) -> None:
    assert migrate(document, "4.8.0", is_unpublished=False) == document


def test_what_is_around_the_root_survives_and_what_is_not_well_formed_is_damage() -> None:
    stored = f"<?a b?><!-- c -->{V1.document()}<!-- d -->".encode()
    result = migrate(stored, "4.8.0", is_unpublished=False)
    assert result.startswith(b"<?xml version='1.0' encoding='UTF-8'?>\n<?a b?><!-- c --><xh:html")
    assert result.endswith(b"</xh:html><!-- d -->")
    with pytest.raises(DamagedError):
        migrate(b"<r>", "4.8.0", is_unpublished=False)


def test_templates_times_sections_do_not_multiply_without_bound() -> None:
    many = range(1000)
    grids = "".join(f'<fr:grid id="g{n}-grid"/>' for n in many)
    form = Form(
        "<form>" + "".join(f"<s{n}/>" for n in many) + "</form>",
        "".join(bind(f"s{n}") for n in many),
        "".join(section(f"s{n}", use("contact")) for n in many),
        meta=META_4_8,
        xbl=template("contact", "", grids),
    )
    with pytest.raises(BadRequestError, match="multiply"):
        migrated(form, "2019.1.0")
    assert migrated(replace(form, meta=META_2019), "4.0.0").data == form.data


def test_steps_to_the_elements_around_do_not_multiply_without_bound() -> None:
    """An attack: each of many grids looks for the path of a bind that lies deep in others."""
    deep = '<xf:bind id="b-bind" ref="b" name="b">' * 200 + "</xf:bind>" * 200
    grids = "".join(f'<fr:grid id="g{each}-grid" bind="b-bind" repeat="content"/>' for each in range(30_000))
    nested = '<fr:section id="s-section">' * 180 + grids + "</fr:section>" * 180
    with pytest.raises(BadRequestError, match="nested"):
        migrate(Form("<form/>", deep, nested).document().encode(), "4.0.0", is_unpublished=False)


def test_a_binding_inside_another_is_no_section_template() -> None:
    """Each element is in one template at most: 120 bindings around each other took 2.5 GB."""
    inner = V8.xbl.partition("<xbl:binding")[1] + V8.xbl.partition("<xbl:binding")[2].rpartition("</xbl:binding>")[0]
    outer = "<xbl:binding class='fr-section-component' element='o|uter' xmlns:o='urn:o'><xbl:template>"
    form = replace(V8, xbl=f"<xbl:xbl>{outer}{inner}</xbl:binding></xbl:template></xbl:binding></xbl:xbl>")

    def templates(tree: Tree) -> list[str]:
        definition = DefinitionTree.read(tree)
        return list(definition.templates)

    assert on_tree(V8.document().encode(), templates) == [f"{{{COMPONENT}}}contact"]
    assert on_tree(form.document().encode(), templates) == ["{urn:o}uter"]


# The vectors of spec forms 1.12, each compared as a whole document


@pytest.mark.parametrize("name", VECTORS)
def test_a_definition_comes_out_as_the_specification_says(name: str) -> None:
    vector = VECTORS[name]
    result = migrate(vector.form.document().encode(), vector.target, is_unpublished=vector.is_unpublished)
    assert infoset(result) == infoset(vector.expected.document())


def unprefixed(document: str) -> str:
    """The document with XHTML as the default namespace, which data then has to undeclare."""
    document = document.replace("xmlns:xh=", "xmlns=").replace("xh:", "").replace("<metadata>", '<metadata xmlns="">')
    document = document.replace("<form>", '<form xmlns="">').replace("<form fr:", '<form xmlns="" fr:')
    return re.sub(r'(<xf:instance id="[^"]*-template"[^>]*>)<([^ />]+)', r'\1<\2 xmlns=""', document)


@pytest.mark.parametrize("name", VECTORS)
def test_it_does_not_matter_which_prefixes_a_definition_uses(name: str) -> None:
    vector = VECTORS[name]
    stored, expected = unprefixed(vector.form.document()), unprefixed(vector.expected.document())
    assert infoset(stored) == infoset(vector.form.document())
    assert infoset(migrate(stored.encode(), vector.target, is_unpublished=vector.is_unpublished)) == infoset(expected)


def test_section_templates_stay_byte_for_byte() -> None:
    stored = etree.tostring(etree.fromstring(V8.document()))
    templates = stored[stored.index(b"<xbl:xbl>") : stored.index(b"</xbl:xbl>")]
    assert templates in migrate(stored, "4.0.0", is_unpublished=False)


# Real definitions, where there are some beside the project: each can be migrated and its controls listed


VIEW = "{http://www.w3.org/1999/xhtml}body"


def ids(document: bytes) -> list[str | None]:
    body = etree.fromstring(document).find(VIEW)
    return [element.get("id") for element in body.iter("*")]


def test_real_definitions_migrate_to_every_format_with_their_names_and_the_paths_of_their_controls(
    corpus: Path,
) -> None:
    """A repeat without iterations, or a section without data, has no values to find in the inline data."""
    found = total = 0
    for path in sorted(corpus.rglob("form.xhtml")):
        stored = path.read_bytes()
        controls = read_controls(stored)
        assert controls
        assert len({(control.name, control.path("2019.1.0")) for control in controls}) == len(controls)
        for target in DATA_FORMATS:
            result = migrate(stored, target, is_unpublished=False)
            assert ids(result) == ids(stored), path
            data = etree.fromstring(result).find(".//{*}instance[@id='fr-form-instance']/*")
            there = [data.find("/".join(control.path(target))) is not None for control in read_controls(result)]
            found, total = found + sum(there), total + len(there)
    assert found >= total * 0.9


def test_unpublished_definitions_migrate_too(corpus: Path) -> None:
    for path in sorted(corpus.glob("*/builder/data/*/data.xml")):
        stored = path.read_bytes()
        for target in DATA_FORMATS:
            assert ids(migrate(stored, target, is_unpublished=True)) == ids(stored), path
