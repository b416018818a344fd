"""Slow clients to gunicorn and through nginx, ten thousand connections for a minute, and an ordinary client there."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPException
from itertools import cycle
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tests import nginx
from tests.rigs.connections.smuggling import DIRECT, NGINX
from tests.rigs.processes import Process
from tests.rigs.report import prefixed
from tests.service import Service, running
from tests.waiting import eventually

DOCUMENT = "/crud/crowd/form/data/D/data.xml"
LARGE = "/crud/crowd/form/data/D/large.bin"
_DRIPPED = "/crud/crowd/form/data/D/dripped.bin"
_READY = 60.0
_SPARE = 100  # descriptors for everything else
_AT_ONCE = 200  # clients that connect at the same time: more would not fit in a server's queue


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

    closed_by_server: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    open: list[int] = field(default_factory=list)
    count: int = 0


@contextmanager
def crowd(port: int, counts: Mapping[Kind, int], *, pause: float) -> Iterator[Crowd]:
    """Clients of each kind for the length of a block, which begins when all of them are connected, or cannot be.

    ``pause`` is in seconds, between two bytes of a client. A connection that the server closes is opened again. They
    are in a process of their own, so that they do not take the time of an ordinary client in this one.
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
    if _raised_limit() < sum(counts.values()) + _SPARE:
        raise RuntimeError("a process may not have so many descriptors here")
    sender.send(asyncio.run(_gather(port, counts, pause, over, ready)))


def _raised_limit() -> int:
    """Let this process, and those that it starts, have as many descriptors as they may."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


async def _gather(port: int, counts: dict[Kind, int], pause: float, over: Event, ready: Event) -> Crowd:
    seen, queue = Crowd(), asyncio.Semaphore(_AT_ONCE)
    clients = [
        asyncio.create_task(_come_and_go(seen, port, kind, pause, queue))
        for kind, count in counts.items()
        for _ in range(count)
    ]
    next_count = 0.0
    while not over.is_set():
        await asyncio.sleep(0.05)
        if not ready.is_set() and seen.count == len(clients):
            seen.open.clear()
            ready.set()
        if time.monotonic() >= next_count:
            seen.open.append(seen.count)
            next_count = time.monotonic() + 1
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    return seen


async def _come_and_go(seen: Crowd, port: int, kind: Kind, pause: float, queue: asyncio.Semaphore) -> None:
    """Be one client, which comes again when the server has closed its connection."""
    loop = asyncio.get_running_loop()
    while True:
        client, own = _Client(seen, kind, pause), socket.socket()
        own.setblocking(False)
        if kind is Kind.READER:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            async with queue, asyncio.timeout(5):
                await loop.sock_connect(own, ("127.0.0.1", port))
        except OSError as error:
            own.close()
            seen.failures[type(error).__name__] += 1
            await asyncio.sleep(0.05)
        else:
            await loop.create_connection(lambda client=client: client, sock=own)  # type: ignore[misc]
            await client.gone.wait()


class _Client(asyncio.Protocol):
    """A connection: it sends a byte after each pause, or the next request if it is kept alive, or reads a little."""

    def __init__(self, seen: Crowd, kind: Kind, pause: float) -> None:
        self.gone = asyncio.Event()
        self._seen = seen
        self._kind = kind
        self._pause = 4 * pause if kind is Kind.KEPT else pause

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._seen.count += 1
        transport.write(_FIRST[self._kind])
        self._pause_until_next()

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 "):
            self._seen.answers[f"{self._kind.value}: {data[9:12].decode()}"] += 1
        if self._kind is Kind.READER:
            self._pause_until_next()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a reset is a way to close
        self._seen.count -= 1
        self._seen.closed_by_server[self._kind.value] += 1
        self._next.cancel()
        self.gone.set()

    def _pause_until_next(self) -> None:
        if self._kind is Kind.READER:
            self._transport.pause_reading()
        self._next = asyncio.get_running_loop().call_later(self._pause, self._act)

    def _act(self) -> None:
        if self._kind is Kind.READER:
            self._transport.resume_reading()
            return
        if self._kind is not Kind.IDLE:
            self._transport.write(_FIRST[self._kind] if self._kind is Kind.KEPT else b"x")
        self._pause_until_next()


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
            f"{_at(own, 0.5) / _at(other, 0.5):.1f} {_at(own, 0.99) / _at(other, 0.99):.1f}"
            if own and other
            else "none"
            for own, other in pairs
        )


def _at(durations: list[float], part: float) -> float:
    return sorted(durations)[max(0, math.ceil(part * len(durations)) - 1)]


def prepare(service: Service) -> None:
    for path, content in ((DOCUMENT, _BODY), (OWN, _BODY), (LARGE, bytes(_LARGE_SIZE))):
        answer = service.raw("PUT", path, _HEADERS, content)
        assert answer.status == 201, answer.cause


def measured(face: Service, seconds: float, *, patience: float, pause: float = 0.0) -> Times:
    """GET and PUT in turn for some seconds, each on a connection of its own and with a deadline."""
    times = Times()
    stop = time.monotonic() + seconds
    before, face.timeout = face.timeout, patience
    turns = cycle((("GET", None, 200, _BODY, times.reads), ("PUT", _BODY, 204, b"", times.writes)))
    try:
        while time.monotonic() < stop:
            method, body, status, expected, durations = next(turns)
            began = time.monotonic()
            try:
                answer = face.raw(method, OWN, _HEADERS if body else None, body)
            except (OSError, HTTPException) as error:
                times.failures.append(f"{method}: {type(error).__name__} after {time.monotonic() - began:.1f} s")
            else:
                if (answer.status, answer.body) == (status, expected):
                    durations.append(time.monotonic() - began)
                else:
                    times.failures.append(f"{method}: {answer.status} {answer.body[:80]!r}")
            time.sleep(pause)
    finally:
        face.timeout = before
    return times


# Some slow clients of each kind, to gunicorn and through nginx.

SLOW_HEADINGS = (
    *("slow clients", "through", "answered", "not answered", "GET p50 p99; PUT p50 p99, times quiet"),
    *("closed by the server", "served again after, s"),
)
_SLOW = (Kind.IDLE, Kind.HEAD, Kind.BODY, Kind.READER)
_SLOW_PAUSE = 0.5
_PATIENCES = {DIRECT: 3.0, NGINX: 20.0}
"""Seconds that an ordinary client waits: who is not served by gunicorn at once is not served at all."""
_RECOVERY = 90.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What happened beside some slow clients; ``recovery`` in seconds, ``None`` where it did not come."""

    name: str
    through: str
    beside: Times
    quiet: Times
    closed: int
    recovery: float | None

    @property
    def faults(self) -> list[str]:
        """What must not be: that nginx leaves an ordinary client waiting, or anyone when the slow ones have gone."""
        late = [] if self.recovery is not None else ["nobody is served any more"]
        refused = self.beside.failures if self.through == NGINX else []
        return prefixed(f"{self.name}, {self.through}", (*refused, *late))

    @property
    def row(self) -> tuple[object, ...]:
        recovery = "never" if self.recovery is None else f"{self.recovery:.1f}"
        ratios = self.beside.ratios(self.quiet)
        return self.name, self.through, self.beside.count, len(self.beside.failures), ratios, self.closed, recovery


def scenes(directory: Path, *, each: int, seconds: float, alone: bool) -> Iterator[Scene]:
    """So many slow clients of each kind at once, and with ``alone`` each kind by itself before."""
    sets = {f"{each} {kind.value}": {kind: each} for kind in _SLOW if alone}
    sets |= {f"{each} of each kind": dict.fromkeys(_SLOW, each)}
    with ExitStack() as stack:
        service = stack.enter_context(running(directory / "service", workers=2, threads=8, command="gunicorn"))
        prepare(service)
        faces = {DIRECT: service, NGINX: stack.enter_context(nginx.in_front_of(service, directory / "nginx"))}
        for through, face in faces.items():
            quiet = measured(face, seconds, patience=_PATIENCES[through])
            for name, counts in sets.items():
                with crowd(face.port, counts, pause=_SLOW_PAUSE) as seen:
                    beside = measured(face, seconds, patience=_PATIENCES[through])
                yield Scene(name, through, beside, quiet, seen.closed_by_server.total(), _recovery(face))
        eventually(lambda: not service.leftovers(), _RECOVERY)


def _recovery(face: Service) -> float | None:
    began = time.monotonic()
    while time.monotonic() - began < _RECOVERY:
        try:
            if face.raw("GET", "/healthz").status == 200:
                return time.monotonic() - began
        except (OSError, HTTPException):
            time.sleep(0.1)
    return None


# A throng behind nginx.

HEADINGS = ("", "before", "meanwhile", "after")
MIX = {Kind.IDLE: 3000, Kind.KEPT: 4000, Kind.HEAD: 1000, Kind.BODY: 2000}
_PAUSE = 4.0  # less than the time between two bytes that nginx allows
_BETWEEN = 0.01
_PATIENCE = 20.0
_SETTLING = 60.0
_MOST = 0.95  # of the connections, on average: those that nginx has just closed are being opened again
_KEPT = 32  # connections to the service that each worker of nginx keeps for a minute


class _Held(NamedTuple):
    """What the workers of nginx or the service hold: megabytes in memory, and descriptors but for those of an index."""

    memory: float
    descriptors: int


@dataclass(frozen=True, slots=True)
class Minute:
    rows: list[tuple[object, ...]]
    faults: list[str]


def throng(directory: Path, *, seconds: float, mix: Mapping[Kind, int]) -> Minute:
    """Let a throng come to nginx, with an ordinary client among it, and see what is left of it."""
    _raised_limit()  # for the nginx that this process starts; root's nginx could also ask for more itself
    with ExitStack() as stack:
        service = stack.enter_context(running(directory / "service", workers=2, threads=8, command="gunicorn"))
        prepare(service)
        face = stack.enter_context(nginx.in_front_of(service, directory / "nginx"))
        quiet = measured(face, min(seconds, 10.0), patience=_PATIENCE, pause=_BETWEEN)
        before = _held(face, service)
        with crowd(face.port, mix, pause=_PAUSE) as seen:
            beside = measured(face, seconds, patience=_PATIENCE, pause=_BETWEEN)
            meanwhile = _held(face, service)
        most = {name: held.descriptors + _KEPT * len(face.workers()) for name, held in before.items()}
        spooled = [directory / "nginx" / name for name in ("body", "proxy")]

        def left() -> list[str]:
            """What is left when the connections are gone, for which servers may take a while."""
            files = [*service.leftovers(), *(path for place in spooled for path in place.rglob("*") if path.is_file())]
            held = _held(face, service)
            return [
                *(f"left behind: {path.relative_to(directory)}" for path in files),
                *(
                    f"{name} keep {held[name].descriptors} descriptors, and had {before[name].descriptors}"
                    for name in most
                    if held[name].descriptors > most[name]
                ),
            ]

        with suppress(AssertionError):
            eventually(lambda: not left(), _SETTLING)
        faults, after = left(), _held(face, service)
    size = sum(mix.values())
    faults += prefixed(f"beside {size} connections", beside.failures)
    if not beside.reads or not beside.writes:
        faults.append("nobody was answered")
    if mean(seen.open) < _MOST * size:
        faults.append(f"only {mean(seen.open):.0f} of {size} connections were open")
    return Minute(list(_rows(size, seen, quiet, beside, (before, meanwhile, after))), faults)


def _rows(
    size: int, seen: Crowd, quiet: Times, beside: Times, held: Sequence[Mapping[str, _Held]]
) -> Iterator[tuple[object, ...]]:
    yield "connections wanted", 0, size, 0
    yield "open, on average", 0, f"{mean(seen.open):.0f}", 0
    yield "open, fewest", 0, min(seen.open), 0
    yield "closed by nginx and opened again", "", _listed(seen.closed_by_server), ""
    yield "answered", "", _listed(seen.answers), ""
    yield "connections refused", "", seen.failures.total(), ""
    yield "ordinary requests answered", quiet.count, beside.count, ""
    yield "ordinary requests not answered", len(quiet.failures), len(beside.failures), ""
    yield "GET p50 p99; PUT p50 p99, times quiet", "1 1; 1 1", beside.ratios(quiet), ""
    for name in held[0]:
        yield f"{name}, MB in memory", *(f"{each[name].memory:.0f}" for each in held)
        yield f"{name}, descriptors", *(each[name].descriptors for each in held)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _held(face: Service, service: Service) -> dict[str, _Held]:
    """What is held now; memory that processes share is counted in parts."""
    held = {}
    for name, each in (("nginx' workers", face), ("the service's workers", service)):
        processes = [Process(pid) for pid in each.workers()]
        memory = sum(process.status("Pss", "smaps_rollup") for process in processes) / 1024
        held[name] = _Held(memory, sum(process.descriptors for process in processes))
    return held
