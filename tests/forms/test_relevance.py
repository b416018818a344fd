"""Removal of non-relevant elements: the vectors of spec forms 3.1."""

import pytest
from lxml import etree

from persistence.errors import DamagedError
from persistence.forms.form_data import nonrelevant_edges

FR = 'xmlns:fr="http://orbeon.org/oxf/xml/form-runner"'
OFF = 'fr:relevant="false"'


def relevant(data: bytes, piece: int = 7) -> bytes:
    """Return the rest of a document that is fed in small pieces."""
    edges = nonrelevant_edges([data[at : at + piece] for at in range(0, len(data), piece)])
    bounds = [0, *edges, len(data)]
    return b"".join(data[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True))


def removed(document: str) -> str:
    left = {relevant(document.encode(), piece) for piece in (1, 7, 10_000)}
    assert len(left) == 1
    return canonical(left.pop().decode())


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


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            f"<!-- a --><?pi x?>\n<f {FR}><a {OFF}/> <b/></f>\n<!-- b -->",
            f"<!-- a --><?pi x?>\n<f {FR}> <b/></f>\n<!-- b -->",
        ),
        (f'<f {FR} xml:lang="de"><a {OFF}>x</a><b xml:space="preserve"> </b></f>', None),
        (f'<f {FR} xmlns:p="u" xmlns:q="u" t="p:T"><a {OFF}/><p:b/></f>', None),
        (f"<f {FR}><a {OFF}></a><![CDATA[<a>]]>&#233;</f>", f"<f {FR}><![CDATA[<a>]]>&#233;</f>"),
        (f"<f {FR} {OFF}/>", f"<f {FR} {OFF}/>"),
        (f"<f {FR} {OFF}> <a/> </f >", f"<f {FR} {OFF}></f >"),
        (f"<f {FR}><a {OFF}/><b {OFF}>1</b><!-- c --><d {OFF}\n/></f>", f"<f {FR}><!-- c --></f>"),
    ],
)
def test_what_stays_stays_to_the_byte(document: str, expected: str | None) -> None:
    """Declarations, prefixes, ``xml:`` attributes, CDATA and references are as they were stored."""
    left = relevant(document.encode(), 3).decode()
    if expected is not None:
        assert left == expected
    assert etree.fromstring(left) is not None
    assert left.replace(f"<a {OFF}>x</a>", "").replace(f"<a {OFF}/>", "") == left


@pytest.mark.parametrize("encoding", ["UTF-16", "ISO-8859-1"])
def test_other_encodings_stay_what_they_are(encoding: str) -> None:
    document = f'<?xml version="1.0" encoding="{encoding}"?><f {FR}>é<a {OFF}>é</a>ü</f>'
    left = relevant(document.encode(encoding))
    assert etree.fromstring(left).text == "éü"


def test_stored_data_that_is_not_xml_is_damage() -> None:
    with pytest.raises(DamagedError):
        nonrelevant_edges([b"<f><a></f>"])
