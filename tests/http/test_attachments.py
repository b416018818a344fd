"""Attachments over HTTP: bytes, types, names, hashes, ranges and conditions."""

import pytest

from tests.service import V1, Service

BYTES = bytes(range(256)) * 4


@pytest.fixture
def document(service: Service, form: str) -> str:
    """A saved document that attachments can be read from."""
    service.put(f"{form}/data/D/data.xml", **V1)
    return f"{form}/data/D"


@pytest.mark.parametrize("size", [0, 1, 1024, 100_000, 1 << 20])
def test_every_byte_comes_back(service: Service, document: str, size: int) -> None:
    """Seed, Resource kinds 3; spec crud 15.7: sizes 0, 1, 1024 and large."""
    body = (BYTES * (size // 1024 + 1))[:size]
    path = f"{document}/{size}.bin"
    assert service.put(path, body, **V1).status == 201
    read = service.get(path)
    assert (read.status, read["Content-Length"], read.body) == (200, str(size), body)
    head = service.head(path)
    assert (head["Content-Length"], head["Accept-Ranges"]) == (str(size), "bytes")


@pytest.mark.parametrize("kind", ["image/jpeg", "text/plain; charset=utf-8", "application/vnd.oasis.opendocument.text"])
def test_the_type_is_the_one_sent(service: Service, document: str, kind: str) -> None:
    """Seed, Resource kinds: the content type sent at PUT."""
    path = f"{document}/a.bin"
    service.put(path, b"x", {"Content-Type": kind}, **V1)
    assert service.get(path)["Content-Type"] == kind


def test_without_a_type_it_is_unknown_bytes(service: Service, document: str) -> None:
    """Spec crud 4.5."""
    service.ask("PUT", f"{document}/a.bin", b"x", **V1)
    assert service.get(f"{document}/a.bin")["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("kind", ["nonsense", "a/b/c", "text/plain; é", "x" * 300])
def test_what_is_no_type_is_refused(service: Service, document: str, kind: str) -> None:
    """It would have to go out as a header again."""
    assert service.put(f"{document}/a.bin", b"x", {"Content-Type": kind}, **V1).status == 400


@pytest.mark.parametrize(
    "name",
    [
        "a.bin",
        "photo.jpg",
        "report.json",
        "na%C3%AFve%20file.pdf",
        "50%25.txt",
        "a%3Ab.txt",
        "a+b=c;d.bin",
        "x",
        "%F0%9F%93%8E",
    ],
)
def test_any_safe_file_name(service: Service, document: str, name: str) -> None:
    """The issue: .bin is the rule, real data has others."""
    path = f"{document}/{name}"
    assert service.put(path, name.encode(), **V1).status == 201
    assert service.get(path).body == name.encode()
    assert service.delete(path).status == 204
    assert service.get(path).status == service.deleted


def test_replacing_stores_the_new_bytes(service: Service, document: str) -> None:
    """Spec crud 16, D1: PUT of an existing attachment replaces it, 204."""
    path = f"{document}/a.bin"
    assert service.put(path, b"one", **V1).status == 201
    assert service.put(path, b"two!").status == 204
    assert service.get(path).body == b"two!"


def test_headers_of_attachments(service: Service, document: str) -> None:
    """Spec crud 4.3: the hash pair is echoed; no stage; tag, version and dates as for data."""
    path, own = f"{document}/a.bin", service.prefix
    put = service.put(
        path,
        b"x",
        **V1,
        Hash_Algorithm="SHA-256",
        Hash_Value="abc=",
        Username="lea",
        Path_To_Holder="s/c",
        Workflow_Stage="x",
    )
    for got in (service.get(path), service.head(path)):
        assert (got[own + "Hash-Algorithm"], got[own + "Hash-Value"]) == ("SHA-256", "abc=")
        assert (got[own + "Username"], got[own + "Operations"], got["ETag"]) == ("lea", "*", put["ETag"])
        assert got[own + "Last-Modified"] == put[own + "Last-Modified"]


def test_attachments_may_come_before_their_document(service: Service, form: str) -> None:
    """Spec crud 4.2: stored first, readable once data.xml is there."""
    path = f"{form}/data/D/a.bin"
    assert service.put(path, b"x", Form_Definition_Version=2).status == 201
    assert service.get(path).status == 404
    assert service.put(f"{form}/data/D/data.xml", Form_Definition_Version=2).status == 201
    assert service.get(path).body == b"x"


def test_the_version_must_be_the_documents(service: Service, form: str) -> None:
    """Spec crud 4.2, PUT 4 and GET 5."""
    service.put(f"{form}/data/D/data.xml", Form_Definition_Version=2)
    path = f"{form}/data/D/a.bin"
    assert service.put(path, b"x", **V1).status == 400
    assert service.put(path, b"x", Form_Definition_Version=2).status == 201
    assert service.put(path, b"x", Form_Definition_Version=3).status == 400
    assert service.put(path, b"y").status == 204
    assert service.get(path, **V1).status == service.delete(path, **V1).status == 400


def test_a_new_attachment_without_a_version(service: Service, document: str) -> None:
    """Design, section 2: the document's version in svc, 400 in orbeon."""
    assert service.put(f"{document}/a.bin", b"x").status == (400 if service.dialect == "orbeon" else 201)


def test_attachments_go_dark_with_their_document(service: Service, document: str) -> None:
    """Spec crud 4.10: orphaned, unreadable, and there again when the document is."""
    path = f"{document}/a.bin"
    service.put(path, b"x", **V1)
    service.delete(f"{document}/data.xml")
    assert service.get(path).status == service.deleted
    assert service.delete(path).status == 410
    service.put(f"{document}/data.xml", **V1)
    assert service.get(path).body == b"x"


@pytest.mark.parametrize(
    ("header", "status", "content_range", "body"),
    [
        ("bytes=0-1", 206, "bytes 0-1/1024", BYTES[:2]),
        ("bytes=128-", 206, "bytes 128-1023/1024", BYTES[128:]),
        ("bytes=1000-5000", 206, "bytes 1000-1023/1024", BYTES[1000:]),
        ("bytes=0-0,4-5", 206, "bytes 0-0/1024", BYTES[:1]),
        ("bytes=1024-", 416, "bytes */1024", None),
        ("bytes=-5", 400, None, None),
        ("bytes=5-2", 400, None, None),
        ("lines=1-2", 400, None, None),
    ],
)
def test_ranges(
    service: Service, document: str, header: str, status: int, content_range: str | None, body: bytes | None
) -> None:
    """Spec crud 4.7."""
    path = f"{document}/a.bin"
    service.put(path, BYTES, **V1)
    part = service.get(path, {"Range": header})
    assert (part.status, part["Content-Range"]) == (status, content_range)
    if body is not None:
        assert (part.body, part["Content-Length"]) == (body, str(len(body)))
    assert service.head(path, {"Range": header}).status == 200


def test_a_range_of_a_large_attachment(service: Service, document: str) -> None:
    """The part that goes out by sendfile starts and ends where it should."""
    body = BYTES * 1000
    service.put(f"{document}/a.bin", body, **V1)
    part = service.get(f"{document}/a.bin", {"Range": "bytes=1001-900000"})
    assert (part.status, part["Content-Length"], part.body) == (206, "899000", body[1001:900001])


@pytest.mark.parametrize("asked", ["bytes=0-", "bytes=0-99", "bytes=5-"])
def test_a_range_of_nothing_is_all_of_it(service: Service, document: str, asked: str) -> None:
    """A runtime that keeps the bytes elsewhere stores an empty record, and fails on 416 for it (spec runtime 4)."""
    path, headers = f"{document}/a.bin", {"Range": asked}
    assert [service.put(path, b"", **V1).status for _ in range(2)] == [201, 204]
    for answer in (service.get(path, headers), service.head(path, headers)):
        assert (answer.status, answer.body, answer["Content-Length"], answer["Content-Range"]) == (200, b"", "0", None)


def test_ranges_are_for_attachments_only(service: Service, document: str) -> None:
    """Spec crud 4.7, last line."""
    assert service.get(f"{document}/data.xml", {"Range": "bytes=0-1"}).status == 200


def test_if_range_keeps_revisions_apart(service: Service, document: str) -> None:
    """RFC 9110 13.1.5: a range only of the revision the client has."""
    path = f"{document}/a.bin"
    old = service.put(path, BYTES, **V1)
    current = service.put(path, BYTES)
    date = str(service.get(path)["Last-Modified"])
    for condition, status in (
        (str(current["ETag"]), 206),
        (f'"{current["ETag"]}"', 206),
        (date, 206),
        (str(old["ETag"]), 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 200),
        ("nonsense", 200),
    ):
        assert service.get(path, {"Range": "bytes=0-1", "If-Range": condition}).status == status
