"""Removal of non-relevant elements: the vectors of spec forms 3.1."""

from io import BytesIO

import pytest
from lxml import etree

from persistence.errors import DamagedError
from persistence.forms.relevance import remove_nonrelevant

FR = 'xmlns:fr="http://orbeon.org/oxf/xml/form-runner"'
OFF = 'fr:relevant="false"'


def removed(document: str) -> str:
    out = BytesIO()
    data = document.encode()
    remove_nonrelevant([data[at : at + 7] for at in range(0, len(data), 7)], out)
    return etree.tostring(etree.fromstring(out.getvalue()), method="c14n").decode()


def canonical(document: str) -> str:
    return etree.tostring(etree.fromstring(document.encode()), method="c14n").decode()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (f"<f {FR}><a {OFF}><b>1</b></a><c>2</c></f>", f"<f {FR}><c>2</c></f>"),
        (f'<f {FR}><c fr:relevant="true">2</c></f>', f'<f {FR}><c fr:relevant="true">2</c></f>'),
        (f"<f {FR}><g><g-iteration {OFF}><x/></g-iteration></g></f>", f"<f {FR}><g/></f>"),
        (f'<f {FR}><d fr:relevant=" false ">3</d></f>', f'<f {FR}><d fr:relevant=" false ">3</d></f>'),
        (f'<f {FR}><d relevant="false">3</d></f>', f'<f {FR}><d relevant="false">3</d></f>'),
        (f"<f {FR}><a {OFF}><b {OFF}/></a>tail</f>", f"<f {FR}>tail</f>"),
        (f"<f {FR}><a {OFF}><!-- in --><?in it?></a><!-- out --><?out it?></f>", f"<f {FR}><!-- out --><?out it?></f>"),
        (f"<f {FR} {OFF}><a><b/></a>text</f>", f"<f {FR} {OFF}/>"),
        (f'<f {FR}><e xmlns="urn:e"><k xmlns=""/></e></f>', f'<f {FR}><e xmlns="urn:e"><k xmlns=""/></e></f>'),
        (f"<f {FR}>&lt;&amp;é<![CDATA[<]]></f>", f"<f {FR}>&lt;&amp;é&lt;</f>"),
    ],
)
def test_what_is_not_relevant_goes_and_everything_else_stays(document: str, expected: str) -> None:
    assert removed(document) == canonical(expected)


def test_markup_around_the_root_stays() -> None:
    out = BytesIO()
    remove_nonrelevant([b"<!-- before --><?pi x?><f/><!-- after -->"], out)
    assert out.getvalue() == b"<!-- before --><?pi x?><f></f><!-- after -->"


def test_other_encodings_come_out_as_utf_8() -> None:
    out = BytesIO()
    remove_nonrelevant(['<?xml version="1.0" encoding="ISO-8859-1"?><f>é</f>'.encode("latin-1")], out)
    assert etree.fromstring(out.getvalue()).text == "é"


def test_stored_data_that_is_not_xml_is_damage() -> None:
    with pytest.raises(DamagedError):
        remove_nonrelevant([b"<f><a></f>"], BytesIO())
