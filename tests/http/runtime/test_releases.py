"""What each release of the runtime depends on beside its sequences of requests: names, files and formats."""

import re
from dataclasses import replace

import pytest

from tests import orders
from tests.http.runtime.proxy import CRUD, PROPERTIES, Proxy
from tests.http.runtime.releases import BOB, CLEO, Person
from tests.orders import found, tree
from tests.service import PUBLIC, V1

SHARED = """<permissions><permission operations="create read update list"><any-authenticated-user/></permission>
    <permission operations="delete"><owner/></permission></permissions>"""
OWN = '<search><drafts>exclude</drafts><operations any-of="delete"/></search>'

NAMES = {
    "lea": "lea",
    "Jürgen Öztürk": "Jürgen Öztürk",
    "José": "José",
    "Zoe\u0308": "Zoe?",
    "李小龙": "???",
    "\U0001f600 Smith": "? Smith",
    "100% a+b": "100% a+b",
    "é%C3%A9": "é%C3%A9",
    "\xc3\xa9": "\xc3\xa9",
    "Ωmega ß": "?mega ß",
    'a"b\\c,d|e': 'a"b\\c,d|e',
}
"""Names of users, and what a header in Latin-1 has of them (spec runtime 3)."""


@pytest.mark.parametrize("name", NAMES)
def test_a_user_with_any_name_stays_the_owner(lea: Proxy, form: str, name: str) -> None:
    """The user saves, reads, saves again, somebody else saves, and a search finds the user's own document."""
    person, path = Person(name, name, (name,)), f"{form}/data/D/data.xml"
    own, shown = lea.of(person), NAMES[name]
    lea.publish(form, orders.definition(SHARED))
    assert own.write(path, b"<form/>", **V1).status == 201
    for proxy in (own, lea.of(CLEO), own):
        before = proxy.read(path)
        saved = proxy.write(
            path, b"<form>2</form>", headers={"If-Match": before["ETag"] or ""}, Workflow_Stage="geprüft"
        )
        got = proxy.read(path)
        assert (saved.status, got["Orbeon-Created"]) == (204, before["Orbeon-Created"])
        assert [got[f"Orbeon-{fact}"] for fact in ("Username", "Group", "Workflow-Stage")] == [shown, shown, "geprüft"]
        assert got["Orbeon-Last-Modified-By-Username"] == (shown if proxy is own else "cleo")
    assert [found(each.post(f"/search/{form}", OWN, **V1).body) for each in (own, lea.of(BOB))] == [["D"], []]
    assert own.remove(path).status == 204


@pytest.mark.parametrize("name", ["李小龙", "\U0001f600 e\u0308 50%"])
def test_names_of_users_are_kept_whole(lea: Proxy, form: str, name: str) -> None:
    """By the credentials, through saves of others whose names look the same in a header."""
    own, twin = lea.of(Person(name, "组")), lea.of(Person("".join(chr(ord(each) + 1) for each in name), "组"))
    for proxy in (own, own, twin):
        proxy.write(f"{form}/data/D/data.xml", b"<form/>", **V1)
    history = tree(lea.get(f"/history/{form}/D").body)
    assert {(each.get("owner-username"), each.get("owner-group")) for each in history} == {(name, "组")}
    assert [each.get("modified-username") for each in history] == [twin.person.name, name, name]


def test_attachments_that_the_runtime_keeps_are_empty_records(lea: Proxy, form: str) -> None:
    """Spec runtime 4: an empty PUT, and a GET for the headers only; videos are always asked for by a range."""
    path, kind = f"{form}/data/D/film.mp4", {"Content-Type": "video/mp4"}
    assert lea.write(path, b"", headers=kind, **V1).status == 201
    lea.write(f"{form}/data/D/data.xml", b"<form/>", **V1)
    assert lea.send("PUT", path, b"", kind, **V1).status in (201, 204)
    assert lea.provider.put(path, b"", kind, **V1).status in (201, 204), "with a length of 0"
    for range_ in (None, "bytes=0-", "bytes=0-0", "bytes=100-"):
        got = lea.read(path, headers={"Range": range_} if range_ else {})
        assert (got.status, got.body, got["Content-Type"], got["Content-Range"]) == (200, b"", "video/mp4", None)
    assert lea.remove(path).status == 204


def test_responses_that_are_left_unread_hold_nobody(lea: Proxy, form: str) -> None:
    """Since 2025.1, each GET of an attachment leaves a ``data.xml`` unread: four times as many as there are threads."""
    base = f"{form}/data/D"
    lea.write(f"{base}/data.xml", b"<form>%s</form>" % (b"x" * 200_000), **V1)
    lea.write(f"{base}/a.bin", b"1", **V1)
    assert [lea.read(f"{base}/a.bin").body for _ in range(16)] == [b"1"] * 16
    assert lea.sent.count(f"GET /crud/{base}/data.xml") == 16 * lea.release.leaves_unread


def test_the_summary_page_duplicates_a_document(lea: Proxy, form: str) -> None:
    """By a request of the runtime's own, which the public API has as well: the copy is the caller's."""
    lea.publish(form, orders.definition())
    lea.save(form, "D", "a.bin", Workflow_Stage="begun")
    lea.write(f"{form}/draft/D/data.xml", b"<form>draft</form>", **V1)
    headers = {"Content-Type": "application/xml", **dict(lea.of(CLEO).person.headers(lea.release))}
    body = b"<document-id>D</document-id>"
    answer = replace(lea.provider, face=PUBLIC).raw("POST", f"/fr/service/{form}/duplicate", headers, body)
    [new] = re.fullmatch(rb"<document-id>([^<]+)</document-id>", answer.body).groups()  # type: ignore[union-attr]
    base = f"{form}/data/{new.decode()}"
    got = lea.read(f"{base}/data.xml")
    facts = ("Username", "Group", "Workflow-Stage", "Form-Definition-Version")
    assert [got[f"Orbeon-{name}"] for name in facts] == ["cleo", "office", "begun", "1"]
    assert got.body.decode() == f"<form><a><file>{CRUD}{base}/a.bin</file></a></form>"
    assert lea.read(f"{base}/a.bin").body == b"a.bin"
    assert lea.read(f"{base.replace('/data/', '/draft/')}/data.xml").status == 404
    assert sorted(lea.documents(form, 1)) == sorted(["D", new.decode()])


def test_properties_of_the_provider_change_nothing(lea: Proxy, form: str) -> None:
    """Each becomes a header of every request (spec crud 10.3), also one that this service does not know."""
    lea = replace(lea, properties={**PROPERTIES, "max-batch-size": "1000", "my-own-thing": "x y"})
    assert lea.save(form, "D", "a.bin") == [201, 201]
    assert (lea.read(f"{form}/data/D/a.bin").body, lea.documents(form, 1)) == (b"a.bin", ["D"])
