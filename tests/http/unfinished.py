"""An application whose responses end early, for a server: ``gunicorn -k WORKER_CLASS tests.http.unfinished:app``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

PIECE = b"x" * 100_000


def _pieces(error: type[Exception] | None) -> Iterator[bytes]:
    yield PIECE
    yield PIECE
    if error is not None:
        raise error("no more")


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterator[bytes]:
    path = environ["PATH_INFO"]
    announced = [("Content-Length", str(3 * len(PIECE)))] if path.endswith("-announced") else []
    start_response("200 OK", [("X-Process", str(os.getpid())), *announced])
    if path.startswith("/slow"):
        time.sleep(1.5)
    return _pieces({"/disk": OSError, "/defect": ValueError}.get(path.partition("-")[0]))
