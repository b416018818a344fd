"""Whether the service lives, and whether it can store: for supervisors and load balancers."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Protocol

from flask import Blueprint, Response

from persistence.errors import BusyError, DiskError
from persistence.http.responses import text

PATHS = ("/healthz", "/readyz")
"""Where a supervisor asks; it has no key."""


class Stored(Protocol):
    """A directory that the service writes into."""

    @property
    def root(self) -> str:
        """Its path."""

    def free_bytes(self) -> int:
        """Space that the service may still use there; raises ``DiskError`` or ``BusyError`` where it cannot write."""


def blueprint(places: Iterable[Stored], *, min_free: int) -> Blueprint:
    """``/healthz`` and ``/readyz``; ``min_free`` is in bytes, and each place is to have as many."""
    health = Blueprint("health", __name__)

    @health.get("/healthz", provide_automatic_options=False)
    def healthz() -> Response:
        return text(HTTPStatus.OK, "ok")

    @health.get("/readyz", provide_automatic_options=False)
    def readyz() -> Response:
        for place in places:
            try:
                free = place.free_bytes()
            except (BusyError, DiskError) as error:
                return text(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            if free < min_free:
                cause = f"{free} bytes are free in {place.root}; the floor is {min_free}"
                return text(HTTPStatus.SERVICE_UNAVAILABLE, cause)
        return text(HTTPStatus.OK, "ready")

    return health
