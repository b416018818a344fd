"""The service about itself: ``/``, ``/version``, ``/openapi.yaml`` and ``/metrics``.

A stranger gets ``/`` too, and learns there that this is a service which asks for a key: nothing of its data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from flask import Flask, Response, request

from persistence import __version__, shipped
from persistence.dialect import Dialect
from persistence.http.application import IS_STRANGER, METRICS_PATH, ROOT_PATH, add_route
from persistence.http.responses import Headers, whole
from persistence.http.scopes import Touches
from persistence.metrics.service import CONTENT_TYPE, Metrics
from persistence.model.addresses import PUBLIC_PREFIX

_NOT_STORED = ("Cache-Control", "no-store")
_HTML: Headers = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]
_TEXT: Headers = [("Content-Type", "text/plain; charset=utf-8")]
_VARIES = [_NOT_STORED, ("Vary", "Accept, Authorization")]

Line = tuple[str, str]
"""A line about the service: a path or nothing, and the text beside it."""


def add_about(app: Flask, dialect: Dialect, metrics: Metrics | None) -> None:
    def about() -> Response:
        lines = list(_to_strangers() if request.environ.get(IS_STRANGER) else _to_callers(dialect))
        if request.accept_mimetypes.best_match(("text/plain", "text/html")) == "text/html":
            return whole(_page(lines).encode(), [*_HTML, *_VARIES])
        return whole(_text(lines).encode(), [*_TEXT, *_VARIES])

    def version() -> Response:
        facts = {
            "version": __version__,
            "dialect": dialect.name,
            "interface": PUBLIC_PREFIX,
            "openapi": "/openapi.yaml",
        }
        return whole(json.dumps(facts).encode() + b"\n", [("Content-Type", "application/json"), _NOT_STORED])

    def interface() -> Response:
        body = shipped("openapi.yaml")
        return whole(body, _TEXT)

    def show_metrics(shown: Metrics) -> Response:
        return whole(shown.text(), [("Content-Type", CONTENT_TYPE), _NOT_STORED])

    for path, view in ((ROOT_PATH, about), ("/version", version), ("/openapi.yaml", interface)):
        add_route(app, path, view, "GET", "HEAD", touches=Touches.NOTHING)
    if metrics is not None:
        add_route(app, METRICS_PATH, lambda: show_metrics(metrics), "GET", "HEAD", touches=Touches.ALL)


def _to_callers(dialect: Dialect) -> Iterator[Line]:
    yield "", f"persistence {__version__}, dialect {dialect.name}"
    yield "", "It stores form definitions, form data, drafts and attachments."
    yield PUBLIC_PREFIX, "the interface"
    yield "/openapi.yaml", "its description"
    yield "/admin/", "pages for administrators, once there is one"
    yield "/healthz", "is the process alive?"
    yield "/readyz", "can it store?"
    yield METRICS_PATH, "metrics for Prometheus"
    yield "/version", "version and dialect as JSON"
    yield "", "The documentation is in docs/index.md of the sources."


def _to_strangers() -> Iterator[Line]:
    yield "", "persistence: a service that stores forms"
    yield "", "It answers callers that it knows: send an API key, as in Authorization: Bearer KEY."
    yield "/admin/", "pages for administrators, once there is one"
    yield "/healthz", "is the process alive?"
    yield "/readyz", "can it store?"


def _text(lines: list[Line]) -> str:
    width = max(len(path) for path, _ in lines)
    return "".join(f"  {path:<{width}}  {text}\n" if path else f"{text}\n" for path, text in lines)


def _page(lines: list[Line]) -> str:
    shown = (f"<p>{_shown(path)}: {escape(text)}</p>" if path else f"<p>{escape(text)}</p>" for path, text in lines[1:])
    title = escape(lines[0][1])
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>persistence</title></head>\n'
        f"<body>\n<h1>{title}</h1>\n" + "\n".join(shown) + "\n</body>\n</html>\n"
    )


def _shown(path: str) -> str:
    return escape(path) if path == PUBLIC_PREFIX else f'<a href="{escape(path)}">{escape(path)}</a>'
