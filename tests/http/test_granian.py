"""granian in the workers: what it does not hand on is refused, and no worker ends with a write lost."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.asking import Ask, Asking
from tests.http.unfinished import PIECE
from tests.nginx import NGINX, in_front_of
from tests.service import OF_GRANIAN, PUBLIC, Answer, Service, alone
from tests.test_worker import replaced

pytest.importorskip("granian")

PATH = f"{PUBLIC}/crud/hr/leave/data/D/data.xml"
V1 = {"Svc-Form-Definition-Version": "1"}


@contextmanager
def by_granian(directory: Path, env: Mapping[str, str] | None = None, **more: object) -> Iterator[Service]:
    """A service in which granian reads the requests, and every local client is a proxy."""
    with alone(directory, env={**OF_GRANIAN, **(env or {})}, **more) as service:  # type: ignore[arg-type]
        yield service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with by_granian(tmp_path_factory.mktemp("granian"), workers=2) as service:
        yield service


def put(service: Service, path: str, body: bytes = b"<d/>", **headers: str) -> Answer:
    return service.raw("PUT", path, {"X-Sent-Uri": path, **V1, **headers}, body)


def get(service: Service, path: str, **headers: str) -> Answer:
    return service.raw("GET", path, {"X-Sent-Uri": path, **headers})


def of_socket(service: Service, request: bytes, *, is_whole: bool = False) -> bytes:
    """The answer to bytes sent as they are; granian gives none to a client that sends all and then ends its side."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        connection.sendall(request)
        if is_whole:
            return connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_it_serves_what_it_is_told_by_a_proxy(served: Service) -> None:
    assert put(served, PATH, b"<d>1</d>").status == 201
    answer = get(served, PATH)
    assert (answer.status, answer.body, answer["Server"]) == (200, b"<d>1</d>", "granian")
    large = PATH.replace("data.xml", "large.bin")
    assert put(served, large, os.urandom(1 << 20)).status == 201
    assert len(get(served, large).body) == 1 << 20
    assert get(served, large, Range="bytes=100000-299999").body == get(served, large).body[100_000:300_000]


@pytest.mark.parametrize(
    ("path", "said", "cause"),
    [
        (PATH, None, "known only through a proxy"),
        (PATH.replace("D/", "D%2F"), None, "known only through a proxy"),
        (PATH.replace("D/", "D%2F"), PATH.replace("D/", "D%2F"), "a character that is not allowed: 'D/data.xml'"),
        (PATH.replace("D/", "D%5C"), PATH.replace("D/", "D%5C"), "a character that is not allowed: 'D\\\\data.xml'"),
        (PATH.replace("D/", "D/../E/"), PATH.replace("D/", "D/../E/"), "must not contain '..'"),
        (PATH.replace("D/", "%2e%2e/E/"), PATH.replace("D/", "%2e%2e/E/"), "must not contain '..'"),
        (PATH, PATH.replace("D/", "E/"), "is not the URI of this request"),
        (f"{PATH}?a", f"{PATH}?b", "is not the URI of this request"),
        (f"{PATH}#a", f"{PATH}#a", "is not the URI of this request"),
        (PATH, f"http://localhost{PATH}", "is not the URI of this request"),
    ],
)
def test_an_ambiguous_path_is_refused_in_one_line(served: Service, path: str, said: str | None, cause: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = served.raw(method, path, {**V1, **({} if said is None else {"X-Sent-Uri": said})})
        assert (answer.status, answer.body.count(b"\n"), cause in answer.cause) == (400, 1, True), answer.cause


def test_health_needs_no_proxy_and_a_stranger_is_none(tmp_path: Path) -> None:
    env = {**OF_GRANIAN, "PERSISTENCE_PROXIES": "127.0.0.9"}
    with alone(tmp_path, env=env) as service:
        for path in ("/", "/healthz", "/readyz", "/metrics", "/version"):
            assert service.raw("GET", path).status == 200
        refused = get(service, PATH)
        assert (refused.status, refused.cause) == (
            400,
            "X-Sent-Uri is believed only from the addresses of the setting proxies",
        )
        service.source = "127.0.0.9"
        assert put(service, PATH).status == 201


def test_a_header_that_it_does_not_hand_on_is_refused(served: Service) -> None:
    """The user would be nobody."""
    for value in ("zo\xeb", ""):
        answer = put(served, PATH, **{"Svc-Username": value})
        assert (answer.status, answer.cause) == (400, "the header Svc-Username is empty, or not ASCII")


def test_names_in_headers_of_responses_are_utf_8(served: Service) -> None:
    path = PATH.replace("/D/", "/utf8/")
    user = '{"username":"zo%C3%AB","groups":[],"roles":[]}'
    assert put(served, path, **{"Svc-Credentials": user}).status == 201
    assert (get(served, path)["Svc-Username"] or "").encode("latin-1").decode() == "zoë"


@pytest.mark.parametrize("rest", ["4\r\n<d/>\r\n0\r\n\r\n", "4\r\n<d/>\r\n", "9\r\n<d/>", "zz\r\n", ""])
def test_a_chunked_body_is_refused_for_one_that_breaks_off_looks_whole(served: Service, rest: str) -> None:
    path = PATH.replace("/D/", "/chunked/")
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nX-Sent-Uri: {path}\r\nSvc-Form-Definition-Version: 1\r\n"
    request = f"{head}Transfer-Encoding: chunked\r\n\r\n{rest}".encode()
    assert b" 411 " in of_socket(served, request, is_whole=rest.endswith("0\r\n\r\n"))[:13]
    assert get(served, path).status == 404


def test_a_client_that_hangs_up_stores_nothing(served: Service) -> None:
    path = PATH.replace("/D/", "/cut/")
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nX-Sent-Uri: {path}\r\nSvc-Form-Definition-Version: 1\r\n"
    assert b"996 bytes before" in of_socket(served, f"{head}Content-Length: 1000\r\n\r\n<d/>".encode())
    assert get(served, path).status == 404
    assert not served.leftovers()


def test_a_client_that_waits_is_asked_to_continue(served: Service) -> None:
    path = PATH.replace("/D/", "/waits/")
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nX-Sent-Uri: {path}\r\nSvc-Form-Definition-Version: 1\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: 4\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"<d/>")
        assert connection.recv(1000).startswith(b"HTTP/1.1 201 ")


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_through_nginx_no_client_says_which_path_was_sent(served: Service, tmp_path: Path) -> None:
    """Neither in the header's own name, nor in one that WSGI could take for it."""
    path = PATH.replace("/D/", "/by-nginx/")
    with in_front_of(served, tmp_path / "nginx") as face:
        assert face.raw("PUT", path, V1, b"<d/>").status == 201
        assert face.raw("PUT", path, V1, iter([b"<d>", b"</d>"])).status == 204, "nginx announces the length"  # type: ignore[arg-type]
        encoded = path.replace("by-nginx/", "by-nginx%2F")
        for name in ("X-Sent-Uri", "x-sent-uri", "X_Sent_Uri", "X-Sent_Uri", "X.Sent.Uri"):
            assert face.raw("GET", encoded, {name: path}).status == 400, name
            assert face.raw("GET", path, {name: encoded}).status == 200, name
        assert face.raw("GET", encoded).cause.endswith("a character that is not allowed: 'by-nginx/data.xml'")
        assert face.raw("GET", path.replace("/crud/", "/x/../crud/")).status == 400
        assert face.raw("GET", path.replace("hr/leave", "hr//leave")).status == 200
        assert face.raw("GET", path.replace("data.xml", "%64ata.xml?x=%2F")).status == 200


def test_without_a_proxy_in_the_settings_it_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="name the nginx in front"), alone(tmp_path, options=("--server", "granian")):
        pytest.fail("it starts")


def test_a_port_that_is_taken_is_one_line(served: Service, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as refused, by_granian(tmp_path, bind=f"127.0.0.1:{served.port}"):
        pytest.fail("it starts")
    assert str(refused.value).count("\n") == 2, "the line of the test, and one of the service"
    assert "another program serves there" in str(refused.value)


@pytest.mark.long
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with by_granian(tmp_path, workers=2) as service:
        assert put(service, PATH).status == 201
        for _ in range(3):  # soon after each other, too
            (first, *_others) = service.workers()
            os.kill(first, signal.SIGKILL)
            deadline = time.monotonic() + 20
            while (first in service.workers() or len(service.workers()) < 2) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert get(service, PATH).status == 200
        assert len(service.workers()) == 2


@pytest.mark.long
def test_a_worker_that_has_grown_is_replaced(tmp_path: Path) -> None:
    replaced(tmp_path, 1, OF_GRANIAN)


def creating(service: Service, acknowledged: list[str]) -> Ask:
    """Create documents; ``acknowledged`` gets the paths of those that were stored."""

    def ask(client: int, number: int) -> str | None:
        path = PATH.replace("/D/", f"/{client}-{number}/")
        status = put(service, path).status
        if status != 201:
            return f"{path}: {status}"
        acknowledged.append(path)
        return None

    return ask


def test_a_stop_under_load_loses_no_write_that_was_acknowledged(tmp_path: Path) -> None:
    stored = list[str]()
    with by_granian(tmp_path, workers=2) as service, Asking(creating(service, stored), 4) as asking:
        asking.go_on(60)
        assert asking.failures == []
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(20) == 0
    with by_granian(tmp_path) as service:
        assert [path for path in stored if get(service, path).status != 200] == []


@pytest.mark.long
def test_a_reload_under_load_fails_no_request(tmp_path: Path) -> None:
    with by_granian(tmp_path, workers=2) as service, Asking(creating(service, []), 4) as asking:
        asking.go_on(20)
        before = set(service.workers())
        service.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 20
        while before & set(service.workers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        asking.go_on(60)
        assert (before & set(service.workers()), asking.failures) == (set(), [])


@contextmanager
def unfinished(directory: Path) -> Iterator[Service]:
    """An application whose responses break off, in one worker with granian."""
    options = ("--worker-class", "persistence.granian_worker.GranianWorker")
    with alone(directory, command="gunicorn", app="tests.http.unfinished:app", options=options) as service:
        yield service


@pytest.mark.parametrize(
    "path",
    [
        "/disk",
        *(pytest.param(path, marks=pytest.mark.long) for path in ("/defect", "/disk-announced", "/defect-announced")),
    ],
)
def test_a_response_that_breaks_off_does_not_look_whole(tmp_path: Path, path: str) -> None:
    """Without a length its worker ends, once the other requests are answered; another one takes its place."""
    with unfinished(tmp_path) as service:
        whole = service.raw("GET", "/")
        assert whole.body == 2 * PIECE
        others: list[Answer] = []
        slow = threading.Thread(target=lambda: others.append(service.raw("GET", "/slow")))
        slow.start()
        time.sleep(0.3)
        with pytest.raises((http.client.IncompleteRead, http.client.RemoteDisconnected)):
            service.raw("GET", path)
        slow.join()
        assert [(each.status, each.body) for each in others] == [(200, 2 * PIECE)]
        after = service.raw("GET", "/")
        assert (after.body == whole.body, after["X-Process"] == whole["X-Process"]) == (True, "announced" in path)
