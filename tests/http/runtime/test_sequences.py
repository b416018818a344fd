"""The sequences of requests of a real runtime, as its proxy sends them to a provider (spec crud 12, spec forms 5.6)."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests import orders
from tests.http.runtime.proxy import CRUD, Person, Proxy, Release
from tests.orders import found
from tests.published import definition
from tests.service import Service

LEA, BOB = Person("lea", "staff", ("clerk", "payroll clerk")), Person("bob", "support")
SAVED = "?valid=true&data-format-version=4.0.0"
FORMAT = "?data-format-version=4.0.0"
HASH = {"Hash_Algorithm": "SHA-256", "Hash_Value": "9f86d081"}


@pytest.fixture
def lea(provider: Service, release: Release) -> Proxy:
    return Proxy(provider, LEA, release)


def fresh() -> str:
    """An id as the runtime makes them: 40 hex digits."""
    return (uuid.uuid4().hex + uuid.uuid4().hex)[:40]


def data(base: str, *files: str) -> bytes:
    """Form data that names files below a path."""
    return f"<form><a>{''.join(f'<file>{CRUD}{base}/{name}</file>' for name in files)}</a></form>".encode()


def save(proxy: Proxy, form: str, document: str, *files: str, version: int = 1, **own: object) -> list[int]:
    """Save new data: its new attachments first; returns the statuses."""
    base = f"{form}/data/{document}"
    kind, holder = {"Content-Type": "application/pdf"}, {"Path_To_Holder": "a/file", **HASH}
    puts = [
        proxy.write(f"{base}/{name}", name.encode(), SAVED, kind, Form_Definition_Version=version, **holder)
        for name in files
    ]
    puts.append(proxy.write(f"{base}/data.xml", data(base, *files), SAVED, Form_Definition_Version=version, **own))
    return [answer.status for answer in puts]


def test_new_data_is_saved_with_its_attachments(lea: Proxy, form: str) -> None:
    """12.1, and what is stored with each resource."""
    document, files = fresh(), [f"{fresh()}.bin" for _ in range(2)]
    base = f"/crud/{form}/data/{document}"
    assert save(lea, form, document, *files, version=3, Workflow_Stage="started") == [201, 201, 201]
    of_file = [f"{method} {base}/{{0}}" for method in ("HEAD", "PUT")]
    of_file.insert(1, f"HEAD {base}/data.xml")
    of_data = [f"HEAD {base}/data.xml", f"PUT {base}/data.xml"]
    assert lea.sent == [line.format(name) for name in files for line in of_file] + of_data
    got = lea.read(f"{form}/data/{document}/data.xml")
    assert got.body == data(f"{form}/data/{document}", *files)
    seen = {"Username": "lea", "Group": "staff", "Workflow-Stage": "started", "Form-Definition-Version": "3"}
    assert {name: got[f"Orbeon-{name}"] for name in seen} == seen
    assert got.headers.get_all("Orbeon-Organization") == ["acme", "unit"]
    file = lea.read(f"{form}/data/{document}/{files[0]}")
    assert (file.body, file["Content-Type"]) == (files[0].encode(), "application/pdf")
    assert (file["Orbeon-Hash-Algorithm"], file["Orbeon-Hash-Value"]) == ("SHA-256", "9f86d081")


def test_it_is_opened_for_editing_and_saved_again(lea: Proxy, form: str) -> None:
    """12.2 and 12.1: a search for drafts, a GET, and a save by somebody else under the condition of what was read."""
    document, file = fresh(), f"{fresh()}.bin"
    path = f"{form}/data/{document}/data.xml"
    lea.publish(form, "form.xhtml", orders.definition())
    save(lea, form, document, file)
    drafts = f'<search><query/><drafts for-document-id="{document}">only</drafts></search>'
    assert found(lea.post(f"/search/{form}", drafts, Form_Definition_Version=1).body) == []
    opened = lea.read(path, FORMAT)
    assert all(opened[name] for name in ("Created", "Last-Modified", "ETag"))
    bob = replace(lea, person=BOB)
    condition = {"If-Match": str(opened["ETag"])}
    again = bob.write(path, b"<form>2</form>", SAVED, condition, Workflow_Stage="review")
    assert (again.status, again["ETag"] is not None) == (204, True)
    assert lea.write(path, b"<form>3</form>", SAVED, condition).status == 412
    got = lea.read(path)
    assert (got["Orbeon-Created"], got["ETag"]) == (opened["Orbeon-Created"], again["ETag"])
    said = ("Orbeon-Username", "Orbeon-Group", "Orbeon-Last-Modified-By-Username", "Orbeon-Workflow-Stage")
    assert [got[name] for name in said] == ["lea", "staff", "bob", "review"]
    assert got.headers.get_all("Orbeon-Organization") == ["acme", "unit"]
    assert lea.read(f"{form}/data/{document}/{file}").body == file.encode()


def test_a_draft_is_saved_by_itself_and_then_the_data(lea: Proxy, form: str) -> None:
    """4.11, the order of the runtime: the draft's files can be read until the last PUT, and then all of it is gone."""
    document, old, new = fresh(), f"{fresh()}.bin", f"{fresh()}.bin"
    saved, draft = f"{form}/data/{document}", f"{form}/draft/{document}"
    lea.publish(form, "form.xhtml", orders.definition())
    save(lea, form, document, old)
    for expected in (201, 204):
        lea.write(f"{draft}/{new}", b"new", FORMAT, Form_Definition_Version=1)
        body = data(draft, new)
        assert lea.write(f"{draft}/data.xml", body, FORMAT, Form_Definition_Version=1).status == expected
    only = f'<search><query/><drafts for-document-id="{document}">only</drafts></search>'
    assert found(lea.post(f"/search/{form}", only, Form_Definition_Version=1).body) == [f"{document}°"]
    assert lea.read_form(form, For_Document_Id=document, For_Document_IsDraft="true").status == 200
    copied = lea.read(f"{draft}/{new}")
    assert lea.write(f"{saved}/{new}", copied.body, SAVED, Form_Definition_Version=1).status == 201
    assert lea.write(f"{saved}/data.xml", data(saved, old, new), SAVED).status == 204
    assert [lea.read(f"{draft}/{name}").status for name in ("data.xml", new)] == [404, 404]
    assert lea.send("HEAD", f"{draft}/{new}").status == 404
    assert [lea.read(f"{saved}/{name}").status for name in ("data.xml", old, new)] == [200, 200, 200]


def test_a_form_is_loaded(lea: Proxy, form: str) -> None:
    """12.3: HEAD and GET, by nothing, by a version, and by the document that is opened."""
    for version in (1, 2):
        lea.publish(form, "form.xhtml", definition(f"<title>{version}</title>"), version="next")
    save(lea, form, "D", version=1)
    for own, version in (({}, "2"), ({"Form_Definition_Version": 1}, "1"), ({"For_Document_Id": "D"}, "1")):
        got = lea.read_form(form, **own)
        app, name = form.split("/")
        said = [got[f"Orbeon-Form-Definition-{what}"] for what in ("App", "Form", "Version")]
        assert (got.status, said) == (200, [app, name, version])
        assert f"<title>{version}</title>" in got.body.decode()


def test_data_is_deleted(lea: Proxy, form: str) -> None:
    """12.4: without a version from the runtime; the proxy finds it. What is gone is 410, and so is the second try."""
    path, file = f"{form}/data/D/data.xml", f"{fresh()}.bin"
    save(lea, form, "D", file, version=2)
    assert replace(lea, person=BOB).remove(path).status == 204
    assert lea.remove(path).status == 410
    assert [lea.read(f"{form}/data/D/{name}").status for name in ("data.xml", file)] == [410, 410]
    assert lea.remove(f"{form}/data/none/data.xml").status == 404
    again = lea.write(path, b"<form>again</form>", SAVED, Form_Definition_Version=3)
    got = lea.read(path)
    assert (again.status, got["Orbeon-Form-Definition-Version"]) == (201, "3")
    assert got["Orbeon-Created"] == again["Orbeon-Last-Modified"]


def test_an_import_deletes_all_data_of_a_version_first(lea: Proxy, form: str) -> None:
    """12.4 and 4.13: search and single DELETEs, until nothing is found; other versions stay."""
    lea.publish(form, "form.xhtml", orders.definition(), version=1)
    lea.publish(form, "form.xhtml", orders.definition(), version=2)
    for number in range(6):
        save(lea, form, f"D{number}", version=number % 2 + 1)
    assert lea.remove_all(form, 1) == 3
    statuses = [lea.read(f"{form}/data/D{number}/data.xml").status for number in range(6)]
    assert statuses == [410, 200] * 3
    assert lea.remove_all(form, 1) == 0


def test_data_is_duplicated(lea: Proxy, form: str) -> None:
    """12.5: GET, all attachments under the new id, then the data with version and stage of the original."""
    document, copy, file = fresh(), fresh(), f"{fresh()}.bin"
    save(lea, form, document, file, version=2, Workflow_Stage="started")
    bob = replace(lea, person=BOB)
    original = bob.read(f"{form}/data/{document}/data.xml", FORMAT)
    stage, version = original["Orbeon-Workflow-Stage"], original["Orbeon-Form-Definition-Version"]
    content = bob.read(f"{form}/data/{document}/{file}").body
    base = f"{form}/data/{copy}"
    assert bob.write(f"{base}/{file}", content, SAVED, Form_Definition_Version=version).status == 201
    body = original.body.replace(document.encode(), copy.encode())
    own = {"Form_Definition_Version": version, "Workflow_Stage": stage}
    assert bob.write(f"{base}/data.xml", body, SAVED, **own).status == 201
    got = bob.read(f"{base}/data.xml")
    assert [got[f"Orbeon-{name}"] for name in ("Username", "Workflow-Stage", "Form-Definition-Version")] == [
        "bob",
        "started",
        "2",
    ]
    assert bob.read(f"{base}/{file}").body == content


def test_forms_are_published(lea: Proxy, form: str) -> None:
    """12.6, 5.1 and forms 6.7: every PUT of ``next`` finds the same number until ``form.xhtml`` is there."""
    app, name = form.split("/")
    body = definition(f"<application-name>{app}</application-name><form-name>{name}</form-name>")
    source, files = fresh(), [f"{fresh()}.bin" for _ in range(2)]
    unpublished = f"orbeon/builder/data/{source}"
    for path in (*files, "data.xml"):
        assert lea.write(f"{unpublished}/{path}", body, Form_Definition_Version=1).status == 201
    for version in ("1", "2"):
        for path in (*files, "form.xhtml"):
            content = lea.read(f"{unpublished}/{path.replace('form.xhtml', 'data.xml')}").body
            put = lea.publish(form, path, content, f"?document={source}", version="next")
            assert (put.status, put["Orbeon-Form-Definition-Version"]) == (201, version)
    for path in (f"{fresh()}.bin", "form.xhtml"):
        put = lea.publish(form, path, body, f"?document={source}", version=1)
        replaced = (204,) if lea.release.says_existing else (201, 204)  # a new attachment, which is not said to exist
        assert (put.status in replaced, put["Orbeon-Form-Definition-Version"]) == (True, "1")
        assert lea.read_form(form, path, Form_Definition_Version=1).body == body
    assert lea.publish(form, "form.xhtml", body)["Orbeon-Form-Definition-Version"] == "2"
    gone = lea.send("DELETE", f"{form}/form/form.xhtml", Form_Definition_Version=2)
    assert (gone.status, lea.latest(form)) == (204, 1)
    assert lea.publish(form, "form.xhtml", body, version="next").status == 201
    created = lea.read_form(form, Form_Definition_Version=1)["Orbeon-Created"]
    assert created != lea.read_form(form)["Orbeon-Created"]


def test_forms_are_listed_and_indexed_again(lea: Proxy, form: str) -> None:
    """The form metadata of the page of published forms, and reindexing from there."""
    for _ in range(2):
        lea.publish(form, "form.xhtml", orders.definition(), version="next")
    save(lea, form, "D", version=2)
    app = form.partition("/")[0]
    for rest in ("", f"/{form}"):
        listed = lea.get(f"/form{rest}?all-versions=true&all-forms=true")
        assert (listed.status, listed["Content-Type"]) == (200, "application/xml")
        assert listed.body.decode().count(f"<application-name>{app}<") == 2
    assert lea.release.reindexes == "POST" or lea.get("/reindex").body == b""
    assert lea.post(f"/reindex/{form}", Form_Definition_Version=2).status == 200
    assert found(lea.post(f"/search/{form}", "<search/>", Form_Definition_Version=2).body) == ["D"]


def test_the_summary_page_is_searched_page_by_page(lea: Proxy, form: str) -> None:
    """Spec search 1: the provider restricts a search by the permissions of the form, and orders and counts."""
    own = '<permissions><permission operations="create read update delete list"><owner/></permission></permissions>'
    body = orders.definition().replace(b"</metadata>", own.encode() + b"</metadata>", 1)
    assert own.encode() in body
    lea.publish(form, "form.xhtml", body)
    for number in range(5):
        save(lea, form, f"D{number}")
    save(replace(lea, person=BOB), form, "bobs")
    pages = [
        f"<search><query/><page-size>2</page-size><page-number>{number}</page-number></search>" for number in (1, 3)
    ]
    shown = [found(lea.post(f"/search/{form}", page, Form_Definition_Version=1).body) for page in pages]
    assert shown == [["5", "D4", "D3"], ["5", "D0"]]
