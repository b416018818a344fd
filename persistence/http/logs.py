"""The log: one structured line for each request, with the id by which it is found. Bodies are never logged."""

from __future__ import annotations

import errno
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from persistence.errors import PersistenceError
from persistence.http import log_lines
from persistence.metrics.requests import RECEIVED, Answered

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

REQUEST_ID = "persistence.request_id"
CAUSE = "persistence.cause"
CALLER = "persistence.caller"
USER = "persistence.user_name"
"""Environ keys: the id of a request, the line with which it was refused, the name of its key, or ``trusted``, and the
name of its user, if the log is to have it."""

_HEADER = "X-Request-Id"
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def write(event: str, *, is_error: bool, exception: BaseException | None = None, **facts: object) -> None:
    """Write one line; where that fails it is lost, because a log must not cost a client its answer."""
    with suppress(OSError, ValueError):
        log_lines.write(event, "error" if is_error else "info", facts, exception)


def broken_off(number: object, cause: str) -> OSError:
    """Log why the answer to the request ``number`` ends early; return the error by which its connection ends.

    It is the error of a connection that is gone already, of which the server says nothing itself.
    """
    write("answer-broken-off", is_error=True, id=number, cause=cause)
    return OSError(errno.ECONNRESET, cause)


class Unbroken:
    """Pieces of the answer to the request ``number``, which are all sent; if they cannot be, its connection ends."""

    def __init__(self, pieces: Iterable[bytes], number: object) -> None:
        self._pieces = pieces
        self._number = number

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._pieces
        except (PersistenceError, OSError) as error:
            raise broken_off(self._number, str(error)) from error

    def close(self) -> None:
        """Close what has the pieces."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()


class RequestLog:
    """WSGI middleware that gives each request an id, says it in the response, and logs a line.

    ``answered`` is told of each for the metrics, if there are any, and ``failed`` of those with a status from 500.
    """

    def __init__(
        self,
        app: WSGIApplication,
        answered: Callable[[Answered], None] | None = None,
        failed: Callable[[Mapping[str, object]], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._answered = answered
        self._failed = failed

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request; ``ms`` in its line is the time until the response could begin."""
        began = time.perf_counter()
        sent = environ.get("HTTP_X_REQUEST_ID", "")
        number = sent if _SANE_ID.fullmatch(sent) else secrets.token_hex(8)
        environ[REQUEST_ID] = number
        answered: list[Any] = ["", []]

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            headers.append((_HEADER, number))
            answered[:] = (status, headers)
            return start_response(status, headers, *error)

        body = self._app(environ, start)
        status, headers = answered
        seconds, method, code = time.perf_counter() - began, environ["REQUEST_METHOD"], int(status[:3] or 0)
        size = next((int(value) for name, value in headers if name == "Content-Length"), None)
        facts: dict[str, Any] = {
            "id": number,
            "method": method,
            "path": environ["PATH_INFO"].encode("latin-1").decode(errors="replace"),  # the query may hold a token
            "status": code,
            "bytes": size,
            "ms": round(seconds * 1000, 2),
        }
        if name := environ.get(CALLER):
            facts["caller"] = name
        if user := environ.get(USER):
            facts["user"] = user
        if cause := environ.get(CAUSE):
            facts["cause"] = cause
        is_error = status.startswith("5")
        write("request", is_error=is_error, **facts)
        if is_error:
            self._failed(facts)
        if self._answered is not None:
            known = (method, environ["PATH_INFO"], code, seconds, environ.get(RECEIVED, 0))
            if size is None and code == HTTPStatus.OK and method != "HEAD":
                return MeasuredBody(body, partial(_tell, self._answered, known))
            self._answered((*known, size or 0 if method != "HEAD" else 0))
        return body


def _tell(answered: Callable[[Answered], None], known: tuple[str, str, int, float, int], sent: int) -> None:
    answered((*known, sent))


class MeasuredBody:
    """The body of a response, whose size is reported when it is closed."""

    def __init__(self, body: Iterable[bytes], report: Callable[[int], None]) -> None:
        self._body = body
        self._report = report
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._body:
            self._size += len(piece)
            yield piece

    def close(self) -> None:
        """Close the body, and report how much of it was sent."""
        self._report(self._size)
        close = getattr(self._body, "close", None)
        if close is not None:
            close()
