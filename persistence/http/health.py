"""Whether the service lives, and whether it can store: for supervisors and load balancers."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Protocol

from flask import Blueprint, Response, request

from persistence.errors import BusyError, DiskError, one_line
from persistence.http.logs import CAUSE
from persistence.http.responses import text

IS_STRANGER = "persistence.is_stranger"
"""Environ key: whether the caller would be refused everywhere else."""

_NOT_READY = "not ready: the log of the service says why"

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
    """``/healthz`` and ``/readyz``; ``min_free`` is in bytes, and each place is to have as many.

    The cause goes to the log, and to callers that are let in; a stranger is told neither paths nor numbers.
    """
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
                return _not_ready(str(error))
            if free < min_free:
                return _not_ready(f"{free} bytes are free in {place.root}; the floor is {min_free}")
        return text(HTTPStatus.OK, "ready")

    return health


def _not_ready(cause: str) -> Response:
    environ = request.environ
    environ[CAUSE] = one_line(cause)
    said = _NOT_READY if environ.get(IS_STRANGER) else environ[CAUSE]
    return text(HTTPStatus.SERVICE_UNAVAILABLE, said)
