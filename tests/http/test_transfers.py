"""Large bodies over HTTP, streamed both ways, and clients that stop sending or reading (spec runtime 8)."""

import hashlib
import http.client
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.service import PUBLIC, V1, Service, alone, running

pytestmark = pytest.mark.xdist_group("transfers")  # the large content is stored once

PIECE = bytes(range(256)) * 4096
ALLOWED_GROWTH = 16 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of its own, so that its memory is its own."""
    with running(tmp_path_factory.mktemp("large"), threads=1, env={"PERSISTENCE_MAX_XML": str(1 << 30)}) as service:
        service.timeout = 100
        service.put("a/b/data/D/data.xml", **V1)
        yield service


def digest(pieces: Iterable[bytes]) -> bytes:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.digest()


def digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return digest(iter(lambda: file.read(1 << 20), b""))


def reset_peak(pid: int) -> int:
    """Forget the peak of a process's memory and return what it uses now, in bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return resident(pid, "VmRSS")


def resident(pid: int, name: str) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def upload(service: Service, name: str, size: int, *, chunked: bool) -> bytes:
    """Store so many bytes under a name, and return their digest."""
    path = f"{service.face}/crud/a/b/data/D/{name}"
    pieces = [PIECE] * (size // len(PIECE))
    headers = {"Content-Type": "video/mp4"} | ({} if chunked else {"Content-Length": str(size)})
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=100)
    connection.request("PUT", path, iter(pieces), headers, encode_chunked=chunked)
    assert connection.getresponse().status == 201
    connection.close()
    return digest(pieces)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [64 << 20, pytest.param(256 << 20, marks=pytest.mark.long)])
def test_an_upload_does_not_grow_the_worker(large: Service, size: int, *, chunked: bool) -> None:
    """The issue: 256 MiB raise a worker's memory by less than 16 MiB; announced by length or chunked."""
    (worker,) = large.workers()
    large.put("a/b/data/D/warm.bin", PIECE)
    before, name = reset_peak(worker), f"{size}-{chunked}.bin"
    expected = upload(large, name, size, chunked=chunked)
    assert resident(worker, "VmHWM") - before < ALLOWED_GROWTH
    assert digest_of(large.data / f"a/b/data/D/{name}") == expected


def test_a_download_does_not_grow_the_worker(large: Service) -> None:
    (worker,) = large.workers()
    large.put("a/b/data/D/warm.bin", PIECE)
    large.get("a/b/data/D/warm.bin")
    expected = upload(large, "film.bin", 64 << 20, chunked=False)
    before = reset_peak(worker)
    connection = http.client.HTTPConnection("127.0.0.1", large.port, timeout=100)
    connection.request("GET", f"{large.face}/crud/a/b/data/D/film.bin")
    response = connection.getresponse()
    assert response.headers["Content-Length"] == str(64 << 20)
    received = digest(iter(lambda: response.read(1 << 20), b""))
    connection.close()
    assert received == expected
    assert resident(worker, "VmHWM") - before < ALLOWED_GROWTH


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_downloads_go_out_by_sendfile(large: Service, tmp_path: Path) -> None:
    """The issue: the kernel copies, the worker does not; of a range, too."""
    (worker,) = large.workers()
    large.put("a/b/data/D/sent.bin", PIECE)
    log = tmp_path / "trace"
    tracer = subprocess.Popen(
        ["strace", "-f", "-o", str(log), "-e", "trace=sendfile", "-p", str(worker)], stderr=subprocess.PIPE, text=True
    )
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.wait()
        pytest.skip(f"strace cannot attach here: {said.strip()}")
    assert large.get("a/b/data/D/sent.bin").body == PIECE
    assert large.get("a/b/data/D/sent.bin", {"Range": "bytes=1000-500999"}).body == PIECE[1000:501000]
    tracer.terminate()
    tracer.communicate(timeout=20)
    sent = [int(match[1]) for match in re.finditer(r"sendfile.*= (\d+)$", log.read_text(), re.MULTILINE)]
    assert sum(sent) == len(PIECE) + 500_000


def test_large_xml_does_not_grow_the_worker(large: Service) -> None:
    """The pre-pass and the removal of what is not relevant stream too: no tree is built of 64 MiB."""
    (worker,) = large.workers()
    row = b"<row>" + b"x" * 4000 + b"</row>\n"
    body = b"<d>" + row * ((64 << 20) // len(row)) + b"</d>"
    large.put("a/b/data/X/data.xml", b"<d/>", **V1)
    large.get("a/b/data/X/data.xml?nonrelevant=remove")
    before = reset_peak(worker)
    assert large.put("a/b/data/X/data.xml", body).status == 204
    assert large.get("a/b/data/X/data.xml?nonrelevant=remove").body == body
    assert resident(worker, "VmHWM") - before < 2 * ALLOWED_GROWTH


# Clients that stop hold a thread for ``progress_timeout``.


DOCUMENT = f"{PUBLIC}/crud/a/b/data/D"
LARGE = 12 << 20
"""Bytes: more than the buffers of a connection on loopback hold."""
THREADS = 4
TIMEOUT = 0.6
UNREAD = {
    "transformed": f"GET {DOCUMENT}/data.xml?nonrelevant=remove HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "data": f"GET {DOCUMENT}/data.xml HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "attachment": f"GET {DOCUMENT}/a.bin HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "range": f"GET {DOCUMENT}/a.bin HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n",
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


def test_responses_that_nobody_reads_give_their_threads_back(served: tuple[Connect, Path]) -> None:
    """One of each kind holds each of the threads."""
    connect, directory = served
    log = directory / "service.log"
    before = log.read_bytes().count(b"nothing has moved")
    with ExitStack() as stack:
        unread = [stack.enter_context(closing(connect())) for _ in UNREAD]
        for each, request in zip(unread, UNREAD.values(), strict=True):
            each.sendall(request.encode())
            assert each.recv(1)  # large data is parsed in turns, before its response begins: it may take a while
        time.sleep(0.3)
        began = time.monotonic()
        assert b" 200 " in asked(connect, f"GET {PUBLIC}/form")
        assert 0.1 < time.monotonic() - began < TIMEOUT + 5
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
