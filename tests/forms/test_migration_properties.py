"""Properties of the migration that hold for every definition."""

import re
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from persistence.forms.controls import read_controls
from persistence.forms.migration import migrate
from persistence.model.versions import DATA_FORMATS
from tests.examples import examples
from tests.forms.generated import forms
from tests.forms.vectors import META_4_8, META_2019, META_LEGACY, Form, infoset, published

TARGETS = st.sampled_from(DATA_FORMATS)
FEW = settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def migrated(document: str | bytes, target: str) -> bytes:
    stored = document if isinstance(document, bytes) else document.encode()
    return migrate(stored, target, is_unpublished=True)


def relabelled(document: bytes, meta: str) -> bytes:
    """The document with the metadata of another release, which says what format it is in."""
    assert META_2019.encode() in document
    return document.replace(META_2019.encode(), meta.encode())


def views(document: bytes) -> Iterator[object]:
    """Name and attributes of everything in the body, without what migration is about: a grid's bind and repeat."""
    for element in etree.fromstring(document)[1].iter("*"):
        kept = {key: value for key, value in element.items() if key not in {"bind", "repeat"}}
        yield element.tag, kept if str(element.tag).endswith("}grid") else dict(element.items())


def leaves(document: bytes) -> list[tuple[str, dict[str, str]]]:
    """Name and attributes of the binds of controls."""
    required = (each for each in etree.fromstring(document).iter("{*}bind") if each.get("required"))
    return sorted((each.get("name", ""), {str(key): str(value) for key, value in each.items()}) for each in required)


@FEW
@given(forms(), TARGETS)
def test_names_and_attributes_of_controls_and_sections_never_change_and_every_value_stays_in_order(
    form: Form, target: str
) -> None:
    stored = form.document().encode()
    result = migrated(stored, target)
    assert list(views(result)) == list(views(stored))
    assert leaves(result) == leaves(stored)
    before, after = (etree.fromstring(each)[0][0][0][0] for each in (stored, result))
    assert [(leaf.tag, leaf.text) for leaf in before.iter("*") if leaf.text] == [
        (leaf.tag, leaf.text) for leaf in after.iter("*") if leaf.text
    ]


@FEW
@given(forms(repeats_in_templates=False), TARGETS)
def test_migrating_twice_is_migrating_once(form: Form, target: str) -> None:
    """But for repeated grids of section templates, which stay as they are and so say still that there are wrappers."""
    once = migrated(form.document(), target)
    assert migrated(once, target) == once


@FEW
@given(forms())
def test_down_to_4_8_0_and_up_again_restores_everything_and_once_more_changes_nothing(form: Form) -> None:
    """Attributes of grids' elements and binds would be lost; the generated forms have none."""
    original = migrated(form.document(), "2019.1.0")
    up = migrated(relabelled(migrated(form.document(), "4.8.0"), META_4_8), "2019.1.0")
    assert infoset(up) == infoset(relabelled(original, META_4_8))
    assert migrated(up, "2019.1.0") == up


@FEW
@given(forms(fewest=1, own_names=False))
def test_down_to_4_0_0_and_up_again_restores_everything_but_how_repeat_is_written(form: Form) -> None:
    """The place of a grid without iterations is lost, and iterations of grids lose names of their own."""
    original = migrated(form.document(), "2019.1.0")
    up = migrated(relabelled(migrated(form.document(), "4.0.0"), META_LEGACY), "2019.1.0")
    content = re.sub(rb'(<fr:grid[^>]* repeat=)"true"', rb'\1"content"', up)
    xbl = re.compile(rb"<xbl:xbl>.*</xbl:xbl>", re.DOTALL)
    assert infoset(xbl.sub(b"", content)) == infoset(xbl.sub(b"", relabelled(original, META_LEGACY)))


@FEW
@given(forms(fewest=1), TARGETS)
def test_the_controls_are_found_in_the_migrated_data_by_the_grids_that_publishing_lists(
    form: Form, target: str
) -> None:
    definition = published(form)
    found = read_controls(definition.encode())
    result = migrated(definition, target)
    assert [each.path(target) for each in read_controls(result)] == [each.path(target) for each in found]
    assert len({(control.name, control.path(target)) for control in found}) == len(found)
    data = etree.fromstring(result)[0][0][0][0]
    assert all(data.find("/".join(control.path(target))) is not None for control in found)


TAGS = (
    *("fr:section", "fr:grid", "fr:c", "xh:td", "xf:bind", "xf:input", "xxf:dialog", "fr:body", "xf:instance"),
    *("a", "b"),
)
SUFFIXES = ("grid", "bind", "section", "control", "template")
IDS = tuple(f"{name}-{suffix}" for name in ("a", "b", "c", "é", "1", "x y") for suffix in SUFFIXES)
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from((*IDS, "", "grid")),
        "bind": st.sampled_from(IDS),
        "name": st.sampled_from(("a", "b", "c", "1", "", "x y", "p:q")),
        "ref": st.sampled_from(("a", "b", "c", ".", "..", "@a", "@1", "", "a/b", "instance('a')")),
        "repeat": st.sampled_from(("content", "true", "false")),
        "min": st.just("0"),
        "fb:initial-iterations": st.just("first"),
    },
)


def trees(tags: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Well-formed nonsense of the words that definitions are made of."""
    return st.recursive(
        st.builds(_element, st.sampled_from(tags), ATTRIBUTES, st.just(())),
        lambda inner: st.builds(_element, st.sampled_from(tags), ATTRIBUTES, st.lists(inner, max_size=4).map(tuple)),
        max_leaves=12,
    )


def _element(tag: str, attributes: dict[str, str], inside: tuple[str, ...]) -> str:
    said = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f"<{tag}{said}>{''.join(inside)}</{tag}>"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.builds(
        Form,
        trees(("a", "b", "c")).map(lambda data: f"<form>{data}</form>") | trees(TAGS) | st.just(""),
        trees(("xf:bind",)) | trees(TAGS),
        trees(("fr:section", "fr:grid", "fr:c", "xf:input")) | trees(TAGS),
        trees(("xf:instance", "a")) | st.just(""),
        st.sampled_from((META_2019, META_4_8, META_LEGACY, "")),
        trees(TAGS) | st.just(""),
    ),
    TARGETS,
)
def test_nothing_well_formed_is_an_error(form: Form, target: str) -> None:
    read_controls(form.document().encode())
    result = migrated(form.document(), target)
    assert etree.fromstring(result).tag == "{http://www.w3.org/1999/xhtml}html"
