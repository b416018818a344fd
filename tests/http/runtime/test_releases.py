"""What each release of the runtime depends on beside its sequences of requests (spec runtime)."""

from __future__ import annotations

import http.client
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from lxml import etree

from tests import orders
from tests.http.runtime.proxy import Person, Proxy, Release, Version
from tests.in_process import serving
from tests.orders import found, tree
from tests.published import definition
from tests.service import PROVIDER, PUBLIC, Service

LEA, BOB, DANA = Person("lea"), Person("bob", "support"), Person("dana", "design", ("designer",))
OWNERS = '<permissions><permission operations="create read update delete list"><owner/></permission></permissions>'
CLERKS = '<permissions><permission operations="read list"><user-role any-of="clerk"/></permission></permissions>'
V1 = {"Form_Definition_Version": 1}
TOKEN = {"fr-internal-admin-token": "6f70617175650a"}


@pytest.fixture
def lea(provider: Service, release: Release) -> Proxy:
    return Proxy(provider, LEA, release)


@pytest.mark.parametrize("name", ["form", "library"])
@pytest.mark.parametrize("metadata", [CLERKS, f"<available>false</available>{OWNERS}", ""])
def test_each_publication_of_next_is_a_new_version(lea: Proxy, form: str, name: str, metadata: str) -> None:
    """By a designer who may do nothing with the data, also of an unavailable form and of a library."""
    dana, form = replace(lea, person=DANA), f"{form.partition('/')[0]}/{name}"
    for number in (1, 2, 3):
        put = dana.publish(form, "form.xhtml", definition(metadata), version="next")
        assert (put.status, put["Orbeon-Form-Definition-Version"]) == (201, str(number))
        assert dana.latest(form) == number
    assert sorted(each.number for each in dana.versions(form)) == [1, 2, 3]
    if metadata:
        assert not any(replace(lea, person=BOB).may_do_everything(form, number) for number in (1, 2, 3))


def test_each_version_has_permissions_of_its_own(lea: Proxy, form: str) -> None:
    for metadata in (CLERKS, "", OWNERS):
        lea.publish(form, "form.xhtml", definition(metadata), version="next")
    assert [lea.may_do_everything(form, number) for number in (1, 2, 3)] == [False, True, False]


def test_an_unavailable_form_can_be_published_again(lea: Proxy, form: str) -> None:
    """The admin page lists it, and so it has a button."""
    app, name = form.split("/")
    for metadata, available in (("", True), ("<available>false</available>", False), ("", True)):
        lea.publish(form, "form.xhtml", definition(metadata), version=1)
        filters = (("application-name", app), ("form-name", name), ("form-version", "latest"))
        listed = [each for each in lea.listed(*filters) if each.form == form]
        assert listed == [Version(form, 1, permissions=False, available=available)]


def test_the_toolbox_finds_libraries(lea: Proxy, form: str) -> None:
    library = f"{form.partition('/')[0]}/library"
    lea.publish(library, "form.xhtml", definition(CLERKS), version="next")
    assert library in {each.form for each in lea.listed(("form-name", "library"))}


NAMES = ["lea", "Jürgen Öztürk", "José", "Zoë\u0308", "李小龙", "\U0001f600 Smith", "100% a+b", "é%C3%A9", "Ωmega ß"]


@pytest.mark.parametrize("name", NAMES)
def test_a_user_with_any_name_stays_the_owner(lea: Proxy, form: str, name: str) -> None:
    """The user saves, reads, saves again, somebody else saves, and a search finds the user's own document."""
    own, path = replace(lea, person=Person(name, name)), f"{form}/data/D/data.xml"
    lea.publish(form, "form.xhtml", orders.definition(OWNERS))
    assert own.write(path, b"<form/>", **V1).status == 201
    for proxy in (own, replace(lea, person=BOB), own):
        before = proxy.read(path)
        saved = proxy.write(path, b"<form>2</form>", "", {"If-Match": before["ETag"] or ""}, **V1)
        got = proxy.read(path)
        assert (saved.status, got["Orbeon-Created"]) == (204, before["Orbeon-Created"])
        seen = "".join(each if each < "\u0100" else "?" for each in name)
        assert [got[f"Orbeon-{fact}"] for fact in ("Username", "Group")] == [seen, seen]
        assert got["Orbeon-Last-Modified-By-Username"] == "".join(
            each if each < "\u0100" else "?" for each in proxy.person.name
        )
    assert [found(each.post(f"/search/{form}", "<search/>", **V1).body) for each in (own, lea)] == [["D"], []] or (
        name == "lea"
    )


def test_names_of_users_are_kept_whole(lea: Proxy, form: str) -> None:
    own = replace(lea, person=Person("李小龙", "组"))
    for _ in range(2):
        own.write(f"{form}/data/D/data.xml", b"<form/>", **V1)
    listed = lea.get(f"/history/{form}/D")
    assert {each.get("owner-username") for each in tree(listed.body)} == {"李小龙"}


@pytest.mark.parametrize("name", ["scan.pdf", "x.pdf.json", ".hidden", "a b+c&d.pdf", "é" * 127, "x" * 251 + ".pdf"])
def test_attachments_may_have_any_name(lea: Proxy, form: str, name: str) -> None:
    path, kind = f"{form}/data/D/{quote(name)}", {"Content-Type": "application/pdf"}
    assert lea.write(path, b"%PDF", "", kind, **V1).status == 201
    lea.write(f"{form}/data/D/data.xml", b"<form/>", **V1)
    got = lea.read(path)
    assert (got.status, got.body, got["Content-Type"]) == (200, b"%PDF", "application/pdf")
    assert lea.remove(path).status == 204
    assert lea.read(path).status == 410


def test_attachments_that_the_runtime_keeps_are_empty_records(lea: Proxy, form: str) -> None:
    """Spec runtime 4: an empty PUT, and a GET for the headers only; videos are always asked for by a range."""
    path = f"{form}/data/D/film.mp4"
    lea.write(f"{form}/data/D/data.xml", b"<form/>", **V1)
    statuses = [lea.send("PUT", path, b"", {"Content-Type": "video/mp4"}, **V1).status for _ in range(2)]
    assert (statuses[0], statuses[1] in (201, 204)) == (201, True)
    got = lea.provider.get(path, {"Range": "bytes=0-"})
    assert (got.status, got.body, got["Content-Type"]) == (200, b"", "video/mp4")


@pytest.mark.parametrize("name", ["4.0.0", "4.8.0", "2019.1.0", "2019.2.0", "2021.1.0", "2024.1.0"])
def test_data_of_every_format_is_saved(lea: Proxy, form: str, name: str) -> None:
    path, query = f"{form}/data/D/data.xml", f"?data-format-version={name}"
    own = {**V1, "Data_Format_Version": name}
    assert [lea.write(path, b"<form/>", query, **own).status for _ in range(2)] == [201, 204]
    assert lea.read(path, query, **own).status == 200


def test_the_runtimes_exports_and_purges_find_everything(lea: Proxy, form: str) -> None:
    lea.publish(form, "form.xhtml", orders.definition(OWNERS))
    for person in (LEA, BOB, DANA):
        replace(lea, person=person).write(f"{form}/data/{person.name}/data.xml", b"<form/>", **V1)
    asked = {f"Orbeon-{name.replace('_', '-')}": str(value) for name, value in V1.items()} | TOKEN
    by_header = lea.provider.raw("POST", f"/search/{form}", asked, b"<search/>")
    assert sorted(found(by_header.body)) == ["bob", "dana", "lea"]


def test_a_purge_goes_from_the_newest_revision_to_the_oldest(tmp_path: Path, release: Release) -> None:
    """With a history, from the newest; without one, only what is current. The runtime shows no key."""
    settings = tmp_path / "settings.toml"
    settings.write_text('administrators = ["trusted"]\ntrusted = ["127.0.0.1"]\n')
    with serving(tmp_path, dialect="orbeon", options=("--config", str(settings)), alone=True) as service:
        lea = Proxy(replace(service, face=PROVIDER), LEA, release)
        for document, has_history in (("with", True), ("without", False)):
            path = f"a/f/data/{document}/data.xml"
            for number in range(3):
                lea.write(path, b"<form>%d</form>" % number, **V1)
            lea.write(f"a/f/data/{document}/a.bin", b"1", **V1)
            assert lea.remove(path).status == 204
            revisions = [str(each.get("modified-time")) for each in tree(lea.get(f"/history/a/f/{document}").body)]
            for instant in (revisions[1], revisions[0], *(revisions[2:] if has_history else ())):
                query = f"?force-delete=true&last-modified-time={instant}"
                assert lea.send("DELETE", path + query, **V1).status == 204
                assert lea.read(path).status in (404, 410)
            assert lea.send("DELETE", f"a/f/data/{document}/a.bin?force-delete=true", **V1).status in (204, 404)
            assert lea.read(path).status == (404 if has_history else 410)


def test_responses_that_are_left_unread_hold_nobody(lea: Proxy, form: str) -> None:
    """2025.1 opens ``data.xml`` for each attachment and does not read it (spec runtime 8)."""
    path = f"{form}/data/D/data.xml"
    lea.write(path, b"<form>%s</form>" % (b"x" * 200_000), **V1)
    with ExitStack() as stack:
        for _ in range(16):
            connection = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", lea.provider.port)))
            connection.request("GET", f"/crud/{path}")
        assert lea.read(path).status == 200


def test_forms_are_indexed_again(lea: Proxy) -> None:
    done = lea.get("/reindex") if lea.release.reindexes == "GET" else lea.post("/reindex")
    assert (done.status, done.body) == (200, b"")


def test_leases_keep_the_second_user_out_of_the_page(lea: Proxy, form: str) -> None:
    """They are on, as for each built-in provider that has them."""
    lea.write(f"{form}/data/{form[4:12]}/data.xml", b"<form/>", **V1)

    def ask(method: str, name: str) -> int:
        body = f'<d:lockinfo xmlns:d="DAV:"><d:owner><username>{name}</username></d:owner></d:lockinfo>'
        path = f"/crud/{form}/data/{form[4:12]}/data.xml"
        return lea.provider.raw(method, path, {"Timeout": "Second-600"}, body.encode()).status

    assert [ask("LOCK", name) for name in ("lea", "bob", "lea")] == [200, 423, 200]
    assert [ask(method, name) for method, name in (("UNLOCK", "bob"), ("UNLOCK", "lea"), ("LOCK", "bob"))] == [
        423,
        200,
        200,
    ]


def test_an_added_iteration_is_listed_by_its_count(lea: Proxy, form: str) -> None:
    """And shared ones are compared by their position."""
    lea.publish(form, "form.xhtml", orders.definition())
    path, line = f"{form}/data/D/data.xml", "<lines><product>{}</product></lines>"
    for products in ("ab", "xab"):
        body = f"<form><items>{''.join(map(line.format, products))}</items></form>"
        lea.write(path, body.encode(), **V1)
    newest = tree(lea.get(f"/history/{form}/D?include-diffs=true").body)[0]
    shown = [(each.get("type"), each.get("name"), each.get("count")) for each in newest.iter("diff")]
    changed = ("value-changed", "product", None)
    assert shown == [("iteration-added", "lines", "1"), changed, changed]


def test_the_summary_page_duplicates_a_document(lea: Proxy, form: str) -> None:
    """By a request of the runtime's own, which the public face has as well."""
    public = replace(lea.provider, face=PUBLIC)
    public.put(f"{form}/data/D/data.xml", b"<form/>", **V1, Username="lea", Workflow_Stage="begun")
    headers = {"Content-Type": "application/xml", "Orbeon-Username": "bob"}
    answer = public.raw("POST", f"/fr/service/{form}/duplicate", headers, b"<document-id>D</document-id>")
    new = etree.fromstring(answer.body)
    got = public.get(f"{form}/data/{new.text}/data.xml")
    assert (new.tag, got["Orbeon-Username"], got["Orbeon-Workflow-Stage"]) == ("document-id", "bob", "begun")
