"""gunicorn's worker: responses in one piece, connections that stay with a thread, and a worker that has grown."""

import http.client
import io
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
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

from persistence import gunicorn_worker
from persistence.gunicorn_worker import JoinedResponse, MemoryWatch, PeerRequest, Worker
from persistence.limits import CHUNK
from tests.asking import Ask, Asking
from tests.service import PUBLIC, Service, alone
from tests.waiting import eventually

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


# A worker is replaced where it has grown past a limit


_MIB = 1 << 20
_ASKED = 12
"""Requests that clients send at least."""


@dataclass
class Process:
    """A process whose memory grows as a test says, at times that it says."""

    resident: int = 50 * _MIB
    now: float = 0.0
    memory: MemoryWatch = field(init=False)

    def look(self, limit: int, *, is_busy: bool = False, after: float = 2.0) -> bool:
        self.now += after
        return self.memory.is_past(limit, is_busy=is_busy)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(gunicorn_worker.time, "monotonic", lambda: made.now)
    made.memory = MemoryWatch(lambda: made.resident)
    return made


def test_a_worker_that_has_grown_is_past_its_limit_and_one_without_a_limit_never(process: Process) -> None:
    process.resident = 300 * _MIB
    assert process.look(200 * _MIB)
    assert not process.look(0)


def test_a_worker_that_answers_has_time_to_free_what_it_needs(process: Process) -> None:
    process.resident = 300 * _MIB
    assert not process.look(200 * _MIB, is_busy=True)
    assert not process.look(200 * _MIB, is_busy=True, after=9)
    assert process.look(200 * _MIB, is_busy=True, after=2)


def test_the_clock_decides_how_often_is_looked(process: Process) -> None:
    process.resident = 300 * _MIB
    assert not process.look(200 * _MIB, after=0.5)


@pytest.mark.parametrize("number", [1, pytest.param(6, marks=pytest.mark.long)])
def test_workers_are_replaced_while_clients_go_on(tmp_path: Path, number: int) -> None:
    """No request of theirs fails, on connections that are kept or not."""
    little = {"PERSISTENCE_WORKER_MEMORY": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    with alone(tmp_path, workers=2, env=little, module="tests.often_replaced") as service:
        service.save("hr/leave")
        seen = set(service.workers())
        with getting(service, kept=(True, False)) as get, Asking(get, 2, 0.02) as clients:

            def are_replaced() -> bool:
                seen.update(service.workers())
                return len(seen) >= 2 + number  # the second may not have begun yet

            eventually(are_replaced, 20 * number)
            clients.go_on(_ASKED)
        assert clients.failures == []
        assert b"replacing a worker that has grown to" in service.log.read_bytes()


def test_one_thread_serves_several_connections(tmp_path: Path) -> None:
    """A connection with one request after the other does not keep the thread from others."""
    with alone(tmp_path, threads=1) as service:
        service.save("hr/leave")
        asked = Counter[int]()

        def counting(client: int, number: int) -> str | None:
            asked[client] += 1
            return get(client, number)

        with getting(service, kept=(True, True, True)) as get, Asking(counting, 3) as clients:
            eventually(lambda: len(asked) == 3 and min(asked.values()) >= _ASKED, 20)
        assert clients.failures == []


@contextmanager
def getting(service: Service, kept: tuple[bool, ...]) -> Iterator[Ask]:
    """Ask for a document, each client on one connection that is kept, or on one for each request."""
    connections = [http.client.HTTPConnection("127.0.0.1", service.port, timeout=20) for _ in kept]

    def get(client: int, _: int) -> str | None:
        connection = connections[client]
        try:
            connection.request("GET", f"{PUBLIC}/crud/hr/leave/data/D/data.xml")
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        if not kept[client] or response.will_close:
            connection.close()
        return None if response.status == 200 else str(response.status)

    yield get
    for each in connections:
        each.close()
