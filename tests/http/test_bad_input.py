"""Bad input over HTTP: a clear answer, nothing half-written, no temporary file, and a service that goes on."""

import base64
import hashlib
import http.client
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.forms.test_streaming import HOSTILE
from tests.http.stories import play, stories
from tests.service import PROVIDER, PUBLIC, V1, Service


def raw(service: Service, request: bytes, *, half_close: bool = True) -> tuple[int, bytes]:
    """Status and whole answer to bytes sent as they are."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
            head, _, body = answer.partition(b"\r\n\r\n")
            length = next((line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), b": 0")
            if body and len(body) >= int(length.split(b":")[1]):
                break
    return int(answer[9:12] or 0), answer


def require_nothing(service: Service, form: str) -> None:
    assert not service.leftovers()
    assert not (service.data / form).exists()


NO_TEXTS = ("%00", "a%00b", "%ED%A0%80", "%ED%A0%BD%ED%B8%80", "%FF", "a%C0%80", "%E2%82")
"""Names that no database can keep, or Python cannot encode: NUL, surrogates, and what is no UTF-8."""

HUGE = {"huge comment", "huge attribute"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=pytest.mark.long if each == "many elements" else ())
        for each in sorted({*HOSTILE} - HUGE)
    ],
)
def test_hostile_xml_is_refused(service: Service, form: str, name: str) -> None:
    for path in (f"{form}/data/D/data.xml", f"{form}/form/form.xhtml", f"{form}/draft/D/data.xml"):
        answer = service.put(path, HOSTILE[name], **V1)
        assert (answer.status, answer["Content-Type"]) == (400, "text/plain; charset=utf-8")
        assert len(answer.body.splitlines()) == 1
    require_nothing(service, form)


def _files(service: Service) -> list[Path]:
    """Every file and directory below that of the service, but locks, the index, and what an instance has of its own.

    A thread of the service may still be at work in these.
    """
    own, top = {".locks", ".index", "var"}, service.data.parent
    return sorted(file for file in top.rglob("*") if own.isdisjoint(file.relative_to(top).parts))


@pytest.mark.parametrize("name", NO_TEXTS)
def test_names_that_are_no_texts_are_refused_wherever_they_are(service: Service, name: str) -> None:
    for path in (f"history/a/b/{name}", f"history/{name}/b/D", f"form/{name}", f"form/a/{name}"):
        assert service.call("GET", path).status == 400
    for path in (f"search/a/{name}", f"search/{name}/b", f"distinct-values/a/{name}"):
        assert service.post(path, "<search/>").status == 400


@pytest.mark.parametrize("number", ["0", "-1", "2147483648", "1" + "0" * 30, "1\u0661", "1e3", "\u00b2"])
def test_version_numbers_that_are_none_are_refused(service: Service, form: str, number: str) -> None:
    own = {f"{service.prefix}Form-Definition-Version": number.encode().decode("latin-1")}
    for path in (f"{form}/data/D/data.xml", f"{form}/draft/D/data.xml", f"{form}/form/form.xhtml"):
        assert (service.put(path, headers=own).status, service.get(path, own).status // 100) == (400, 4)
    assert service.call("POST", f"reindex/{form}", None, own).status == 400
    require_nothing(service, form)


LONG = "x" * 300


@pytest.mark.parametrize(
    "path",
    [
        *("a/b/data/../data.xml", "a/b/data/%2e%2e/data.xml", "a/b/data/%2E/data.xml", "../../etc/passwd"),
        *("a/b/data/D/%00", "a/b/data/D/x%00.bin", "a/b/data/D%2F..%2FE/data.xml", "a/b/data/D/a%5Cb.bin"),
        *("a/b/data/D/a%0Ab.bin", "a/b/data/D/a#b.bin", "a/b/data/D/%FF.bin", "a/b/data/D/..."),
        *(f"a/b/data/D/{LONG}", f"a/b/data/{LONG}/data.xml", f"{LONG}/b/data/D/data.xml"),
        *("a/b/data/.history/data.xml", ".locks/b/data/D/data.xml", "a/.b/data/D/data.xml"),
        *(
            path.format(name)
            for path in ("a/b/data/{}/data.xml", "a/b/draft/{}/data.xml", "a/b/form/{}.bin", "{}/b/form/form.xhtml")
            for name in NO_TEXTS
        ),
    ],
)
def test_odd_paths_are_refused(service: Service, path: str) -> None:
    before = _files(service)
    for method in ("GET", "HEAD", "PUT", "DELETE", "LOCK", "UNLOCK"):
        assert service.ask(method, path, b"<d/>" if method in {"PUT", "LOCK", "UNLOCK"} else None, **V1).status == 400
    assert _files(service) == before


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "TRACE", "MKCOL", "PROPFIND"])
def test_unknown_methods_are_not_allowed(service: Service, form: str, method: str) -> None:
    """Spec crud 2.1: 405, with Allow (RFC 9110 15.5.6)."""
    for path in (f"{form}/data/D/data.xml", f"{form}/form/form.xhtml", f"{form}/draft/D/a.bin"):
        answer = service.ask(method, path)
        assert (answer.status, answer["Allow"]) == (405, "DELETE, GET, HEAD, LOCK, PUT, UNLOCK")
    assert service.ask(method, f"{form}/data/")["Allow"] == "DELETE"


ALLOWED = {
    **dict.fromkeys(("search", "search/acme", "search/acme/order"), "POST"),
    "distinct-values/acme/order": "POST",
    "reindex": "POST",
    "reindex/acme/order": "POST",
    "reindex/status": "GET",
    **dict.fromkeys(("form", "form/acme", "form/acme/order"), "GET, POST"),
    "history/acme/order/D": "GET, HEAD",
    "history/acme/order/D/restore": "GET, HEAD, POST",
}


@pytest.mark.parametrize("path", ALLOWED)
@pytest.mark.parametrize("face", [PUBLIC, PROVIDER], ids=["public", "provider"])
@pytest.mark.parametrize("dialect", ["svc", "orbeon"])
def test_there_are_no_other_methods(in_dialect: Callable[[str], Service], dialect: str, face: str, path: str) -> None:
    allowed = "GET, POST" if (dialect, path) == ("orbeon", "reindex") else ALLOWED[path]
    for method in {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "LOCK"}.difference(allowed.split(", ")):
        answer = replace(in_dialect(dialect), face=face).call(method, path)
        assert (answer.status, answer["Allow"]) == (405, allowed), method


def test_a_query_is_at_most_a_mebibyte_and_its_caller_must_be_readable(service: Service) -> None:
    for path in ("search/acme/order", "distinct-values/acme/order", "form"):
        for size, status in ((1 << 20, 200), ((1 << 20) + 1, 413)):
            assert service.post(path, f"<search>{' ' * (size - len('<search></search>'))}</search>").status == status
        for caller in ({"Credentials": "{"}, {"Username": "x" * 300}):
            assert service.post(path, "<search/>", **caller).status == 400
    assert service.call("GET", "form", Credentials="{").status == 400


CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("name", ["data.xml", "a.bin"])
@pytest.mark.parametrize(
    ("rest", "status", "said"),
    [
        ("Content-Length: 1000\r\n\r\n<d/>", 400, b"996 bytes before"),
        (f"{CHUNKED}4\r\n<d/>\r\n", 400, b""),
        (f"{CHUNKED}9\r\n<d/>", 400, b""),
        (f"{CHUNKED}zz\r\n", 400, b""),
        ("\r\n", 411, b""),
        ("Content-Length: x\r\n\r\n", 400, b""),
        ("Content-Length: -1\r\n\r\n", 400, b""),
        ("Transfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 501, b""),
    ],
)
def test_half_a_body_stores_nothing(
    service: Service, form: str, name: str, rest: str, status: int, said: bytes
) -> None:
    """A truncated body must not become half a file; without a length and chunks there is none (RFC 9110 15.5.12).

    gzip under the chunks would be stored as it is (RFC 9112 6.1).
    """
    answer = raw(service, f"{head(service, form, name)}{rest}".encode())
    assert (answer[0], said in answer[1]) == (status, True)
    require_nothing(service, form)


def head(service: Service, form: str, name: str = "a.bin") -> str:
    path = f"{service.face}/crud/{form}/data/D/{name}"
    return f"PUT {path} HTTP/1.1\r\nHost: localhost\r\n{service.prefix}Form-Definition-Version: 1\r\n"


def test_a_body_over_the_limit(service: Service, form: str) -> None:
    length = f"{head(service, form)}Content-Length: {(8 << 20) + 1}\r\n\r\n"
    assert raw(service, length.encode(), half_close=False)[0] == 413
    begun = f"{head(service, form)}{CHUNKED}".encode() + (b"100000\r\n" + b"x" * 0x100000 + b"\r\n") * 8
    assert raw(service, begun + b"1\r\ny\r\n0\r\n\r\n")[0] == 413
    require_nothing(service, form)
    assert raw(service, begun + b"0\r\n\r\n")[0] == 201
    service.save(form)
    small = f"{head(service, form)}{CHUNKED}".encode() + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert raw(service, small)[0] == 204
    assert service.get(f"{form}/data/D/a.bin").body == b"abcde", "chunked bodies are stored whole"


@pytest.mark.parametrize(
    ("length", "expected"),
    [((8 << 20) + 1, b"HTTP/1.1 413"), (4, b"HTTP/1.1 100"), ("5\r\nContent-Encoding: gzip", b"HTTP/1.1 415")],
)
def test_a_body_to_be_refused_is_not_asked_for(service: Service, form: str, length: object, expected: bytes) -> None:
    """RFC 9110 10.1.1: a client that waits for 100 Continue gets the refusal instead, and the connection ends."""
    path = f"{service.face}/crud/{form}/data/D/data.xml"
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/xml\r\n"
    head += f"{service.prefix}Form-Definition-Version: 1\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(65536)
        assert answer.startswith(expected)
        if length == 4:
            connection.sendall(b"<d/>")
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 201")
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        else:
            while connection.recv(65536):
                continue


def test_a_client_that_sends_on_reads_the_answer(service: Service, form: str) -> None:
    """A body refused unread is read to its end all the same, and the connection stays good for the next request."""
    service.put(f"{form}/data/D/data.xml", **V1)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    for body in (b"<d/>" + b" " * (3 << 20), bytes(8 << 20), iter([bytes(1 << 20)] * 8)):
        path = f"{service.face}/crud/{form}/data/D/data.xml"
        connection.request("PUT", path, body, {"If-Match": "other"})
        answer = connection.getresponse()
        assert (answer.status, answer.will_close) == (412, False)
        answer.read()
    connection.close()


def _digest(algorithm: str, content: bytes) -> str:
    return base64.b64encode(hashlib.new(algorithm, content).digest()).decode()


GOOD, OTHER = b"<d>1</d>", b"<d>2</d>"
CONTENTS = ["data/D/data.xml", "data/E/a.bin", "draft/D/data.xml", "form/form.xhtml", "form/a.bin"]


DIGESTS: list[tuple[str, Callable[[bytes], str]]] = [
    ("Content-Digest", lambda body: f"sha-256=:{_digest('sha256', body)}:"),
    ("Content-Digest", lambda body: f"x=:AA==:, sha-512=:{_digest('sha512', body)}: ;a=1"),
    ("Repr-Digest", lambda body: f"sha-256=:{_digest('sha256', body)}:,md5=:{_digest('md5', body)}:"),
    ("Repr-Digest", lambda body: f"sha=:{_digest('sha1', body)}:"),
    ("Content-MD5", lambda body: _digest("md5", body)),
]


@pytest.mark.parametrize("path", CONTENTS)
def test_only_a_whole_content_with_its_own_digest_is_stored(service: Service, form: str, path: str) -> None:
    """RFC 9530: what a network has changed is not stored; nor is a part, which would replace the whole (9110 14.5)."""
    service.put(f"{form}/data/E/data.xml", **V1)
    path = f"{form}/{path}"
    for name, value in DIGESTS:
        refused = service.put(path, OTHER, {name: value(GOOD)}, **V1)
        assert refused.refuses(400, f"the body is not the one that {name} is of")
        assert service.get(path).status == (404 if (name, value) == DIGESTS[0] else 200)
        assert service.put(path, GOOD, {name: value(GOOD)}, **V1).status in (201, 204)
        assert service.get(path).body == GOOD
    assert service.put(path, OTHER, {"Content-Range": "bytes 0-3/8"}, **V1).refuses(400, "Content-Range: ")
    assert service.get(path).body == GOOD


NAMES_OF_THE_FIFTH = ("\u179f\u17d2\u17b9\u1784", "\u0dc3\u0dca\u0db8", "\u12a0")
"""Khmer, Sinhala and Ethiopic."""

OLDER_NAMES = ("\u0e01\u0e34", "\u0e81", "\uac00", "\u0f40", "\u00e9", "e\u0301")


@stories(
    {
        "unknown paths are not found": """
            GET ~/crud/ ~/crud/a ~/crud/a/b ~/crud/a/b/data/D ~/crud/a/b/data/D/ ~/crud/a/b/form -> 404
            GET ~/crud/a/b/form/ ~/crud/a/b/other/D/x ~/crud/a/b/data/D/x/y -> 404
            GET ~/form/ ~/form/acme/ ~/form/acme/order/1 ~/forms -> 404
            POST ~/search/ ~/search/acme/ ~/search/acme/order/ ~/search/acme/order/1 ~/reindex/x <search/> -> 404""",
        "a malformed digest is refused, and one of an unknown kind ignored (RFC 9530)": "\n".join(
            f"PUT data/D/a.bin v=1 {header} -> 400 `{header.partition('=')[0]}`"
            for header in (
                *("Content-Digest=sha-256=AAAA", "Content-Digest=sha-256=:AAA:", "Repr-Digest=sha-256", "Repr-Digest="),
                "Content-MD5=`no base64`",
            )
        )
        + "\nPUT data/D/a.bin v=1 Repr-Digest=x=:AAA: -> 201",
        "names in XML are those of its fourth edition, as in the real system": "\n".join(
            f"PUT data/{ord(name[0])} v=1 <d><{name}/></d> -> {status}"
            for status, names in ((400, NAMES_OF_THE_FIFTH), (201, OLDER_NAMES))
            for name in names
        )
        + "\nPUT data/T v=1 <d>\u179f\u0dc3\u12a0</d> -> 201",
        "doubled slashes are collapsed: the runtime builds such paths (spec crud 2.1)": """
            PUT data/D//data.xml v=1 <d/> -> 201
            GET /{crud}//{form}//data/D/data.xml -> 200 <d/>""",
        "deleting with a lost document id deletes nothing: an empty id does not mean all documents": """
            PUT data/D v=1
            DELETE data// -> 400
            DELETE data//data.xml -> 404
            GET data/D -> 200""",
        "a number sign is encoded in a name; as it is, it is no part of a request": """
            PUT data/a%23b data/a%23b/no%231.bin v=1 <x/> -> 201
            GET data/a%23b/no%231.bin -> 200 <x/>
            GET data/a%23b/no#1.bin -> 400
            GET data/a -> 404""",
        "instants of no calendar are refused": """
            GET data/D?last-modified-time=0001-01-01T00:00:00%2B23:59 data/D?last-modified-time=1 -> 400
            GET data/D?last-modified-time=9999-12-31T23:59:59-23:59 -> 400
            GET data/D?last-modified-time=2025-02-30T00:00:00Z -> 400""",
        "an encoded body is refused: it would come back without its coding (RFC 9110 8.4)": """
            PUT data/D/a.bin v=1 Content-Encoding=gzip -> 415
            NOTHING .""",
    }
)
def test_odd_requests(service: Service, form: str, story: str) -> None:
    play(service, form, story, crud=f"{service.face}/crud")
    assert service.leftovers() == []


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("valid=maybe", {}),
        ("", {"Workflow-Stage": "x" * 256}),
        ("", {"Username": "x" * 256}),
        *(("", {name: text}) for name in ("Username", "Group", "Roles") for text in ("a\0b", "\xed\xa0\x80", "\xff")),
        *(("", {"Workflow-Stage": text}) for text in ("a\0b", "\xed\xa0\x80")),
        ("", {"Credentials": "{"}),
        ("", {"Credentials": '{"username": 7}'}),
        ("", {"Credentials": '{"username": "a", "z": ' + "[" * 2000 + "]" * 2000 + "}"}),
        ("", {"Credentials": '{"username": "a", "organizations": [[' + ",".join(['"x"'] * 33) + "]]}"}),
    ],
)
def test_malformed_parameters_are_refused(service: Service, form: str, query: str, headers: dict[str, str]) -> None:
    own = {service.prefix + name: value for name, value in headers.items()}
    assert service.put(f"{form}/data/D/data.xml?{query}", headers=own, **V1).status == 400
    require_nothing(service, form)


def test_a_refused_put_leaves_what_was_there(service: Service, form: str) -> None:
    path = f"{form}/data/D/data.xml"
    service.put(path, b"<d>1</d>", **V1)
    service.put(f"{form}/draft/D/data.xml", **V1)
    before = service.get(path)
    for body, headers in ((b"<", {}), (b"<d/>", {"If-Match": "x"}), (b"<d/>", {"Content-Encoding": "br"})):
        assert service.put(path, body, headers).status >= 400
    after = service.get(path)
    assert (after.body, after["ETag"]) == (b"<d>1</d>", before["ETag"])
    assert service.get(f"{form}/draft/D/data.xml").status == 200
    assert not (service.data / form / "data/D/.history").exists()


def test_errors_are_one_line_and_have_an_id(service: Service, form: str) -> None:
    """Design, section 7: the cause in a short text/plain body, and a request id; a HEAD has no body."""
    missing = service.get(f"{form}/data/D/data.xml", {"X-Request-Id": "abc-1"})
    assert missing.cause == f"{form}/data/D/data.xml does not exist"
    assert (missing["X-Request-Id"], missing["Content-Type"]) == ("abc-1", "text/plain; charset=utf-8")
    odd = service.get(f"{form}/data/D/data.xml", {"X-Request-Id": "a b\tc"})
    assert len(str(odd["X-Request-Id"])) == 16
    assert service.head(f"{form}/data/D/data.xml").body == b""
