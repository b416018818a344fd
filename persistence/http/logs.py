"""One structured line per request, and the request id that leads to it. Bodies are never logged."""

from __future__ import annotations

import re
import secrets
import sys
import time
from typing import Any

import msgspec
import structlog
from flask import Flask, Response, g, request

from persistence.errors import BadAddressError
from persistence.http.paths import BAD_PATH

REQUEST_ID = "X-Request-Id"
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_log = structlog.get_logger()
_encode = msgspec.json.Encoder(enc_hook=repr).encode


def configure() -> None:
    """JSON lines on standard error."""
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
    return _encode(event)


def register(app: Flask) -> None:
    """Number and log the requests of an application, and refuse the paths that ``CleanPaths`` has marked."""

    @app.before_request
    def begin() -> None:
        g.began = time.perf_counter()
        sent = request.environ.get("HTTP_X_REQUEST_ID", "")
        g.request_id = sent if _SANE_ID.fullmatch(sent) else secrets.token_hex(8)
        if reason := request.environ.get(BAD_PATH):
            raise BadAddressError(reason)

    @app.after_request
    def end(response: Response) -> Response:
        response.headers[REQUEST_ID] = g.request_id
        facts: dict[str, object] = {
            "id": g.request_id,
            "method": request.method,
            "path": request.path,  # without the query, which may hold an access token
            "status": response.status_code,
            "bytes": response.content_length,
            "ms": round((time.perf_counter() - g.began) * 1000, 2),
        }
        if cause := g.get("cause"):
            facts["cause"] = cause
        _log.info("request", **facts)
        return response
