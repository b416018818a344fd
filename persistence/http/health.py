"""Whether the service lives, and whether it can store: for supervisors and load balancers."""

from __future__ import annotations

from flask import Blueprint, Response

from persistence.errors import DiskError
from persistence.http.responses import BareResponse
from persistence.store.store import Store

_TEXT = "text/plain; charset=utf-8"


def blueprint(store: Store, *, min_free: int) -> Blueprint:
    """``/healthz`` and ``/readyz``; ``min_free`` is in bytes."""
    health = Blueprint("health", __name__)

    @health.get("/healthz")
    def healthz() -> Response:
        return BareResponse("ok\n", content_type=_TEXT)

    @health.get("/readyz")
    def readyz() -> Response:
        try:
            free = store.free_bytes()
        except DiskError as error:
            return BareResponse(f"{error}\n", status=503, content_type=_TEXT)
        if free < min_free:
            return BareResponse(f"{free} bytes are free; the floor is {min_free}\n", status=503, content_type=_TEXT)
        return BareResponse("ready\n", content_type=_TEXT)

    return health
