"""The differences between revisions over HTTP: spec crud 8.1, on both APIs and in both dialects."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from lxml import etree

from persistence.services import histories
from tests import service as services
from tests.encrypted_form import DEFINITION, SECRETS, data
from tests.forms import vectors
from tests.forms.test_diffs import CODE, TRIP, trip
from tests.forms.vectors import changed
from tests.http.test_encryption import keyed, keys_of
from tests.in_process import serving
from tests.service import PROVIDER, V1, Answer, Service, running

FORM = vectors.published(TRIP).encode()
OWN = (
    '<permissions><permission operations="create"/><permission operations="read update delete"><owner/></permission>'
    "</permissions>"
)


def ask(service: Service, path: str, query: str = "", **own: str) -> Answer:
    headers = {service.prefix + name: value for name, value in own.items()}
    return service.raw("GET", f"{service.face}/history/{path}{query}", headers)


def between(service: Service, form: str, older: str, newer: str, more: str = "", **own: str) -> Answer:
    query = f"?form-version=1&older-modified-time={older}&newer-modified-time={newer}{more}"
    return ask(service, f"{form}/D/diff", query, **own)


def kinds(element: etree._Element) -> list[str]:
    return [f"{each.get('type')} {each.get('name') or ''}".strip() for each in element]


def listed(answer: Answer) -> list[etree._Element]:
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml"), answer.body
    return list(etree.fromstring(answer.body))


def save(service: Service, form: str, *revisions: str | bytes, **own: object) -> list[str]:
    instants = []
    for each in revisions:
        body = each if isinstance(each, bytes) else each.encode()
        answer = service.put(f"{form}/data/D/data.xml", body, **{**V1, **own})
        assert answer.status in (201, 204), answer.cause
        instants.append(answer[f"{service.prefix}Last-Modified"] or "")
    return instants


@pytest.fixture
def published(service: Service, form: str) -> str:
    assert service.put(f"{form}/form/form.xhtml", FORM, **V1).status in (201, 204)
    return form


def test_the_differences_of_two_revisions(service: Service, published: str) -> None:
    first, _, third = save(service, published, trip("1", "a"), trip("2", "a"), trip("2&amp;3", "ab"))
    answer = between(service, published, first, third, "&lang=fr&truncation-size=2")
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml")
    root = etree.fromstring(answer.body)
    assert dict(root.attrib) == {"older-modified-time": first, "newer-modified-time": third}
    assert [etree.tostring(each).decode() for each in root] == [
        f'<diff type="value-changed" name="code">{CODE}<from>1</from><to>2&#8230;</to></diff>',
        '<diff type="iteration-added" name="legs" count="1"><label>Legs</label></diff>',
    ]
    assert listed(between(service, published, third, third)) == []
    head = service.raw(
        "HEAD",
        f"{service.face}/history/{published}/D/diff?form-version=1&older-modified-time={first}&newer-modified-time={third}",
        {},
    )
    assert (head.status, head.body) == (200, b"")


def test_another_root_is_a_difference(service: Service, published: str) -> None:
    older, newer = save(service, published, "<form/>", "<data/>")
    assert [each.get("type") for each in listed(between(service, published, older, newer))] == ["other"]


def test_a_page_has_the_differences_of_all_but_the_oldest(service: Service, published: str) -> None:
    """8.1: also of the last one on a page, if there is an older one."""
    instants = save(service, published, trip("1"), trip("1"), trip("2"), trip("2", "a"))[::-1]
    documents = listed(ask(service, f"{published}/D", "?include-diffs=true"))
    found = [document.find("diffs") for document in documents]
    assert found[-1] is None
    shown = [each for each in found if each is not None]
    assert [dict(each.attrib) for each in shown] == [{"older-modified-time": each} for each in instants[1:]]
    assert [kinds(each) for each in shown] == [["iteration-added legs"], ["value-changed code"], []]
    (only,) = listed(ask(service, f"{published}/D", "?include-diffs=true&page-size=1&page-number=2"))
    assert [kinds(each) for each in only] == [["value-changed code"]]
    assert all(len(each) == 0 for each in listed(ask(service, f"{published}/D", "?include-diffs=false")))


def test_iterations_are_compared_by_position_in_dialect_orbeon(service: Service, published: str) -> None:
    """As the real system has it (spec runtime 8); else an inserted iteration is one difference."""
    first, second = save(service, published, trip("1", "ab"), trip("1", "xab"))
    found = kinds(etree.fromstring(between(service, published, first, second).body))
    by_position = ["iteration-added legs", "value-changed dest", "value-changed dest"]
    assert found == (by_position if service.dialect == "orbeon" else ["iteration-added legs"])


def test_of_a_deleted_document_something_differs(service: Service, published: str) -> None:
    (first,) = save(service, published, trip("1"))
    assert service.delete(f"{published}/data/D/data.xml", **V1).status == 204
    (third,) = save(service, published, trip("1"))
    documents = listed(ask(service, f"{published}/D", "?include-diffs=true"))
    assert [kinds(each) for document in documents for each in document] == [["other"], ["other"]]
    gone = documents[1].get("modified-time") or ""
    assert between(service, published, first, gone).status == service.deleted
    assert listed(between(service, published, first, third)) == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?form-version=1", 400),
        ("?form-version=1&older-modified-time={first}", 400),
        ("?older-modified-time={first}&newer-modified-time={first}", 400),
        ("?form-version=0&older-modified-time={first}&newer-modified-time={first}", 400),
        ("?form-version=x&older-modified-time={first}&newer-modified-time={first}", 400),
        ("?form-version=2&older-modified-time={first}&newer-modified-time={first}", 400),
        ("?form-version=1&older-modified-time=yesterday&newer-modified-time={first}", 400),
        ("?form-version=1&older-modified-time={first}&newer-modified-time=2020-01-01", 400),
        ("?form-version=1&older-modified-time={first}&newer-modified-time={first}&truncation-size=0", 400),
        ("?form-version=1&older-modified-time={first}&newer-modified-time={first}&truncation-size=-1", 400),
        ("?form-version=1&older-modified-time={first}&newer-modified-time={first}&truncation-size=x", 400),
        ("?form-version=1&older-modified-time={first}&newer-modified-time={first}&lang=%00", 400),
        ("?form-version=1&older-modified-time=2020-01-01T00:00:00Z&newer-modified-time={first}", 404),
        ("?form-version=1&older-modified-time={first}&newer-modified-time={first}&lang=de", 200),
    ],
)
def test_what_is_missing_or_none_is_refused(service: Service, published: str, query: str, status: int) -> None:
    (first,) = save(service, published, trip("1"))
    assert ask(service, f"{published}/D/diff", query.format(first=first)).status == status
    if status != 400:
        assert ask(service, f"{published}/E/diff", query.format(first=first)).status == 404


@pytest.mark.parametrize("value", ["maybe", "1", "TRUE"])
def test_include_diffs_is_true_or_false(service: Service, form: str, value: str) -> None:
    assert ask(service, f"{form}/D", f"?include-diffs={value}").status == 400


def test_a_form_without_languages(service: Service, form: str) -> None:
    """404 where a language is asked for; else there are no labels."""
    service.put(f"{form}/form/form.xhtml", vectors.published(replace(TRIP, templates="")).encode(), **V1)
    first, second = save(service, form, trip("1"), trip("2"))
    assert between(service, form, first, second, "&lang=en").status == 404
    (found,) = listed(between(service, form, first, second))
    assert [each.tag for each in found] == ["from", "to"]


def test_the_definition_is_gone(service: Service, form: str) -> None:
    """404 with the reason; on a page something differs, or nothing."""
    first, second, third = save(service, form, trip("1"), trip("2"), trip("2"))
    assert between(service, form, first, second).refuses(404, "is not published")
    documents = listed(ask(service, f"{form}/D", "?include-diffs=true"))
    assert [kinds(each) for document in documents for each in document] == [[], ["other"]]
    service.put(f"{form}/form/form.xhtml", FORM, **V1)
    assert kinds(etree.fromstring(between(service, form, first, third).body)) == ["value-changed code"]


def test_the_designers_data_is_not_taken_apart(service: Service) -> None:
    first, second, third = (
        service.put(f"{service.designer}/builder/data/D/data.xml", each, **V1)[f"{service.prefix}Last-Modified"] or ""
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
    (first,) = save(service, form, trip("secret"), Username="lea")
    assert service.delete(f"{form}/data/D/data.xml", **V1, Username="lea").status == 204
    second, third = save(service, form, trip("2"), trip("3"), Username="eve")
    assert between(service, form, first, second, Username="eve").status == 403
    assert between(service, form, second, third, Username="lea").status == 403
    assert between(service, form, second, third, Username="eve").status == 200
    page = ask(service, f"{form}/D", "?include-diffs=true", Username="eve")
    assert b"secret" not in page.body
    assert [kinds(each) for document in listed(page) for each in document] == [["value-changed code"]]


def test_a_damaged_revision_does_not_fail_the_page(service: Service, published: str) -> None:
    first, second, third = save(service, published, trip("1"), trip("2"), trip("3"))
    content = Path(service.data, published, "data/D/.history", f"{second.replace(':', '-')}.data.xml")
    content.write_bytes(b"<form")
    documents = listed(ask(service, f"{published}/D", "?include-diffs=true"))
    assert [kinds(each) for document in documents for each in document] == [["other"], ["other"]]
    assert between(service, published, first, second).status == (502 if services.is_proxied else 500)
    assert kinds(etree.fromstring(between(service, published, first, third).body)) == ["value-changed code"]


def _encrypted(service: Service) -> list[str]:
    service.put("hr/leave/form/form.xhtml", DEFINITION)
    body = data().decode()
    return save(service, "hr/leave", body, body, body.replace(SECRETS[0], "other"))


def test_encrypted_values_are_shown_as_a_get_shows_them(tmp_path: Path) -> None:
    with keyed(tmp_path) as service:
        first, second, third = _encrypted(service)
        assert listed(between(service, "hr/leave", first, second)) == []
        (found,) = listed(between(service, "hr/leave", second, third))
        assert [each.text for each in found] == [SECRETS[0], "other"]
        page = ask(service, "hr/leave/D", "?include-diffs=true")
        assert (SECRETS[0].encode() in page.body, b"enc2:" not in page.body) == (True, True)


def test_encrypted_values_are_not_shown_where_stored_bytes_are(tmp_path: Path) -> None:
    with keyed(tmp_path) as service:
        first, _, third = _encrypted(service)
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
        fifth = save(service, "hr/leave", body, body.replace(SECRETS[0], "fifth"))[1]
        found = listed(ask(service, "hr/leave/D", "?include-diffs=true"))
        expected = [["value-changed ssn"], ["other"], ["other"], ["other"]]
        assert [kinds(each) for document in found for each in document] == expected
        assert between(service, "hr/leave", first, third).status == 500
        assert b"fifth" in service.get(f"hr/leave/data/D/data.xml?last-modified-time={fifth}").body


def test_what_is_too_large_is_not_compared(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        service.put("hr/leave/form/form.xhtml", FORM)
        first, second, third = save(service, "hr/leave", trip("1"), trip("2"), trip("3"))
        with patch.object(histories, "LARGEST_DIFFED", 2 * len(trip("1")) - 1):
            assert kinds(etree.fromstring(between(service, "hr/leave", first, second).body)) == ["other"]
        with patch.object(histories, "LARGEST_DIFFED", 2 * len(trip("1"))):
            assert kinds(etree.fromstring(between(service, "hr/leave", first, second).body)) == ["value-changed code"]
        assert third
