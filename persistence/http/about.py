"""The service about itself: ``/``, ``/version``, ``/openapi.yaml``, ``/api/``, ``/metrics``, and its health.

Supervisors and load balancers ask whether the service runs (``/healthz``), and whether it can store (``/readyz``).
A stranger gets ``/`` too, and learns there that this is a service which asks for a key: nothing of its data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from http import HTTPStatus
from importlib.resources import files
from string import Template

from flask import Blueprint, Response, redirect, request
from werkzeug.wrappers import Response as AnyResponse

from persistence import __version__, shipped
from persistence.dialect import Dialect
from persistence.http.application import HEALTH_PATHS, IS_STRANGER, METRICS_PATH, ROOT_PATH, RouteScope
from persistence.http.responses import Headers, refusal, text, whole
from persistence.metrics.service import CONTENT_TYPE, Metrics
from persistence.model.addresses import PUBLIC_PREFIX

_NOT_STORED = ("Cache-Control", "no-store")
_CACHED = ("Cache-Control", "max-age=3600")
_HTML: Headers = [
    ("Content-Type", "text/html; charset=utf-8"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]
_REFERENCE: Headers = [  # the page itself says what it may load
    _HTML[0],
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    *_HTML[2:],
]
_TEXT: Headers = [("Content-Type", "text/plain; charset=utf-8")]
_VARIES = [_NOT_STORED, ("Vary", "Accept, Authorization")]

_HEALTH = [
    ("/admin/", "pages for administrators, once there is one"),
    ("/healthz", "is the process alive?"),
    ("/readyz", "can it store?"),
]
_TO_CALLERS = [
    ("", "It stores form definitions, form data, drafts and attachments."),
    (PUBLIC_PREFIX, "the interface for form runtimes, below this path"),
    ("/api/", "reference of the interface"),
    ("/openapi.yaml", "the same for programs"),
    *_HEALTH,
    (METRICS_PATH, "metrics for Prometheus"),
    ("/version", "version and dialect as JSON"),
    ("", "The documentation is in docs/index.md of the sources."),
]
_TO_STRANGERS = [
    ("", "persistence: a service that stores forms"),
    ("", "It answers callers that it knows: send an API key, as in Authorization: Bearer KEY."),
    *_HEALTH,
]  # Lines about the service: a path or nothing, and the text beside it


def about(dialect: Dialect, metrics: Metrics | None) -> Blueprint:
    blueprint = Blueprint("about", __name__)
    to_callers = [("", f"persistence {__version__}, dialect {dialect.name}"), *_TO_CALLERS]

    @blueprint.route(ROOT_PATH, methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def root() -> Response:
        lines = _TO_STRANGERS if request.environ.get(IS_STRANGER) else to_callers
        if request.accept_mimetypes.best_match(("text/plain", "text/html")) == "text/html":
            return whole(_page(lines).encode(), [*_HTML, *_VARIES])
        return whole(_text(lines).encode(), [*_TEXT, *_VARIES])

    @blueprint.route("/version", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def version() -> Response:
        facts = {
            "version": __version__,
            "dialect": dialect.name,
            "interface": PUBLIC_PREFIX,
            "openapi": "/openapi.yaml",
        }
        return whole(json.dumps(facts).encode() + b"\n", [("Content-Type", "application/json"), _NOT_STORED])

    @blueprint.route("/openapi.yaml", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def interface() -> Response:
        return whole(dialect.described(shipped("openapi.yaml").decode()).encode(), [*_TEXT])

    @blueprint.route("/api", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def to_reference() -> AnyResponse:
        return redirect("api/")

    @blueprint.route("/api/", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def reference() -> Response:
        return whole(_reference("index.html"), _REFERENCE)

    @blueprint.route("/api/redoc.standalone.js", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    @blueprint.route("/api/theme.js", methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def script() -> Response:
        name = request.path.rpartition("/")[2]
        return whole(_reference(name), [("Content-Type", "text/javascript"), _CACHED])

    if metrics is not None:

        @blueprint.route(METRICS_PATH, methods=("GET", "HEAD"), scope=RouteScope.ALL)
        def show_metrics() -> Response:
            return whole(metrics.text(), [("Content-Type", CONTENT_TYPE), _NOT_STORED])

    return blueprint


def health(shortage: Callable[[], str | None], remark: Callable[[], str | None]) -> Blueprint:
    """Return ``/healthz`` and ``/readyz``. A stranger does not get the cause, which has paths and numbers."""
    blueprint = Blueprint("health", __name__)
    live, ready = HEALTH_PATHS

    @blueprint.route(live, methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def healthz() -> Response:
        return text(HTTPStatus.OK, "ok")

    @blueprint.route(ready, methods=("GET", "HEAD"), scope=RouteScope.NOTHING)
    def readyz() -> Response:
        environ, cause = request.environ, shortage()
        is_stranger = bool(environ.get(IS_STRANGER))
        if cause is not None:
            shown = "not ready: the log of the service says why" if is_stranger else None
            return refusal(environ, HTTPStatus.SERVICE_UNAVAILABLE, cause, [("Retry-After", "5")], shown=shown)
        defect = None if is_stranger else remark()
        return text(HTTPStatus.OK, "ready" if defect is None else f"ready, but {defect}")

    return blueprint


def _reference(name: str) -> bytes:
    return (files("persistence.http") / "reference" / name).read_bytes()


def _text(lines: list[tuple[str, str]]) -> str:
    width = max(len(path) for path, _ in lines)
    return "".join(f"  {path:<{width}}  {text}\n" if path else f"{text}\n" for path, text in lines)


def _page(lines: list[tuple[str, str]]) -> str:
    remarks = "".join(f"<p>{escape(text)}</p>\n" for path, text in lines[1:] if not path)
    links = "".join(f"<dt>{_shown(path)}</dt><dd>{escape(text)}</dd>\n" for path, text in lines if path)
    page = Template(_reference("about.html").decode())
    return page.substitute(title=escape(lines[0][1]), remarks=remarks, links=links)


def _shown(path: str) -> str:
    return escape(path) if path == PUBLIC_PREFIX else f'<a href="{escape(path)}">{escape(path)}</a>'
