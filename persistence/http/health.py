"""Whether the service lives, and whether it can store: for supervisors and load balancers."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from flask import Blueprint, Response

from persistence.errors import DiskError
from persistence.http.responses import text
from persistence.store.store import Store

PATHS = ("/healthz", "/readyz")
"""Where a supervisor asks; it has no key."""


def blueprint(stores: Iterable[Store], *, min_free: int) -> Blueprint:
    """``/healthz`` and ``/readyz``; ``min_free`` is in bytes, and each tree is to have as many."""
    health = Blueprint("health", __name__)

    @health.get("/healthz", provide_automatic_options=False)
    def healthz() -> Response:
        return text(HTTPStatus.OK, "ok")

    @health.get("/readyz", provide_automatic_options=False)
    def readyz() -> Response:
        for store in stores:
            try:
                free = store.free_bytes()
            except DiskError as error:
                return text(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            if free < min_free:
                cause = f"{free} bytes are free in {store.root}; the floor is {min_free}"
                return text(HTTPStatus.SERVICE_UNAVAILABLE, cause)
        return text(HTTPStatus.OK, "ready")

    return health
