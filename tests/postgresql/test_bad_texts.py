"""Texts and numbers that PostgreSQL cannot keep, or Python cannot encode: refused in one line before they get there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import orders
from tests.in_process import serving
from tests.orders import named
from tests.postgresql import server as postgresql
from tests.postgresql.server import Server
from tests.service import PROVIDER, PUBLIC, Answer, Service

_FORM = "acme/order"
_NAMES = {
    "U+0000": "%00",
    "U+0000 within": "a%00b",
    "lone surrogate": "%ED%A0%80",
    "two of them": "%ED%A0%BD%ED%B8%80",
    "bad UTF-8": "%FF",
    "overlong": "a%C0%80",
    "cut": "%E2%82",
}
_XML = {
    "U+0000": b"\x00",
    "its number": b"&#0;",
    "lone surrogate": b"\xed\xa0\x80",
    "its number, too": b"&#xD800;",
    "bad UTF-8": b"\xff",
    "beyond Unicode": b"&#x110000;",
    "no character": b"\xef\xbf\xbe",
}
_HEADERS = {"U+0000": b"a\0b", "lone surrogate": b"\xed\xa0\x80", "bad UTF-8": b"\xff\xfe"}
_NUMBERS = ("0", "-1", "2147483648", "9223372036854775808", "1" + "0" * 30, "1\u0661", "1e3", "\u00b2")
_SEARCH = b'<search><query path="customer/name" match="%s">%s</query></search>'


@pytest.fixture(scope="module")
def service(database_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("bad-texts")
    with serving(directory, place=database_server.uri(postgresql.fresh_schema())) as service:
        assert service.put(f"{_FORM}/form/form.xhtml", orders.definition()).status == 201
        assert service.put(f"{_FORM}/data/D/data.xml", named(b"Ada"), Form_Definition_Version=1).status == 201
        yield service


def _refused(answer: Answer) -> None:
    assert (answer.status, answer["Content-Type"]) == (400, "text/plain; charset=utf-8"), answer.body
    assert answer.cause
    assert "\n" not in answer.cause


@pytest.mark.parametrize("face", [PUBLIC, PROVIDER])
@pytest.mark.parametrize("name", _NAMES.values(), ids=_NAMES)
def test_names(service: Service, face: str, name: str) -> None:
    places = (
        f"{_FORM}/data/{name}/data.xml",
        f"{_FORM}/draft/{name}/data.xml",
        f"{_FORM}/data/D/{name}.bin",
        f"{_FORM}/form/{name}.bin",
        f"acme/{name}/data/D/data.xml",
        f"{name}/order/data/D/data.xml",
        f"{name}/order/form/form.xhtml",
    )
    for place in places:
        for method in ("GET", "HEAD", "PUT", "DELETE", "LOCK", "UNLOCK"):
            body = named(b"Ada") if method == "PUT" else None
            headers = {"Content-Type": "application/xml", "Svc-Form-Definition-Version": "1"}
            answer = service.raw(method, f"{face}/crud/{place}", headers, body)
            assert answer.status == 400, (method, place, answer.body)
    for path in (f"history/{_FORM}/{name}", f"history/{name}/order/D", f"form/{name}", f"form/acme/{name}"):
        _refused(service.raw("GET", f"{face}/{path}"))
    for path in (f"search/acme/{name}", f"search/{name}/order", f"distinct-control-values/acme/{name}"):
        answer = service.raw("POST", f"{face}/{path}", {"Content-Type": "application/xml"}, b"<search/>")
        assert 400 <= answer.status < 500, (path, answer.body)


@pytest.mark.parametrize("text", _XML.values(), ids=_XML)
def test_xml(service: Service, text: bytes) -> None:
    for place in (f"{_FORM}/data/E/data.xml", f"{_FORM}/draft/E/data.xml", f"{_FORM}/form/form.xhtml"):
        _refused(service.put(place, named(text), Form_Definition_Version=1))
    assert service.get(f"{_FORM}/data/E/data.xml").status == 404


@pytest.mark.parametrize("text", _XML.values(), ids=_XML)
def test_searches(service: Service, text: bytes) -> None:
    headers = {"Content-Type": "application/xml"}
    _refused(service.raw("POST", f"{PUBLIC}/search/{_FORM}", headers, _SEARCH % (b"substring", text)))


@pytest.mark.parametrize("text", ["\\u0000", "\\", "%", "_", "\\x00", "'", "$1", "%s", "{0}", "\ufdd0", "\U0010ffff"])
def test_searches_for_what_only_looks_bad(service: Service, text: str) -> None:
    """What a statement could take for something else is found as it is, and nothing else is."""
    place = f"{_FORM}/data/L/data.xml"
    assert service.put(place, named(f"a{text}b".encode()), Form_Definition_Version=1).status in (201, 204)
    for sought, found in ((text, 1), (f"b{text}", 0)):
        body = _SEARCH % (b"substring", sought.encode())
        answer = service.raw("POST", f"{PUBLIC}/search/{_FORM}", {"Content-Type": "application/xml"}, body)
        assert (answer.status, answer.body.count(b"<document ")) == (200, found), answer.body


@pytest.mark.parametrize("name", ["Username", "Group", "Roles", "Workflow-Stage", "Form-Definition-Version"])
@pytest.mark.parametrize("text", _HEADERS.values(), ids=_HEADERS)
def test_headers(service: Service, name: str, text: bytes) -> None:
    """Those that are ISO 8859-1 and not UTF-8 are none of the bad ones."""
    sent = {f"Svc-{name}": text.decode("latin-1"), "Content-Type": "application/xml"}
    if name != "Form-Definition-Version":
        sent["Svc-Form-Definition-Version"] = "1"
    for place in (f"{_FORM}/data/F/data.xml", f"{_FORM}/data/F/a.bin"):
        answer = service.raw("PUT", f"{PUBLIC}/crud/{place}", sent, named(b"Ada"))
        is_latin = name == "Workflow-Stage" and text == _HEADERS["bad UTF-8"]
        assert answer.status in ((201, 204) if is_latin else (400,)), answer.body


@pytest.mark.parametrize("number", _NUMBERS)
def test_version_numbers(service: Service, number: str) -> None:
    headers = {"Svc-Form-Definition-Version": number.encode().decode("latin-1"), "Content-Type": "application/xml"}
    for place in (f"{_FORM}/data/G/data.xml", f"{_FORM}/draft/G/data.xml", f"{_FORM}/form/form.xhtml"):
        body = orders.definition() if place.endswith("xhtml") else named(b"Ada")
        _refused(service.raw("PUT", f"{PUBLIC}/crud/{place}", headers, body))
        assert 400 <= service.raw("GET", f"{PUBLIC}/crud/{place}", headers).status < 500
    assert 400 <= service.raw("POST", f"{PUBLIC}/reindex/{_FORM}", headers).status < 500
