"""What is wrong with an exchange, judged by the documented interface."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse

from tests.rigs.fuzz.interface import Interface, Operation
from tests.service import Answer

_LINE = re.compile(r"[^\r\n]{1,300}\n")
_TEXT = "text/plain; charset=utf-8"
_REENCRYPT = b"/reencrypt/"  # there is no key
_SERVER = {400, 403, 413, 414, 417, 431, 501, 505}
"""With what a server refuses what it does not take for HTTP."""

_OF_RESOURCES = ("GET", "HEAD", "PUT", "DELETE")

_READ_AHEAD = 60_000
"""Of a longer body gunicorn leaves a part unread when it refuses the request, and the answer may be lost."""


def is_of_service(answer: Answer) -> bool:
    """Whether an answer is the service's own, and not that of the server in front of it."""
    return answer["X-Request-Id"] is not None


def complaints(exchange: Exchange, interface: Interface) -> list[str]:
    answer = exchange.answer
    if answer is None:
        is_usual = exchange.trouble == CUT_OFF and len(exchange.request.body or b"") > _READ_AHEAD
        return [] if is_usual else [exchange.trouble]
    found = list(_of_any(exchange, answer))
    if is_of_service(answer):
        return [*found, *_of_service(exchange, answer, interface)]
    return found if answer.status in _SERVER else [*found, f"status {answer.status} without X-Request-Id"]


def _of_any(exchange: Exchange, answer: Answer) -> Iterator[str]:
    if exchange.rest:
        yield f"more bytes after the answer: {exchange.rest[:80]!r}"
    if b"Traceback" in answer.body or b'File "' in answer.body:
        yield "a traceback"
    if answer.status >= 500 and not _may_be_unsupported(exchange, answer):
        yield f"status {answer.status}"


def _may_be_unsupported(exchange: Exchange, answer: Answer) -> bool:
    coding = exchange.request.header(b"Transfer-Encoding")
    return answer.status == 501 and (_REENCRYPT in exchange.request.target or coding is not None)


def _of_service(exchange: Exchange, answer: Answer, interface: Interface) -> Iterator[str]:
    method, target = exchange.request.method.decode("latin-1"), exchange.request.target
    operation = interface.find(method, target)
    if operation is None:
        wanted = {405, 400} if interface.at(target) else {404, 400}
        if b"/crud" in target and method not in _OF_RESOURCES:  # in dialect orbeon, even where there is no resource
            wanted.add(405)
        if exchange.request.header(b"Host") is not None:  # whoever calls by another name is refused whatever the path
            wanted.add(421)
        if exchange.request.header(b"Origin") is not None:  # so is a page of another origin that would change something
            wanted.add(403)
        if answer.status not in wanted:
            yield f"status {answer.status} where nothing is documented"
    elif answer.status not in operation.headers:
        yield f"status {answer.status} is not documented for {operation.method} {operation.path}"
    else:
        yield from _of_headers(answer, operation)
    yield from _of_body(answer, operation, has_body=method != "HEAD")


def _of_headers(answer: Answer, operation: Operation) -> Iterator[str]:
    documented = operation.headers[answer.status]
    for name, value in answer.headers.items():
        if name not in documented:
            yield f"header {name} is not documented for {operation.method} {operation.path} {answer.status}"
        elif not documented[name].fullmatch(value):
            yield f"header {name} is not as documented: {value!r}"


def _of_body(answer: Answer, operation: Operation | None, *, has_body: bool) -> Iterator[str]:
    if answer.status < 400:
        kinds = operation.types.get(answer.status, ()) if operation else ()
        if answer["Content-Type"] is None and operation and operation.path == "/reindex" and not answer.body:
            return  # a GET of it does what a POST does on the provider API of dialect orbeon
        if answer.status in (200, 206) and kinds and "*/*" not in kinds and answer["Content-Type"] not in kinds:
            yield f"content type {answer['Content-Type']!r}"
        if (answer.status in (201, 204, 304) or not has_body) and answer.body:
            yield f"a body with status {answer.status}"
        return
    if answer["Content-Type"] != _TEXT:
        yield f"an error of type {answer['Content-Type']!r}"
    if has_body and not _LINE.fullmatch(answer.body.decode(errors="replace")):
        yield f"an error that is not one line: {answer.body[:400]!r}"


# Requests as bytes, sent as they are on connections of their own, and what comes back.

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
