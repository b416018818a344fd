"""Errors as pages: the status and the one line of the interface, with the id by which the log has the request."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, Response, g, render_template, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from persistence.errors import PersistenceError, one_line, status_of
from persistence.http import logs
from persistence.http.bodies import drain
from persistence.http.logs import CAUSE, REQUEST_ID
from persistence.http.responses import Headers, headers_of


def answer_errors_by_pages(blueprint: Blueprint) -> None:
    """Answer the errors of a blueprint by pages."""
    blueprint.register_error_handler(
        PersistenceError, lambda error: page(status_of(error), str(error), headers_of(error))
    )
    blueprint.register_error_handler(HTTPException, _http_error)
    blueprint.register_error_handler(Exception, _unexpected)


def page(status: int, cause: str, headers: Headers | None = None) -> Response:
    """Return the page of an error, and hand its cause to the log."""
    request.environ[CAUSE] = one_line(cause)
    if status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # that body is not worth waiting for
        drain(request.environ)
    g.setdefault("session", None)
    title = HTTPStatus(status).phrase
    body = render_template("error.html", title=title, status=status, cause=request.environ[CAUSE], request_id=_id())
    return Response(body, status, headers)


def _http_error(error: HTTPException) -> Response:
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return page(status, f"{request.method} is not allowed here; allowed: {allowed}", [("Allow", allowed)])
    return page(status, error.description or error.name)


def _unexpected(error: Exception) -> Response:
    logs.write("unexpected", is_error=True, id=_id(), exception=error)
    return page(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log has the details under this request's id")


def _id() -> str:
    return str(request.environ.get(REQUEST_ID, ""))
