"""Responses of gunicorn's worker go out in one piece, and its connections stay with a thread and stay in step."""

import io
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.http import wsgi
from gunicorn.http.errors import InvalidResponseHeader, InvalidResponseHeaderName
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader
from gunicorn.workers.gthread import TConn, ThreadWorker

from persistence.gunicorn_worker import JoinedResponse, PeerRequest, Worker
from persistence.limits import CHUNK

_FIELDS = [("Content-Type", "text/plain"), ("ETag", '"1"'), ("Svc-Username", "J\xe9 \xe4")]


@dataclass
class Sent:
    """A socket that keeps what each call sends."""

    calls: list[bytes] = field(default_factory=list)

    def sendall(self, data: bytes) -> None:
        self.calls.append(data)

    def send(self, data: memoryview, flags: int) -> int:
        assert flags == socket.MSG_DONTWAIT
        self.calls.append(bytes(data))
        return len(data)


def sent(
    kind: Callable[..., Any], method: str, status: str, fields: list[tuple[str, str]], body: Iterable[bytes]
) -> list[bytes]:
    """Return what a kind of response sends, without its date."""
    request = SimpleNamespace(method=method, version=(1, 1), should_close=lambda: False)
    connection = Sent()
    response = kind(request, connection, Config())
    response.start_response(status, list(fields))
    for piece in body:
        response.write(piece)
    response.close()
    return [b"\r\n".join(line for line in each.split(b"\r\n") if line[:5] != b"Date:") for each in connection.calls]


def length(size: int) -> tuple[str, str]:
    return ("Content-Length", str(size))


@pytest.mark.parametrize(
    ("method", "status", "fields", "body", "calls"),
    [
        ("GET", "200 OK", [*_FIELDS, length(5)], [b"whole"], 1),
        ("GET", "200 OK", [*_FIELDS, length(10)], [b"first", b"then "], 3),
        ("GET", "200 OK", [length(3)], [b"more than was said"], 2),
        ("GET", "200 OK", [length(CHUNK + 1)], [b"x" * (CHUNK + 1)], 2),
        ("GET", "200 OK", _FIELDS, [b"chunked"], 3),
        ("GET", "200 OK", [("X-Blank", " \tinner  blanks\t"), ("X-Empty", ""), length(0)], [b""], 1),
        ("GET", "200 OK", [("Connection", "close"), ("Transfer-Encoding", "x"), length(1)], [b"1"], 1),
        ("HEAD", "200 OK", [*_FIELDS, length(5)], [b"whole"], 1),
        ("PUT", "204 No Content", _FIELDS, [b""], 1),
        ("GET", "304 Not Modified", [*_FIELDS, length(5)], [], 1),
    ],
)
def test_the_same_is_sent_as_by_gunicorn_in_fewer_calls(
    method: str, status: str, fields: list[tuple[str, str]], body: list[bytes], calls: int
) -> None:
    joined = sent(JoinedResponse, method, status, fields, body)
    assert b"".join(joined) == b"".join(sent(wsgi.Response, method, status, fields, body))
    assert len(joined) == calls


@pytest.mark.parametrize(
    "field", [("X-Line", "a\r\nSet-Cookie: b"), ("X-End", "a\n"), ("X Name", "a"), ("X-Name\n", "a"), ("X-Zero", "\0")]
)
def test_a_header_that_is_none_is_refused(field: tuple[str, str]) -> None:
    with pytest.raises((InvalidResponseHeader, InvalidResponseHeaderName)):
        sent(JoinedResponse, "GET", "200 OK", [field], [])


@dataclass
class Connection:
    """A connection of the worker, whose client sends its next requests when a test says so."""

    client: socket.socket
    sock: socket.socket
    is_http2: bool = False
    initialized: bool = False

    @property
    def parser(self) -> SimpleNamespace:
        return SimpleNamespace(unreader=SimpleNamespace(buf=io.BytesIO()))


@pytest.fixture
def connection() -> Iterator[Connection]:
    client, own = socket.socketpair()
    with client, own:
        yield Connection(client, own)


@pytest.mark.parametrize(
    ("connections", "is_alive", "answered"),
    [(2, True, 3), (3, True, 1), (2, False, 1)],
    ids=["a thread for each", "one waits for a thread", "the worker ends"],
)
def test_a_thread_keeps_its_connection_while_no_other_waits(
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    connections: int,
    is_alive: bool,  # noqa: FBT001
    answered: int,
) -> None:
    """Requests that have been sent are answered at once; without one the connection goes back soon."""
    answers: list[bytes] = []
    monkeypatch.setattr(ThreadWorker, "handle", lambda _, conn: answers.append(conn.sock.recv(1)) or True)
    worker = Worker.__new__(Worker)
    worker.cfg, worker.alive, worker.nr_conns = SimpleNamespace(threads=2), is_alive, connections
    worker.keepalived_conns, worker.pending_conns = deque(), deque()
    connection.client.sendall(b"123")
    began = time.monotonic()
    assert worker.handle(connection) is True
    assert len(answers) == answered
    assert time.monotonic() - began < 5


def ignoring(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Return the path, without reading a body."""
    body = environ["RAW_URI"].encode()
    start_response("200 OK", [length(len(body))])
    return [body]


def reading(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Return the path and the body."""
    body = environ["RAW_URI"].encode() + environ["wsgi.input"].read()
    start_response("200 OK", [length(len(body))])
    return [body]


@pytest.mark.parametrize(
    "body", [b"Content-Length: 5\r\n\r\n12345", b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize(("app", "first"), [(ignoring, b"/one"), (reading, b"/one12345")])
def test_what_is_left_of_a_body_is_not_taken_for_the_next_request(
    body: bytes, app: Callable[..., Any], first: bytes
) -> None:
    client, own = socket.socketpair()
    with client, own:
        worker = Worker.__new__(Worker)
        worker.cfg, worker.alive, worker.nr, worker.nr_conns, worker.max_requests = Config(), True, 0, 1, 100
        worker.keepalived_conns, worker.pending_conns, worker.max_keepalived = deque(), deque(), 100
        worker.log, worker.wsgi = Logger(worker.cfg), app
        client.sendall(b"PUT /one HTTP/1.1\r\nHost: a\r\n" + body)
        client.sendall(b"GET /two HTTP/1.1\r\nHost: a\r\n\r\nGET /three HTTP/1.1\r\nHost: a\r\n\r\n")
        connection = TConn(worker.cfg, own, ("127.0.0.1", 1), ("127.0.0.1", 2))
        assert worker.handle(connection) is True
        own.shutdown(socket.SHUT_WR)
        answered = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert [part.rpartition(b"\r\n")[2] for part in answered.split(b"HTTP/1.1 200 OK")[1:]] == [
        first,
        b"/two",
        b"/three",
    ]


@pytest.mark.parametrize(
    ("proxies", "peer", "scheme"),
    [
        ("127.0.0.1,::1", ("127.0.0.1", 1), "https"),
        ("127.0.0.1,::1", ("::1", 1, 0, 0), "https"),
        ("127.0.0.1,::1", ("127.0.0.2", 1), "http"),
        ("10.0.0.0/8", ("10.1.2.3", 1), "https"),
        ("*", ("192.0.2.1", 1), "https"),
        ("127.0.0.1", ("no address", 1), "http"),
        ("127.0.0.1", "", "https"),
    ],
)
def test_only_a_proxy_says_how_its_client_asked(proxies: str, peer: Any, scheme: str) -> None:
    settings = Config()
    settings.set("forwarded_allow_ips", proxies)
    sent = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n"
    for kind in (Request, PeerRequest, PeerRequest):
        assert kind(settings, IterUnreader([sent]), peer).scheme == scheme
