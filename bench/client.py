"""Requests as bytes, the bodies that all servers get, and one kept connection that costs next to nothing.

What many connections do at one time is measured with wrk (``wrk.py``), which sends the same bytes.
"""

from __future__ import annotations

import random
import socket
import time
import uuid
from collections.abc import Iterable

MARK = "@@@@@@@@@@"
"""Stands in a request for ten characters that are others in each request that is sent."""

# Real form data has about one element per eighty bytes.
_FIELD = b"<applicant-name>" + b"Lea Example of Paris, department of rivers" + b"</applicant-name>\n"
_OVER = 64
_PIECE = 1 << 20


def xml(size: int) -> bytes:
    """Return form data of about ``size`` bytes."""
    return b"<form>" + _FIELD * (size // len(_FIELD)) + b"</form>"


def binary(size: int) -> bytes:
    """Return an attachment: bytes by chance, always the same, none of them zero, which parts requests for wrk."""
    piece = random.Random(1).randbytes(1 << 16).replace(b"\0", b"\1")
    return (piece * (size // len(piece) + 1))[:size]


BODY = xml(5_000)


def request(method: str, path: str, body: bytes = b"", headers: Iterable[str] = ()) -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body or method in {"PUT", "POST"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body


def putting(path: str, body: bytes = BODY) -> bytes:
    """Return the PUT of form data."""
    return request("PUT", path, body, ("Content-Type: application/xml",))


def new(pattern: str) -> str:
    """Return a path that nobody has used: each call starts a series of its own, and each request has its own number."""
    return pattern.format(f"{uuid.uuid4().hex}-{MARK}")


def over(pattern: str) -> list[str]:
    """Return paths that are used again and again: enough that clients seldom meet."""
    return [pattern.format(f"over-{number}") for number in range(_OVER)]


class Connection:
    """One kept connection; requests are ready-made bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._piece = memoryview(bytearray(_PIECE))

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        status, body, length = self._begin(request)
        while len(body) < length:
            body += self._piece[: self._more()]
        return status, bytes(body)

    def seconds(self, request: bytes) -> float:
        """Return the seconds that an exchange takes, however large; the body of the answer is read and dropped."""
        began = time.perf_counter()
        status, body, length = self._begin(request)
        length -= len(body)
        while length > 0:
            length -= self._more()
        if status >= 400:
            raise RuntimeError(f"{request[:80].decode(errors='replace')!r} answered {status}")
        return time.perf_counter() - began

    def _begin(self, request: bytes) -> tuple[int, bytearray, int]:
        """Send a request; returns the status, the beginning of the body, and the bytes of all of it."""
        self._socket.sendall(request)
        data = bytearray()
        while b"\r\n\r\n" not in data:
            data += self._piece[: self._more()]
        head, _, body = data.partition(b"\r\n\r\n")
        status = int(head[9:12])
        if status == 100:
            raise RuntimeError("100 Continue without being asked")
        mark = head.lower().find(b"content-length:")
        has_body = mark >= 0 and status not in (204, 304) and not request.startswith(b"HEAD")
        return status, body, int(head[mark + 15 :].split(b"\r\n", 1)[0]) if has_body else 0

    def _more(self) -> int:
        count = self._socket.recv_into(self._piece)
        if not count:
            raise ConnectionError("the server closed the connection")
        return count

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
