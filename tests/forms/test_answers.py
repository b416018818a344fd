"""Answers as JSON where a service has them seldom: damage, restored revisions, bounds, unknown conditions."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from persistence.forms.answers import DiffsAnswer, FormListAnswer, HistoryAnswer, SearchAnswer, WrittenForms
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


def test_differences_are_bounded_as_in_xml() -> None:
    found = diff(trip("1", "ab"), trip("1", "xycdefgh"), outline_of(TRIP))
    compared = ComparedRevisions(FIRST, LAST, found)
    answer = read(DiffsAnswer(compared, DiffsWriter(left=250)).json())
    assert (answer["older-modified-time"], answer["newer-modified-time"]) == (FIRST, LAST)
    assert [each["type"] for each in answer["diffs"]] == ["iteration-added", "value-changed", "other"]
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
