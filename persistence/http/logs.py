"""The log: one structured line for each request, with the id by which it is found. Bodies are never logged."""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from persistence.model.texts import json_line

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

REQUEST_ID = "persistence.request_id"
CAUSE = "persistence.cause"
CALLER = "persistence.caller"
"""Environ keys: the id of a request, the line with which it was refused, and the name of its key, or ``trusted``."""

_HEADER = "X-Request-Id"
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_log = structlog.get_logger()


def configure() -> None:
    """Log JSON lines to standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_serialize),
        ],
        wrapper_class=structlog.BoundLogger,
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


def _serialize(event: Any, **_: Any) -> bytes:
    return json_line(event)


def write(event: str, *, is_error: bool, **facts: object) -> None:
    """Write one line; where that fails it is lost, because a log must not cost a client its answer."""
    with suppress(OSError, ValueError):
        (_log.error if is_error else _log.info)(event, **facts)


class RequestLog:
    """WSGI middleware that gives each request an id, says it in the response, and logs a line."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

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
        facts: dict[str, object] = {
            "id": number,
            "method": environ["REQUEST_METHOD"],
            "path": environ["PATH_INFO"].encode("latin-1").decode(errors="replace"),  # the query may hold a token
            "status": int(status[:3] or 0),
            "bytes": next((int(value) for name, value in headers if name == "Content-Length"), None),
            "ms": round((time.perf_counter() - began) * 1000, 2),
        }
        if name := environ.get(CALLER):
            facts["caller"] = name
        if cause := environ.get(CAUSE):
            facts["cause"] = cause
        write("request", is_error=status.startswith("5"), **facts)
        return body
