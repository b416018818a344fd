"""Killing a worker at each system call of a request in turn, and what is there afterwards, over HTTP."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from itertools import count
from pathlib import Path

from tests.crash import strace
from tests.service import Answer, Service

_CALLS = strace.calls(
    *("openat", "close", "read", "write", "newfstatat", "fstat", "lseek", "flock", "utimensat", "fadvise64", "fsync"),
    *("mkdir", "mkdirat", "link", "linkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
    *("recvfrom", "sendto", "sendfile", "getdents64", "copy_file_range", "ftruncate", "pwrite64"),
)
_ANSWER = "sendto"
_CALL = re.compile(r"(\w+)\(")

# One length, so that nothing but the content itself tells one from the other.
OLD, NEW, NEXT = (f"<d>{word:->400}</d>".encode() for word in ("old", "new", "next"))

Prepare = Callable[[Service, str], None]
Ask = Callable[[Service, str], Answer]


@dataclass(frozen=True, slots=True)
class Point:
    """A system call of a request: its name, and which one of that name."""

    call: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request to be killed: what it needs, and the contents that may be read before and after it."""

    prepare: Prepare
    ask: Ask
    before: bytes | None
    after: bytes | None


def _put(service: Service, path: str) -> Answer:
    return _ask(service, "PUT", path, NEW)


def _delete(service: Service, path: str) -> Answer:
    return _ask(service, "DELETE", path, b"")


def _ask(service: Service, method: str, path: str, body: bytes) -> Answer:
    """Send a request in one piece: headers and body apart would be one ``recvfrom`` at one time and two at another."""
    head = f"{method} /crud/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), service.timeout) as connection:
        connection.sendall(head.encode() + body)
        response = HTTPResponse(connection, method=method)
        response.begin()
        return Answer(response.status, response.headers, response.read())


def _store_old(service: Service, path: str) -> None:
    assert service.put(path, OLD).status == 201


CREATE = Request(lambda _service, _path: None, _put, None, NEW)
REPLACE = Request(_store_old, _put, OLD, NEW)
DELETE = Request(_store_old, _delete, OLD, None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a kill at a point left: whether the request was committed, temporary files, and everything wrong."""

    point: Point
    committed: bool
    leftovers: int
    faults: tuple[str, ...]


class Killer:
    """Kills the only worker of a service, whose master starts a new one each time."""

    def __init__(self, service: Service, directory: Path) -> None:
        self._service = service
        self._directory = directory
        self._numbers = count()

    def points(self, request: Request) -> list[Point]:
        """Every system call of the thread that serves a request, in its order, up to that which answers it."""
        path, log = self._fresh(request), self._directory / "calls.log"
        with strace.attached(self._thread(), log, "-e", f"trace={_CALLS}", "-e", "signal=none"):
            request.ask(self._service, path)
        seen: Counter[str] = Counter()
        points = []
        for line in log.read_text().splitlines():
            if match := _CALL.match(line):
                seen[match[1]] += 1
                points.append(Point(match[1], seen[match[1]]))
            if points and points[-1].call == _ANSWER:
                return points
        raise AssertionError("the log does not show the answer")

    def kill(self, request: Request, point: Point) -> Outcome:
        """Kill the worker when it begins a call of a request, and look at what a client finds then."""
        path = self._fresh(request)
        before, workers = self._service.get(path), self._service.workers()
        answer = self._strike(request, path, point)
        found = self._service.get(path)  # waits for the new worker in the listener's queue
        leftovers = len(self._service.leftovers())
        faults = [] if answer is None else [f"the worker was not killed, and answered {answer.status}"]
        if self._service.workers() == workers:
            faults.append("the worker lives")
        faults += [*_mismatch(request, before, found), *self._next_write(path, found)]
        committed = (found.body if found.status == 200 else None) == request.after
        return Outcome(point, committed, leftovers, tuple(faults))

    def _fresh(self, request: Request) -> str:
        """A document of an application of its own, prepared by a worker that has just served something."""
        path = f"kill-{next(self._numbers)}/form/data/document/data.xml"
        request.prepare(self._service, path)
        self._service.get(path)
        return path

    def _thread(self) -> int:
        """The thread that serves requests: a worker has a main thread and, as it was told to, one more."""
        (worker,) = self._service.workers()
        (thread,) = (int(task.name) for task in Path(f"/proc/{worker}/task").iterdir() if task.name != str(worker))
        return thread

    def _strike(self, request: Request, path: str, point: Point) -> Answer | None:
        kill = f"inject={point.call}:signal=KILL:when={point.ordinal}"
        log = self._directory / "kill.log"
        with (
            strace.attached(self._thread(), log, "-e", f"trace={point.call}", "-e", kill),
            suppress(OSError, HTTPException),
        ):
            return request.ask(self._service, path)
        return None

    def _next_write(self, path: str, found: Answer) -> Iterator[str]:
        written = self._service.put(path, NEXT)
        if written.status != (204 if found.status == 200 else 201):
            yield f"the next write is answered {written.status}: {written.cause}"
        again = self._service.get(path)
        if again.body != NEXT or again["ETag"] != written["ETag"]:
            yield "the next write is not there"
        if leftovers := self._service.leftovers():
            yield f"the next write leaves {[str(path.relative_to(self._service.data)) for path in leftovers]}"


def _mismatch(request: Request, before: Answer, found: Answer) -> Iterator[str]:
    if found.status != 200:
        if found.status != 404 or None not in (request.before, request.after):
            yield f"reading is answered {found.status}: {found.cause}"
        return
    if found.body not in (request.before, request.after):
        yield f"the content is neither the old nor the new one: {found.body!r}"
    if found["Content-Length"] != str(len(found.body)):
        yield "the length is not that of the content"
    if (found["ETag"] == before["ETag"]) != (found.body == request.before):
        yield "the entity tag is that of another content"
