"""Answers in XML (spec search 1.6 and 3), and as JSON where a service has them seldom: damage, bounds, the unknown."""

import json
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.forms.answers import (
    DiffsAnswer,
    DistinctAnswer,
    FormListAnswer,
    HistoryAnswer,
    SearchAnswer,
    WrittenForms,
)
from persistence.forms.diffs import ComparedRevisions, DiffsWriter
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.permissions import UNRESTRICTED, GrantCondition, Permission, UserRole
from persistence.model.queries import Hit, Hits
from persistence.model.sidecar import DocumentFacts, HistoryPage, ListedRevision, PageRequest, Sidecar
from persistence.model.texts import Instant
from persistence.model.versions import FormMetadata, PublishedVersion
from tests.forms.test_diffs import TRIP, diff, outline_of, trip

FORM = Form("hr", "leave")
FIRST, LAST = Instant("2024-05-02T10:00:00.000Z"), Instant("2024-05-04T09:30:00.000Z")


def read(pieces: Iterable[bytes]) -> Any:
    return json.loads(b"".join(pieces))


def page(*revisions: ListedRevision) -> HistoryPage:
    address = DocumentAddress(FORM, Collection.DATA, "D", DATA_XML)
    return HistoryPage(address, PageRequest(), len(revisions), LAST, FIRST, revisions)


def test_of_a_damaged_revision_the_time_is_known() -> None:
    found = read(HistoryAnswer(page(ListedRevision(LAST, None)), (), DiffsWriter()).json())
    assert found["documents"] == [{"modified-time": LAST, "deleted": False, "damaged": True}]
    assert not {"form-version", "created-time"} & found.keys()


@pytest.mark.parametrize(("is_listed", "expected"), [(True, {"restored-time": FIRST}), (False, {})])
def test_a_restored_revision_names_it_in_dialects_that_do(*, is_listed: bool, expected: dict[str, str]) -> None:
    sidecar = Sidecar(schema=1, id="0" * 40, version=1, modified=LAST, created=FIRST, size=1, restored=FIRST)
    revision = ListedRevision(LAST, sidecar)
    answer = HistoryAnswer(page(revision), (), DiffsWriter(), lists_restored=is_listed)
    (document,) = read(answer.json())["documents"]
    assert {name: document[name] for name in document if name == "restored-time"} == expected


def test_differences_are_bounded() -> None:
    found = diff(trip("1", "ab"), trip("1", "xycdefgh"), outline_of(TRIP))
    compared, kinds = ComparedRevisions(FIRST, LAST, found), ["iteration-added", "value-changed", "other"]
    xml = ET.fromstring(DiffsWriter(left=250).xml(compared))  # noqa: S314 - our own
    assert (xml.get("newer-modified-time"), [each.get("type") for each in xml]) == (LAST, kinds)
    answer = read(DiffsAnswer(compared, DiffsWriter(left=250)).json())
    assert (answer["older-modified-time"], answer["newer-modified-time"]) == (FIRST, LAST)
    assert [each["type"] for each in answer["diffs"]] == kinds
    assert answer["diffs"][0]["count"] == 6


def test_a_condition_that_is_not_known_has_a_name_and_a_title_may_lack_a_language() -> None:
    conditions = (GrantCondition.UNKNOWN, UserRole(frozenset({"b", "a"})))
    permissions = (Permission(frozenset({"read", "odd"}), conditions), Permission(frozenset({"create"})))
    published = PublishedVersion(FORM, 2, FIRST, LAST, None, FormMetadata(titles={"": "Leave"}), permissions)
    (found,) = read(FormListAnswer(1, [(published, ("admin", "read"))], WrittenForms()).json())["forms"]
    assert found == {
        "operations": ["admin", "read"],
        "application-name": "hr",
        "form-name": "leave",
        "form-version": 2,
        "created": "2024-05-02T10:00:00Z",
        "last-modified-time": "2024-05-04T09:30:00Z",
        "title": {"": "Leave"},
        "available": True,
        "permissions": [
            {"operations": ["read"], "conditions": [{"name": "unknown"}, {"name": "user-role", "any-of": ["a", "b"]}]},
            {"operations": ["create"], "conditions": []},
        ],
    }


def test_what_is_not_known_of_a_document_is_left_out() -> None:
    hit = Hit("d", is_draft=True, facts=DocumentFacts(1, FIRST, LAST, stage=""), values={"p": ("a", "b")})
    (found,) = read(SearchAnswer(Hits(1, (hit,)), ("p", "q", "p"), lambda _: UNRESTRICTED).json())["documents"]
    assert found == {
        "created": FIRST,
        "last-modified": LAST,
        "name": "d",
        "draft": True,
        "operations": ["*"],
        "details": {"p": "a, b", "q": ""},
    }


# The same answers in XML


def parsed(pieces: Iterable[bytes]) -> ET.Element:
    return ET.fromstring(b"".join(pieces))  # noqa: S314 - our own


_any_text = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from("\t\n\r<&\"'>")
)


@given(_any_text, _any_text)
def test_every_text_comes_back_from_a_parser_and_a_path_asked_for_twice_is_there_twice(path: str, value: str) -> None:
    hit = Hit(value, is_draft=False, facts=DocumentFacts(1, FIRST, LAST, creator=value), values={path: (value,) * 2})
    found = parsed(SearchAnswer(Hits(1, (hit,)), (path, path), lambda _: UNRESTRICTED).xml())[0]
    assert (found.get("name"), found.get("created-by")) == (value, value)
    assert [(each.get("path"), each.text) for each in found[0]] == [(path, f"{value}, {value}")] * 2
    (query,) = parsed(DistinctAnswer([(path, (value, "x"))]).xml())
    assert (query.get("path"), [each.text or "" for each in query]) == (path, [value, "x"])


@given(st.text(st.characters()))
def test_what_xml_cannot_hold_makes_no_malformed_answer(text: str) -> None:
    """A sidecar may have been edited by hand."""
    hit = Hit(text, is_draft=False, facts=DocumentFacts(1, FIRST, LAST, stage=text), values={"p": (text,)})
    parsed(SearchAnswer(Hits(1, (hit,)), ("p",), lambda _: UNRESTRICTED).xml())
