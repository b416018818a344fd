"""Errors as answers: one line of ``text/plain`` that names the cause, never a page and never a traceback."""

from __future__ import annotations

from http import HTTPStatus

import structlog
from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from persistence.dialect import Dialect
from persistence.errors import BusyError, DeletedError, PersistenceError, RangeError, one_line, status_of
from persistence.http.responses import BareResponse, Headers

_log = structlog.get_logger()
_READS = ("GET", "HEAD")


def register(app: Flask, dialect: Dialect) -> None:
    """Let an application answer errors this way."""

    @app.errorhandler(PersistenceError)
    def domain_error(error: PersistenceError) -> Response:
        status = status_of(error)
        if isinstance(error, DeletedError) and request.method in _READS:
            status = dialect.deleted_read_status
        return _answer(status, str(error), _headers_of(error))

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Response:
        if isinstance(error, MethodNotAllowed):
            allowed = ", ".join(sorted(error.valid_methods or ()))
            return _answer(405, f"{request.method} is not allowed here; allowed: {allowed}", [("Allow", allowed)])
        status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
        if status == HTTPStatus.NOT_FOUND:
            return _answer(status, "there is nothing under this path", [])
        return _answer(status, error.description or error.name, [])

    @app.errorhandler(Exception)
    def unexpected(error: Exception) -> Response:
        _log.error("unexpected", id=g.get("request_id"), exc_info=error)
        return _answer(500, "internal error; the log has the details under this request's id", [])


def _headers_of(error: PersistenceError) -> Headers:
    if isinstance(error, BusyError):
        return [("Retry-After", str(error.retry_after))]
    if isinstance(error, RangeError):
        return [("Content-Range", f"bytes */{error.size}")]
    return []


def _answer(status: int, cause: str, headers: Headers) -> Response:
    g.cause = one_line(cause)
    return BareResponse(f"{g.cause}\n", status=status, headers=headers, content_type="text/plain; charset=utf-8")
