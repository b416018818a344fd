"""A crowd of clients that keep their connections and give the server nothing to do: one process of its own."""

from __future__ import annotations

import heapq
import math
import multiprocessing
import resource
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPException
from itertools import cycle
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

from tests.service import Service

DOCUMENT = "/crud/crowd/form/data/D/data.xml"
LARGE = "/crud/crowd/form/data/D/large.bin"
_DRIPPED = "/crud/crowd/form/data/D/dripped.bin"
_READY = 60.0
_SPARE = 100  # descriptors for everything else
_BURST = 200  # connections that are opened before the others get their turn


class Kind(Enum):
    IDLE = "idle"
    KEPT = "kept alive"
    HEAD = "dripping heads"
    BODY = "dripping bodies"
    READER = "slow readers"


_FIRST = {
    Kind.IDLE: b"",
    Kind.KEPT: f"GET {DOCUMENT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
    Kind.HEAD: f"GET {DOCUMENT} HTTP/1.1\r\nHost: localhost\r\nX-Long: ".encode(),
    Kind.BODY: f"PUT {_DRIPPED} HTTP/1.1\r\nHost: localhost\r\nSvc-Form-Definition-Version: 1\r\n"
    "Content-Length: 100000\r\n\r\n".encode(),
    Kind.READER: f"GET {LARGE} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
}


@dataclass
class Crowd:
    """What became of a crowd, once it has gone: connections by kind, and how many were open in each second.

    ``open`` begins when all were for the first time.
    """

    opened: Counter[str] = field(default_factory=Counter)
    closed_by_server: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    open: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Client:
    kind: Kind
    socket: socket.socket


@contextmanager
def crowd(port: int, counts: Mapping[Kind, int], *, pause: float) -> Iterator[Crowd]:
    """Clients of each kind for the length of a block, which begins when all of them are connected, or cannot be.

    ``pause`` is in seconds, between two bytes of a client. A connection that the server closes is opened again.
    """
    context = multiprocessing.get_context("spawn")
    over, ready = context.Event(), context.Event()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(port, dict(counts), pause, over, ready, sender))
    process.start()
    seen = Crowd()
    try:
        if not ready.wait(_READY) and not process.is_alive():
            raise RuntimeError("the clients could not be started")
        yield seen
        over.set()
        if not receiver.poll(_READY):
            raise RuntimeError("the clients do not come to an end")
        vars(seen).update(vars(receiver.recv()))
    finally:
        over.set()
        process.join(_READY)
        process.kill()


def _work(port: int, counts: dict[Kind, int], pause: float, over: Event, ready: Event, sender: Connection) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < sum(counts.values()) + _SPARE:
        raise RuntimeError(f"a process may have only {hard} descriptors here")
    members = _Members(port, pause)
    missing = [kind for kind, count in counts.items() for _ in range(count)]
    while not over.is_set():
        burst, missing = missing[:_BURST], missing[_BURST:]
        missing += [kind for kind in burst if not members.join(kind)]
        missing += members.turn(until_idle=not missing)
        if not ready.is_set() and members.count == sum(counts.values()):
            members.seen.open.clear()
            ready.set()
    members.leave()
    sender.send(members.seen)


class _Members:
    """The connections of a crowd, and whose turn it is to send or read the next byte."""

    def __init__(self, port: int, pause: float) -> None:
        self.seen = Crowd()
        self.count = 0
        self._port = port
        self._pause = pause
        self._ready = selectors.DefaultSelector()
        self._turns: list[tuple[float, int, _Client]] = []
        self._number = 0
        self._next_count = time.monotonic()

    def join(self, kind: Kind) -> bool:
        connection = socket.socket()
        if kind is Kind.READER:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(5)
        try:
            connection.connect(("127.0.0.1", self._port))
            connection.sendall(_FIRST[kind])
        except OSError as error:
            self.seen.failures[type(error).__name__] += 1
            connection.close()
            return False
        connection.setblocking(False)
        client = _Client(kind, connection)
        self.count += 1
        self.seen.opened[kind.value] += 1
        if kind is not Kind.READER:
            self._ready.register(connection, selectors.EVENT_READ, client)
        self._again(client)
        return True

    def turn(self, *, until_idle: bool) -> list[Kind]:
        """Do what is due, for a moment; returns the kinds of those that the server has thrown out."""
        now = time.monotonic()
        if now >= self._next_count:
            self.seen.open.append(self.count)
            self._next_count = now + 1
        gone = []
        for key, _ in self._ready.select(0.05 if until_idle else 0):
            client = key.data
            if not self._listen(client):
                gone.append(client)
        while self._turns and self._turns[0][0] <= now:
            client = heapq.heappop(self._turns)[2]
            if client.socket.fileno() < 0 or client in gone:
                continue
            if self._act(client):
                self._again(client)
            else:
                gone.append(client)
        for client in gone:
            self._drop(client)
            self.seen.closed_by_server[client.kind.value] += 1
        return [client.kind for client in gone]

    def leave(self) -> None:
        for _, _, client in self._turns:
            client.socket.close()
        self._ready.close()

    def _again(self, client: _Client) -> None:
        self._number += 1
        pause = 4 * self._pause if client.kind is Kind.KEPT else self._pause
        heapq.heappush(self._turns, (time.monotonic() + pause, self._number, client))

    def _listen(self, client: _Client) -> bool:
        """Take what the server says; ``False`` where it has closed."""
        try:
            content = client.socket.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if content.startswith(b"HTTP/1.1 "):
            self.seen.answers[f"{client.kind.value}: {content[9:12].decode()}"] += 1
        return bool(content)

    def _act(self, client: _Client) -> bool:
        """A client's byte, or the next request of one that is kept alive."""
        if client.kind is Kind.READER:
            return self._listen(client)
        try:
            if client.kind is Kind.KEPT:
                client.socket.send(_FIRST[client.kind])
            elif client.kind is not Kind.IDLE:
                client.socket.send(b"x")
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _drop(self, client: _Client) -> None:
        if client.kind is not Kind.READER:
            self._ready.unregister(client.socket)
        client.socket.close()
        self.count -= 1


# An ordinary client beside all the others: is it answered, and how fast.

OWN = "/crud/ordinary/form/data/D/data.xml"
_HEADERS = {"Svc-Form-Definition-Version": "1", "Content-Type": "application/xml"}
_BODY = b"<d>%s</d>" % (b"x" * 5000)
_LARGE_SIZE = 8 << 20


@dataclass
class Times:
    reads: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.reads) + len(self.writes)

    def ratios(self, quiet: Times) -> str:
        """Median and 99th percentile of reads and writes, as multiples of those in a quiet time."""
        pairs = ((self.reads, quiet.reads), (self.writes, quiet.writes))
        return "; ".join(
            f"{percentile(own, 0.5) / percentile(other, 0.5):.1f} {percentile(own, 0.99) / percentile(other, 0.99):.1f}"
            if own and other
            else "none"
            for own, other in pairs
        )


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def prepare(service: Service) -> None:
    for path, content in ((DOCUMENT, _BODY), (OWN, _BODY), (LARGE, bytes(_LARGE_SIZE))):
        answer = service.raw("PUT", path, _HEADERS, content)
        assert answer.status == 201, answer.cause


def measured(face: Service, seconds: float, *, patience: float, pause: float = 0.0) -> Times:
    """GET and PUT in turn for some seconds, each on a connection of its own and with a deadline."""
    times = Times()
    stop = time.monotonic() + seconds
    before, face.timeout = face.timeout, patience
    turns = cycle((("GET", None, 200, times.reads), ("PUT", _BODY, 204, times.writes)))
    try:
        while time.monotonic() < stop:
            _ask(face, *next(turns), times.failures)
            time.sleep(pause)
    finally:
        face.timeout = before
    return times


def _ask(
    face: Service, method: str, body: bytes | None, status: int, durations: list[float], failures: list[str]
) -> None:
    began = time.monotonic()
    try:
        answer = face.raw(method, OWN, _HEADERS if body else None, body)
    except (OSError, HTTPException) as error:
        failures.append(f"{method}: {type(error).__name__} after {time.monotonic() - began:.1f} s")
        return
    if answer.status == status and (method == "PUT" or answer.body == _BODY):
        durations.append(time.monotonic() - began)
    else:
        failures.append(f"{method}: {answer.status} {answer.body[:80]!r}")
