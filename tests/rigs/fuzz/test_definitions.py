"""Definitions in the fuzzer: they reach the code that they are for, and what goes wrong there is seen."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random

import pytest
from lxml import etree

from persistence.errors import BadRequestError
from persistence.forms.controls import read_controls
from persistence.forms.definition_metadata import MetadataReader
from persistence.forms.migration import migrate
from tests.published import definition
from tests.rigs.fuzz import verdict
from tests.rigs.fuzz.bodies import Bodies, places
from tests.rigs.fuzz.definitions import definition as thrown_definition
from tests.rigs.fuzz.test_judges import Faulty

DEFINITION = definition("<permissions><permission operations='read'/></permissions>")


def wrong(defect: str) -> list[str]:
    own = Bodies(Faulty(defect), "Svc-")
    place = next(place for place in places("a") if place.attachments)
    return [what for body in (DEFINITION, DEFINITION.replace(b"'read'", b"'fly'")) for what in own.put(place, body)]


def test_a_service_that_takes_definitions_apart_rightly_passes() -> None:
    assert wrong("") == []


@pytest.mark.parametrize("defect", ["grants what is not known", "format-version=", "publish", "attachments?"])
def test_a_service_that_does_not_is_seen(defect: str) -> None:
    assert wrong(defect)


@pytest.mark.parametrize(
    ("permissions", "is_known"),
    [
        ("", True),
        ("<permissions/>", True),
        ("<permissions><permission operations='read -list'><user-role/><owner/></permission></permissions>", True),
        ("<permissions><else><nobody/></else></permissions>", False),
        ("<permissions><permission operations='read'><owner><nobody/></owner></permission></permissions>", False),
        ("<permissions><permission operation='read'/></permissions>", False),
        ("<permissions xmlns:a='urn:a'><permission a:operations='read'/></permissions>", False),
        ("<permissions xmlns:a='urn:a'><a:permission operations='read'><a:owner/></a:permission></permissions>", True),
        ("<permissions> <permission operations='read'>owner</permission></permissions>", False),
        ("<permissions><permission operations='read'><owner/> </permission>\n<!-- c --></permissions>", True),
        ("<permissions><permission operations='read'><user-role name='a'/></permission></permissions>", False),
        ("<permissions><permission operations='*'/></permissions>", False),
        ("<permissions><permission operations='read'><owner/><nobody/></permission></permissions>", False),
        ("<permissions/><permissions><permission operations='fly'/></permissions>", True),
        ("<p><permissions><permission operations='fly'/></permissions></p>", True),
        ("<permissions xmlns='urn:x'><permission operations='fly'/></permissions>", True),
    ],
)
def test_permissions_are_judged_as_the_service_does(permissions: str, *, is_known: bool) -> None:
    """The two read them by different means: an expression on a tree here, a stream of events there."""
    document = definition(permissions)
    tree = verdict.opinion(document).tree
    assert tree is not None
    assert verdict.knows_permissions(tree) is is_known
    with MetadataReader(is_checked=True) as reader, pytest.raises(BadRequestError) if not is_known else nullcontext():
        reader.read([document])


def test_thrown_definitions_reach_what_takes_them_apart() -> None:
    """Most are well-formed; many have controls, and change when they are migrated."""
    thrown = [thrown_definition(Random(number), "").encode() for number in range(200)]
    whole = [document for document in thrown if verdict.opinion(document).tree is not None]
    assert len(whole) > 150
    assert sum(bool(read_controls(document)) for document in whole) > 50
    assert sum(b"<xf:bind" in migrate(document, "2019.1.0", is_unpublished=True) for document in whole) > 100
    assert sum(verdict.knows_permissions(etree.fromstring(document)) for document in whole) in range(100, len(whole))
