"""Bringing back older revisions over HTTP, on both APIs and in both dialects."""

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from persistence.model.instants import Instant, one_later
from tests.published import definition
from tests.service import PUBLIC, V1, Answer, Service


def restore(service: Service, path: str, query: str, headers: dict[str, str] | None = None, **own: object) -> Answer:
    return service.call("POST", f"history/{path}/restore{query}", None, headers, **own)


def instant(service: Service, answer: Answer) -> Instant:
    assert answer.status in (200, 201, 204), (answer.status, answer.body)
    return Instant(answer[f"{service.prefix}Last-Modified"] or "")


def at(moment: str) -> str:
    return f"?last-modified-time={moment}"


def naming(form: str, document: str, *names: str, text: str = "") -> bytes:
    paths = (f"{PUBLIC}/crud/{form}/data/{document}/{quote(name)}" for name in names)
    return f"<d><t>{text}</t>{''.join(f'<a>{path}</a>' for path in paths)}</d>".encode()


def history(service: Service, path: str, **own: str) -> list[dict[str, str]]:
    answer = service.call("GET", f"history/{path}", **own)
    assert answer.status == 200
    rows = re.findall(rb"<document ([^>]*)/>", answer.body)
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', row.decode())) for row in rows]


def sidecar(service: Service, path: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(service.data, f"{path}.json").read_bytes())
    return found


def test_an_older_revision_becomes_the_current_one(service: Service, form: str) -> None:
    """A new revision, with its own instant and tag; stage and owner are kept, the modifier is who has restored."""
    path = f"{form}/data/D/data.xml"
    first = instant(service, service.put(path, b"<d>1</d>", **V1, Username="lea", Group="g", Workflow_Stage="begun"))
    before = service.put(path, b"<d>2</d>", Username="bob", Workflow_Stage="sent")
    service.put(f"{form}/draft/D/data.xml", **V1)
    back = restore(service, f"{form}/D", at(first), Username="eve")
    assert (back.status, back.body) == (204, b"")
    assert back["ETag"] not in (None, before["ETag"])
    assert instant(service, back) > instant(service, before)
    assert (back[f"{service.prefix}Form-Definition-Version"], back[f"{service.prefix}Operations"]) == ("1", "*")
    found = service.get(path)
    assert (found.body, found["ETag"]) == (b"<d>1</d>", back["ETag"])
    facts = [found[f"{service.prefix}{name}"] for name in ("Username", "Group", "Last-Modified-By-Username")]
    assert (facts, found[f"{service.prefix}Workflow-Stage"]) == (["lea", "g", "eve"], "begun")
    assert found[f"{service.prefix}Created"] == first
    assert service.get(f"{form}/draft/D/data.xml").status == 404
    rows = history(service, f"{form}/D")
    assert [row["modified-time"] for row in rows] == [instant(service, back), instant(service, before), first]


def test_the_sidecar_says_what_was_restored(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    first = instant(service, service.put(path, b"<d>1</d>", **V1, Username="lea"))
    service.put(path, b"<d>2</d>")
    assert "restored" not in sidecar(service, path)
    restore(service, f"{form}/D", at(first))
    assert sidecar(service, path)["restored"] == first
    restored = [row.get("restored-time") for row in history(service, f"{form}/D")]
    assert restored == [first if service.dialect == "svc" else None, None, None]
    service.put(path, b"<d>3</d>")
    assert "restored" not in sidecar(service, path)


def test_a_deleted_document_comes_back_with_its_attachments(service: Service, form: str) -> None:
    """Deleted ones, and replaced ones as they were then; what nothing has happened to is not stored again."""
    base = f"{form}/data/D"
    for name, body in (("kept.bin", b"kept"), ("gone.bin", b"gone"), ("new.bin", b"then"), ("empty.bin", b"")):
        service.put(f"{base}/{name}", body, {"Content-Type": "image/png"}, **V1)
    data = naming(form, "D", "kept.bin", "gone.bin", "new.bin", "empty.bin", "never.bin")
    saved = instant(service, service.put(f"{base}/data.xml", data, **V1, Username="lea", Group="g"))
    service.delete(f"{base}/gone.bin")
    service.delete(f"{base}/empty.bin")
    service.put(f"{base}/new.bin", b"later", {"Content-Type": "text/plain"}, **V1)
    service.put(f"{base}/data.xml", b"<d/>")
    service.delete(f"{base}/data.xml", Username="eve")
    assert service.get(f"{base}/gone.bin").status == service.deleted
    back = restore(service, f"{form}/D", at(saved), Username="bob")
    assert back.status == 201
    assert "never.bin" in (back[f"{service.prefix}Notice"] or "")
    found = service.get(f"{base}/data.xml")
    assert (found.body, found[f"{service.prefix}Username"], found[f"{service.prefix}Group"]) == (data, "lea", "g")
    assert found[f"{service.prefix}Created"] == saved
    for name, body in (("kept.bin", b"kept"), ("gone.bin", b"gone"), ("new.bin", b"then"), ("empty.bin", b"")):
        attachment = service.get(f"{base}/{name}")
        assert (attachment.status, attachment.body, attachment["Content-Type"]) == (200, body, "image/png")
    assert len(history(service, f"{form}/D/kept.bin")) == 1
    assert [row["deleted"] for row in history(service, f"{form}/D/gone.bin")] == ["false", "true", "false"]
    assert restore(service, f"{form}/D", at(saved)).status == 204


def test_a_repetition_stores_no_attachment_again(service: Service, form: str) -> None:
    base = f"{form}/data/D"
    service.put(f"{base}/a.bin", b"a", **V1)
    saved = instant(service, service.put(f"{base}/data.xml", naming(form, "D", "a.bin"), **V1))
    service.put(f"{base}/a.bin", b"b", **V1)
    service.put(f"{base}/data.xml", b"<d/>")
    for _ in range(2):
        assert restore(service, f"{form}/D", at(saved)).status == 204
        assert service.get(f"{base}/a.bin").body == b"a"
        assert len(history(service, f"{form}/D/a.bin")) == 3
    assert sidecar(service, f"{base}/a.bin")["restored"] == history(service, f"{form}/D/a.bin")[2]["modified-time"]


def test_an_attachment_that_was_stored_after_its_data_comes_back(service: Service, form: str) -> None:
    """As it was first: not every client stores attachments before the data that names them."""
    base = f"{form}/data/D"
    saved = instant(service, service.put(f"{base}/data.xml", naming(form, "D", "a.bin"), **V1))
    for body in (b"first", b"second"):
        service.put(f"{base}/a.bin", body, **V1)
    service.delete(f"{base}/a.bin")
    answer = restore(service, f"{form}/D", at(saved))
    assert (answer.status, answer[f"{service.prefix}Notice"]) == (204, None)
    assert service.get(f"{base}/a.bin").body == b"first"


def test_a_single_attachment_comes_back(service: Service, form: str) -> None:
    base = f"{form}/data/D"
    service.put(f"{base}/data.xml", **V1)
    first = instant(service, service.put(f"{base}/a.bin", b"1", {"Content-Type": "image/png"}, **V1))
    service.put(f"{base}/a.bin", b"2", **V1)
    assert restore(service, f"{form}/D/a.bin", at(first)).status == 204
    assert service.get(f"{base}/a.bin").body == b"1"
    service.delete(f"{base}/a.bin")
    assert restore(service, f"{form}/D/a.bin", at(first)).status == 201
    assert (service.get(f"{base}/a.bin").body, service.get(f"{base}/a.bin")["Content-Type"]) == (b"1", "image/png")


def test_a_revision_is_named_by_any_time_at_which_it_was_current(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    first = instant(service, service.put(path, b"<d>1</d>", **V1))
    service.put(path, b"<d>2</d>")
    assert restore(service, f"{form}/D", f"?as-of={first}").status == 204
    assert service.get(path).body == b"<d>1</d>"
    assert restore(service, f"{form}/D", "?as-of=2001-02-03T04:05:06.789Z").status == 404


@pytest.mark.parametrize(
    ("query", "status", "cause"),
    [
        ("", 400, "last-modified-time"),
        ("?last-modified-time=", 400, "last-modified-time"),
        ("?last-modified-time=x", 400, "last-modified-time"),
        ("?last-modified-time=2025-02-30T00:00:00.000Z", 400, "last-modified-time"),
        ("?as-of=yesterday", 400, "as-of"),
        ("?as-of=2025-03-04T05:06:07.089Z&last-modified-time=2025-03-04T05:06:07.089Z", 400, "two ways"),
        ("?last-modified-time=2025-03-04T05:06:07.089Z", 404, "2025-03-04T05:06:07.089Z"),
    ],
)
def test_a_time_that_names_no_revision_is_refused(
    service: Service, form: str, query: str, status: int, cause: str
) -> None:
    service.put(f"{form}/data/D/data.xml", b"<d>1</d>", **V1)
    answer = restore(service, f"{form}/D", query)
    assert (answer.status, cause in answer.cause) == (status, True), answer.cause
    assert len(history(service, f"{form}/D")) == 1


def test_what_is_not_there_cannot_come_back(service: Service, form: str) -> None:
    """404 of what was never stored, 410 of a tombstone; other methods are 405."""
    path = f"{form}/data/D/data.xml"
    moment = "2025-03-04T05:06:07.089Z"
    assert restore(service, f"{form}/D", at(moment)).status == 404
    assert restore(service, f"{form}/D/a.bin", at(moment)).status == 404
    service.put(f"{form}/draft/D/data.xml", **V1)
    assert restore(service, f"{form}/D", at(moment)).status == 404
    service.put(path, **V1)
    gone = instant(service, service.delete(path))
    for query in (at(gone), f"?as-of={one_later(gone)}"):
        assert restore(service, f"{form}/D", query).refuses(410, "deleted")
    for method in ("PUT", "DELETE"):
        assert service.call(method, f"history/{form}/D/restore{at(moment)}").status == 405


def test_a_body_has_no_meaning(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    first = instant(service, service.put(path, b"<d>1</d>", **V1))
    assert service.post(f"history/{form}/D/restore{at(first)}", b"<not xml" * 1000).status == 204


def test_the_version_of_a_document_stays(service: Service, form: str) -> None:
    """A revision of another version comes back only where the document is deleted."""
    path = f"{form}/data/D/data.xml"
    first = instant(service, service.put(path, b"<d>1</d>", **V1))
    service.delete(path)
    second = instant(service, service.put(path, b"<d>2</d>", Form_Definition_Version=2, Username="eve"))
    assert restore(service, f"{form}/D", at(first)).status == 400
    assert restore(service, f"{form}/D", at(second), **V1).status == 400
    assert service.get(path).body == b"<d>2</d>"
    service.delete(path)
    assert restore(service, f"{form}/D", at(first), Form_Definition_Version=2).status == 400
    back = restore(service, f"{form}/D", at(first))
    assert (back.status, back[f"{service.prefix}Form-Definition-Version"]) == (201, "1")
    found = service.get(path)
    assert (found.body, found[f"{service.prefix}Created"]) == (b"<d>1</d>", instant(service, back))


def test_if_match_is_honoured(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    answer = service.put(path, b"<d>1</d>", **V1)
    first, old = instant(service, answer), answer["ETag"] or ""
    current = service.put(path, b"<d>2</d>")["ETag"] or ""
    assert restore(service, f"{form}/D", at(first), {"If-Match": old}).status == 412
    assert restore(service, f"{form}/D", at(first), {"If-None-Match": "*"}).status == 412
    assert restore(service, f"{form}/D", at(first), {"If-Match": current}).status == 204
    service.delete(path)
    assert restore(service, f"{form}/D", at(first), {"If-None-Match": "*"}).status == 201


def test_permissions_are_those_of_a_put_and_of_a_get_of_the_revision(service: Service, form: str) -> None:
    own = (
        '<permission operations="create"><user-role any-of="maker"/></permission>'
        '<permission operations="read update delete"><owner/></permission>'
        '<permission operations="read"><user-role any-of="boss maker"/></permission>'
    )
    service.put(f"{form}/form/form.xhtml", definition(f"<permissions>{own}</permissions>"), **V1)
    path = f"{form}/data/D/data.xml"
    as_lea = {"Username": "lea", "Roles": "maker"}
    first = instant(service, service.put(path, b"<d>1</d>", **V1, **as_lea))
    service.put(path, b"<d>2</d>", Username="lea")
    for user in ({}, {"Username": "eve"}, {"Username": "eve", "Roles": "boss"}):
        assert restore(service, f"{form}/D", at(first), **user).status == 403
    assert restore(service, f"{form}/D", at(first), Username="lea").status == 204
    service.delete(path, Username="lea")
    for user in ({"Username": "lea"}, {"Username": "eve", "Roles": "boss"}):
        assert restore(service, f"{form}/D", at(first), **user).status == 403  # a creation
    assert restore(service, f"{form}/D", at(first), Username="ann", Roles="maker").status == 201
    assert service.get(path, Username="lea")[f"{service.prefix}Username"] == "lea"
    service.delete(path, Username="lea")
    service.put(path, b"<d>eve</d>", **V1, Username="eve", Roles="maker")
    assert restore(service, f"{form}/D", at(first), Username="eve").status == 403  # lea's revision


def test_the_designer_s_data_comes_back(service: Service) -> None:
    path = f"{service.designer}/builder/data/R{id(service)}/data.xml"
    first = instant(service, service.put(path, b"<d>1</d>", **V1))
    service.put(path, b"<d>2</d>")
    document = path.split("/")[3]
    assert restore(service, f"{service.designer}/builder/{document}", at(first)).status == 204
    assert service.get(path).body == b"<d>1</d>"


def test_searches_find_what_came_back(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    service.put(f"{form}/form/form.xhtml", definition(""), **V1)
    first = instant(service, service.put(path, b"<d>needle</d>", **V1))
    service.delete(path)

    def total() -> bytes:
        query = "<search><query>needle</query><page-size>10</page-size><page-number>1</page-number></search>"
        found = re.search(rb'search-total="(\d+)"', service.post(f"search/{form}", query, **V1).body)
        return b"" if found is None else found[1]

    assert total() == b"0"
    restore(service, f"{form}/D", at(first))
    assert total() == b"1"
