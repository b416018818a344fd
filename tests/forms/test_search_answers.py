"""The answers of searches and distinct values (spec search 1.6 and 3)."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from persistence.forms.search_xml import write_distinct_answer, write_search_answer
from persistence.model.instants import Instant
from persistence.model.permissions import UNRESTRICTED, Operations
from persistence.model.queries import Field, Hit, Hits
from persistence.model.sidecar import DocumentFacts

_FIRST, _SECOND = Instant("2024-05-02T10:00:00.000Z"), Instant("2024-05-04T09:30:00.000Z")
BOB = Hit(
    document="d-2",
    is_draft=False,
    facts=DocumentFacts(1, _FIRST, _SECOND, creator="bob", group="support", modifier="cid", stage="review"),
    values={"items/lines/product": ("valve b",), "customer/name": ("Bob",)},
)


def everything(_hit: Hit) -> Operations:
    return UNRESTRICTED


def whole(pieces: Iterable[bytes]) -> str:
    return b"".join(pieces).decode()


def test_a_document_and_what_is_known_of_it() -> None:
    assert whole(write_search_answer(Hits(2, (BOB,)), ("customer/name", "items/lines/product"), everything)) == (
        '<documents search-total="2"><document created="2024-05-02T10:00:00.000Z"'
        ' last-modified="2024-05-04T09:30:00.000Z" created-by="bob" created-by-groupname="support"'
        ' last-modified-by="cid" workflow-stage="review" name="d-2" draft="false" operations="*"><details>'
        '<detail path="customer/name">Bob</detail><detail path="items/lines/product">valve b</detail>'
        "</details></document></documents>"
    )


def test_what_is_not_known_is_left_out() -> None:
    draft = Hit("d", is_draft=True, facts=DocumentFacts(1, _FIRST, _SECOND))
    assert whole(write_search_answer(Hits(1, (draft,)), (), lambda _: Operations(()))) == (
        '<documents search-total="1"><document created="2024-05-02T10:00:00.000Z"'
        ' last-modified="2024-05-04T09:30:00.000Z" name="d" draft="true" operations=""><details/></document>'
        "</documents>"
    )


def test_nothing_found_and_a_page_past_the_end() -> None:
    assert whole(write_search_answer(Hits(), ("a",), everything)) == '<documents search-total="0"/>'
    assert whole(write_search_answer(Hits(7), (), everything)) == '<documents search-total="7"/>'


def test_values_are_joined_and_a_path_asked_for_twice_is_there_twice() -> None:
    hit = Hit("d", is_draft=False, facts=DocumentFacts(1, _FIRST, _SECOND), values={"p": ("a, b", " ", "c")})
    answer = whole(write_search_answer(Hits(1, (hit,)), ("p", "q", "p"), everything))
    detail = '<detail path="p">a, b,  , c</detail>'
    assert f'<details>{detail}<detail path="q"/>{detail}</details>' in answer


def test_the_operations_are_those_of_each_document() -> None:
    hits = Hits(2, (BOB, Hit("d", is_draft=False, facts=DocumentFacts(1, _FIRST, _SECOND))))
    answer = whole(write_search_answer(hits, (), lambda hit: Operations(("read", "list") if hit is BOB else ())))
    assert [each.get("operations") for each in ET.fromstring(answer)] == ["read list", ""]  # noqa: S314 - our own


_texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from("\t\n\r<&\"'>")
)


@given(_texts, _texts)
def test_every_text_comes_back_from_a_parser(path: str, value: str) -> None:
    hit = Hit(value, is_draft=False, facts=DocumentFacts(1, _FIRST, _SECOND, creator=value), values={path: (value,)})
    found = ET.fromstring(whole(write_search_answer(Hits(1, (hit,)), (path,), everything)))[0]  # noqa: S314 - our own
    detail = found[0][0]
    assert (found.get("name"), found.get("created-by")) == (value, value)
    assert (detail.get("path"), detail.text or "") == (path, value)


@given(st.text(st.characters()))
def test_what_xml_cannot_hold_makes_no_malformed_answer(text: str) -> None:
    """A sidecar may have been edited by hand."""
    hit = Hit(text, is_draft=False, facts=DocumentFacts(1, _FIRST, _SECOND, stage=text), values={"p": (text,)})
    ET.fromstring(whole(write_search_answer(Hits(1, (hit,)), ("p",), everything)))  # noqa: S314 - our own


def test_distinct_values() -> None:
    asked = [("a/b", ("x & y", "z")), ("c", ()), (Field.WORKFLOW_STAGE, ("", "review"))]
    assert whole(write_distinct_answer(asked)) == (
        '<distinct-values><query path="a/b"><value>x &amp; y</value><value>z</value></query><query path="c"></query>'
        '<query metadata="workflow-stage"><value/><value>review</value></query></distinct-values>'
    )
    assert whole(write_distinct_answer(())) == "<distinct-values/>"
