"""The Flask application: exact routes, one line of ``text/plain`` for every error, and health checks.

No error is answered by a page or a traceback. Supervisors and load balancers ask whether the service runs
(``/healthz``), and whether it can store (``/readyz``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, DeletedError, PersistenceError, status_of
from persistence.http import logs
from persistence.http.logs import REQUEST_ID, USER
from persistence.http.parsing import reader_of_users
from persistence.http.responses import headers_of, refusal, text
from persistence.http.scopes import ScopedRoute, Touches
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection

RESOURCE_METHODS = ("GET", "HEAD", "PUT", "DELETE")
"""The methods of resources."""

LEASE_METHODS = ("LOCK", "UNLOCK")
"""The methods of leases (spec crud 7)."""

_READS = ("GET", "HEAD")

IS_STRANGER = "persistence.is_stranger"
"""Environ key: whether the caller would be refused everywhere else."""

_NOT_READY = "not ready: the log of the service says why"

_RETRY_AFTER = 5
"""Seconds after which a supervisor may ask again whether the service can store."""

HEALTH_PATHS = ("/healthz", "/readyz")
"""The paths that a supervisor asks for; it has no key."""

ROOT_PATH = "/"
"""The path that a person types."""

PAGES_PATH = "/admin"
"""The path of the pages for administrators, which are below it."""

METRICS_PATH = "/metrics"
"""The path that Prometheus asks for."""


_OF_DOCUMENTS = frozenset(each.value for each in Collection)


def prepare(app: Flask, dialect: Dialect) -> None:
    """Make an application route exactly, and answer errors by the statuses of the dialect."""
    app.url_rule_class = ScopedRoute
    app.url_map.merge_slashes = False  # CleanRequests has merged them; a redirect would lose a PUT's body

    @app.errorhandler(PersistenceError)
    def domain_error(error: PersistenceError) -> Response:
        status = status_of(error)
        if isinstance(error, DeletedError) and request.method in _READS:
            status = dialect.deleted_read_status
        return refusal(request.environ, status, str(error), headers_of(error))

    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)


def add_route(  # noqa: PLR0913 - each says something of the route
    app: Flask,
    path: str,
    view: Callable[..., Response],
    *methods: str,
    touches: Touches,
    only_reads: bool | None = None,
    strict_slashes: bool = True,
) -> None:
    """Answer requests of a path by a view, for these methods and no others.

    ``touches`` and ``only_reads`` say which API keys with limits may send them, as in ``ScopedRoute``.
    """
    app.add_url_rule(
        path,
        endpoint=f"{' '.join(methods)} {path}",
        view_func=view,
        methods=methods,
        strict_slashes=strict_slashes,
        provide_automatic_options=False,
        touches=touches,
        only_reads=only_reads,
    )


def _http_error(error: HTTPException) -> Response:
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        cause = f"{request.method} is not allowed here; allowed: {allowed}"
        return refusal(request.environ, HTTPStatus.METHOD_NOT_ALLOWED, cause, [("Allow", allowed)])
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    if status == HTTPStatus.NOT_FOUND:
        return refusal(request.environ, status, f"there is nothing under this path{_nearest(request.path)}")
    return refusal(request.environ, status, error.description or error.name)


def _nearest(path: str) -> str:
    own = path.removesuffix("/")
    names = own.split("/")
    if names[-5:-4] == ["crud"] and names[-2] in _OF_DOCUMENTS:
        return f"; the document is {own}/{DATA_XML}"
    if names[-4:-3] == ["crud"] and names[-1] == "form":
        return f"; the definition is {own}/{FORM_XHTML}"
    return ""


def _unexpected(error: Exception) -> Response:
    logs.write("unexpected", is_error=True, id=request.environ.get(REQUEST_ID), exception=error)
    return refusal(request.environ, 500, "internal error; the log has the details under this request's id")


def note_users(app: Flask, dialect: Dialect) -> None:
    """Let the log name the user of each request that is routed; one whose headers cannot be read names nobody."""
    user_of = reader_of_users(dialect)

    @app.after_request
    def note(response: Response) -> Response:
        with suppress(BadRequestError):
            request.environ[USER] = user_of(request).name
        return response


def add_health(app: Flask, shortage: Callable[[], str | None], remark: Callable[[], str | None]) -> None:
    """Add ``/healthz`` and ``/readyz``; ``shortage`` returns what keeps the service from writing, or soon will.

    ``remark`` returns what is wrong with a service that is ready nevertheless. The cause goes to the log, and to
    admitted callers; a stranger gets neither paths nor numbers.
    """

    def healthz() -> Response:
        return text(HTTPStatus.OK, "ok")

    def readyz() -> Response:
        cause = shortage()
        if cause is not None:
            return _not_ready(cause)
        said = None if request.environ.get(IS_STRANGER) else remark()
        return text(HTTPStatus.OK, "ready" if said is None else f"ready, but {said}")

    for path, view in zip(HEALTH_PATHS, (healthz, readyz), strict=True):
        add_route(app, path, view, "GET", "HEAD", touches=Touches.NOTHING)


def _not_ready(cause: str) -> Response:
    environ = request.environ
    shown = _NOT_READY if environ.get(IS_STRANGER) else None
    return refusal(environ, HTTPStatus.SERVICE_UNAVAILABLE, cause, [("Retry-After", str(_RETRY_AFTER))], shown=shown)
