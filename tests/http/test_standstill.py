"""Clients that stop reading a response or sending a request hold a thread for ``progress_timeout`` (spec runtime 8)."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.service import PUBLIC, alone

DOCUMENT = f"{PUBLIC}/crud/a/b/data/D"
LARGE = 12 << 20
"""Bytes: more than the buffers of a connection on loopback hold."""
THREADS = 4
TIMEOUT = 1.0
UNREAD = {
    "data": f"GET {DOCUMENT}/data.xml HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "attachment": f"GET {DOCUMENT}/a.bin HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "range": f"GET {DOCUMENT}/a.bin HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n",
    "transformed": f"GET {DOCUMENT}/data.xml?nonrelevant=remove HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
Connect = Callable[[], socket.socket]


@pytest.fixture(scope="module", params=["tcp", "unix"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Connect, Path]]:
    directory = tmp_path_factory.mktemp("standstill")
    bind = "127.0.0.1:0" if request.param == "tcp" else f"unix:{directory}/socket"
    env = {"PERSISTENCE_PROGRESS_TIMEOUT": str(TIMEOUT), "PERSISTENCE_TRUSTED": "unix,127.0.0.1"}
    with alone(directory, threads=THREADS, bind=bind, env=env) as service:

        def connect() -> socket.socket:
            if request.param == "tcp":
                return socket.create_connection(("127.0.0.1", service.port), 30)
            own = socket.socket(socket.AF_UNIX)
            own.settimeout(30)
            own.connect(f"{directory}/socket")
            return own

        for name, body in ("data.xml", b"<d>%s</d>" % (b"x" * LARGE)), ("a.bin", b"x" * LARGE):
            assert b" 201 " in asked(connect, f"PUT {DOCUMENT}/{name}", body)
        yield connect, directory


def asked(connect: Connect, line: str, body: bytes = b"") -> bytes:
    with closing(connect()) as connection:
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return rest_of(connection)


def rest_of(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 20), b""))


def is_broken_off(connection: socket.socket) -> bool:
    try:
        return len(rest_of(connection)) < LARGE
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("kind", UNREAD)
def test_responses_that_nobody_reads_give_their_threads_back(served: tuple[Connect, Path], kind: str) -> None:
    connect, directory = served
    log = directory / "service.log"
    with ExitStack() as stack:
        unread = [stack.enter_context(closing(connect())) for _ in range(THREADS)]
        for each in unread:
            each.sendall(UNREAD[kind].encode())
            assert each.recv(1)  # large data is parsed in turns, before its response begins: it may take a while
        time.sleep(0.3)
        began, before = time.monotonic(), log.read_bytes().count(b"nothing has moved")
        assert b" 200 " in asked(connect, f"GET {PUBLIC}/form")
        waited = time.monotonic() - began
        assert (0.1 if kind != "transformed" else 0) < waited < TIMEOUT + 5
        time.sleep(TIMEOUT + 0.5)
        assert all(is_broken_off(each) for each in unread)
    text = log.read_bytes()
    assert text.count(b"nothing has moved") >= before + THREADS
    assert b"Traceback" not in text


def test_a_slow_reader_gets_everything(served: tuple[Connect, Path]) -> None:
    """It takes several times the limit, but something moves all the time."""
    connect, _ = served
    with closing(connect()) as connection:
        connection.sendall(UNREAD["attachment"].replace("localhost", "localhost\r\nConnection: close").encode())
        began, size = time.monotonic(), 0
        while piece := connection.recv(LARGE // 32):
            size += len(piece)
            if time.monotonic() < began + 3 * TIMEOUT:
                time.sleep(TIMEOUT / 8)
        assert (size > LARGE, time.monotonic() - began > 2 * TIMEOUT) == (True, True)


@pytest.mark.parametrize("head", ["Content-Length: 100000", "Transfer-Encoding: chunked"], ids=["length", "chunked"])
def test_an_upload_that_stops_is_refused_and_not_stored(served: tuple[Connect, Path], head: str) -> None:
    connect, directory = served
    with closing(connect()) as connection:
        begun = f"PUT {DOCUMENT}/b.bin HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n5\r\nxxxxx\r\n"
        connection.sendall(begun.encode())
        began = time.monotonic()
        answer = connection.recv(1 << 16)
        assert (b" 408 " in answer, TIMEOUT / 2 < time.monotonic() - began < TIMEOUT + 5) == (True, True)
        connection.sendall(b"x" * 10)
        assert b" 404 " in asked(connect, f"GET {DOCUMENT}/b.bin")
        assert list((directory / "data/.spool").rglob("*.bin")) == []


def test_a_slow_upload_is_stored(served: tuple[Connect, Path]) -> None:
    connect, _ = served
    with closing(connect()) as connection:
        connection.sendall(f"PUT {DOCUMENT}/c.bin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\n".encode())
        for _ in range(8):
            time.sleep(TIMEOUT / 3)
            connection.sendall(b"x")
        assert b" 201 " in connection.recv(1 << 16)


def test_a_request_that_stops_in_its_headers_gives_its_thread_back(served: tuple[Connect, Path]) -> None:
    connect, directory = served
    with ExitStack() as stack:
        for _ in range(THREADS):
            stack.enter_context(closing(connect())).sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert b" 200 " in asked(connect, f"GET {PUBLIC}/form")
    assert b"Traceback" not in (directory / "service.log").read_bytes()
