"""The sequences of requests of a real runtime, as its proxy sends them (spec crud 12, forms 5.6), and its searches."""

from dataclasses import replace

import pytest

from tests import orders, searches
from tests.http.runtime.proxy import BOB, CLEO, CLERKS, FORMAT, NOBODY, OWNERS, SAVED, Person, Proxy, data, fresh
from tests.orders import found
from tests.published import definition
from tests.service import V1

FACTS = ("Username", "Group", "Last-Modified-By-Username", "Workflow-Stage", "Form-Definition-Version")
UPDATED = """<permissions><permission operations="create read update list"><any-authenticated-user/></permission>
    <permission operations="delete"><owner/></permission></permissions>"""


def facts(proxy: Proxy, path: str) -> list[str | None]:
    got = proxy.read(path)
    assert got.headers.get_all("Orbeon-Organization") == ["acme", "??"]
    return [got[f"Orbeon-{name}"] for name in FACTS]


def drafts(proxy: Proxy, form: str, which: str) -> list[str]:
    """The drafts that a search finds, as the proxy asks before a document is opened."""
    answer = proxy.post(f"/search/{form}", f"<search><query/>{which}</search>", **V1)
    return found(answer.body)


def test_new_data_is_saved_with_its_attachments(lea: Proxy, form: str) -> None:
    """12.1, and what is stored with each resource."""
    document, files = fresh(), [f"{fresh()}.bin" for _ in range(2)]
    base = f"/crud/{form}/data/{document}"
    assert lea.save(form, document, *files, version=3, Workflow_Stage="started") == [201, 201, 201]
    asked = f"GET /form/{form}"
    of_files = [[f"HEAD {base}/{name}", f"HEAD {base}/data.xml", asked, f"PUT {base}/{name}"] for name in files]
    assert lea.sent == [*of_files[0], *of_files[1], f"HEAD {base}/data.xml", asked, f"PUT {base}/data.xml"]
    path = f"{form}/data/{document}/data.xml"
    assert lea.read(path).body == data(f"{form}/data/{document}", *files)
    assert facts(lea, path) == ["lea", "staff", "lea", "started", "3"]
    file = lea.read(f"{form}/data/{document}/{files[0]}")
    assert (file.body, file["Content-Type"]) == (files[0].encode(), "application/pdf")
    assert (file["Orbeon-Hash-Algorithm"], file["Orbeon-Hash-Value"]) == ("SHA-256", "9f86d081")


def test_it_is_opened_for_editing_and_saved_again(lea: Proxy, form: str) -> None:
    """12.2 and 12.1: LOCK, a search for drafts, a GET, and a save by somebody else under the condition of it."""
    document, file = fresh(), f"{fresh()}.bin"
    path = f"{form}/data/{document}/data.xml"
    lea.publish(form, orders.definition(UPDATED))
    lea.save(form, document, file)
    assert drafts(lea, form, f'<drafts for-document-id="{document}">only</drafts>') == []
    bob, opened = lea.of(BOB), lea.read(path, FORMAT)
    assert all(opened[name] for name in ("Created", "Last-Modified", "ETag"))
    condition = {"If-Match": str(opened["ETag"])}
    again = bob.write(path, b"<form>2</form>", SAVED, condition, Workflow_Stage="review")
    assert (again.status, again["ETag"] not in (None, opened["ETag"])) == (204, True)
    assert lea.write(path, b"<form>3</form>", SAVED, condition).status == 412
    assert lea.remove(path, "", condition).status == 412
    assert lea.send("HEAD", path, None, condition).status == 200, "the proxy compares, and must see the tag"
    assert facts(lea, path) == ["lea", "staff", "bob", "review", "1"]
    got = lea.read(path)
    assert (got["Orbeon-Created"], got["ETag"]) == (opened["Orbeon-Created"], again["ETag"])
    assert lea.read(f"{form}/data/{document}/{file}").body == file.encode()
    assert lea.write(path, b"<form>4</form>", SAVED, {"If-Match": "*"}).status == 204
    assert facts(lea, path) == ["lea", "staff", "lea", None, "1"]
    assert lea.remove(path).status == 204


def test_a_new_form_is_kept_as_a_draft_and_opened_again(lea: Proxy, form: str) -> None:
    """4.11, "draft for new": it has an owner of its own, and nobody finds it when it is saved or thrown away."""
    never = '<drafts for-never-saved-document="true">only</drafts>'
    lea.publish(form, orders.definition())
    for document in ("saved", "thrown-away"):
        path = f"{form}/draft/{document}/data.xml"
        for status in (201, 204):
            assert lea.write(path, b"<form/>", FORMAT, **V1).status == status
        assert drafts(lea, form, never) == [f"{document}°"]
        assert drafts(lea, form, "<drafts>exclude</drafts>") == ["saved"] * (document != "saved")
        assert facts(lea, path) == ["lea", "staff", "lea", None, "1"]
        if document == "saved":
            assert lea.save(form, document) == [201]
        else:
            assert lea.remove(path).status == 204
        assert (lea.read(path).status, drafts(lea, form, never)) == (404, [])


def test_data_is_deleted(lea: Proxy, form: str) -> None:
    """12.4: without a version from the runtime; the proxy finds it. What is gone is 410, and so is the second try."""
    path, file = f"{form}/data/D/data.xml", f"{fresh()}.bin"
    lea.save(form, "D", file, version=2)
    assert lea.of(BOB).remove(path).status == 204
    assert lea.remove(path).status == 410
    assert [lea.read(f"{form}/data/D/{name}").status for name in ("data.xml", file)] == [410, 410]
    assert lea.remove(f"{form}/data/none/data.xml").status == 404
    again = lea.write(path, b"<form>again</form>", SAVED, Form_Definition_Version=3)
    got = lea.read(path)
    assert (again.status, got["Orbeon-Form-Definition-Version"]) == (201, "3")
    assert got["Orbeon-Created"] == again["Orbeon-Last-Modified"]


def test_forms_are_published(lea: Proxy, form: str) -> None:
    """12.6, 5.1 and forms 6.7: every PUT of ``next`` finds the same number until ``form.xhtml`` is there."""
    app, name = form.split("/")
    body = definition(f"<application-name>{app}</application-name><form-name>{name}</form-name>")
    source, files = fresh(), [f"{fresh()}.bin" for _ in range(2)]
    unpublished, query = f"orbeon/builder/data/{source}", f"?document={source}"
    for path in (*files, "data.xml"):
        assert lea.write(f"{unpublished}/{path}", body, **V1).status == 201
    for version in ("1", "2"):
        for path in (*files, "form.xhtml"):
            content = lea.read(f"{unpublished}/{path.replace('form.xhtml', 'data.xml')}").body
            put = lea.publish(form, content, "next", name=path, query=query)
            assert (put.status, put["Orbeon-Form-Definition-Version"]) == (201, version)
    for path in (f"{fresh()}.bin", "form.xhtml"):
        put = lea.publish(form, body, 1, name=path, query=query)
        replaced = (204,) if lea.release.says_existing else (201, 204)  # a new attachment, which is not said to exist
        assert (put.status in replaced, put["Orbeon-Form-Definition-Version"]) == (True, "1")
        assert lea.read_form(form, path, **V1).body == body
    assert lea.publish(form, body)["Orbeon-Form-Definition-Version"] == "2"
    assert (lea.remove_form(form, 2).status, lea.latest(form)) == (204, 1)
    assert lea.publish(form, body, "next").status == 201
    created = lea.read_form(form, **V1)["Orbeon-Created"]
    assert created != lea.read_form(form)["Orbeon-Created"]


# What the summary page asks for: searches with each filter, by those who see some of it.

SINCE = '<query metadata="{}" match="{}">{}</query>'
TIMED = ("T5a", "T5b", "T5c", "T5d", "T5h", "T5i")
"""Vectors that name instants at which nothing is saved here."""


@pytest.fixture
def saved(lea: Proxy, form: str) -> Proxy:
    """A proxy of somebody without data, after the saves of spec search 8.1 in their order."""
    lea.publish(form, orders.definition())
    saves = sorted((save.when, document, save) for document in orders.DOCUMENTS for save in document.saves)
    for _, document, save in saves:
        proxy = lea.of(Person(save.by.name or "", save.by.group or ""))
        path = f"{form}/{'draft' if document.is_draft else 'data'}/{document.name}/data.xml"
        stage = {"Workflow_Stage": save.stage} if save.stage else {}
        assert proxy.write(path, document.body, **V1, **stage).status in (201, 204)
    return lea.of(BOB)


def search(proxy: Proxy, form: str, body: str, version: object = 1) -> list[str]:
    return found(proxy.post(f"/search/{form}", f"<search>{body}</search>", Form_Definition_Version=version).body)


def test_each_filter_of_the_page(saved: Proxy, form: str) -> None:
    """The vectors of spec search 8.2; those about times are asked with the creation and the last save of d-2."""
    every = [(saved.of(NOBODY), each) for each in searches.VECTORS] + [(saved, each) for each in searches.DRAFTS]
    for proxy, vector in every:
        if vector.number not in TIMED:
            assert search(proxy, form, vector.children) == vector.found, vector.number
    second = saved.send("HEAD", f"{form}/data/d-2/data.xml")
    created, modified = second["Orbeon-Created"], second["Orbeon-Last-Modified"]
    assert search(saved, form, SINCE.format("created", "gte", created)) == ["d-4°", "d-3°", "d-2", "d-3"]
    assert search(saved, form, SINCE.format("created", "lt", created)) == ["d-1"]
    between = SINCE.format("last-modified", "gte", created) + SINCE.format("last-modified", "lt", modified)
    assert search(saved, form, between) == ["d-3"]


RESTRICTED = {
    OWNERS: {"ann": ["d-3°", "d-3", "d-1"], "bob": ["d-4°", "d-2"], "cleo": [], "": []},
    CLERKS: {"ann": [], "bob": [], "cleo": ["d-4°", "d-3°", "d-2", "d-3", "d-1"], "": []},
    "<permissions/>": {"ann": [], "bob": [], "cleo": [], "": []},
}


@pytest.mark.parametrize("metadata", RESTRICTED, ids=["owners", "clerks", "empty"])
def test_the_provider_leaves_out_what_a_user_may_not_see(saved: Proxy, form: str, metadata: str) -> None:
    """Unlike data, lists are restricted by the provider (spec search 1.8), but not those of an export."""
    saved.publish(form, orders.definition(metadata))
    people = (Person("ann", "sales"), BOB, CLEO, NOBODY)
    assert {each.name: search(saved.of(each), form, "") for each in people} == RESTRICTED[metadata]
    internal = replace(saved.of(NOBODY), is_internal=True)
    assert search(internal, form, "<drafts>exclude</drafts>") == ["d-2", "d-3", "d-1"]
    values = '<distinct-values><query metadata="created-by"/></distinct-values>'
    shown = [each.text for each in internal.search(form, values, 1, "distinct-values").iter("value")]
    assert (shown, internal.documents(form, "all")) == (["ann", "bob"], ["d-1", "d-3", "d-2"])
