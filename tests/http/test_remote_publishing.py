"""Publishing to another server: spec crud 8.3, against a second service, and against servers that fail."""

import base64
import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from lxml import etree

from tests.http.test_audit import audited_by, path_of
from tests.http.test_audit import lines as audit_lines
from tests.http.test_callers import keys_of
from tests.http.test_publish import CRUD, definition
from tests.in_process import serving
from tests.providers import Received, Reply, providing
from tests.service import V1, Answer, Service, alone, running

NAMES = ("0a1b.bin", "ä b.pdf", "100%.css")
FORM = "hr/leave"


@dataclass(frozen=True)
class Publisher:
    """A service that publishes to another server; ``url`` is the other's address."""

    service: Service
    url: str

    def publish(self, path: str, body: bytes = b"", headers: dict[str, str] | None = None, **query: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in {"remote_server_url": self.url, **query}.items()}
        return self.service.raw("POST", f"/fr/service/{path}?{urlencode(named)}", headers or {}, body)

    def from_designer(self, document: str = "D", **more: object) -> Answer:
        return self.publish(f"{self.service.designer}/builder/publish/{document}", **more)  # type: ignore[arg-type]


@contextmanager
def publisher(directory: Path, url: str, dialect: str = "svc", allowed: str = "") -> Iterator[Publisher]:
    with serving(directory, dialect=dialect, env={"PERSISTENCE_PUBLISH_TO": allowed or url}) as service:
        base = f"{service.designer}/builder/data/D"
        for name in NAMES:
            service.put(f"{base}/{quote(name)}", name.encode(), {"Content-Type": "application/pdf"}, **V1)
        image, *files = (f"{CRUD}/{base}/{quote(name)}" for name in NAMES)
        elements = "".join(f"<f>{file}</f>" for file in files)
        assert service.put(f"{base}/data.xml", definition(FORM, image=image, files=elements), **V1).status == 201
        yield Publisher(service, url)


@pytest.fixture(params=["svc", pytest.param("orbeon", marks=pytest.mark.long)])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Publisher, Service]]:
    with (
        serving(tmp_path / "there", dialect=request.param, alone=True) as there,
        publisher(tmp_path / "here", f"http://127.0.0.1:{there.port}", request.param) as here,
    ):
        yield here, there


def said(answer: Answer) -> tuple[str, ...]:
    assert answer.status == 200, answer.body
    return tuple(child.text or "" for child in etree.fromstring(answer.body))


def test_a_definition_of_the_designer_is_there_and_not_here(pair: tuple[Publisher, Service]) -> None:
    """Attachments and paths as in a publication here; who published, and the source, are known there."""
    here, there = pair
    answer = here.from_designer(headers={here.service.prefix + "Username": "lea"}, available="false")
    assert said(answer) == ("hr", "leave", "3", "1")
    stored = there.get(f"{FORM}/form/form.xhtml")
    assert (stored[there.prefix + "Document"], stored[there.prefix + "Last-Modified-By-Username"]) == ("D", "lea")
    assert b"<available>false</available>" in stored.body
    for name in NAMES:
        assert f">{CRUD}/{FORM}/form/{quote(name)}<" in stored.body.decode()
        copy = there.get(f"{FORM}/form/{quote(name)}")
        assert (copy.body.decode(), copy["Content-Type"]) == (name, "application/pdf")
        assert copy[there.prefix + "Hash-Value"] == hashlib.sha256(name.encode()).hexdigest()
    assert here.service.get(f"{FORM}/form/form.xhtml").status == 404
    assert here.service.leftovers() == []


def test_the_other_server_decides_what_a_version_is(pair: tuple[Publisher, Service]) -> None:
    """8.3, 5.1: absent, next and a number; with next, attachments are in the version of their form.xhtml."""
    here, there = pair
    asked: list[dict[str, str]] = [{}, {}, {"form_definition_version": "next"}, {"form_definition_version": "7"}, {}]
    assert [said(here.from_designer(**query))[3] for query in asked] == ["1", "1", "2", "7", "7"]
    for version in (1, 2, 7):
        assert there.get(f"{FORM}/form/0a1b.bin", Form_Definition_Version=version).body == b"0a1b.bin"
    header = {here.service.prefix + "For-Document-Id": "x"}
    assert here.from_designer(headers=header).status == 400


def test_what_the_other_server_has_is_sent_again_only_if_forced(pair: tuple[Publisher, Service]) -> None:
    here, there = pair
    said(here.from_designer())
    path = f"{FORM}/form/0a1b.bin"
    first = there.get(path)["ETag"]
    said(here.from_designer())
    assert there.get(path)["ETag"] == first
    here.service.put(f"{here.service.designer}/builder/data/D/0a1b.bin", b"changed")
    said(here.from_designer())
    assert there.get(path).body == b"changed"
    changed = there.get(path)["ETag"]
    said(here.from_designer(force_attachments="true"))
    assert (there.get(path)["ETag"] != changed, there.get(path).body) == (True, b"changed")
    assert here.from_designer(force_attachments="yes").status == 400


def test_a_published_version_is_pushed_from_a_body(pair: tuple[Publisher, Service]) -> None:
    """Its own attachments go with it, those of the version named; what is there of that name stays, unless forced."""
    here, there = pair
    for version, content in ((1, b"one"), (2, b"two")):
        here.service.put(f"{FORM}/form/a.bin", content, Form_Definition_Version=version)
        body = definition(FORM, image=f"{CRUD}/{FORM}/form/a.bin")
        here.service.put(f"{FORM}/form/form.xhtml", body, Form_Definition_Version=version)
    assert said(here.publish("publish", body, form_definition_version="1"))[2:] == ("1", "1")
    assert there.get(f"{FORM}/form/a.bin").body == b"one"
    there.put(f"{FORM}/form/a.bin", b"theirs", **V1)
    said(here.publish("publish", body, form_definition_version="1"))
    assert there.get(f"{FORM}/form/a.bin").body == b"theirs"
    said(here.publish("publish", body, form_definition_version="1", force_attachments="true"))
    assert there.get(f"{FORM}/form/a.bin").body == b"one"


def test_a_bad_definition_is_refused_before_anything_is_sent(pair: tuple[Publisher, Service]) -> None:
    here, there = pair
    bad = definition(FORM, more='<permissions><permission operations="*"/></permissions>')
    for body, status in ((bad, 400), (b"<a", 400), (b"", 400)):
        assert here.publish("publish", body).status == status
    here.service.delete(f"{here.service.designer}/builder/data/D/0a1b.bin")
    assert here.from_designer().status == 404
    assert b"hr" not in there.raw("GET", f"{there.face}/form?all-forms=true").body


NOT_ALLOWED = (
    *(("http://127.0.0.1:{port}/bases", 403), ("http://localhost:{port}/base", 403), ("file:///etc/passwd", 400)),
    *(("http://u:secret@127.0.0.1:{port}/base", 400), ("http://127.0.0.1:{port}/base?x=secret", 400)),
)


def test_no_other_server_is_called(tmp_path: Path) -> None:
    """A publisher cannot make the service call anywhere: nothing arrives, and a password is not repeated."""
    with providing(lambda _: Reply()) as other:
        address = f"http://127.0.0.1:{other.port}/base"
        with publisher(tmp_path, address) as here:
            for url, status in NOT_ALLOWED:
                answer = here.from_designer(remote_server_url=url.format(port=other.port))
                assert (answer.status, "secret" in answer.cause) == (status, False), url
        assert other.received == []


def test_nothing_is_allowed_by_default(svc: Service) -> None:
    answer = svc.raw("POST", "/fr/service/publish?remote-server-url=http://127.0.0.1:9", {}, definition(FORM))
    assert (answer.status, "publish_to" in answer.cause) == (403, True)


def stored(received: Received) -> Reply:
    """A server in dialect ``orbeon`` that stores everything, as its version 4."""
    return Reply(404 if received.method == "HEAD" else 201, {"Orbeon-Form-Definition-Version": "4"})


def test_the_other_server_gets_what_is_meant_for_it(tmp_path: Path) -> None:
    """Paths and headers of a real runtime; no key, cookie or role of the caller. Credentials are sent in one way."""
    own = {"Authorization": "Bearer own", "Cookie": "a=b", "Orbeon-Username": "lea", "Orbeon-Roles": "boss"}
    base = f"/runtime/fr/service/persistence/crud/{FORM}/form"
    with providing(stored) as other, publisher(tmp_path, f"http://127.0.0.1:{other.port}/runtime", "orbeon") as here:
        for query, headers, sent in (
            ({"username": "lea", "password": "ß:x"}, {}, "Basic " + base64.b64encode("lea:ß:x".encode()).decode()),
            ({}, {"Orbeon-Remote-Authorization": "Bearer abc"}, "Bearer abc"),
            ({}, {}, None),
        ):
            other.received.clear()
            answer = here.from_designer(headers=own | headers, form_definition_version="next", **query)
            assert said(answer)[2:] == ("3", "4")
            names = [*map(quote, NAMES), "form.xhtml"]
            asked = [(each.method, each.path) for each in other.received]
            assert asked == [("PUT", f"{base}/{name}?document=D") for name in names]
            for each in other.received:
                assert (each.headers["Authorization"], each.headers["Orbeon-Form-Definition-Version"]) == (sent, "next")
                assert (each.headers["Orbeon-Username"], each.headers["X-Request-Id"] is None) == ("lea", False)
                assert not {"Cookie", "Orbeon-Roles", "Orbeon-Remote-Authorization"} & set(each.headers)
        other.received.clear()
        for query, headers in (
            ({"username": "lea"}, {"Orbeon-Remote-Authorization": "Bearer abc"}),
            ({"username": "a:b"}, {}),
            ({"username": "a", "password": "x\ny"}, {}),
            ({}, {"Orbeon-Remote-Authorization": "Digest secret"}),
        ):
            answer = here.from_designer(headers=headers, **query)
            assert (answer.status, "secret" in answer.cause) == (400, False), query
        assert other.received == []


def test_attachments_follow_a_form_that_somebody_else_has_published_meanwhile(tmp_path: Path) -> None:
    """With next, form.xhtml may be in a later version than they were."""

    def overtaken(received: Received) -> Reply:
        asked = received.headers["Orbeon-Form-Definition-Version"]
        number = asked if asked != "next" else "3" if "form.xhtml" in received.path else "2"
        return Reply(201, {"Orbeon-Form-Definition-Version": number})

    with providing(overtaken) as other, publisher(tmp_path, f"http://127.0.0.1:{other.port}", "orbeon") as here:
        assert said(here.from_designer(form_definition_version="next"))[2:] == ("3", "3")
        asked = [each.headers["Orbeon-Form-Definition-Version"] for each in other.of("PUT")]
        assert asked == ["next"] * 4 + ["3"] * 3


def at(name: str, reply: Reply) -> Callable[[Received], Reply]:
    """Answers as a server that stores everything, but not a file of this name."""
    return lambda received: reply if received.method == "PUT" and name in received.path else stored(received)


SECOND, LAST = quote(NAMES[1]), "form.xhtml"
SECOND_PUT, AT_LAST = partial(at, SECOND), partial(at, LAST)
NO_VERSION, WRONG_VERSION = Reply(201), Reply(201, {"Orbeon-Form-Definition-Version": "-1"})
CLOSED = Reply(403, {"Content-Type": "text/plain"}, b"closed\nsecret")
ENDLESS = Reply(500, {"Content-Length": str(1 << 40), "Content-Type": "text/plain"}, b"x" * (1 << 19))
HEADERS = Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 40_000)
FAILING = [
    ("refuses the key", at("0a1b", Reply(401)), ["after 0 of 3 attachments", "401"]),
    ("says why", SECOND_PUT(CLOSED), ["after 1 of 3", "403", ": closed"]),
    ("fails", AT_LAST(Reply(500, {}, b"<html>")), ["after all 3 attachments", "500 to PUT", "form.xhtml"]),
    ("is busy", AT_LAST(Reply(503, {"Retry-After": "9"})), ["after all 3", "503"]),
    ("has no such path", at("0a1b", Reply(404)), ["404"]),
    ("redirects", at("0a1b", Reply(307, {"Location": "http://127.0.0.1:1/"})), ["307"]),
    ("says no version", AT_LAST(NO_VERSION), ["does not say as which version"]),
    ("says a version that is none", AT_LAST(WRONG_VERSION), ["which version"]),
    ("hangs up", SECOND_PUT(Reply(raw=b"")), ["after 1 of 3", "no proper answer"]),
    ("speaks something else", SECOND_PUT(Reply(raw=b"SSH-2.0\r\n\r\n")), ["after 1 of 3", "no proper answer"]),
    ("sends headers without end", AT_LAST(HEADERS), ["no proper answer"]),
    ("sends a body without end", AT_LAST(ENDLESS), ["500"]),
]


def test_a_server_that_fails(tmp_path: Path) -> None:
    credentials = {"username": "lea", "password": "secret"}
    with providing(stored) as other, publisher(tmp_path, f"http://127.0.0.1:{other.port}", "orbeon") as here:
        for what, answers, causes in FAILING:
            other.answers = answers
            answer = here.from_designer(**credentials)
            missing = [each for each in causes if each not in answer.cause]
            assert (answer.status, missing) == (502, []), (what, answer.cause)
            assert (len(answer.body.splitlines()), b"secret" in answer.body) == (1, False), what
        other.answers = stored
        assert said(here.from_designer(**credentials))[3] == "4"
        assert here.service.leftovers() == []


def test_a_server_that_is_not_there_or_slow(tmp_path: Path) -> None:
    release = threading.Event()

    def slow(_: Received) -> Reply:
        release.wait(10)
        return Reply(201)

    with providing(slow) as other:
        address = f"http://127.0.0.1:{other.port}"
        settings = {"PERSISTENCE_PUBLISH_TO": f"{address}, http://127.0.0.1:1", "PERSISTENCE_REMOTE_TIMEOUT": "0.5"}
        with serving(tmp_path, env=settings) as service:
            here = Publisher(service, address)
            answers: list[Answer] = []
            waiting = threading.Thread(target=lambda: answers.append(here.publish("publish", definition(FORM))))
            waiting.start()
            while not other.received:
                threading.Event().wait(0.01)
            assert said(here.publish("publish", definition(FORM), remote_server_url=""))[3] == "1"
            assert not answers
            waiting.join()
            release.set()
            assert answers[0].status == 504
            assert "without attachments: the other server does not answer in time" in answers[0].cause
            away = here.publish("publish", definition(FORM), remote_server_url="http://127.0.0.1:1")
            assert (away.status, "cannot be reached" in away.cause) == (502, True)


def test_a_server_without_a_trusted_certificate_gets_no_password(tmp_path: Path) -> None:
    """With https the name in the setting is that of the server, whatever address it was looked up to be."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    own = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = own.add_extension(names, critical=False).sign(key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "own.pem").write_bytes(private + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem")
    read: list[bytes] = []

    def greet() -> None:
        for _ in range(2):  # a connection that was never made is tried again
            near, _ = listening.accept()
            with near, suppress(OSError), context.wrap_socket(near, server_side=True) as secured:
                read.append(secured.recv(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        greeting = threading.Thread(target=greet, daemon=True)
        greeting.start()
        with publisher(tmp_path / "here", f"https://localhost:{listening.getsockname()[1]}") as here:
            answer = here.from_designer(username="lea", password="secret")  # noqa: S106 - no real one
        greeting.join(10)
    assert (answer.status, "cannot be reached" in answer.cause) == (502, True)
    assert not any(read)


def test_a_key_of_the_other_service_opens_it_and_no_log_has_it(tmp_path: Path) -> None:
    """Two services of their own processes: as password or as bearer, in the query or in a header."""
    key = keys_of(tmp_path / "there").add("far")
    with alone(tmp_path / "there", env={"PERSISTENCE_KEYS": str(tmp_path / "there/var/keys.json")}) as there:
        allowed = {"PERSISTENCE_PUBLISH_TO": f"http://127.0.0.1:{there.port}"}
        with running(tmp_path / "here", env=allowed) as service:
            here = Publisher(service, f"http://127.0.0.1:{there.port}")
            body = definition(FORM)
            assert here.publish("publish", body).refuses(502, "401")
            assert said(here.publish("publish", body, username="any", password=key))[3] == "1"
            header = {"Svc-Remote-Authorization": f"Bearer {key}"}
            assert said(here.publish("publish", body, header, form_definition_version="next"))[3] == "2"
        logs = (there.log.read_text(), service.log.read_text())
    for log in logs:
        assert ("form.xhtml" in log or "/fr/service/publish" in log, key in log) == (True, False)


def test_the_audit_names_the_form_and_the_server(tmp_path: Path) -> None:
    with providing(lambda _: Reply(201, {"Svc-Form-Definition-Version": "4"})) as other:
        url = f"http://127.0.0.1:{other.port}"
        with audited_by(tmp_path, f'publish_to = ["{url}"]') as service:
            here = Publisher(service, url)
            for server in ("", url):
                said(here.publish("publish", definition(FORM), remote_server_url=server, password="secret"))  # noqa: S106
            other.answers = lambda _: Reply(401)
            assert here.publish("publish", definition(FORM), username="lea", password="secret").status == 502  # noqa: S106
            assert here.publish("publish", definition(FORM), remote_server_url="http://secret.test").status == 403
        lines = [line for line in audit_lines(tmp_path) if line["action"] == "publish"]
    names = ("status", "app", "form", "collection", "version", "details")
    assert [tuple(line.get(name) for name in names) for line in lines] == [
        (200, "hr", "leave", "form", 1, None),
        (200, "hr", "leave", "form", 4, {"server": url}),
        (502, None, None, None, None, {"server": url}),
        (403, None, None, None, None, None),
    ]
    assert "secret" not in Path(path_of(tmp_path)).read_text()


def test_from_a_designer_of_another_service(tmp_path: Path) -> None:
    """The definition and its attachments come from a remote provider, and go to a third service."""
    with serving(tmp_path / "designer", alone=True) as designer, serving(tmp_path / "there", alone=True) as there:
        file = tmp_path / "persistence.toml"
        uri = f"http://127.0.0.1:{designer.port}"
        file.write_text(
            f'publish_to = ["http://127.0.0.1:{there.port}"]\n'
            '"svc.persistence.provider.svc.builder.data" = "far"\n'
            f'"svc.persistence.far.uri" = "{uri}/fr/service/persistence"\n'
            '"svc.persistence.far.dialect" = "svc"\n'
        )
        with serving(tmp_path / "here", env={"PERSISTENCE_CONFIG": str(file)}, alone=True) as service:
            base = "svc/builder/data/D"
            designer.put(f"{base}/a.bin", b"far")
            designer.put(f"{base}/data.xml", definition(FORM, image=f"{CRUD}/{base}/a.bin"))
            here = Publisher(service, f"http://127.0.0.1:{there.port}")
            assert said(here.from_designer())[2:] == ("1", "1")
        assert there.get(f"{FORM}/form/a.bin").body == b"far"
