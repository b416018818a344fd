"""The vectors of spec forms 1.12, each compared as a whole document."""

import re

import pytest
from lxml import etree

from persistence.forms.migration import migrate
from tests.forms.infosets import infoset
from tests.forms.vectors import V8, VECTORS


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
