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
from tests.forms.infosets import infoset
from tests.forms.vectors import (
    COMPONENT,
    META_4_8,
    META_2019,
    META_LEGACY,
    V1,
    V2,
    V7,
    V8,
    VECTORS,
    Form,
    bind,
    cell,
    grid,
    section,
)

FR = "http://orbeon.org/oxf/xml/form-runner"


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


def same(one: Form, other: Form) -> bool:
    return infoset(one.document()) == infoset(other.document())


def binds_are(form: Form, binds: str) -> bool:
    return same(Form("<form/>", form.binds), Form("<form/>", binds))


def template_is(form: Form, content: str) -> bool:
    """Return whether the only template of a form has this content, with any attributes."""
    before, after = form.templates.index(">") + 1, form.templates.rindex("<")
    return infoset(form.templates[before:after]) == infoset(content)


RELEASES = [
    ([], [], [], "4.8.0"),
    (["2018.2.3.201905172253 PE"], [], [], "4.8.0"),
    (["2018.2.3 PE"], ["2020.1.2 PE"], [], "2019.1.0"),
    (["2019.1.0.201910220207 PE"], [], [], "2019.1.0"),
    (["2022.1-SNAPSHOT CE"], [], [], "2019.1.0"),
    ([], [], ["4.8.0"], "4.8.0"),
    (["2018.1 CE"], [], ["4.8.0", "2019.1.0"], "2019.1.0"),
    (["4.7.0.201410092230 PE"], [], [], "4.0.0"),
    (["4.10.1 CE"], ["4.5.0 CE"], [], "4.8.0"),
    (["3.9.1"], [], [], "4.8.0"),
    (["2023"], [], [], "4.8.0"),
    (["4.5.0 CE"], ["4.6.0 CE", "2021.1 PE"], [], "2019.1.0"),
    (["4.7.0"], [], ["4.0.0", "2020.1.0"], "4.0.0"),
    (["  4.7.0\n"], ["", " "], [], "4.0.0"),
    (["x.y.z", "v4.9", "4.٩", "4..9", "+4.9", "99999999999999999999.1"], ["4.1"], [], "4.0.0"),
]


@pytest.mark.parametrize(("created", "updated", "migration", "expected"), RELEASES)
def test_the_source_format_is_that_of_the_newest_release_named(
    created: list[str], updated: list[str], migration: list[str], expected: str
) -> None:
    meta = (
        "".join(f"<created-with-version>{text}</created-with-version>" for text in created)
        + "".join(f"<updated-with-version>{text}</updated-with-version>" for text in updated)
        + "".join(f'<migration version="{version}">[]</migration>' for version in migration)
    )
    assert source(Form("<form/>", meta=meta)) == expected


def source(form: Form) -> str:
    def work(tree: Tree) -> str:
        definition = DefinitionTree.read(tree)
        assert definition is not None
        return source_format(definition)

    return on_tree(form.document().encode(), work)


def test_a_blank_migration_element_names_no_release() -> None:
    assert source(Form("<form/>", meta='<migration version="2019.1.0"> <!-- x --> </migration>')) == "4.8.0"


def test_what_a_migration_element_says_is_not_read() -> None:
    assert source(Form("<form/>", meta='<migration version="2019.1.0">[{"path": </migration>')) == "2019.1.0"


def test_metadata_in_another_namespace_is_none() -> None:
    meta = '<created-with-version xmlns="urn:x">2023.1</created-with-version>'
    assert source(Form("<form/>", meta=meta)) == "4.8.0"


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("main-grid", "main"),
        ("grid-1-grid", "grid-1"),
        ("a-control", "a"),
        ("a-bind", "a"),
        ("a-section", "a"),
        ("a-template", "a"),
        ("a-repeat", "a"),
        ("fb-body", None),
        ("-grid", None),
        ("grid", None),
        ("a-grid-", None),
        ("", None),
        (None, None),
    ],
)
def test_the_name_is_the_id_without_its_last_suffix(identifier: str | None, name: str | None) -> None:
    element = etree.Element("x")
    if identifier is not None:
        element.set("id", identifier)
    assert control_name(element) == name


PREDICATES = [
    ("grid", {}, "plain"),
    ("grid", {"repeat": "false"}, "plain"),
    ("grid", {"repeat": "maybe"}, "plain"),
    ("grid", {"repeat": "content"}, "content"),
    ("grid", {"repeat": "content", "min": "1"}, "content"),
    ("grid", {"repeat": "true"}, "legacy"),
    ("grid", {"repeat": "false", "min": "0"}, "legacy"),
    ("grid", {"min": ""}, "legacy"),
    ("grid", {"max": "1"}, "legacy"),
    ("grid", {"minOccurs": "1"}, "legacy"),
    ("grid", {"maxOccurs": "1"}, "legacy"),
    ("section", {}, "section"),
    ("section", {"repeat": "content"}, "content"),
    ("section", {"max": "2"}, "legacy"),
]


@pytest.mark.parametrize(("tag", "attributes", "kind"), PREDICATES)
def test_a_grid_or_section_repeats_by_its_attributes(tag: str, attributes: dict[str, str], kind: str) -> None:
    element = etree.Element(f"{{{FR}}}{tag}", attributes)
    assert is_content_repeat(element) == (kind == "content")
    assert is_legacy_repeat(element) == (kind == "legacy")
    assert is_repeated(element) == (kind in {"content", "legacy"})
    assert is_plain_grid(element) == (kind == "plain")


KIDS = Form(
    "<form><kids><kid><g><b>2</b><a>1</a></g></kid><kid><g><a>3</a><b/></g></kid></kids></form>",
    bind("kids", bind("kid", bind("g", bind("a") + bind("b")))),
    section("kids", grid("g", cell("a") + cell("b")), ' repeat="content"'),
)


def test_grids_in_a_repeated_section_are_migrated_in_every_iteration_into_the_order_of_cells() -> None:
    assert same(
        migrated(KIDS, "4.8.0"),
        Form(
            "<form><kids><kid><a>1</a><b>2</b></kid><kid><a>3</a><b/></kid></kids></form>",
            bind("kids", bind("kid", bind("a") + bind("b"))),
            KIDS.body.replace(' bind="g-bind"', ""),
        ),
    )


EMPTY = Form("<form><s><g/></s></form>", bind("s", bind("g")), section("s", grid("g", "")))
EMPTY_DOWN = Form("<form><s/></form>", bind("s"), section("s", '<fr:grid id="g-grid"/>'))


def test_a_grid_without_controls_disappears_and_comes_back_empty() -> None:
    assert same(migrated(EMPTY, "4.8.0"), EMPTY_DOWN)
    assert same(migrated(replace(EMPTY_DOWN, meta=META_4_8), "2019.1.0"), replace(EMPTY, meta=META_4_8))


def test_a_second_control_in_a_cell_is_not_lost() -> None:
    both = '<fr:c><xf:input id="a-control" bind="a-bind"/><xf:input id="b-control" bind="b-bind"/></fr:c>'
    form = Form(
        "<form><s><g><b/><!-- why --><a/></g></s></form>",
        bind("s", bind("g", bind("a") + bind("b"))),
        section("s", grid("g", both)),
    )
    result = migrated(form, "4.8.0")
    assert result.data == "<form><s><a/><b/><!-- why --></s></form>"
    assert binds_are(result, bind("s", bind("a") + bind("b")))


@pytest.mark.parametrize("identifier", ["", ' id="odd"', ' id="a b-grid"', ' id="1-grid"', ' id="{u}x-grid"'])
def test_a_grid_without_a_usable_name_is_skipped(identifier: str) -> None:
    form = Form(
        "<form><s><a/></s></form>", bind("s", bind("a")), section("s", f"<fr:grid{identifier}>{cell('a')}</fr:grid>")
    )
    for meta, target in ((META_2019, "4.0.0"), (META_4_8, "2019.1.0")):
        assert same(migrated(replace(form, meta=meta), target), replace(form, meta=meta))


def test_a_grid_directly_in_the_body_has_the_data_root_as_its_container() -> None:
    form = Form("<form><g><a>1</a></g></form>", bind("g", bind("a")), grid("g", cell("a")))
    down = Form("<form><a>1</a></form>", bind("a"), f'<fr:grid id="g-grid">{cell("a")}</fr:grid>')
    assert same(migrated(form, "4.8.0"), down)
    assert same(migrated(replace(down, meta=META_4_8), "2019.1.0"), replace(form, meta=META_4_8))


def test_the_bind_of_a_grid_is_looked_up_by_its_name() -> None:
    form = Form(
        "<form><s><g><a/></g></s></form>",
        bind("s", bind("g", bind("a"))),
        section("s", f'<fr:grid id="g-grid" bind="other-bind">{cell("a")}</fr:grid>'),
    )
    result = migrated(form, "4.8.0")
    assert result.data == "<form><s><a/></s></form>"
    assert binds_are(result, bind("s", bind("a")))
    assert "other-bind" not in result.body


def test_a_grid_that_has_only_data_loses_its_element() -> None:
    form = Form("<form><s><g><a/></g></s></form>", bind("s", bind("a")), section("s", grid("g", cell("a"))))
    result = migrated(form, "4.8.0")
    assert result.data == "<form><s><a/></s></form>"
    assert binds_are(result, bind("s", bind("a")))


@pytest.mark.parametrize(("meta", "target"), [(META_2019, "4.0.0"), (META_LEGACY, "2019.1.0")])
def test_a_repeated_grid_without_a_bind_stays(meta: str, target: str) -> None:
    body = section("s", grid("r", cell("a"), ' repeat="content"'))
    form = Form("<form><s><r><it><a/></it></r></s></form>", bind("s"), body, meta=meta)
    assert same(migrated(form, target), form)


@pytest.mark.parametrize("target", ["4.8.0", "4.0.0"])
def test_the_data_of_a_section_template_that_is_not_inlined_stays(target: str) -> None:
    result = migrated(replace(V8, xbl=""), target)
    assert "<who><cgrid><mail>x@y</mail></cgrid><tels><tels-iteration>" in result.data
    assert "<main><ref-no>" in result.data


def test_each_iteration_of_a_repeated_section_has_its_own_section_template() -> None:
    form = replace(
        V8,
        data="<form><who><one><cgrid><mail>1</mail></cgrid></one><one><cgrid><mail>2</mail></cgrid></one></who></form>",
        binds=bind("who", bind("one")),
        body=section("who", f'<component:contact xmlns:component="{COMPONENT}"/>', ' repeat="content"'),
    )
    assert migrated(form, "4.8.0").data == (
        "<form><who><one><mail>1</mail></one><one><mail>2</mail></one></who></form>"
    )


def test_a_repeated_section_without_an_iteration_leaves_the_data_of_its_section_template() -> None:
    body = section("who", f'<component:contact xmlns:component="{COMPONENT}"/>', ' repeat="content"')
    form = replace(V8, data="<form><who><cgrid><mail/></cgrid></who></form>", binds=bind("who"), body=body)
    assert migrated(form, "4.8.0").data == form.data


NESTED = Form(
    "<form><s><g1><g2><b/></g2><a/></g1></s></form>",
    bind("s", bind("g1", bind("g2", bind("b")) + bind("a"))),
    section("s", grid("g1", cell("a") + f"<fr:c>{grid('g2', cell('b'))}</fr:c>")),
)


def test_grids_in_grids_are_dissolved_from_the_inside_out_and_made_from_the_outside_in() -> None:
    down = replace(
        NESTED,
        data="<form><s><a/><b/></s></form>",
        binds=bind("s", bind("b") + bind("a")),
        body=NESTED.body.replace(' bind="g1-bind"', "").replace(' bind="g2-bind"', ""),
    )
    assert same(migrated(NESTED, "4.8.0"), down)
    assert same(migrated(replace(down, meta=META_4_8), "2019.1.0"), replace(NESTED, meta=META_4_8))


def test_a_grid_in_a_legacy_repeated_grid_goes_into_its_iterations() -> None:
    inner = f'<fr:grid id="g-grid">{cell("b")}</fr:grid>'
    form = Form(
        "<form><s><r><b/></r><r><b/></r></s></form>",
        bind("s", bind("r", bind("b"))),
        section("s", grid("r", f"<fr:c>{inner}</fr:c>", ' repeat="true"')),
        meta=META_LEGACY,
    )
    result = migrated(form, "2019.1.0")
    iteration = "<r-iteration><g><b/></g></r-iteration>"
    assert result.data == f"<form><s><r>{iteration * 2}</r></s></form>"
    assert binds_are(result, bind("s", bind("r", bind("r-iteration", bind("g", bind("b"))))))


def test_binds_of_a_grids_controls_that_are_elsewhere_stay_there() -> None:
    form = Form(
        "<form><s/><t><a/></t></form>",
        bind("s") + bind("t", bind("a")),
        section("s", f'<fr:grid id="g-grid">{cell("a")}</fr:grid>'),
        meta=META_4_8,
    )
    result = migrated(form, "2019.1.0")
    assert result.data == "<form><s><g/></s><t><a/></t></form>"
    assert binds_are(result, bind("s", bind("g")) + bind("t", bind("a")))


def test_a_form_that_is_in_2019_1_0_without_saying_so_is_not_wrapped_again() -> None:
    form = replace(V1, meta="")
    assert same(migrated(form, "2019.1.0"), form)


def test_text_in_a_grid_goes_with_it_and_text_behind_it_stays() -> None:
    form = replace(EMPTY, data="<form><s>1<g>lost<a/>lost</g>2<g/>3</s></form>")
    assert migrated(form, "4.8.0").data == "<form><s>1<a/>23</s></form>"


def test_the_body_of_the_form_is_not_that_of_a_grid() -> None:
    stored = V1.document().replace("<fr:view>", "<fr:grid><fr:body/></fr:grid><fr:view>")
    assert b"<person><first-name>Ada" in migrate(stored.encode(), "4.8.0", is_unpublished=True)


def test_binds_may_use_nodeset() -> None:
    form = replace(V2, binds=V2.binds.replace("ref=", "nodeset="))
    expected = migrated(V2, "4.0.0")
    assert same(migrated(form, "4.0.0"), replace(expected, binds=expected.binds.replace("ref=", "nodeset=")))


def test_migration_elements_stay_although_they_describe_the_stored_format() -> None:
    meta = META_2019 + '<migration version="2019.1.0">{"migrations":[]}</migration>'
    stored = replace(V1, meta=meta).document().encode()
    assert b'<migration version="2019.1.0">{"migrations":[]}</migration>' in migrate(
        stored, "4.8.0", is_unpublished=False
    )


def test_neighbouring_new_grids_keep_their_order() -> None:
    names = ["g1", "g2", "g3"]
    form = Form(
        "<form><s>" + "".join(f"<c-{name}/>" for name in names) + "</s></form>",
        bind("s", "".join(bind(f"c-{name}") for name in names)),
        section("s", "".join(f'<fr:grid id="{name}-grid">{cell(f"c-{name}")}</fr:grid>' for name in names)),
        meta=META_4_8,
    )
    result = migrated(form, "2019.1.0")
    assert result.data == "<form><s>" + "".join(f"<{name}><c-{name}/></{name}>" for name in names) + "</s></form>"
    assert binds_are(result, bind("s", "".join(bind(name, bind(f"c-{name}")) for name in names)))


def test_grids_in_a_dialog_are_ignored() -> None:
    body = section("s", f"<xxf:dialog>{grid('g', cell('a'))}</xxf:dialog>")
    form = Form("<form><s><g><a/></g></s></form>", bind("s", bind("g", bind("a"))), body)
    assert same(migrated(form, "4.8.0"), form)
    repeated = grid("r", cell("a"), ' repeat="content"')
    body = section("s", f"<xxf:dialog>{repeated}</xxf:dialog>")
    form = Form("<form><s><r><i><a/></i></r></s></form>", bind("s", bind("r", bind("i", bind("a")))), body)
    assert same(migrated(form, "4.0.0"), form)


def test_the_group_of_a_designers_working_copy_is_a_body() -> None:
    stored = V1.document().replace("<fr:body>", '<xf:group id="fb-body">').replace("</fr:body>", "</xf:group>")
    assert b"<person><first-name>Ada" in migrate(stored.encode(), "4.8.0", is_unpublished=True)


def test_no_iteration_is_nothing_in_4_0_0_and_an_empty_wrapper_since() -> None:
    nothing = replace(V2, data="<form><trip><top><code/></top><legs/><bottom><note/></bottom></trip></form>")
    assert migrated(nothing, "4.0.0").data == "<form><trip><code/><note/></trip></form>"
    legacy = replace(V7, data="<form><list><head/></list></form>")
    assert migrated(legacy, "4.8.0").data == "<form><list><head/><row/></list></form>"


def test_iterations_keep_attributes_and_content_whatever_they_are_called() -> None:
    data = '<form><trip><legs x="1"><odd y="2">t<dest/><!-- c --></odd><legs-iteration/></legs></trip></form>'
    result = migrated(replace(V2, data=data), "4.0.0")
    assert result.data == '<form><trip><legs y="2">t<dest/><!-- c --></legs><legs/></trip></form>'


def test_a_legacy_repeat_whose_bind_has_no_iterations_has_none_in_its_data_either() -> None:
    form = replace(V7, meta=META_4_8)
    assert same(migrated(form, "4.0.0"), form)


def test_a_legacy_repeat_that_has_been_migrated_is_not_migrated_again() -> None:
    once = migrated(V7, "4.8.0")
    assert same(migrated(once, "4.8.0"), once)


TEMPLATES = {
    "author's own": ("<xf:instance id='my-template'><x y='1'>t</x></xf:instance>", "<x y='1'>t</x>"),
    "of a section that does not repeat": ("<xf:instance id='trip-template'><x/></xf:instance>", "<x/>"),
    "leaves keep attributes and text": (
        "<xf:instance id='legs-template'><it a='b'><dest c='d'>e</dest></it></xf:instance>",
        "<legs-iteration><dest c='d'>e</dest></legs-iteration>",
    ),
    "new leaves are empty": ("<xf:instance id='legs-template'/>", "<legs-iteration><dest/></legs-iteration>"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_repeats_are_rebuilt_and_no_others(name: str) -> None:
    before, after = TEMPLATES[name]
    assert template_is(migrated(replace(V2, templates=before), "2019.1.0"), after)


SHAPES = [
    ("fr:attachment", "", "<a filename='' mediatype='' size='' hash-algorithm='' hash-value=''/>"),
    ("fr:attachment", ' multiple="true"', "<a/>"),
    ("fr:image-attachment", "", "<a filename='' mediatype='' size=''/>"),
    ("fr:video-attachment", "", "<a filename='' mediatype='' size=''/>"),
    ("fr:image", "", "<a filename='' mediatype=''/>"),
    ("fr:video", "", "<a filename='' mediatype=''/>"),
    ("fr:checkbox-input", "", "<a>false</a>"),
    ("xf:input", "", "<a/>"),
]


@pytest.mark.parametrize(("control", "attributes", "leaf"), SHAPES)
def test_new_leaves_of_templates_have_the_shape_of_their_control(control: str, attributes: str, leaf: str) -> None:
    view = grid("r", f'<fr:c><{control} id="a-control" bind="a-bind"{attributes}/></fr:c>', ' repeat="content"')
    binds = bind("r", bind("it", bind("a")))
    form = Form("<form><r/></form>", binds, view, "<xf:instance id='r-template'/>")
    assert template_is(migrated(form, "4.8.0"), f"<it>{leaf}</it>")


def test_binds_to_attributes_become_attributes_of_templates_and_those_to_the_same_node_nothing() -> None:
    inside = '<xf:bind id="x-bind" ref="@x" name="x"/><xf:bind id="y-bind" ref="." name="y"/>'
    form = Form(
        "<form><r/></form>",
        bind("r", bind("it", bind("a") + inside)),
        grid("r", cell("a"), ' repeat="content"'),
        "<xf:instance id='r-template'/>",
    )
    assert template_is(migrated(form, "4.8.0"), "<it x=''><a/></it>")


@pytest.mark.parametrize(("iterations", "expected"), [("", 0), ("<i/>", 1), ("<i/><i/><i/>", 3)])
@pytest.mark.parametrize("target", ["4.8.0", "4.0.0"])
def test_initial_iterations_are_as_many_as_the_data_has_first(iterations: str, expected: int, target: str) -> None:
    form = Form(
        f"<form><s><it><r>{iterations}</r></it><it><r><i/><i/></r></it></s></form>",
        bind("s", bind("it", bind("r", bind("i")))),
        section("s", grid("r", "", ' repeat="content" fb:initial-iterations="first"'), ' repeat="content"'),
        "<xf:instance id='s-template'/>",
    )
    copies = "<r/>" * expected if target == "4.0.0" else f"<r>{'<i/>' * expected}</r>"
    assert template_is(migrated(form, target), f"<it>{copies}</it>")


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


def test_what_is_around_the_root_survives() -> None:
    stored = f"<?a b?><!-- c -->{V1.document()}<!-- d -->".encode()
    result = migrate(stored, "4.8.0", is_unpublished=False)
    assert result.startswith(b"<?xml version='1.0' encoding='UTF-8'?>\n<?a b?><!-- c --><xh:html")
    assert result.endswith(b"</xh:html><!-- d -->")


def test_what_is_stored_and_not_well_formed_is_damage() -> None:
    with pytest.raises(DamagedError):
        migrate(b"<r>", "4.8.0", is_unpublished=False)


def test_a_section_template_that_uses_itself_is_not_followed() -> None:
    itself = section("again", f'<component:contact xmlns:component="{COMPONENT}"/>')
    form = replace(V8, xbl=V8.xbl.replace("<xf:group>", f"<xf:group>{itself}"))
    assert migrated(form, "4.8.0").data == migrated(V8, "4.8.0").data


def test_templates_times_sections_do_not_multiply_without_bound() -> None:
    many = range(1000)
    grids = "".join(f'<fr:grid id="g{n}-grid"/>' for n in many)
    form = Form(
        "<form>" + "".join(f"<s{n}/>" for n in many) + "</form>",
        "".join(bind(f"s{n}") for n in many),
        "".join(section(f"s{n}", f'<component:contact xmlns:component="{COMPONENT}"/>') for n in many),
        meta=META_4_8,
        xbl=f"""<xbl:xbl><xbl:binding class="fr-section-component" element="c|contact" xmlns:c="{COMPONENT}">
                <xbl:template>{grids}</xbl:template></xbl:binding></xbl:xbl>""",
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


def test_the_text_of_a_release_is_not_split_further_than_it_is_read() -> None:
    form = Form("<form/>", meta=f"<created-with-version>4.8.{'.' * 3_000_000}</created-with-version>")
    assert on_tree(form.document().encode(), lambda tree: source_format(DefinitionTree.read(tree))) == "4.8.0"  # type: ignore[arg-type]


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


def test_real_definitions_migrate_to_every_format_with_their_names(corpus: Path) -> None:
    for path in sorted(corpus.rglob("form.xhtml")):
        stored = path.read_bytes()
        controls = read_controls(stored)
        assert controls
        assert len({(control.name, control.path("2019.1.0")) for control in controls}) == len(controls)
        for target in DATA_FORMATS:
            result = migrate(stored, target, is_unpublished=False)
            assert ids(result) == ids(stored), path


def test_unpublished_definitions_migrate_too(corpus: Path) -> None:
    for path in sorted(corpus.glob("*/builder/data/*/data.xml")):
        stored = path.read_bytes()
        for target in DATA_FORMATS:
            assert ids(migrate(stored, target, is_unpublished=True)) == ids(stored), path


def test_the_inline_data_of_real_definitions_has_the_paths_of_their_controls(corpus: Path) -> None:
    """A repeat without iterations, or a section without data, has no values to find."""
    found = total = 0
    for path in sorted(corpus.rglob("form.xhtml")):
        for target in DATA_FORMATS:
            result = migrate(path.read_bytes(), target, is_unpublished=False)
            data = etree.fromstring(result).find(".//{*}instance[@id='fr-form-instance']/*")
            there = [data.find("/".join(control.path(target))) is not None for control in read_controls(result)]
            found, total = found + sum(there), total + len(there)
    assert found >= total * 0.9
