"""Health checks for supervisors and load balancers: whether the service runs, and whether it can store."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Protocol

from flask import Flask, Response, request

from persistence.errors import BusyError, DiskError, one_line
from persistence.http.application import add_route
from persistence.http.logs import CAUSE
from persistence.http.responses import text

IS_STRANGER = "persistence.is_stranger"
"""Environ key: whether the caller would be refused everywhere else."""

_NOT_READY = "not ready: the log of the service says why"

PATHS = ("/healthz", "/readyz")
"""The paths that a supervisor asks for; it has no key."""


class Writable(Protocol):
    """A directory that the service writes into."""

    @property
    def root(self) -> str:
        """Its path."""

    def free_bytes(self) -> int:
        """Return the space that the service may still use there.

        Raises:
            DiskError, BusyError: it cannot write there.
        """


def add_health(app: Flask, places: Iterable[Writable], *, min_free: int) -> None:
    """Add ``/healthz`` and ``/readyz``; ``min_free`` is in bytes, and each place is to have as many.

    The cause goes to the log, and to callers that are let in; a stranger is told neither paths nor numbers.
    """

    def healthz() -> Response:
        return text(HTTPStatus.OK, "ok")

    def readyz() -> Response:
        for place in places:
            try:
                free = place.free_bytes()
            except (BusyError, DiskError) as error:
                return _not_ready(str(error))
            if free < min_free:
                return _not_ready(f"{free} bytes are free in {place.root}; the floor is {min_free}")
        return text(HTTPStatus.OK, "ready")

    for path, view in zip(PATHS, (healthz, readyz), strict=True):
        add_route(app, path, view, "GET", "HEAD")


def _not_ready(cause: str) -> Response:
    environ = request.environ
    environ[CAUSE] = one_line(cause)
    said = _NOT_READY if environ.get(IS_STRANGER) else environ[CAUSE]
    return text(HTTPStatus.SERVICE_UNAVAILABLE, said)
