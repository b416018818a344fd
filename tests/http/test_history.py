"""Revision histories and differences between revisions over HTTP: spec crud 8.1."""

import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from lxml import etree

from persistence.model.texts import LAST, Instant, next_after, one_later
from persistence.services import histories
from tests import service as services
from tests.encrypted_form import DEFINITION, SECRETS, data
from tests.forms import vectors
from tests.forms.test_diffs import CODE, TRIP, trip
from tests.forms.vectors import changed
from tests.http.stories import play, stories
from tests.http.test_encryption import keyed, keys_of
from tests.in_process import serving
from tests.service import PROVIDER, V1, Answer, Service, running


def ask(service: Service, path: str, query: str = "", method: str = "GET", **own: str) -> Answer:
    return service.call(method, f"history/{path}{query}", **own)


def listed(answer: Answer) -> tuple[dict[str, str], list[dict[str, str]]]:
    found = differences(answer)
    assert all(child.tag == "document" for child in found)
    return dict(etree.fromstring(answer.body).attrib), [dict(child.attrib) for child in found]


def differences(answer: Answer) -> list[etree._Element]:
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml"), answer.body
    return list(etree.fromstring(answer.body))


def save(service: Service, path: str, times: int = 1, **own: object) -> list[str]:
    """Save so many times, and return the instants, newest first."""
    answers = [service.put(path, **{**V1, **own}) for _ in range(times)]
    assert all(answer.status in (201, 204) for answer in answers)
    return [answer.instant for answer in answers][::-1]


def test_three_saves_are_listed_newest_first(service: Service, form: str) -> None:
    """8.1, conformance check 13: every attribute, in the order of the example."""
    path = f"{form}/data/D/data.xml"
    first = save(service, path, Username="lea", Group="staff")[0]
    second = save(service, path, Username="bob", Group="staff", Workflow_Stage="review")[0]
    third = save(service, path)[0]
    answer = ask(service, f"{form}/D")
    attributes, documents = listed(answer)
    app, name = form.split("/")
    assert attributes == {
        "application-name": app,
        "form-name": name,
        "document-id": "D",
        "total": "3",
        "min-last-modified-time": first,
        "max-last-modified-time": third,
        "page-size": "10",
        "page-number": "1",
        "form-version": "1",
        "created-time": first,
    }
    owner = {"owner-username": "lea", "owner-group": "staff", "deleted": "false"}
    assert documents == [
        {"modified-time": third, "modified-username": "", **owner},
        {"modified-time": second, "modified-username": "bob", **owner, "stage": "review"},
        {"modified-time": first, "modified-username": "lea", **owner},
    ]
    headed = ask(service, f"{form}/D", method="HEAD")
    assert (headed.status, headed.body, headed["Content-Length"]) == (200, b"", str(len(answer.body)))


@pytest.mark.parametrize(
    ("query", "positions", "size", "number"),
    [
        ("", range(10), "10", "1"),
        ("?page-number=2", range(10, 12), "10", "2"),
        ("?page-size=5&page-number=3", range(10, 12), "5", "3"),
        ("?page-size=12", range(12), "12", "1"),
        ("?page-size=101", range(12), "100", "1"),
        ("?page-size=999999999999999999", range(12), "100", "1"),
        ("?page-number=3", range(0), "10", "3"),
        ("?page-number=999999999999999999", range(0), "10", "999999999999999999"),
        ("?page-number=&page-size=", range(10), "10", "1"),
        ("?include-diffs=false&lang=en&truncation-size=5", range(10), "10", "1"),
    ],
)
def test_pages(service: Service, form: str, query: str, positions: range, size: str, number: str) -> None:
    instants = save(service, f"{form}/data/D/data.xml", 12)
    attributes, documents = listed(ask(service, f"{form}/D", query))
    assert [each["modified-time"] for each in documents] == [instants[position] for position in positions]
    assert (attributes["total"], attributes["page-size"], attributes["page-number"]) == ("12", size, number)
    times = attributes["min-last-modified-time"], attributes["max-last-modified-time"]
    assert times == (instants[-1], instants[0])
    assert ("form-version" in attributes, "created-time" in attributes) == (bool(positions), bool(positions))


_OWN = (
    '<permission operations="create"/>'
    '<permission operations="read update delete"><owner/></permission>'
    '<permission operations="read"><user-role any-of="boss"/></permission>'
)


@stories(
    {
        "of what was never stored there is an empty list without times and version; a draft has no history (8.1)": """
            PUT draft/D v=1
            HISTORY D -> 200 body=`<documents application-name="{app}" form-name="{name}" document-id="D" total="0"\
 page-size="10" page-number="1"/>`""",
        "a page that is none is refused": "\n".join(
            f"HISTORY D?{name}={value} -> 400 `{name}`"
            for name, values in {
                **dict.fromkeys(
                    ("page-number", "page-size"), ("0", "-1", "1.5", "x", "%2B1x", "1e3", "%D9%A1", "9" * 19)
                ),
                "include-diffs": ("maybe", "1", "TRUE"),
            }.items()
            for value in values
        ),
        "tombstones and what came after are listed, and drafts never": """
            PUT data/D v=1 by=lea stage=x -> Last-Modified>first
            DELETE data/D v=1 by=bob -> Last-Modified>gone
            PUT data/D v=1 by=eve -> Last-Modified>again
            PUT draft/D v=1
            HISTORY D -> times=`{again} {gone} {first}` has=`total="3"` has=`created-time="{again}"` \
                has=`modified-time="{gone}" modified-username="bob" owner-username="lea" owner-group="" deleted="true"/`
            HISTORY D?page-size=2&page-number=2 -> times={first} has=`created-time="{first}"`""",
        "an attachment has a history while its document is there": """
            PUT data/D v=1 -> Last-Modified>saved
            PUT data/D/a.bin v=1 by=lea -> Last-Modified>one
            PUT data/D/a.bin v=1 by=lea -> Last-Modified>two
            PUT data/D/a.bin.bin v=1
            HISTORY D/a.bin -> 200 times=`{two} {one}`
            HISTORY D/other.bin -> 200 has=`total="0"`
            HISTORY D/data.xml D -> 200 times={saved}
            DELETE data/D v=1
            HISTORY D/a.bin -> deleted""",
        "the permissions of the document decide: 403 as a GET; of a deleted document the tombstone decides": f"""
            PERMISSIONS {_OWN}
            PUT data/D data/D data/D/a.bin v=1 by=lea
            HISTORY D D/a.bin by=lea -> 200
            HISTORY D D/a.bin by=eve role=boss -> 200
            HISTORY D D/a.bin by=eve -> 403
            HISTORY D D/a.bin -> 403
            DELETE data/D v=1 by=lea -> 204
            HISTORY D by=lea -> 200 has=`total="3"`
            HISTORY D by=eve -> 403""",
        "what belonged to another owner is not revealed: neither rows nor their number nor their times": f"""
            PERMISSIONS {_OWN}
            PUT data/D v=1 by=lea -> Last-Modified>lea1
            PUT data/D v=1 by=lea -> Last-Modified>lea2
            DELETE data/D v=1 by=lea -> Last-Modified>gone
            PUT data/D v=1 by=eve -> Last-Modified>eve1
            PUT data/D v=1 by=eve -> Last-Modified>eve2
            HISTORY D by=eve -> times=`{{eve2}} {{eve1}}` has=`total="2" min-last-modified-time="{{eve1}}"`
            GET data/D?last-modified-time={{lea2}} by=eve -> 403
            HISTORY D by=ann role=boss -> times=`{{eve2}} {{eve1}} {{gone}} {{lea2}} {{lea1}}`
            HISTORY D by=lea -> 403
            DELETE data/D v=1 by=eve
            PUT data/D v=1 by=lea -> Last-Modified>back
            HISTORY D by=lea -> times=`{{back}} {{gone}} {{lea2}} {{lea1}}` has=`total="4"`
            HISTORY D?page-size=2 by=lea -> times=`{{back}} {{gone}}` has=`total="4"`
            HISTORY D?page-size=2&page-number=2 by=lea -> times=`{{lea2}} {{lea1}}` has=`total="4"`""",
        "as-of is judged by the revision that is found": f"""
            PERMISSIONS {_OWN}
            PUT data/D v=1 by=lea -> Last-Modified>first
            DELETE data/D v=1 by=lea
            PUT data/D v=1 by=eve
            GET data/D?as-of={{first}} by=eve -> 403
            GET data/D?as-of={{first}} by=lea -> 200
            GET data/D?as-of={LAST} by=lea -> 403""",
        "as-of of attachments and drafts": f"""
            PUT data/D v=1
            PUT data/D/a.bin v=1 <one/> -> Last-Modified>first
            PUT data/D/a.bin v=1 <two/> -> Last-Modified>last
            GET data/D/a.bin?as-of={{first}} -> 200 <one/>
            GET data/D/a.bin?as-of={{last}} -> 200 <two/>
            PUT draft/D v=1
            GET draft/D?as-of={LAST} -> 200
            GET data/D/a.bin?as-of=2001-02-03T04:05:06.789Z draft/D?as-of=2001-02-03T04:05:06.789Z -> 404""",
        "a time that is none and two times are refused": f"""
            PUT data/D v=1
            GET|DELETE data/D?as-of=x data/D?as-of=2025-03-04 v=1 -> 400
            GET|DELETE data/D?as-of=2025-02-30T00:00:00Z data/D?as-of={LAST}&last-modified-time={LAST} v=1 -> 400
            GET data/D -> 200""",
    }
)
def test_histories(service: Service, form: str, story: str) -> None:
    play(service, form, story)


def test_a_damaged_older_revision_does_not_hide_the_others(service: Service, form: str) -> None:
    path, folder = f"{form}/data/D/data.xml", Path(service.data, form, "data/D")
    instants = save(service, path, 3, Username="lea")
    (folder / f".history/{instants[1].replace(':', '-')}.data.xml.json").write_bytes(b"{}")
    answer = ask(service, f"{form}/D")
    attributes, documents = listed(answer)
    assert attributes["total"] == "3"
    assert [each["modified-time"] for each in documents] == instants
    assert [each.get("damaged") for each in documents] == [None, "true", None]
    assert (documents[1]["owner-username"], documents[1]["modified-username"]) == ("", "")
    assert "1 of these revisions" in (answer[f"{service.prefix}Notice"] or "")
    first, _ = listed(ask(service, f"{form}/D", "?page-size=1&page-number=2"))
    assert (first["form-version"], first["created-time"]) == ("", "")
    assert service.get(f"{path}?last-modified-time={instants[1]}").status == (502 if services.is_proxied else 500)
    if not services.is_proxied:  # what is damaged in the service behind is 502 there
        (folder / "data.xml.json").write_bytes(b"{}")
        assert ask(service, f"{form}/D").status == 500


def test_as_of_reads_what_was_current_at_a_time(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    texts = [b"<d>1</d>", b"<d>2</d>"]
    instants = []
    for text in texts:
        answer = service.put(path, text, **V1)
        instants.append(Instant(answer.instant))
        _wait_after(instants[-1])
    between = one_later(instants[0])
    assert service.get(f"{path}?last-modified-time={between}").status == 404
    for moment, text in ((instants[0], 0), (between, 0), (instants[1], 1), (LAST, 1)):
        found = service.get(f"{path}?as-of={moment}")
        assert (found.status, found.body, found[f"{service.prefix}Last-Modified"]) == (200, texts[text], instants[text])
        headed = service.head(f"{path}?as-of={moment}")
        assert (headed.status, headed["ETag"]) == (200, found["ETag"])
    assert service.get(f"{path}?as-of=2001-02-03T04:05:06.789Z").status == 404
    gone = Instant(service.delete(path, **V1).instant)
    _wait_after(gone)
    again = Instant(save(service, path)[0])
    for moment in (gone, one_later(gone)):
        assert service.get(f"{path}?as-of={moment}").status == (service.deleted if moment < again else 200)
    assert service.get(f"{path}?as-of={again}").status == 200
    assert service.get(f"{form}/data/E/data.xml?as-of={again}").status == 404


def _wait_after(instant: Instant) -> None:
    while next_after(None) <= one_later(instant):
        time.sleep(0.001)


# The differences between revisions.


FORM = vectors.published(TRIP).encode()
OWN = (
    '<permissions><permission operations="create"/><permission operations="read update delete"><owner/></permission>'
    "</permissions>"
)


def between(service: Service, form: str, older: str, newer: str, more: str = "", **own: str) -> Answer:
    query = f"?form-version=1&older-modified-time={older}&newer-modified-time={newer}{more}"
    return ask(service, f"{form}/D/diff", query, **own)


def kinds(element: etree._Element) -> list[str]:
    return [f"{each.get('type')} {each.get('name') or ''}".strip() for each in element]


def save_all(service: Service, form: str, *revisions: str | bytes, **own: object) -> list[str]:
    bodies = (each if isinstance(each, bytes) else each.encode() for each in revisions)
    return [service.save(form, body=body, **own).instant for body in bodies]


@pytest.fixture
def published(service: Service, form: str) -> str:
    assert service.put(f"{form}/form/form.xhtml", FORM, **V1).status in (201, 204)
    return form


def test_the_differences_of_two_revisions(service: Service, published: str) -> None:
    first, _, third = save_all(service, published, trip("1", "a"), trip("2", "a"), trip("2&amp;3", "ab"))
    answer = between(service, published, first, third, "&lang=fr&truncation-size=2")
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml")
    root = etree.fromstring(answer.body)
    assert dict(root.attrib) == {"older-modified-time": first, "newer-modified-time": third}
    assert [etree.tostring(each).decode() for each in root] == [
        f'<diff type="value-changed" name="code">{CODE}<from>1</from><to>2&#8230;</to></diff>',
        '<diff type="iteration-added" name="legs" count="1"><label>Legs</label></diff>',
    ]
    assert differences(between(service, published, third, third)) == []
    query = f"?form-version=1&older-modified-time={first}&newer-modified-time={third}"
    head = ask(service, f"{published}/D/diff", query, "HEAD")
    assert (head.status, head.body) == (200, b"")


BOTH = "older-modified-time={first}&newer-modified-time={first}"


@stories(
    {
        "what is missing or none is refused": f"""
            PUT data/D v=1 {{trip}} -> Last-Modified>first
            GET {{D}} {{D}}form-version=1 {{D}}form-version=1&older-modified-time={{first}} {{D}}{BOTH} -> 400
            GET {{D}}form-version=0&{BOTH} {{D}}form-version=x&{BOTH} {{D}}form-version=2&{BOTH} -> 400
            GET {{D}}form-version=1&older-modified-time=yesterday&newer-modified-time={{first}} -> 400
            GET {{D}}form-version=1&older-modified-time={{first}}&newer-modified-time=2020-01-01 -> 400
            GET {{D}}form-version=1&{BOTH}&truncation-size=0 {{D}}form-version=1&{BOTH}&truncation-size=-1 -> 400
            GET {{D}}form-version=1&{BOTH}&truncation-size=x {{D}}form-version=1&{BOTH}&lang=%00 -> 400
            GET {{D}}form-version=1&older-modified-time=2020-01-01T00:00:00Z&newer-modified-time={{first}} -> 404
            GET {{D}}form-version=1&{BOTH}&lang=de {{E}}form-version=1&{BOTH}&lang=de -> 200 404"""
    }
)
def test_differences(service: Service, published: str, story: str) -> None:
    words = {name: f"~/history/{published}/{name}/diff?" for name in "DE"}
    play(service, published, story, trip=trip("1"), **words)


def test_a_page_has_the_differences_of_all_but_the_oldest(service: Service, published: str) -> None:
    """8.1: also of the last one on a page, if there is an older one."""
    instants = save_all(service, published, trip("1"), trip("1"), trip("2"), trip("2", "a"))[::-1]
    documents = differences(ask(service, f"{published}/D", "?include-diffs=true"))
    found = [document.find("diffs") for document in documents]
    assert found[-1] is None
    shown = [each for each in found if each is not None]
    assert [dict(each.attrib) for each in shown] == [{"older-modified-time": each} for each in instants[1:]]
    assert [kinds(each) for each in shown] == [["iteration-added legs"], ["value-changed code"], []]
    (only,) = differences(ask(service, f"{published}/D", "?include-diffs=true&page-size=1&page-number=2"))
    assert [kinds(each) for each in only] == [["value-changed code"]]
    assert all(len(each) == 0 for each in differences(ask(service, f"{published}/D", "?include-diffs=false")))


def test_iterations_are_compared_by_position_in_dialect_orbeon(service: Service, published: str) -> None:
    """As the real system has it (spec runtime 8); else an inserted iteration is one difference."""
    first, second = save_all(service, published, trip("1", "ab"), trip("1", "xab"))
    found = kinds(etree.fromstring(between(service, published, first, second).body))
    by_position = ["iteration-added legs", "value-changed dest", "value-changed dest"]
    assert found == (by_position if service.dialect == "orbeon" else ["iteration-added legs"])
    older, newer = save_all(service, published, "<form/>", "<data/>")
    assert [each.get("type") for each in differences(between(service, published, older, newer))] == ["other"]


def test_of_a_deleted_document_something_differs(service: Service, published: str) -> None:
    (first,) = save_all(service, published, trip("1"))
    assert service.delete(f"{published}/data/D/data.xml", **V1).status == 204
    (third,) = save_all(service, published, trip("1"))
    documents = differences(ask(service, f"{published}/D", "?include-diffs=true"))
    assert [kinds(each) for document in documents for each in document] == [["other"], ["other"]]
    gone = documents[1].get("modified-time") or ""
    assert between(service, published, first, gone).status == service.deleted
    assert differences(between(service, published, first, third)) == []


def test_a_form_without_languages(service: Service, form: str) -> None:
    """404 where a language is asked for; else there are no labels."""
    service.put(f"{form}/form/form.xhtml", vectors.published(replace(TRIP, templates="")).encode(), **V1)
    first, second = save_all(service, form, trip("1"), trip("2"))
    assert between(service, form, first, second, "&lang=en").status == 404
    (found,) = differences(between(service, form, first, second))
    assert [each.tag for each in found] == ["from", "to"]


def test_the_definition_is_gone(service: Service, form: str) -> None:
    """404 with the reason; on a page something differs, or nothing."""
    first, second, third = save_all(service, form, trip("1"), trip("2"), trip("2"))
    assert between(service, form, first, second).refuses(404, "is not published")
    documents = differences(ask(service, f"{form}/D", "?include-diffs=true"))
    assert [kinds(each) for document in documents for each in document] == [[], ["other"]]
    service.put(f"{form}/form/form.xhtml", FORM, **V1)
    assert kinds(etree.fromstring(between(service, form, first, third).body)) == ["value-changed code"]


def test_the_designers_data_is_not_taken_apart(service: Service) -> None:
    first, second, third = (
        service.put(f"{service.designer}/builder/data/D/data.xml", each, **V1).instant
        for each in (FORM, FORM.replace(b"Trip", b"Journey"), FORM.replace(b"Trip", b"Journey"))
    )
    assert kinds(etree.fromstring(between(service, f"{service.designer}/builder", first, second, "&lang=en").body)) == [
        "other"
    ]
    assert kinds(etree.fromstring(between(service, f"{service.designer}/builder", second, third).body)) == []
    assert service.delete(f"{service.designer}/builder/data/D/data.xml", **V1).status == 204


def test_both_revisions_must_be_readable(service: Service, form: str) -> None:
    """As a GET of each: the second life of a document has another owner."""
    definition = changed(FORM.decode(), "<form-name>vec</form-name>", f"<form-name>vec</form-name>{OWN}")
    service.put(f"{form}/form/form.xhtml", definition.encode(), **V1)
    (first,) = save_all(service, form, trip("secret"), Username="lea")
    assert service.delete(f"{form}/data/D/data.xml", **V1, Username="lea").status == 204
    second, third = save_all(service, form, trip("2"), trip("3"), Username="eve")
    assert between(service, form, first, second, Username="eve").status == 403
    assert between(service, form, second, third, Username="lea").status == 403
    assert between(service, form, second, third, Username="eve").status == 200
    page = ask(service, f"{form}/D", "?include-diffs=true", Username="eve")
    assert b"secret" not in page.body
    assert [kinds(each) for document in differences(page) for each in document] == [["value-changed code"]]


def test_a_damaged_revision_does_not_fail_the_page(service: Service, published: str) -> None:
    first, second, third = save_all(service, published, trip("1"), trip("2"), trip("3"))
    content = Path(service.data, published, "data/D/.history", f"{second.replace(':', '-')}.data.xml")
    content.write_bytes(b"<form")
    documents = differences(ask(service, f"{published}/D", "?include-diffs=true"))
    assert [kinds(each) for document in documents for each in document] == [["other"], ["other"]]
    assert between(service, published, first, second).status == (502 if services.is_proxied else 500)
    assert kinds(etree.fromstring(between(service, published, first, third).body)) == ["value-changed code"]


def _encrypted(service: Service) -> list[str]:
    service.put("hr/leave/form/form.xhtml", DEFINITION)
    body = data().decode()
    return save_all(service, "hr/leave", body, body, body.replace(SECRETS[0], "other"))


def test_encrypted_values_are_shown_as_a_get_shows_them_and_not_where_stored_bytes_are(tmp_path: Path) -> None:
    with keyed(tmp_path) as service:
        first, second, third = _encrypted(service)
        assert differences(between(service, "hr/leave", first, second)) == []
        (found,) = differences(between(service, "hr/leave", second, third))
        assert [each.text for each in found] == [SECRETS[0], "other"]
        page = ask(service, "hr/leave/D", "?include-diffs=true")
        assert (SECRETS[0].encode() in page.body, b"enc2:" not in page.body) == (True, True)
        if services.is_proxied:
            return  # the provider API of the service in front leads to its own trees
        service.face = PROVIDER
        for answer in (between(service, "hr/leave", first, third), ask(service, "hr/leave/D", "?include-diffs=true")):
            assert (answer.status, b"enc2:" not in answer.body) == (200, True)
            assert SECRETS[0].encode() not in answer.body


def test_a_revision_whose_key_is_gone_hides_no_others(tmp_path: Path) -> None:
    """A GET of it has the reason; the differences between the others are shown."""
    with keyed(tmp_path) as service:
        first, _, third = _encrypted(service)
    (tmp_path / "var/encryption-keys.json").unlink()
    keys_of(tmp_path).new()
    with running(tmp_path, options=("--config", "settings.toml")) as service:
        body = data().decode()
        fifth = save_all(service, "hr/leave", body, body.replace(SECRETS[0], "fifth"))[1]
        found = differences(ask(service, "hr/leave/D", "?include-diffs=true"))
        expected = [["value-changed ssn"], ["other"], ["other"], ["other"]]
        assert [kinds(each) for document in found for each in document] == expected
        assert between(service, "hr/leave", first, third).status == 500
        assert b"fifth" in service.get(f"hr/leave/data/D/data.xml?last-modified-time={fifth}").body


def test_what_is_too_large_is_not_compared(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        service.put("hr/leave/form/form.xhtml", FORM)
        first, second, third = save_all(service, "hr/leave", trip("1"), trip("2"), trip("3"))
        with patch.object(histories, "LARGEST_DIFFED", 2 * len(trip("1")) - 1):
            assert kinds(etree.fromstring(between(service, "hr/leave", first, second).body)) == ["other"]
        with patch.object(histories, "LARGEST_DIFFED", 2 * len(trip("1"))):
            assert kinds(etree.fromstring(between(service, "hr/leave", first, second).body)) == ["value-changed code"]
        assert third
