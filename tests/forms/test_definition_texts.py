"""Definitions as text: which blanks are changed, and that a second time nothing is."""

import pytest
from hypothesis import HealthCheck, given, settings

from persistence import limits
from persistence.errors import BadRequestError, DamagedError
from persistence.forms.controls import read_elements
from persistence.forms.definition_tree import printed
from tests import trips
from tests.forms.generated import forms
from tests.forms.vectors import Form, published

XH = 'xmlns:xh="http://www.w3.org/1999/xhtml"'


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("<a><b/><c/></a>", "<a>\n  <b/>\n  <c/>\n</a>"),
        ("<a>\n\n\t<b/>  <c> x </c></a>", "<a>\n  <b/>\n  <c> x </c>\n</a>"),
        ("<a> <b> <c/> </b>text</a>", "<a> <b> <c/> </b>text</a>"),
        ("<a><b> </b></a>", "<a>\n  <b> </b>\n</a>"),
        ("<a>\u00a0<b/></a>", "<a>\u00a0<b/></a>"),
        ("<a><!-- x --><b/><?p i?></a>", "<a>\n  <!-- x -->\n  <b/>\n  <?p i?>\n</a>"),
        (
            '<a z="1" b="2"><b xml:space="preserve"> <c/> </b></a>',
            '<a z="1" b="2">\n  <b xml:space="preserve"> <c/> </b>\n</a>',
        ),
        (
            f"<a {XH}><xh:p><xh:b>x</xh:b> <xh:i>y</xh:i></xh:p></a>",
            f"<a {XH}>\n  <xh:p><xh:b>x</xh:b> <xh:i>y</xh:i></xh:p>\n</a>",
        ),
        ("<!-- before --><a><![CDATA[<b>]]></a>", "<!-- before --><a><![CDATA[<b>]]></a>"),
    ],
)
def test_only_blanks_between_elements_are_changed(given_text: str, expected: str) -> None:
    assert printed(given_text.encode()).decode() == f"<?xml version='1.0' encoding='UTF-8'?>\n{expected}\n"


@given(forms())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_it_is_printed_alike_a_second_time(form: Form) -> None:
    once = printed(published(form).encode())
    assert printed(once) == once
    assert read_elements(once) == read_elements(published(form).encode())


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16"])
@pytest.mark.parametrize(
    ("number", "one"), [(limits.MOST_KEPT_SECTIONS, "<![CDATA[&]]>"), (limits.MOST_KEPT_SECTIONS + 1, "&amp;")]
)
def test_sections_are_kept_unless_they_are_many(number: int, one: str, encoding: str) -> None:
    """The text of an element takes time that grows with the square of its sections: a request of 5 MB took 30 s."""
    body = f'<?xml version="1.0" encoding="{encoding}"?><a>{"<![CDATA[&]]>" * number}</a>'.encode(encoding)
    assert printed(body).decode().endswith(f"<a>{one * number}</a>\n")


def test_attributes_and_elements_of_a_bind_are_rules() -> None:
    elements = read_elements(trips.SECOND.encode())
    assert elements["trip", "city"] == {"kind": "input", "constraint": ". != 'x'; string-length(.) < 9 (warning)"}
    assert elements["trip", "cost"] == {"kind": "input", "default": "0"}


def test_a_definition_that_is_not_well_formed_or_too_large_is_refused() -> None:
    with pytest.raises(DamagedError, match="the stored XML cannot be parsed"):
        printed(b"<a>")
    with pytest.raises(BadRequestError, match="more than"):
        printed(b"<a>" + b" " * limits.LARGEST_TREE + b"</a>")
