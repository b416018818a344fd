"""A target of webhooks for tests: it keeps what it gets, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec


@dataclass(frozen=True)
class Received:
    """A request: its headers, in lower case, and its body."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, object]:
        decoded: dict[str, object] = msgspec.json.decode(self.body)
        return decoded


@dataclass
class Target:
    """A target at ``url``. ``statuses`` are those of the next answers; then each is 204. A request sets ``asked``."""

    url: str
    received: list[Received] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    hangs: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def types(self) -> list[str]:
        return [str(each.event["type"]) for each in self.received]


@contextmanager
def target() -> Iterator[Target]:
    """A target on a port of its own; while ``hangs`` is set, it answers nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.asked.set()
            while found.hangs.is_set() and not ended.wait(0.05):
                pass
            found.received.append(Received({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(found.statuses.pop(0) if found.statuses else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    ended = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Target(f"http://127.0.0.1:{server.server_port}/hook")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            server.shutdown()
            thread.join()
