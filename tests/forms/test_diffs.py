"""The differences between two revisions: which there are, and that they are enough to make one of the other."""

from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from persistence.errors import MalformedXmlError
from persistence.forms import diffs
from persistence.forms.controls import NO_OUTLINE, Outline, OutlineNode, read_outline
from persistence.forms.diffs import (
    ComparedRevisions,
    DataNode,
    Difference,
    DiffKind,
    DiffsWriter,
    HeldValue,
    differences,
    read_data,
    shortened,
)
from persistence.model.versions import DATA_FORMATS, V4_0_0, V2019_1_0
from tests.forms.generated import forms
from tests.forms.vectors import COMPONENT, Form, bind, cell, grid, published, section

FR = "http://orbeon.org/oxf/xml/form-runner"
RESOURCES = """<xf:instance id="fr-form-resources"><resources>
<resource xml:lang="en"><trip><label>Trip</label></trip><code><label>Code &lt;b>1&lt;/b></label></code>
<dest><label>Destination</label><hint/></dest><legs><label>Legs</label></legs></resource>
<resource xml:lang="fr"><dest><label>Lieu</label></dest></resource></resources></xf:instance>"""
TRIP = Form(
    "<form/>",
    bind("trip", bind("top", bind("code") + bind("docs")) + bind("legs", bind("legs-iteration", bind("dest")))),
    section(
        "trip", grid("top", cell("code") + cell("docs", "attachment")) + grid("legs", cell("dest"), ' repeat="content"')
    ).replace(
        '<xf:input id="code-control" bind="code-bind"/>',
        '<xf:input id="code-control" bind="code-bind"><xf:label ref="$form-resources/code/label"'
        ' mediatype="text/html"/></xf:input>',
    ),
    RESOURCES,
)


def outline_of(form: Form, data_format: str = V4_0_0) -> Outline:
    return read_outline(published(form).encode(), data_format)


def tree(data: str, outline: Outline) -> DataNode:
    found = read_data([data.encode()], outline)
    assert found is not None
    return found


def diff(older: str, newer: str, outline: Outline) -> list[Difference]:
    return list(differences(tree(older, outline), tree(newer, outline), outline))


def in_xml(older: str, newer: str, data_format: str = V4_0_0, language: str | None = None) -> list[str]:
    outline = outline_of(TRIP, data_format)
    written = DiffsWriter(language).xml(ComparedRevisions("T1", None, diff(older, newer, outline)))
    root = etree.fromstring(written)
    assert (root.tag, dict(root.attrib)) == ("diffs", {"older-modified-time": "T1"})
    return [etree.tostring(each).decode() for each in root]


def trip(code: str = "1", dests: str = "", top: str | None = None, legs: str | None = None) -> str:
    """Data in format 4.0.0, in which each leg has one letter of ``dests``."""
    inside = f"<code>{code}</code>" if top is None else top
    each = "".join(f"<legs><dest>{dest}</dest></legs>" for dest in dests) if legs is None else legs
    return f'<form xmlns:fr="{FR}"><trip>{inside}{each}</trip></form>'


CODE = '<label mediatype="text/html">Code &lt;b&gt;1&lt;/b&gt;</label>'


def added(count: int) -> str:
    return f'<diff type="iteration-added" name="legs" count="{count}"><label>Legs</label></diff>'


def removed(count: int) -> str:
    return f'<diff type="iteration-removed" name="legs" count="{count}"><label>Legs</label></diff>'


def dest(older: str, newer: str) -> str:
    ends = [f"<{name}>{value}</{name}>" if value else f"<{name}/>" for name, value in (("from", older), ("to", newer))]
    return f'<diff type="value-changed" name="dest"><label>Destination</label>{"".join(ends)}</diff>'


PATH = "/fr/service/persistence/crud/a/b/data/D"
CASES = {
    "nothing": (trip("1", "ab"), trip("1", "ab"), []),
    "a value": (
        trip("1"),
        trip("2&amp;"),
        [f'<diff type="value-changed" name="code">{CODE}<from>1</from><to>2&amp;</to></diff>'],
    ),
    "in an iteration": (trip("1", "abc"), trip("1", "axc"), [dest("b", "x")]),
    "an iteration at the end": (trip("1", "ab"), trip("1", "abc"), [added(1)]),
    "one at the beginning": (trip("1", "abc"), trip("1", "xabc"), [added(1)]),
    "none before": (trip("1"), trip("1", "ab"), [added(2)]),
    "all removed": (trip("1", "ab"), trip("1"), [removed(2)]),
    "one in the middle removed, another changed": (
        trip("1", "abcdef"),
        trip("1", "acdxf"),
        [removed(1), dest("e", "x")],
    ),
    "an element added": (
        trip(top=""),
        trip("5"),
        [
            f'<diff type="element-added" name="code">{CODE}</diff>',
            f'<diff type="value-changed" name="code">{CODE}<from/><to>5</to></diff>',
        ],
    ),
    "an element removed": (trip("5"), trip(top=""), [f'<diff type="element-removed" name="code">{CODE}</diff>']),
    "a section removed": (
        trip("5", "ab"),
        "<form/>",
        ['<diff type="element-removed" name="trip"><label>Trip</label></diff>'],
    ),
    "not relevant any more": (trip("5"), trip(top='<code fr:relevant="false">5</code>'), []),
    "another root": (
        trip("5"),
        trip("5").replace("<form ", "<data ").replace("</form>", "</data>"),
        ['<diff type="other"/>'],
    ),
    "content of no control": (trip("5"), trip("5", legs="<x>1</x>"), ['<diff type="other"/>']),
    "content of the runtime": (trip("5"), trip("5", legs="<fr:metadata>1<x>2</x></fr:metadata>"), []),
    "layout": (trip("5", "a"), trip("5", "a").replace("><", ">\n <"), []),
    "encrypted, and no one may know": (
        trip(top='<code fr:value-encrypted="true">enc1:x</code>'),
        trip(top='<code fr:value-encrypted="true">enc1:y</code>'),
        [],
    ),
    "encrypted since": (
        trip("5"),
        trip(top='<code fr:value-encrypted="true">enc1:y</code>'),
        [f'<diff type="value-changed" name="code">{CODE}<from>5</from><to/></diff>'],
    ),
    "an attachment": (
        trip(top='<docs filename="" mediatype="" size=""/>'),
        trip(top=f'<docs filename="a.pdf" mediatype="" size="3" fr:attachment-encrypted="true">\n{PATH}/1\n</docs>'),
        [f'<diff type="value-changed" name="docs"><from/><to filename="a.pdf" size="3">{PATH}/1</to></diff>'],
    ),
    "one of several": (
        trip(top='<docs><_ filename="1">x</_><_ filename="2">y</_></docs>'),
        trip(top='<docs><_ filename="1">x</_><_ filename="3">z</_>\n<_ filename="2">y</_></docs>'),
        ['<diff type="value-changed" name="docs"><from/><to filename="3">z</to></diff>'],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_differences_are_and_a_document_does_not_differ_from_itself(name: str) -> None:
    older, newer, expected = CASES[name]
    assert in_xml(older, newer) == expected
    assert in_xml(older, older) == in_xml(newer, newer) == []


@pytest.mark.parametrize(
    ("language", "label"), [(None, "Destination"), ("en", "Destination"), ("fr", "Lieu"), ("de", "Destination")]
)
def test_a_label_is_in_the_asked_language_else_in_the_first(language: str | None, label: str) -> None:
    assert f"<label>{label}</label>" in in_xml(trip("1", "a"), trip("1", "b"), language=language)[0]
    assert outline_of(TRIP).languages == ("en", "fr")


def test_iterations_have_an_element_around_them_in_later_formats() -> None:
    legs = "<legs><legs-iteration><dest>a</dest></legs-iteration></legs>"
    older = f"<form><trip><top><code>1</code></top>{legs}</trip></form>"
    newer = older.replace("</legs>", "<legs-iteration><dest/></legs-iteration></legs>").replace(">1<", ">2<")
    assert [each[:40] for each in in_xml(older, newer, V2019_1_0)] == [
        '<diff type="value-changed" name="code"><',
        '<diff type="iteration-added" name="legs"',
    ]
    assert in_xml(older, older.replace(legs, ""), V2019_1_0) == [removed(1)]


def test_a_control_of_a_section_template_has_its_own_label() -> None:
    part = f"""<xbl:xbl xmlns:component="{COMPONENT}">
      <xbl:binding class="fr-section-component" element="component|used">
      <xbl:implementation><xf:model><xf:instance id="fr-form-resources"><resources><resource xml:lang="en">
      <mail><label>Mail</label></mail></resource></resources></xf:instance><xf:bind id="fr-form-binds">{bind("mail")}
      </xf:bind></xf:model></xbl:implementation><xbl:template>{cell("mail")}</xbl:template></xbl:binding></xbl:xbl>"""
    use = f'<component:used xmlns:component="{COMPONENT}"/>'
    form = Form("<form/>", bind("s") + bind("t"), section("s", use) + section("t", use), xbl=part)
    outline = outline_of(form)
    older, newer = (f"<form><s><mail>1</mail></s><t><mail>{each}</mail></t></form>" for each in "12")
    (found,) = diff(older, newer, outline)
    assert (found.node.name, found.place) == ("mail", (("t", 0), ("mail", 0)))
    assert found.node.label.in_language("en") == "Mail"


def test_a_label_may_be_in_the_view() -> None:
    control = '<xf:input id="c-control" bind="c-bind"><xf:label>Old way</xf:label></xf:input>'
    outline = outline_of(Form("<form/>", bind("c"), f"<fr:grid><fr:c>{control}</fr:c></fr:grid>"))
    label = outline.root.inside["c"].label
    assert label.in_language("fr") == "Old way"


def test_all_is_other_where_nothing_is_known_of_the_form() -> None:
    assert [each.kind for each in diff(trip("1"), trip("2"), NO_OUTLINE)] == [DiffKind.OTHER]
    assert diff(trip("1"), trip("1"), NO_OUTLINE) == []


def test_values_are_shortened_and_compared_by_what_matters() -> None:
    assert [shortened("abcd", size) for size in (None, 5, 4, 3, 1)] == ["abcd", "abcd", "abcd", "ab\u2026", "\u2026"]
    assert HeldValue().is_empty
    assert not HeldValue(is_encrypted=True).is_empty
    assert replace(HeldValue("x"), attributes=(("size", "1"),)) != HeldValue("x")


def test_too_many_elements_are_not_compared() -> None:
    with patch.object(diffs, "MOST_DIFFED_ELEMENTS", 5):
        assert read_data([trip("1", "a").encode()], outline_of(TRIP)) is not None
        assert read_data([trip("1", "ab").encode()], outline_of(TRIP)) is None


def test_too_many_iterations_are_aligned_by_their_position() -> None:
    outline = outline_of(TRIP)
    kinds = [each.kind for each in diff(trip("1", "abcd"), trip("1", "xbyd"), outline)]
    assert kinds == [DiffKind.VALUE_CHANGED] * 2
    with patch.object(diffs, "MOST_ALIGNED", 5):
        found = diff(trip("1", "abcd"), trip("1", "xaby"), outline)
    assert [each.kind for each in found] == [DiffKind.VALUE_CHANGED] * 4


@pytest.mark.parametrize("data", ["<form>", "", "<!DOCTYPE form><form/>"])
def test_data_that_is_no_xml_is_refused(data: str) -> None:
    with pytest.raises(MalformedXmlError):
        read_data([data.encode()], outline_of(TRIP))


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_pieces_of_a_document_do_not_matter(size: int) -> None:
    data = trip("1", "ab", legs="x &amp; y <z> 1</z>\n t&lt;")
    pieces = [data.encode()[at : at + size] for at in range(0, len(data), size)]
    read = read_data(pieces, outline_of(TRIP))
    assert read.digest == tree(data, outline_of(TRIP)).digest


# The differences of random documents, applied to the older one.


def content(outline: OutlineNode, chance: Random) -> str:
    """Content of an element: any values, any number of iterations, and elements that are missing."""
    if outline.is_control:
        return chance.choice(["", "a", "b", "c"])
    parts = []
    for name, inner in outline.inside.items():
        count = chance.randrange(5) if inner.is_iteration else chance.random() < 0.8
        parts += [f"<{name}>{content(inner, chance)}</{name}>" for _ in range(count)]
    return "".join(parts)


slowly = settings(suppress_health_check=[HealthCheck.too_slow])  # forms take long to draw on a busy machine


@st.composite
def revisions(draw: st.DrawFn) -> tuple[Outline, str, str]:
    outline = outline_of(draw(forms()), draw(st.sampled_from(DATA_FORMATS)))
    older, newer = (f"<form>{content(outline.root, Random(draw(st.integers(0, 1000))))}</form>" for _ in range(2))
    return outline, older, newer


def projected(node: DataNode, outline: OutlineNode) -> object:
    """The values and iterations of a form; an element that is missing has none."""
    if outline.is_control:
        return node.value.text
    return {
        name: [projected(each, inner) for each in node.at(name)]
        if inner.is_iteration
        else projected(next(iter(node.at(name)), DataNode()), inner)
        for name, inner in outline.inside.items()
    }


def blank(outline: OutlineNode) -> object:
    return projected(DataNode(), outline)


def applied(older: object, found: list[Difference], root: OutlineNode) -> object:
    """Apply differences to the projection of a document, in their order."""
    top = {"": older}
    for each in found:
        at: object = top
        name: str | int = ""
        known = root
        for step, position in each.place:
            at = at[name]  # type: ignore[index]
            name, known = step, known.inside[step]
            if known.is_iteration:
                at, name = at[name], position  # type: ignore[index]
        match each.kind:
            case DiffKind.VALUE_CHANGED:
                assert at[name] == each.older.text  # type: ignore[index]
                at[name] = each.newer.text  # type: ignore[index]
            case DiffKind.ELEMENT_REMOVED:
                at[name] = blank(known)  # type: ignore[index]
            case DiffKind.ITERATION_REMOVED | DiffKind.ITERATION_ADDED:
                (row,) = (key for key, inner in known.inside.items() if inner is each.node)
                changed: list[object] = at[name][row]  # type: ignore[index]
                if each.kind is DiffKind.ITERATION_ADDED:
                    for position in each.iterations:
                        changed.insert(position, blank(known.inside[row]))
                else:
                    for position in reversed(each.iterations):
                        del changed[position]
    return top[""]


@slowly
@given(revisions(), st.just(diffs.MOST_ALIGNED) | st.integers(0, 8))
def test_the_differences_applied_to_the_older_make_the_newer_however_exact_the_alignment(
    drawn: tuple[Outline, str, str], most_aligned: int
) -> None:
    outline, older, newer = drawn
    before, after = tree(older, outline), tree(newer, outline)
    with patch.object(diffs, "MOST_ALIGNED", most_aligned):
        found = list(differences(before, after, outline))
    assert applied(projected(before, outline.root), found, outline.root) == projected(after, outline.root)
    assert all(each.kind is not DiffKind.OTHER for each in found)
    assert diff(older, older, outline) == []
    assert (diff(older, newer, outline) == []) == (diff(newer, older, outline) == [])
