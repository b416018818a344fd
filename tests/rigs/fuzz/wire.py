"""Requests as bytes, sent as they are on connections of their own, and what comes back."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse

from tests.service import Answer

DEADLINE = 10.0
"""Seconds for an answer, to its end."""

CUT_OFF = "the server hung up while the body was being sent"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; what HTTP needs besides is added unless a header of that name is among ``headers``."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes | None = None
    version: bytes = b"HTTP/1.1"

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, its name in any case."""
        return next((value for own, value in self.headers if own.lower() == name.lower()), None)

    def raw(self) -> bytes:
        framing = [(b"Host", b"127.0.0.1"), (b"Connection", b"close")]
        if self.body is not None and self.header(b"Transfer-Encoding") is None:
            framing.append((b"Content-Length", b"%d" % len(self.body)))
        added = [field for field in framing if self.header(field[0]) is None]
        lines = [b"%s: %s" % field for field in (*added, *self.headers)]
        head = b"%s %s %s" % (self.method, self.target, self.version)
        return b"\r\n".join((head, *lines, b"", b"")) + (self.body or b"")

    def __str__(self) -> str:
        text = ascii(self.raw())
        return text if len(text) <= 2000 else f"{text[:1200]}…{text[-700:]} ({len(self.raw())} bytes)"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, its answer or what happened instead, bytes that came after it, and the seconds it took."""

    request: Request
    answer: Answer | None
    trouble: str
    rest: bytes
    seconds: float


def exchange(port: int, request: Request) -> Exchange:
    """Send a request and read until the server closes the connection."""
    began = time.monotonic()
    answer, trouble, rest = None, "", b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as connection:
            with suppress(OSError):  # refused early; the answer may be there
                connection.sendall(request.raw())
                connection.shutdown(socket.SHUT_WR)
            with HTTPResponse(connection, method=request.method.decode("latin-1")) as response:
                response.begin()
                answer = Answer(response.status, response.headers, response.read())
            with suppress(ConnectionResetError):
                rest = connection.recv(65536)
    except TimeoutError:
        trouble = f"no end within {DEADLINE:g} seconds"
    except ConnectionResetError:
        trouble = CUT_OFF
    except (HTTPException, OSError) as error:
        trouble = f"{type(error).__name__}: {error}"
    return Exchange(request, answer, trouble, rest, time.monotonic() - began)
