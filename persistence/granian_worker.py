"""A worker process in which granian, a server written in Rust, reads requests and writes responses.

gunicorn's first process starts, replaces and stops such workers as all others. granian's own first process is not used:
its workers would each open the address for themselves, and one that dies twice would end the service.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

from granian._futures import _new_cbscheduler
from granian._granian import SocketHolder, WorkerSignal, WSGIWorker
from granian.http import HTTP1Settings

from persistence.limits import CHUNK, LARGEST_HEAD, MOST_UNREAD
from persistence.worker import WatchedWorker

_INTERVAL = 1.0
"""Seconds between two signs of life for the first process."""

_STEP = 0.05
"""Seconds between two looks at what a stopping worker has still to answer."""

_LAST_CALLS = 0.3
"""Seconds for which a stopping worker tells its clients, with their responses, that their connections end."""

_UNUSED: dict[int, tuple[str, int] | str] = {
    socket.AF_INET: ("127.0.0.1", 0),
    socket.AF_INET6: ("::1", 0),
    socket.AF_UNIX: "",
}
"""Addresses of each family at which nobody calls."""

_LAST_STEPS = 10
"""Steps for which granian may go on sending what was answered, before the process ends with a response unfinished."""

_AT_ONCE = 1 << 16
"""Bytes of a response that is handed to granian in one piece."""

_RUNTIME_THREADS, _BLOCKING_THREADS, _IDLE_SECONDS = 1, 512, 30
_NO_TLS: tuple[object, ...] = (False, None, None, None, "tls1.3", None, [], False)
_NO_METRICS = (None, None)

_Fields = list[tuple[str, str]]


class GranianWorker(WatchedWorker):
    """A worker whose requests granian reads; they are answered by its threads, of which there are ``threads``."""

    def init_process(self) -> None:
        """Set up the counts, then serve."""
        self._lock = threading.Lock()
        self._answering = self._broken = 0
        super().init_process()

    def run(self) -> None:
        """Serve until the worker is to stop, and answer the requests that run then."""
        engines = [_Engine(self, listener) for listener in self.sockets]
        while self.alive:
            self.notify()
            woken, _, _ = select.select([self.PIPE[0]], [], [], _INTERVAL)
            if woken:
                os.read(self.PIPE[0], 64)
            if self.ppid != os.getppid():
                self.log.info("the first process has ended: stopping")
                self.alive = False
        for engine in engines:
            engine.stop_accepting()
        time.sleep(_LAST_CALLS)  # else a request may meet a connection that is just closed
        for engine in engines:
            engine.stop.set()
        deadline = time.monotonic() + float(self.cfg.graceful_timeout)
        answered = 0
        while not all(engine.ended.is_set() for engine in engines):
            self.tmp.notify()
            time.sleep(_STEP)
            answered = answered + 1 if self._broken and self._answering <= self._broken else 0
            if time.monotonic() > deadline or answered > _LAST_STEPS:
                self._end()

    def is_busy(self) -> bool:
        """Return whether requests are being answered."""
        return bool(self._answering)

    def answer(self, proto: Any, environ: dict[str, Any]) -> None:
        """Let the application answer a request, by the interface of granian; its threads call this."""
        with self._lock:
            self.nr += 1
            self._answering += 1
        try:
            self._answer(proto, environ)
        except Exception:
            self.log.exception("Error handling request %s", environ.get("PATH_INFO"))
            proto.response_bytes(500, [], b"")
        finally:
            with self._lock:
                self._answering -= 1

    def _answer(self, proto: Any, environ: dict[str, Any]) -> None:
        head: list[Any] = []

        def start(status: str, fields: _Fields, _error: object = None) -> None:
            head[:] = int(status[:3]), fields

        body = self.wsgi(environ, start)
        _read_rest(environ)
        status, fields = head
        length = next((int(value) for name, value in fields if name == "Content-Length"), None)
        sent = [(name, value if value.isascii() else _decoded(value)) for name, value in fields]
        if not self.alive:
            sent.append(("Connection", "close"))
        if environ["REQUEST_METHOD"] == "HEAD" or status in {204, 304} or (length is not None and length <= _AT_ONCE):
            try:
                data = b"".join(body)
            finally:
                getattr(body, "close", _nothing)()
            proto.response_bytes(status, sent, data)
        else:
            proto.response_iter(status, sent, _Pieces(body, self, has_length=length is not None))

    def break_off(self) -> NoReturn:
        """End this process once its other requests are answered; the caller waits for that.

        granian ends a chunked response as if it were whole, whatever happens. Only the end of the process breaks it.
        """
        with self._lock:
            self._broken += 1
        self.alive = False
        while True:
            time.sleep(_INTERVAL)

    def _end(self) -> NoReturn:
        with suppress(Exception):
            self.wsgi.close()
        os._exit(0)


class _Engine:
    """granian's part in a worker, for one listening socket. ``ended`` is set some time after ``stop``."""

    def __init__(self, worker: GranianWorker, listener: Any) -> None:
        self.stop, self.ended = WorkerSignal(), threading.Event()
        self.stop.add_cb(self.ended.set)
        self._answer = worker.answer
        self._facts = {
            "SCRIPT_NAME": "",
            "wsgi.version": (1, 0),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            # Not wsgi.input_terminated: granian takes a chunked body that breaks off for one that ends.
            "gunicorn.socket": listener.sock,  # by which it is known whether the peer has an address
        }
        cfg, is_unix = worker.cfg, listener.sock.family == socket.AF_UNIX
        self._family, self._descriptor = listener.sock.family, os.dup(listener.fileno())
        if not is_unix and hasattr(worker.wsgi, "progress_timeout"):  # connections inherit it
            milliseconds = int(1000 * worker.wsgi.progress_timeout)
            listener.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        holder = SocketHolder(self._descriptor, is_unix, cfg.backlog)  # granian closes its descriptor
        http = HTTP1Settings(header_read_timeout=1000 * cfg.keepalive, max_buffer_size=LARGEST_HEAD)
        size = (_RUNTIME_THREADS, _BLOCKING_THREADS, cfg.threads, _IDLE_SECONDS, cfg.worker_connections)
        engine = WSGIWorker(1, (None, holder), None, *size, "1", http, None, None, *_NO_TLS, _NO_METRICS)
        loop = asyncio.new_event_loop()  # granian wants one, and does not use it for WSGI
        scheduler = _new_cbscheduler(loop, self._serve, impl_asyncio=True)
        (engine.serve_mtr_uds if is_unix else engine.serve_mtr)(scheduler, loop, self.stop)

    def stop_accepting(self) -> None:
        with socket.socket(self._family) as deaf:
            deaf.bind(_UNUSED[self._family])
            deaf.listen(1)
            deaf.settimeout(0)
            os.dup2(deaf.fileno(), self._descriptor, inheritable=False)

    def _serve(self, proto: Any, scope: dict[str, Any]) -> None:
        scope.update(self._facts)
        self._answer(proto, scope)


class _Pieces:
    """A body for granian, which calls ``__next__`` and ``close``, and does not look at their errors."""

    def __init__(self, body: Iterable[bytes], worker: GranianWorker, *, has_length: bool) -> None:
        self._body = body
        self._pieces = iter(body)
        self._worker = worker
        self._has_length = has_length
        self._is_whole = False

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except StopIteration:
            self._is_whole = True
            raise
        except Exception as error:
            if not isinstance(error, OSError):  # of these the application has written a line
                self._worker.log.exception("Error while sending a response")
            if not self._has_length:
                self.close()
                self._worker.break_off()
            raise StopIteration from None  # granian misses the bytes that were announced, and breaks the connection

    def close(self) -> None:
        close = getattr(self._body, "close", _nothing)
        if self._is_whole:
            close()
            return
        try:
            raise ConnectionError("the response was not sent wholly")  # noqa: TRY301 - it is what the body looks for
        except ConnectionError:
            close()


def _read_rest(environ: dict[str, Any]) -> None:
    """Read what nobody has read of a body: granian would close the connection, and the client not read the response.

    A client that announces more may wait for the response before it sends anything.
    """
    announced = environ.get("CONTENT_LENGTH", "0")
    if announced != "0" and announced.isdecimal() and int(announced) <= MOST_UNREAD:
        while environ["wsgi.input"].read(CHUNK):
            pass


def _nothing() -> None: ...


def _decoded(value: str) -> str:
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value
