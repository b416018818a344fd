"""Errors as answers: one line of ``text/plain`` that names the cause, never a page and never a traceback."""

from __future__ import annotations

from http import HTTPStatus

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from persistence.dialect import Dialect
from persistence.errors import BusyError, DeletedError, PersistenceError, RangeError, UnauthorizedError, status_of
from persistence.http import logs
from persistence.http.logs import REQUEST_ID
from persistence.http.responses import Headers, refusal

_READS = ("GET", "HEAD")
# The second is for clients that send a password only when they are asked for one (RFC 7235 2.1 allows several).
_CHALLENGES = [("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", 'Basic realm="persistence", charset="UTF-8"')]


def register(app: Flask, dialect: Dialect) -> None:
    """Let an application answer errors this way."""

    @app.errorhandler(PersistenceError)
    def domain_error(error: PersistenceError) -> Response:
        status = status_of(error)
        if isinstance(error, DeletedError) and request.method in _READS:
            status = dialect.deleted_read_status
        return refusal(request.environ, status, str(error), headers_of(error))

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Response:
        if isinstance(error, MethodNotAllowed):
            allowed = ", ".join(sorted(error.valid_methods or ()))
            return refusal(
                request.environ, 405, f"{request.method} is not allowed here; allowed: {allowed}", [("Allow", allowed)]
            )
        status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
        if status == HTTPStatus.NOT_FOUND:
            return refusal(request.environ, status, "there is nothing under this path")
        return refusal(request.environ, status, error.description or error.name)

    @app.errorhandler(Exception)
    def unexpected(error: Exception) -> Response:
        logs.write("unexpected", is_error=True, id=request.environ.get(REQUEST_ID), exc_info=error)
        return refusal(request.environ, 500, "internal error; the log has the details under this request's id")


def headers_of(error: PersistenceError) -> Headers:
    """What an error says in headers besides its line."""
    if isinstance(error, UnauthorizedError):
        return _CHALLENGES
    if isinstance(error, BusyError):
        return [("Retry-After", str(error.retry_after))]
    if isinstance(error, RangeError):
        return [("Content-Range", f"bytes */{error.size}")]
    return []
