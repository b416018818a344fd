"""Headers of another dialect: refused, lest a user who is named in them counts as nobody."""

from __future__ import annotations

from flask import Flask, request

from persistence.dialect import DIALECTS, Dialect
from persistence.errors import BadRequestError
from persistence.http.health import PATHS
from persistence.http.names import REQUEST_NAMES


def register(app: Flask, dialect: Dialect) -> None:
    """Let an application refuse requests with headers that it would read under the prefix of its own dialect.

    Supervisors are answered whatever they send: a proxy in front may add headers to every request.
    """
    foreign = {
        _key(other.header(name)): (other.header(name), dialect.header(name))
        for other in DIALECTS.values()
        if other != dialect
        for name in REQUEST_NAMES
    }
    keys = frozenset(foreign)

    @app.before_request
    def refuse() -> None:
        if keys.isdisjoint(request.environ) or request.path in PATHS:
            return
        sent, own = foreign[min(keys.intersection(request.environ))]
        raise BadRequestError(f"this service speaks dialect {dialect.name!r}: it reads {own}, not {sent}")


def _key(header: str) -> str:
    """The key of a header in the environment of a WSGI application."""
    return "HTTP_" + header.upper().replace("-", "_")
