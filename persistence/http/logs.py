"""The log: its lines, as JSON or for people, and the one of each request, with the id by which it is found.

The lines of the service, of gunicorn and of libraries have one format. Each process has one, and one level, which the
settings decide. Bodies are never logged.
"""

from __future__ import annotations

import errno
import logging
import re
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from persistence.errors import PersistenceError, one_line
from persistence.http.parsing import RECEIVED, find_path
from persistence.model.texts import json_line

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from persistence.metrics.service import Answered

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

LEVELS: dict[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_PLAIN = re.compile(r"[\w./:@%+,*()-]+", re.ASCII)
_OF_PYTHON = {"critical": "error", "notset": "info"}

REQUEST_ID = "persistence.request_id"
CAUSE = "persistence.cause"
CALLER = "persistence.caller"
USER = "persistence.user_name"
"""Environ keys: the id of a request, the line with which it was refused, the name of its key, or ``trusted``, the name
of its user, if the log is to have it."""

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class _Chosen:
    """The format and the level of this process, before anybody has chosen."""

    format: LogFormat = "json"
    is_text = False
    level = logging.INFO


def choose(log_format: LogFormat, level: LogLevel) -> None:
    """Choose the format and the level; ``auto`` is for people where standard error is a terminal, else JSON."""
    _Chosen.format = log_format
    _Chosen.level = LEVELS[level]
    look()
    apply()


def look() -> None:
    """Look whether standard error is a terminal, as it may lead elsewhere by now."""
    _Chosen.is_text = _Chosen.format == "text" or (_Chosen.format == "auto" and sys.stderr.isatty())


def apply() -> None:
    logging.getLogger("gunicorn.error").setLevel(_Chosen.level)
    logging.getLogger().setLevel(max(_Chosen.level, logging.WARNING))


def line(facts: Mapping[str, Any]) -> bytes:
    """Return a line without its end; the facts have ``timestamp``, ``level`` and ``event``."""
    return _text(dict(facts)) if _Chosen.is_text else json_line(facts)


def write(event: str, level: LogLevel, exception: BaseException | None = None, **facts: object) -> None:
    """Write one line; where that fails it is lost, because a log must not cost a client its answer."""
    if LEVELS[level] < _Chosen.level:
        return
    every = {**facts, "event": event, "level": level, "timestamp": _now()}
    if exception is not None:
        every["exception"] = "".join(traceback.format_exception(exception))
    with suppress(OSError, ValueError):
        stream = sys.stderr.buffer
        stream.write(line(every) + b"\n")
        stream.flush()


def announce(text: str, level: LogLevel = "info") -> None:
    """Write a line about the start of the service, or about its settings."""
    if not _Chosen.is_text:
        write("service", level, message=one_line(text))
    elif LEVELS[level] >= _Chosen.level:
        sys.stderr.write(f"persistence: {one_line(text)}\n")
        sys.stderr.flush()


def _now() -> str:
    return f"{datetime.now(UTC).isoformat(timespec='microseconds').removesuffix('+00:00')}Z"


class ServerLines(logging.Formatter):
    """Formats what gunicorn and libraries log as the lines of the service are; the event is ``server``."""

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        facts: dict[str, Any] = {
            "event": "server",
            "message": record.getMessage(),
            "pid": record.process,
            "level": _OF_PYTHON.get(level, level),
            "timestamp": _now(),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return line(facts).decode()


def _text(facts: dict[str, Any]) -> bytes:
    timestamp, level = facts.pop("timestamp", _now()), facts.pop("level", "info")
    event, exception = facts.pop("event", ""), facts.pop("exception", None)
    words = [timestamp, f"{level:<7}", one_line(str(facts.pop("message", event)))]
    words += [f"{name}={_value(value)}" for name, value in facts.items() if value is not None]
    text = " ".join(words)
    if exception:
        text += "".join(f"\n    {one_line(each)}" for each in str(exception).splitlines())
    return text.encode()


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json_line(text).decode()


def broken_off(number: object, cause: str) -> OSError:
    """Log why the answer to the request ``number`` ends early; return the error by which its connection ends."""
    # It is the error of a connection that is gone already, of which the server says nothing itself.
    write("answer-broken-off", "error", id=number, cause=cause)
    return OSError(errno.ECONNRESET, cause)


@dataclass(frozen=True, slots=True)
class Unbroken:
    """Pieces of the answer to the request ``number``, which are all sent; if they cannot be, its connection ends."""

    pieces: Iterable[bytes]
    number: object

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self.pieces
        except (PersistenceError, OSError) as error:
            raise broken_off(self.number, str(error)) from error

    def close(self) -> None:
        close = getattr(self.pieces, "close", None)
        if close is not None:
            close()


@dataclass(frozen=True, slots=True)
class RequestLog:
    """WSGI middleware that gives each request an id and its path, says the id in the response, and logs a line."""

    # ``answered`` is told of each for the metrics, if there are any, and ``failed`` of those with a status from 500.
    app: WSGIApplication
    answered: Callable[[Answered], None] | None = None
    failed: Callable[[Mapping[str, object]], None] = lambda _: None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        began = time.perf_counter()
        sent = environ.get("HTTP_X_REQUEST_ID", "")
        number = sent if _SANE_ID.fullmatch(sent) else secrets.token_hex(8)
        environ[REQUEST_ID] = number
        find_path(environ)
        answered: list[Any] = ["", []]

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            headers.append(("X-Request-Id", number))
            answered[:] = (status, headers)
            return start_response(status, headers, *error)

        body = self.app(environ, start)
        status, headers = answered
        seconds, method, code = time.perf_counter() - began, environ["REQUEST_METHOD"], int(status[:3] or 0)
        size = next((int(value) for name, value in reversed(headers) if name == "Content-Length"), None)
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
        write("request", "error" if is_error else "info", **facts)
        if is_error:
            self.failed(facts)
        if (tell := self.answered) is not None:
            known = (method, environ["PATH_INFO"], code, seconds, environ.get(RECEIVED, 0))
            if size is None and code == HTTPStatus.OK and method != "HEAD":
                return MeasuredBody(body, lambda sent: tell((*known, sent)))
            tell((*known, size or 0 if method != "HEAD" else 0))
        return body


@dataclass(slots=True)
class MeasuredBody:
    """The body of a response, whose size is reported when it is closed."""

    body: Iterable[bytes]
    report: Callable[[int], None]
    size: int = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.body:
            self.size += len(piece)
            yield piece

    def close(self) -> None:
        self.report(self.size)
        close = getattr(self.body, "close", None)
        if close is not None:
            close()
