"""The service behind a real nginx that runs ``config/nginx.conf``: nothing on the wire may differ but speed."""

import fcntl
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from tests import nginx
from tests.nginx import Faces, seen
from tests.service import PROVIDER, PUBLIC, V1, Service

pytestmark = pytest.mark.skipif(nginx.NGINX is None, reason="nginx is not installed")

BIG = bytes(range(256)) * (3 << 12)
BIG_XML = b"<d>%s</d>" % (b"x" * 100_000)
XML = {"Content-Type": "application/xml"}
PROMPT = 1.0


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faces]:
    with nginx.faces(tmp_path_factory.mktemp("nginx"), "svc") as faces:
        yield faces


@pytest.fixture(scope="module")
def large(faces: Faces) -> str:
    """A form of which everything is large, stored with every header that can be known."""
    user = '{"username":"Jos%C3%A9","groups":["clerks"],"roles":[],"organizations":[["hq"]]}'
    known = {"Credentials": user, "Workflow_Stage": "review", "Hash_Algorithm": "md5", "Hash_Value": "abc"}
    kind = {"Content-Type": "text/html; charset=UTF-8; x=y"}
    for place, main in (("data/D", "data.xml"), ("draft/D", "data.xml"), ("form", "form.xhtml")):
        for name, content in ((main, BIG_XML), ("a.bin", BIG)):
            path = f"large/form/{place}/{name}?valid=true"
            assert faces.nginx.put(path, content, kind, **V1, **known).status == 201
    return "large/form"


@pytest.fixture
def document(faces: Faces, form: str) -> str:
    assert faces.nginx.put(f"{form}/data/D/data.xml", **V1).status == 201
    return f"{form}/data/D"


@pytest.mark.parametrize("face", [PROVIDER, PUBLIC], ids=["provider", "public"])
@pytest.mark.parametrize(
    ("path", "contents"),
    [
        ("form/form.xhtml", (b"<html/>", b"<html>2</html>")),
        ("form/a.bin", (b"1", BIG)),
        ("data/D/data.xml", (b"<d/>", BIG_XML)),
        ("data/E/a.bin", (BIG, b"22")),
        ("data/E/empty.bin", (b"", b"")),
        ("draft/D/data.xml", (BIG_XML, b"<d/>")),
        ("draft/E/a.bin", (b"1", BIG)),
    ],
)
def test_life_of_a_resource(faces: Faces, form: str, face: str, path: str, contents: tuple[bytes, bytes]) -> None:
    service, url = faces.nginx, f"{face}/crud/{form}/{path}"
    version = {service.prefix + "Form-Definition-Version": "1"}
    headers = XML | version
    if "/E/" in path:
        service.raw("PUT", f"{url.rpartition('/')[0]}/data.xml", headers, b"<d/>")
    for content, status in zip(contents, (201, 204), strict=True):
        assert service.raw("PUT", url, headers, content).status == status
        read, head = service.raw("GET", url, version), service.raw("HEAD", url, version)
        assert (read.status, read.body) == (200, content)
        assert (head.status, head.body) == (200, b"")
        assert seen(head)[1] == seen(read)[1]
    assert service.raw("DELETE", url, version).status == 204
    assert service.raw("GET", url, version).status == (404 if path.startswith("draft") else service.deleted)


@pytest.mark.parametrize("pieces", [[], [b"one ", b"two"], [b"x" * (1 << 20)] * 3], ids=["empty", "small", "large"])
def test_a_chunked_body_is_stored(faces: Faces, document: str, pieces: list[bytes]) -> None:
    """A body without a length arrives whole; nginx tells the service its length."""
    with closing(http.client.HTTPConnection("127.0.0.1", faces.nginx.port, timeout=20)) as connection:
        headers = {"Transfer-Encoding": "chunked", faces.nginx.prefix + "Form-Definition-Version": "1"}
        connection.request("PUT", f"/crud/{document}/a.bin", iter(pieces), headers, encode_chunked=True)
        with connection.getresponse() as response:
            assert response.status == 201
    assert faces.nginx.get(f"{document}/a.bin").body == b"".join(pieces)


@pytest.mark.parametrize("name", ["données №1.bin", "a b+c&d;e.bin", "50%.bin", "a?#.bin"])
def test_names_survive(faces: Faces, document: str, name: str) -> None:
    """A name that is percent-encoded on the wire is decoded once, by the service."""
    path = f"{document}/{quote(name)}"
    assert faces.nginx.put(path, b"1", **V1).status == 201
    assert faces.nginx.get(path).body == faces.direct.get(path).body == b"1"
    assert name in {file.name.replace("%25", "%").replace("%3F", "?") for file in faces.direct.data.glob("*/*/*/*/*")}


@pytest.mark.parametrize(
    "path", ["/crud//{}///data.xml", "/crud/{}//data.xml", "/fr/service/persistence/crud//{}//data.xml"]
)
def test_doubled_slashes_below_crud_mean_one(faces: Faces, document: str, path: str) -> None:
    """Spec crud 2.1: the runtime builds such paths."""
    headers = XML | {faces.nginx.prefix + "Form-Definition-Version": "1"}
    assert faces.nginx.raw("PUT", path.format(document), headers, b"<d>2</d>").status in (201, 204)
    assert faces.nginx.raw("GET", path.format(document)).body == b"<d>2</d>"


@pytest.mark.parametrize(
    "path",
    [
        *("/crud/a/b/data/../data.xml", "/crud/a/b/data/./data.xml", "/crud/a/b/data/%2e%2e/data.xml"),
        *("/crud/a/b/data/%2E/data.xml", "/crud/a/b/data/D%2F..%2FE/data.xml", "/crud/a/b/data/D/a%5Cb.bin"),
        *("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/crud/a/b/data/D/a%00.bin", "/crud/a/b/data/D/%FF.bin"),
    ],
)
def test_paths_that_lead_elsewhere_are_refused(faces: Faces, path: str) -> None:
    assert faces.nginx.raw("GET", path).status == 400


def test_retry_after_and_every_level_of_an_organization_come_through(faces: Faces, form: str) -> None:
    """A header that is sent several times is complete when nginx sends the content."""
    user = '{"username":"u","groups":["g"],"roles":[],"organizations":[["a","b","c"]]}'
    path = f"{form}/data/D/data.xml"
    faces.nginx.put(path, BIG_XML, **V1, Credentials=user)
    assert seen(faces.nginx.get(path)) == seen(faces.without_accel.get(path))
    with ExitStack() as stack:
        for lock in (faces.direct.data / ".locks").glob("[0-9a-f][0-9a-f]"):
            fcntl.flock(stack.enter_context(lock.open()), fcntl.LOCK_EX)
        answer = faces.nginx.put(path)
    assert (answer.status, answer["Retry-After"]) == (503, "1")
    assert answer.cause == f"another request has been writing here for {nginx.LOCK_TIMEOUT} seconds"


def test_a_body_over_a_limit_is_refused_and_harms_nobody_else(faces: Faces, document: str) -> None:
    """413 of the service, where its limit is the smaller one; or of nginx before anything of the body is sent."""
    answer = faces.without_accel.put(f"{document}/a.bin", b"x" * (nginx.SMALL + 1))
    assert (answer.status, answer.cause) == (413, f"the body is larger than the limit of {nginx.SMALL} bytes")
    answer = faces.nginx.put(f"{document}/a.bin", b"", {"Content-Length": str((1 << 30) + 1)})
    assert (answer.status, answer.cause) == (413, "the body is larger than the limit of client_max_body_size")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Request-Id"]
    for _ in range(20):
        assert faces.nginx.put(f"{document}/a.bin", BIG[: 1 << 18], {"If-Match": "other"}).status == 412
        assert faces.nginx.put(f"{document}/data.xml").status == 204


@pytest.mark.parametrize("path", ["data/D/a.bin", "form/a.bin", "draft/D/a.bin", "data/D/data.xml", "form/form.xhtml"])
def test_x_accel_redirect_shows_in_nothing(faces: Faces, large: str, path: str) -> None:
    assert faces.direct.get(f"{large}/{path}")["X-Accel-Redirect"]
    sent = {"Accept-Encoding": "gzip"}
    by_nginx, by_service = (face.get(f"{large}/{path}", sent) for face in (faces.nginx, faces.without_accel))
    assert by_nginx.body == (BIG if path.endswith(".bin") else BIG_XML)
    assert seen(by_nginx) == seen(by_service)


def test_headers_of_both_dialects_come_through() -> None:
    """With a content that nginx sends, only those come that its configuration names: the others are of ``svc``."""
    named = re.findall(r"add_header (Svc|Orbeon)-(\S+) +\$upstream_http_(svc|orbeon)_(\w+);", nginx.EXAMPLE.read_text())
    assert all((prefix, name) == (own.title(), rest.replace("_", "-").title()) for prefix, name, own, rest in named)
    of = {prefix: [name for each, name, *_ in named if each == prefix] for prefix in ("Svc", "Orbeon")}
    assert of["Svc"] == of["Orbeon"] != []


FOUND, OLD, FUTURE = "data/D/a.bin", "Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"
ASKED: list[tuple[int, str, str, dict[str, str], bytes | None]] = [
    (200, "GET", FOUND, {"If-None-Match": '"other"'}, None),
    (200, "GET", FOUND, {"If-Modified-Since": OLD}, None),
    (200, "GET", FOUND, {"Range": "bytes=0-3", "If-Range": '"other"'}, None),
    (206, "GET", FOUND, {"Range": "bytes=0-3"}, None),
    (206, "GET", FOUND, {"Range": "bytes=70000-"}, None),
    (304, "GET", FOUND, {"If-None-Match": "*"}, None),
    (304, "GET", FOUND, {"If-Modified-Since": FUTURE}, None),
    (416, "GET", FOUND, {"Range": "bytes=3145728-"}, None),
    (200, "GET", FOUND, {"If-Match": '"other"'}, None),
    (200, "GET", FOUND, {"If-Unmodified-Since": OLD}, None),
    (400, "PUT", "data/D/data.xml", XML, b"<d>"),
    (400, "GET", FOUND, {"Range": "bytes=-5"}, None),
    (404, "GET", "data/none/data.xml", {}, None),
    (404, "HEAD", "data/none/data.xml", {}, None),
    (404, "GET", "nothing", {}, None),
    (405, "POST", "data/D/data.xml", XML, b"<d/>"),
    (412, "PUT", "data/D/data.xml", XML | {"If-Match": "other"}, b"<d/>"),
    (415, "PUT", FOUND, {"Content-Encoding": "gzip"}, b"x"),
]


@pytest.mark.parametrize(("status", "method", "path", "headers", "body"), ASKED)
def test_errors_conditions_and_ranges_come_through(
    faces: Faces, large: str, status: int, method: str, path: str, headers: dict[str, str], body: bytes | None
) -> None:
    through = faces.nginx.ask(method, f"{large}/{path}", body, headers)
    assert through.status == status
    assert seen(through) == seen(faces.without_accel.ask(method, f"{large}/{path}", body, headers))
    assert status < 400 or through["Content-Type"] == "text/plain; charset=utf-8"
    assert (through["Allow"] is None) == (status != 405)


def test_nginxs_own_location_is_closed(faces: Faces, large: str) -> None:
    link = faces.direct.get(f"{large}/data/D/a.bin")["X-Accel-Redirect"] or ""
    around = ["/protected", "/protected/", "/protected/layout.json", "/crud/../protected/.serve/x"]
    for url in [link, *around]:
        answer = faces.nginx.raw("GET", url)
        assert (answer.status, answer.cause) == (404, "there is nothing under this path"), url
    assert faces.nginx.raw("GET", f"/{link}").status == 400
    assert faces.nginx.raw("GET", link.replace("d", "%64")).status in (400, 404)


@pytest.mark.parametrize(
    ("status", "line", "edits"),
    [
        (403, "this address may not use the service", {"allow": "192.0.2.1;"}),
        (500, "nginx cannot read the content; its error log says why", {"alias": "/nowhere/.serve/;"}),
        (502, "the service is not running, or closed the connection", {"server": "127.0.0.1:1;"}),
    ],
)
def test_what_nginx_says_itself_is_one_line(
    faces: Faces, large: str, tmp_path: Path, status: int, line: str, edits: dict[str, str]
) -> None:
    """A content that nginx cannot read is not 404: that would mean it was deleted."""
    with nginx.in_front_of(faces.direct, tmp_path / "nginx", **edits) as face:
        answer = face.get(f"{large}/data/D/a.bin")
    assert (answer.status, answer.cause) == (status, line)
    assert answer.headers.get_content_type() == "text/plain"
    assert answer["X-Request-Id"]


@pytest.mark.parametrize("sent", [None, "from-the-runtime.1", "not an id"])
@pytest.mark.parametrize("name", ["none.xml", "data.xml", "a.bin"])
def test_a_request_id_leads_to_the_log(faces: Faces, large: str, sent: str | None, name: str) -> None:
    """One id in the answer and in the service's line: the caller's own where it is one."""
    answer = faces.nginx.get(f"{large}/data/D/{name}", {"X-Request-Id": sent} if sent else {})
    (number,) = answer.headers.get_all("X-Request-Id")
    assert (number == sent) == (sent == "from-the-runtime.1")
    lines = [json.loads(line) for line in faces.direct.log.read_text().splitlines() if line.startswith("{")]
    assert (number, f"{faces.nginx.face}/crud/{large}/data/D/{name}") in [
        (line.get("id"), line.get("path")) for line in lines
    ]


def test_the_log_has_no_query(faces: Faces, large: str) -> None:
    """An access token or a password in it is a secret; the path and the id of the request are there."""
    path = f"{faces.nginx.face}/crud/{large}/data/D/data.xml"
    for query in ("fr-access-token=secret", "x=%3Fsecret", "a?secret", "fr-access-token=secret#secret"):
        faces.nginx.raw("GET", f"{path}?{query}", {"Referer": "http://forms.test/?secret"})
    faces.nginx.raw("POST", "/fr/service/publish?username=lea&password=secret", {"Authorization": "Bearer secret"}, b"")
    last = '"POST /fr/service/publish" '
    ends = time.monotonic() + 10
    while last not in (log := faces.nginx.log.with_name("access.log").read_text()) and time.monotonic() < ends:
        time.sleep(0.02)  # nginx writes the line after it has sent the answer
    assert last in log
    assert log.count(f'"GET {path}" ') >= 4
    assert "secret" not in log
    assert "secret" not in faces.direct.log.read_text()


@contextmanager
def dripping(service: Service, document: str) -> Iterator[list[socket.socket]]:
    """More clients than the service has threads, each with a PUT that still wants ten bytes."""
    with ExitStack() as stack:
        clients = []
        for number in range(2 * nginx.THREADS):
            head = (
                f"PUT /crud/{document}/{number}.bin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
                f"{service.prefix}Form-Definition-Version: 1\r\n\r\n"
            )
            clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=20)))
            clients[-1].sendall(head.encode())
        yield clients


def test_slow_clients_hold_nobody_up(faces: Faces, document: str) -> None:
    with dripping(faces.nginx, document) as clients:
        for _ in range(10):
            began = time.monotonic()
            assert faces.nginx.put(f"{document}/data.xml").status == 204
            assert time.monotonic() - began < PROMPT
            for client in clients:
                client.sendall(b"x")
        assert all(client.recv(65536).startswith(b"HTTP/1.1 201 ") for client in clients)


def test_without_nginx_slow_clients_hold_everybody_up(faces: Faces, document: str) -> None:
    """Why nginx is there; and the test above would notice if it did not help."""
    connection = http.client.HTTPConnection("127.0.0.1", faces.direct.port, timeout=PROMPT)
    with closing(connection), dripping(faces.direct, document):
        path = f"/crud/{document}/data.xml"
        connection.request("GET", path)
        with pytest.raises(TimeoutError):
            connection.getresponse()
