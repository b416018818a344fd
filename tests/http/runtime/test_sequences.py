"""The sequences of requests of a real runtime, as its proxy sends them to a provider (spec crud 12, spec forms 5.6)."""

from tests import orders
from tests.http.runtime.proxy import FORMAT, SAVED, Proxy, data, fresh
from tests.http.runtime.releases import BOB, CLEO
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


def test_a_draft_is_saved_by_itself_and_then_the_data(lea: Proxy, form: str) -> None:
    """4.11, the order of the runtime: the draft's files can be read until the last PUT, and then all of it is gone."""
    document, old, new = fresh(), f"{fresh()}.bin", f"{fresh()}.bin"
    saved, draft = f"{form}/data/{document}", f"{form}/draft/{document}"
    lea.publish(form, orders.definition())
    lea.save(form, document, old)
    for expected in (201, 204):
        lea.write(f"{draft}/{new}", b"new", FORMAT, **V1)
        body = data(draft, new)
        assert lea.write(f"{draft}/data.xml", body, FORMAT, **V1).status == expected
    assert drafts(lea, form, f'<drafts for-document-id="{document}">only</drafts>') == [f"{document}°"]
    assert lea.read_form(form, For_Document_Id=document, For_Document_IsDraft="true").status == 200
    copied = lea.read(f"{draft}/{new}")
    assert lea.write(f"{saved}/{new}", copied.body, SAVED, **V1).status == 201
    assert lea.write(f"{saved}/data.xml", data(saved, old, new), SAVED).status == 204
    assert [lea.read(f"{draft}/{name}").status for name in ("data.xml", new)] == [404, 404]
    assert lea.send("HEAD", f"{draft}/{new}").status == 404
    assert [lea.read(f"{saved}/{name}").status for name in ("data.xml", old, new)] == [200, 200, 200]


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


def test_a_form_is_loaded(lea: Proxy, form: str) -> None:
    """12.3: HEAD and GET, by nothing, by a version, and by the document that is opened."""
    for version in (1, 2):
        lea.publish(form, definition(f"<title>{version}</title>"), "next")
    lea.save(form, "D", version=1)
    for own, version in (({}, "2"), ({"Form_Definition_Version": 1}, "1"), ({"For_Document_Id": "D"}, "1")):
        got = lea.read_form(form, **own)
        app, name = form.split("/")
        said = [got[f"Orbeon-Form-Definition-{what}"] for what in ("App", "Form", "Version")]
        assert (got.status, said) == (200, [app, name, version])
        assert f"<title>{version}</title>" in got.body.decode()


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


def test_data_is_duplicated(lea: Proxy, form: str) -> None:
    """12.5: GET, all attachments under the new id, then the data with version and stage of the original."""
    document, copy, file = fresh(), fresh(), f"{fresh()}.bin"
    lea.save(form, document, file, version=2, Workflow_Stage="started")
    cleo, base = lea.of(CLEO), f"{form}/data/{copy}"
    original = cleo.read(f"{form}/data/{document}/data.xml", FORMAT)
    content = cleo.read(f"{form}/data/{document}/{file}").body
    own = {"Form_Definition_Version": original["Orbeon-Form-Definition-Version"]}
    assert cleo.write(f"{base}/{file}", content, SAVED, **own).status == 201
    body, stage = original.body.replace(document.encode(), copy.encode()), original["Orbeon-Workflow-Stage"]
    assert cleo.write(f"{base}/data.xml", body, SAVED, **own, Workflow_Stage=stage).status == 201
    assert facts(cleo, f"{base}/data.xml") == ["cleo", "office", "cleo", "started", "2"]
    assert cleo.read(f"{base}/{file}").body == content


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
