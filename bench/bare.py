"""The least a WSGI application can do for a durable PUT: write and fsync two files and their directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

ROOT = os.environ["BENCH_DATA"]


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Store the body and a few words about it, in a directory of their own."""
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    directory = f"{ROOT}/{environ['PATH_INFO'].strip('/')}"
    os.makedirs(directory, exist_ok=True)
    write(f"{directory}/data.xml", body)
    write(f"{directory}/data.xml.json", b'{"size": %d}' % len(body))
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)
    start_response("204 No Content", [])
    return []


def write(path: str, data: bytes) -> None:
    """Write and fsync one file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
