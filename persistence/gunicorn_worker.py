"""A worker process in which gunicorn reads requests and writes responses: those of a connection in one thread.

What is overridden here does the same as gunicorn with less work for each request: a tenth of the time of a small GET.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import select
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from itertools import count
from typing import Any, BinaryIO, ClassVar
from weakref import WeakSet

from gunicorn import util
from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.body import LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.gthread import TConn, ThreadWorker

from persistence import processes
from persistence.limits import CHUNK, LINGER, LONGEST_GROWN, PEERS_KEPT, WORKER_MEMORY
from persistence.metrics.service import count_as, forget_worker

_INTERVAL = 1.0  # Seconds between two checks. The main thread makes them, so that no request waits for one
_QUERY = re.compile(r"\?[^?\s\"']*")

_PAGE = os.sysconf("SC_PAGE_SIZE")


def forget(_master: object, worker: Worker) -> None:
    forget_worker(worker.number)


def without_queries(record: logging.LogRecord) -> bool:
    """Cut the query out of each address in a line of gunicorn's: it may have an access token (spec crud 6.6)."""
    record.msg, record.args = _QUERY.sub("?…", record.getMessage()), ()
    return True


class MemoryWatch:
    """Checks the memory of a process from time to time, on one thread; ``resident`` returns its bytes in memory."""

    def __init__(self, resident: Callable[[], int]) -> None:
        self._resident = resident
        self.last = 0
        self._checked = time.monotonic()
        self._grown: float | None = None

    def is_past(self, limit: int, *, is_busy: bool) -> bool:
        """Return whether the process has more than the limit; a worker that is busy is given some time."""
        now = time.monotonic()
        if not limit or now < self._checked + _INTERVAL:
            return False
        self._checked, self.last = now, self._resident()
        if self.last <= limit:
            self._grown = None
            return False
        self._grown = now if self._grown is None else self._grown
        return not is_busy or now > self._grown + LONGEST_GROWN


def resident() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


_PLAIN_VALUE = re.compile(r"[!-~\x80-\xff]+(?: [!-~\x80-\xff]+)*")
"""Values of headers that gunicorn allows and leaves as they are."""

_LARGEST_CALL = 1 << 20  # Bytes that one call sends of a file: in between, the thread of another request can run
_NAMES = 256
"""Names of headers of which it is kept whether they are plain. The service has fewer, and clients choose none."""


@dataclass(slots=True)
class ExpectedBody:
    """A body for which the client waits to be asked: ``100 Continue`` is sent before the first piece is read."""

    # gunicorn sends it before the service sees the request, and the client then sends a body that is too large.
    reader: Any
    sock: socket.socket
    is_asked_for: bool = False

    def read(self, size: int) -> bytes:
        if not self.is_asked_for:
            self.is_asked_for = True
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        piece: bytes = self.reader.read(size)
        return piece


class PeerRequest(Request):  # type: ignore[misc]
    """A request whose peer is looked for among the proxies once, and not again in each of its requests."""

    _expected_100_continue: bool

    def set_body_reader(self) -> None:
        """Find out where the body ends; one that the client is to be asked for stays with it until it is read."""
        super().set_body_reader()
        if self._expected_100_continue:
            self._expected_100_continue = False
            self.body.reader = ExpectedBody(self.body.reader, self.unreader.sock)

    def should_close(self) -> bool:
        """Return whether this is the last request: a body that was not asked for may come all the same, or not."""
        reader = self.body.reader
        return (isinstance(reader, ExpectedBody) and not reader.is_asked_for) or bool(super().should_close())

    def _peer_is_trusted_proxy(self) -> bool:
        return not isinstance(self.peer_addr, tuple) or _is_proxy(self.cfg, self.peer_addr[0])


@lru_cache(maxsize=PEERS_KEPT)
def _is_proxy(settings: Config, address: str) -> bool:
    if "*" in settings.forwarded_allow_ips:
        return True
    with suppress(ValueError):
        own = ip_address(address)
        return any(own in network for network in settings.forwarded_allow_networks())
    return False


@dataclass(frozen=True, slots=True)
class ProgressSocket:
    """A connection that ends when the client takes no byte of a response for ``seconds``; a slow one gets all of it."""

    sock: socket.socket
    seconds: float

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self.sock.send(left, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                self._wait()

    def sendfile(self, file: BinaryIO, offset: int, count: int) -> None:
        """Send so many bytes of a file, or up to its end; raises as ``sendall``."""
        end = offset + count
        self.sock.settimeout(0)
        try:
            while offset < end:
                try:
                    sent = os.sendfile(self.sock.fileno(), file.fileno(), offset, min(end - offset, _LARGEST_CALL))
                except BlockingIOError:
                    self._wait()
                else:
                    if not sent:
                        break
                    offset += sent
        finally:
            self.sock.settimeout(None)
            file.seek(offset)

    def _wait(self) -> None:
        room, left = select.poll(), self._untaken()
        room.register(self.sock, select.POLLOUT)
        while not room.poll(1000 * self.seconds):
            before, left = left, self._untaken()
            if left >= before:
                # Closing it throws away what was not taken, and resets the connection.
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.sock.shutdown(socket.SHUT_RDWR)
                raise TimeoutError(f"the client has taken nothing for {self.seconds:g} s")

    def _untaken(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


class JoinedResponse(wsgi.Response):  # type: ignore[misc]
    """A response whose headers are sent with its body, if that is in one piece: in one call, and mostly one packet."""

    progress_timeout: ClassVar[float] = 0.0

    def __init__(self, req: Request, sock: socket.socket, cfg: Config) -> None:
        super().__init__(req, sock if cfg.is_ssl else ProgressSocket(sock, self.progress_timeout), cfg)

    def process_headers(self, headers: Iterable[tuple[str, str]]) -> None:
        """Check and take over headers; names that were checked before are not checked again."""
        for field in headers:
            if _is_plain(field[0]) and _PLAIN_VALUE.fullmatch(field[1]):
                self.headers.append(field)
            else:
                super().process_headers([field])

    def default_headers(self) -> list[str]:
        """Return the lines before the headers of the service. The date is formatted once a second."""
        first = f"HTTP/{self.req.version[0]}.{self.req.version[1]} {self.status}\r\n"
        connection = "close" if self.should_close() else "keep-alive"
        lines = [first, f"Server: {self.version}\r\n", _date(int(time.time())), f"Connection: {connection}\r\n"]
        return [*lines, "Transfer-Encoding: chunked\r\n"] if self.chunked else lines

    def send_headers(self) -> None:
        if not self.headers_sent:
            self._begin(b"")

    def write(self, arg: bytes) -> None:
        """Send a piece of the body, the first one with the headers if it is the only one."""
        if self.headers_sent or self._omits_body or len(arg) != self.response_length or len(arg) > CHUNK:
            super().write(arg)
        else:
            self.sent = len(arg)
            self._begin(arg)

    def _begin(self, body: bytes) -> None:
        fields = [f"{name}: {value}\r\n" for name, value in self.headers]
        head = "".join((*self.default_headers(), *fields, "\r\n")).encode("latin-1")
        self.headers_sent = True  # if they are sent in part, too: no second response may follow
        self.sock.sendall(head + body)


@lru_cache(maxsize=_NAMES)
def _is_plain(name: str) -> bool:
    allowed = wsgi.TOKEN_RE.fullmatch(name) is not None
    return allowed and name.lower() != "content-length" and not util.is_hoppish(name)


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return f"Date: {util.http_date(second)}\r\n"


NO_PRELOADING = "preload_app must be false: each worker opens the trees and databases itself"


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn ships no annotations
    """gunicorn's worker with threads; ``number`` is the smallest free one, ``processor`` its own unless it uses all."""

    _running: ClassVar[WeakSet[Worker]] = WeakSet()
    """In the first process, the workers that it has made and that have not ended."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.cfg.preload_app:
            sys.exit(f"persistence: {NO_PRELOADING}")
        self.processor: int | None = processes.one_for(self.cfg.workers, (each.processor for each in self._running))
        numbers = {each.number for each in self._running}
        self.number: int = next(number for number in count() if number not in numbers)
        self._running.add(self)

    def init_process(self) -> None:
        """Receive bodies in pieces of the size that the service asks for, and send responses its way; then serve."""
        SocketUnreader.max_body_chunk = CHUNK
        RequestParser.mesg_class, wsgi.Response = PeerRequest, JoinedResponse
        if self.processor is not None:
            processes.stay_on(self.processor)
        for log in (self.log.error_log, self.log.access_log):
            log.addFilter(without_queries)
        count_as(self.number)
        self._memory = MemoryWatch(resident)
        super().init_process()

    def init_signals(self) -> None:
        """Handle signals; then open the log again, in case that this worker was too young to notice SIGUSR1."""
        super().init_signals()
        self.log.reopen_files()

    def notify(self) -> None:
        """Tell the master that this worker is alive; ``run`` calls it at least once a second."""
        super().notify()
        service = getattr(self, "wsgi", None)
        limit = getattr(service, "worker_memory", WORKER_MEMORY)
        getattr(service, "tick", lambda: None)()
        is_alive: bool = self.alive  # type: ignore[has-type]
        is_busy = self.nr_conns > len(self.keepalived_conns)
        if is_alive and self._memory.is_past(limit, is_busy=is_busy):
            self.log.info("replacing a worker that has grown to %d MiB", self._memory.last >> 20)
            self.alive = False  # as max_requests does: it completes its requests first

    def handle(self, conn: TConn) -> Any:
        """Answer a request, and those that follow soon on the same connection; runs in a thread of its own."""
        # gunicorn hands a connection back to its main thread after each request, and gets it again from there: two
        # changes of threads, which have to wait for each other. A client that sends one request after the other is
        # answered by one thread, as long as no other connection waits for a thread.
        if not conn.initialized:
            seconds, rest = divmod(JoinedResponse.progress_timeout, 1)
            limit = struct.pack("ll", int(seconds), int(1_000_000 * rest))
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        result = super().handle(conn)
        while result is True and not conn.is_http2 and self._may_stay() and _is_readable(conn):
            result = super().handle(conn)
        return result

    def load_wsgi(self) -> None:
        super().load_wsgi()
        JoinedResponse.progress_timeout = getattr(self.wsgi, "progress_timeout", self.cfg.timeout)

    def finish_request(self, conn: TConn, fs: Future[Any]) -> None:
        """Close a connection that is over in a thread, or let gunicorn wait for its next request."""
        # gunicorn waits up to 2 s for the client to close it, in the thread that accepts all others.
        if fs.cancelled() or fs.exception() is not None or fs.result() is not False:
            super().finish_request(conn, fs)
            return
        self.nr_conns -= 1
        try:
            self.tpool.submit(conn.close, graceful=True)
        except RuntimeError:  # the worker ends
            conn.close()

    def _keepalive_after(self, conn: TConn, keepalive: bool) -> bool:  # noqa: FBT001 - gunicorn's signature
        reader = conn.parser.mesg.body.reader if keepalive else None
        if isinstance(reader, LengthReader) and reader.length == 0:
            conn.parser.mesg = None
            return True
        return bool(super()._keepalive_after(conn, keepalive))

    def _may_stay(self) -> bool:
        busy = self.nr_conns - len(self.keepalived_conns) - len(self.pending_conns)
        is_alive: bool = self.alive
        return is_alive and busy <= self.cfg.threads


def _is_readable(conn: TConn) -> bool:
    if conn.parser.unreader.buf.getvalue():
        return True
    waiting = select.poll()
    waiting.register(conn.sock, select.POLLIN)
    return bool(waiting.poll(LINGER))
