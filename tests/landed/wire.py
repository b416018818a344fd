"""A real service of any checkout, started by its command, and requests whose answers can be compared."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Question = dict[str, Any]
"""A request: ``method``, ``path``, ``headers`` (pairs) and ``body``, all as Latin-1 text."""

Response = dict[str, Any]
"""An answer: ``status``, ``headers`` (pairs, in their order) and ``body`` as Latin-1 text."""

_OTHERWISE = frozenset({"date", "server", "x-request-id"})
"""Headers that differ by nature."""

_LISTENING = re.compile(rb"Listening at: http://[^ ]+:(\d+)")
_READY = 60.0


def question(
    method: str, path: str, headers: Mapping[str, str] | None = None, body: str | bytes | None = None
) -> Question:
    """Return a request as it is kept; its headers keep their order."""
    text = body.decode("latin-1") if isinstance(body, bytes) else body and body.encode().decode("latin-1")
    return {"method": method, "path": path, "headers": list((headers or {}).items()), "body": text}


@dataclass
class Wire:
    """A connection to a service, which stays open between requests."""

    connection: http.client.HTTPConnection

    def ask(self, question: Question) -> Response:
        """Return the answer to a request."""
        body = question["body"]
        self.connection.request(
            question["method"],
            question["path"],
            body=None if body is None else body.encode("latin-1"),
            headers=dict(question["headers"]),
        )
        response = self.connection.getresponse()
        content = response.read()
        return {
            "status": response.status,
            "headers": [[name, text] for name, text in response.getheaders() if name.lower() not in _OTHERWISE],
            "body": content.decode("latin-1"),
        }


def environment() -> dict[str, str]:
    """Return this process's environment in UTC, without settings of the service and without another checkout's code."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PERSISTENCE_", "PYTHONPATH"))}
    return inherited | {"TZ": "UTC"}


@contextmanager
def serving(python: Path, directory: Path) -> Iterator[Wire]:
    """Start a service whose settings are in a directory, by the interpreter of a checkout, and stop it in the end."""
    log = directory / "service.log"
    arguments = [str(python), "-m", "persistence.cli", "serve", "--config", "persistence.toml", "--bind", "127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*arguments, "--workers", "1"], cwd=directory, env=environment(), stdout=output, stderr=output
        )
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", _port(process, log), timeout=60)) as connection:
            yield Wire(connection)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        log.unlink()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _READY
    while time.monotonic() < deadline and process.poll() is None:
        text = log.read_bytes()
        if (listening := _LISTENING.search(text)) and b"Booting worker" in text:
            return int(listening[1])
        time.sleep(0.02)
    raise RuntimeError(f"the service did not start:\n{log.read_text()}")
