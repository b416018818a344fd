"""Providers that do what a test says: one that notes requests and answers as it is told, one that is cut off."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STORED = {
    "Orbeon-Form-Definition-Version": "1",
    "Orbeon-Last-Modified": "2025-03-04T05:06:07.089Z",
    "Orbeon-Created": "2025-03-01T00:00:00.000Z",
    "Orbeon-Username": "lea",
    "Orbeon-Group": "staff",
    "Last-Modified": "Tue, 04 Mar 2025 05:06:07 GMT",
    "Content-Type": "application/xml",
}
"""What a provider says of what it has."""


@dataclass(frozen=True)
class Received:
    """A request as the provider got it."""

    method: str
    path: str
    headers: HTTPMessage
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer; ``raw`` stands for all of it, where that is no proper one."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes | None = None


Answers = Callable[[Received], Reply]


@dataclass
class Provider:
    """A provider that answers as ``answers`` says; ``received`` are the requests so far."""

    port: int
    answers: Answers
    received: list[Received] = field(default_factory=list)

    def of(self, method: str) -> list[Received]:
        """The requests of a method."""
        return [each for each in self.received if each.method == method]


@contextmanager
def providing(answers: Answers) -> Iterator[Provider]:
    """A provider for the length of a block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else the second part of an answer waits for an acknowledgement of the first

        def do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            got = Received(self.command, self.path, self.headers, self.rfile.read(length))
            provider.received.append(got)
            reply = provider.answers(got)
            if reply.raw is not None:
                self.wfile.write(reply.raw)
                self.close_connection = True
                return
            self.send_response_only(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else reply.body)

        do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = do_LOCK = do_UNLOCK = do  # noqa: N815 - the names that the library looks for

        def log_message(self, *_: object) -> None:  # type: ignore[override]
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provider = Provider(server.server_port, answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)  # how soon it sees its end
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def dripping(first: bytes, piece: bytes) -> Iterator[str]:
    """The address of a server that sends ``first``, and pieces until its client hangs up; it is silent without one."""

    def drip(listening: socket.socket) -> None:
        with suppress(OSError), listening.accept()[0] as connection:
            connection.sendall(first)
            while piece or not _is_hung_up(connection):
                connection.sendall(piece)
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def _is_hung_up(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection, on which it has sent one request."""
    connection.settimeout(0.02)
    try:
        return not connection.recv(1 << 16)
    except TimeoutError:
        return False


@dataclass
class Wire:
    """A wire to a port, which is cut after so many bytes towards it; ``None`` leaves it whole."""

    port: int
    cut_after: int | None = None


@contextmanager
def wired(port: int) -> Iterator[Wire]:
    """A wire for the length of a block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        wire = Wire(listening.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    near, _ = listening.accept()
                except OSError:
                    return
                try:
                    far = socket.create_connection(("127.0.0.1", port))
                except OSError:
                    near.close()
                    continue
                threading.Thread(target=_join, args=(wire, near, far), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield wire


def _join(wire: Wire, near: socket.socket, far: socket.socket) -> None:
    """Carry both ways until one end is gone; then both are closed, when nobody waits for them any more."""
    back = threading.Thread(target=_carry, args=(wire, far, near), kwargs={"is_towards": False}, daemon=True)
    with near, far:
        back.start()
        _carry(wire, near, far, is_towards=True)
        back.join()


def _carry(wire: Wire, source: socket.socket, target: socket.socket, *, is_towards: bool) -> None:
    carried = 0
    with suppress(OSError):
        while data := source.recv(1 << 16):
            carried += len(data)
            if is_towards and wire.cut_after is not None and carried > wire.cut_after:
                break
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
