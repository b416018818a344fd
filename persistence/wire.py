"""Connections to another service, calls and their answers, with a deadline for each step.

httpcore follows no redirect, and uses no proxy of the environment. Users share connections, so there are no cookies.
"""

from __future__ import annotations

import math
import os
import ssl
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from io import SEEK_END, BytesIO, TextIOBase
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote, unquote, urlencode

import httpcore
import httpx

from persistence.closable import Closable, closed, taking
from persistence.dialect import Dialect
from persistence.errors import BusyError, PersistenceError, RemoteError, RemoteTimeoutError, one_line
from persistence.limits import ANSWER_SECONDS, CHUNK, LARGEST_ANSWER
from persistence.model.texts import WHOLE

HeaderField = tuple[str, str | bytes]  # A text is sent in UTF-8
HeaderFields = Sequence[HeaderField]

XML: tuple[str, str] = ("Content-Type", "application/xml")


def path_of(*names: str) -> str:
    return "".join(f"/{quote(name, safe='')}" for name in names)


def whole_number(text: str) -> int | None:
    """Return the number in a header; ``None`` for a text that no service sends."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 - digits of 2**63


Content = bytes | bytearray | memoryview | str | Path | BinaryIO | Iterable[bytes]
"""A content to be sent: bytes, a text (sent as UTF-8), the path of a file, an open binary file, or pieces of bytes."""


class OutgoingContent:
    """A content to be sent, with at most a piece in memory, unless it is bytes or a text.

    ``length`` is in bytes. It is ``None`` of pieces, and of files that cannot seek: these are sent in chunks.
    ``is_repeatable`` says whether it can be sent a second time.

    Raises:
        TypeError: it is a file that was opened for text.
        OSError: there is no such file.
    """

    def __init__(self, content: Content) -> None:
        if isinstance(content, bytes | bytearray | memoryview | str):
            content = BytesIO(content.encode() if isinstance(content, str) else content)
        self._content = content
        self._start = 0
        self.length: int | None = None
        if isinstance(content, Path):
            self.length = os.stat(content).st_size
        elif isinstance(content, TextIOBase):
            raise TypeError("a file to be sent must be opened in binary mode")
        elif hasattr(content, "read") and (file := cast("BinaryIO", content)).seekable():
            self._start = file.tell()
            self.length = file.seek(0, SEEK_END) - self._start
        self.is_repeatable = self.length is not None

    def __iter__(self) -> Iterator[bytes]:
        if isinstance(self._content, Path):
            with self._content.open("rb") as file:
                yield from _read(file)
        elif hasattr(self._content, "read"):
            opened = cast("BinaryIO", self._content)
            if self.is_repeatable:
                opened.seek(self._start)
            yield from _read(opened)
        else:
            yield from self._content


def _read(file: BinaryIO) -> Iterator[bytes]:
    yield from iter(partial(file.read, CHUNK), b"")


@dataclass(frozen=True, slots=True)
class Call:
    """A request; ``path`` is percent-encoded, and follows the address of the connection.

    ``silence`` is in seconds, where other than the usual. The client of a service knows by ``is_safe`` that it may send
    the request again, and by ``also`` which statuses are not refusals, besides those from 200 to 299.
    """

    method: str
    path: str
    fields: HeaderFields = ()
    query: Sequence[tuple[str, str]] = ()
    content: OutgoingContent | None = None
    silence: float | None = None
    is_safe: bool = False
    also: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"


_ERRORS = (
    *(httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol),
    httpx.InvalidURL,
)


@dataclass(frozen=True, slots=True)
class Peer:
    """The other side in the words of errors: its ``label``, and the sentence about a connection that ``broke``.

    An answer that breaks off is called ``rest``, or by its request.
    """

    label: str
    broke: str
    rest: str | None = None

    @contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Translate the errors of httpcore. Their texts may hold addresses, and those a password: they are left out."""
        try:
            yield
        except httpcore.TimeoutException as error:
            raise RemoteTimeoutError(f"{self.label} does not answer in time: {action}") from error
        except httpcore.ConnectError as error:
            raise RemoteError(f"{self.label} cannot be reached: {action}") from error
        except _ERRORS as error:
            raise RemoteError(f"{self.broke}: {action} ({type(error).__name__})") from error


_LARGEST_LINE = 4096  # Bytes of a refusal that are read: a line has at most 300 characters
_MOST_LEFT, _LEFT_WITHIN = 2, 1.0
"""Pieces, the last one and the end, and seconds for what is left of a response that is closed."""


class Answer(Closable):
    """An answer whose content is read while it is iterated, at most a piece in memory. Use it in a ``with`` block.

    What ``beginning``, ``whole`` and ``line`` read into memory must arrive within ``seconds``. ``timeouts`` are those
    of the request.
    """

    def __init__(
        self,
        response: httpcore.Response,
        peer: Peer,
        action: str,
        seconds: float = ANSWER_SECONDS,
        timeouts: dict[str, float] | None = None,
    ) -> None:
        self._response = response
        self._peer = peer
        self._action = action
        self._seconds = seconds
        self._timeouts = {} if timeouts is None else timeouts
        self._end = math.inf
        self._pieces: Iterator[bytes] = self._received()
        self.status = response.status
        self.headers = httpx.Headers(response.headers)
        self.length = whole_number(self.headers.get("Content-Length", ""))
        """The length in bytes; ``None`` where the content is made while it is sent. For a HEAD, that of a GET."""
        self.content_type: str = self.headers.get("Content-Type", "application/octet-stream")

    def __iter__(self) -> Iterator[bytes]:
        with self._peer.errors(self._peer.rest or self._action):
            # Not ``yield from``: a caller that stops iterating must not close the generator of the response.
            while (piece := next(self._pieces, None)) is not None:
                yield piece

    def _received(self) -> Iterator[bytes]:
        left = bytearray()
        for piece in self._response.iter_stream():
            if time.monotonic() > self._end:
                raise httpcore.ReadTimeout("the deadline of the response is over")
            left += piece
            while len(left) >= CHUNK:
                yield bytes(left[:CHUNK])
                del left[:CHUNK]
        self._response.close()
        if left:
            yield bytes(left)

    def _end_within(self, seconds: float) -> None:
        """Let no byte be read any more after so many seconds."""
        self._end = time.monotonic() + seconds
        self._timeouts["read"] = min(self._timeouts.get("read", seconds), seconds)  # read with the first byte

    def read(self) -> bytes:
        return b"".join(self)

    def skip(self, size: int) -> None:
        for piece in self:
            size -= len(piece)
            if size <= 0:
                rest = piece[len(piece) + size :]
                self._pieces = chain([rest] if rest else [], self._pieces)
                return
        raise RemoteError(f"an answer of {self._peer.label} ends early")

    def beginning(self) -> bytes:
        """Return the first piece of the content, at most CHUNK bytes."""
        self._end_within(self._seconds)
        return next(iter(self), b"")

    def whole(self, limit: int, too_large: PersistenceError | None = None) -> bytes:
        """Return the whole content, and close it; raise ``too_large`` or ``RemoteError`` if it has more bytes."""
        data = bytearray()
        self._end_within(self._seconds)
        try:
            for piece in self:
                data += piece
                if len(data) > limit:
                    raise too_large or RemoteError(f"{self._peer.label} answers with more than {limit} bytes")
        finally:
            self.close()
        return bytes(data)

    def line(self) -> str:
        """Return the line of text of a refusal, empty if there is none or it does not come in time, and close it."""
        line = b""
        with self:
            try:
                if self.headers.get("Content-Type", "").startswith("text/plain"):
                    line = self.beginning()[:_LARGEST_LINE]
            except RemoteError as error:
                if error.__cause__ is None:  # not of the connection, but of a signal that ends a command
                    raise
        return one_line(line.decode(errors="replace").partition("\n")[0])

    def require_uncoded(self) -> None:
        """Refuse a content coding: none was asked for."""
        if self.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
            self._response.close()
            raise RemoteError(f"{self._peer.label} answers {self._action} in a content coding that was not asked for")

    def close(self) -> None:
        """Release the connection, to be used again if little is left; a content may have no end."""
        if (self.length or 0) <= _LARGEST_LINE:
            self._end_within(_LEFT_WITHIN)
            with suppress(*_ERRORS):
                deque(islice(self._pieces, _MOST_LEFT), maxlen=0)
        self._response.close()


class OwnFields:
    """The header fields of an answer that a dialect gives a prefix."""

    def __init__(self, headers: httpx.Headers, dialect: Dialect) -> None:
        self._headers = headers
        self._dialect = dialect

    def text(self, name: str) -> str | None:
        return next(iter(self.texts(name)), None) or None

    def texts(self, name: str) -> list[str]:
        header = self._dialect.header(name)
        return [unquote(each) for each in self._headers.get_list(header + WHOLE)] or self._headers.get_list(header)

    def number(self, name: str) -> int | None:
        return whole_number(self.text(name) or "")

    def flag(self, name: str) -> bool | None:
        text = self.text(name)
        return None if text is None else text == "true"


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """How long a call may take, and how often it is repeated.

    ``connect`` and ``silence`` are seconds: to connect, and without a byte in either direction. A client sends a call
    at most ``attempts`` times within ``patience`` seconds; the last attempt may take longer. ``largest`` is how many
    bytes of an answer are read into memory, and ``answer`` in how many seconds, plus at most ``silence``; contents that
    stream have no limit. ``tls`` says which authorities are trusted, if not the usual ones.
    """

    connect: float = 5.0
    silence: float = 60.0
    attempts: int = 4
    patience: float = 30.0
    largest: int = LARGEST_ANSWER
    answer: float = ANSWER_SECONDS
    tls: ssl.SSLContext | None = None


UNIX = "unix:"


class Connection(Closable):
    """The connections to one service, which threads may share; a process that forks opens its own.

    ``url`` is ``http://…``, ``https://…``, or ``unix:`` and the path of a socket. ``fields`` are headers of every call.
    ``calls`` is how many a process has at a time: a service that hangs must not keep every thread waiting. With
    ``is_provider``, a request here waits for the other service: the headers of an answer must come within ``silence``
    seconds, however often a byte comes; a call without a connection is made again, and one that reads if its connection
    is closed at once.
    """

    def __init__(
        self,
        url: str,
        policy: CallPolicy,
        fields: HeaderFields = (),
        *,
        calls: int | None = None,
        is_provider: bool = False,
    ) -> None:
        self.policy = policy
        self._socket = url.removeprefix(UNIX) if url.startswith(UNIX) else None
        self._base = "http://localhost" if self._socket else url.rstrip("/")
        self._fields = (*fields, ("Accept-Encoding", "identity"))
        self._turns = None if calls is None else threading.BoundedSemaphore(calls)
        self._is_provider = is_provider
        self._opening = threading.Lock()
        self._pool: httpcore.ConnectionPool | None = None
        self._opened_by = 0
        self._is_closed = False

    def close(self) -> None:
        with self._opening:
            self._is_closed = True
            pool, self._pool = self._pool, None
            if pool is not None and self._opened_by == os.getpid():
                pool.close()

    def call(self, call: Call, peer: Peer) -> Answer:
        """Return the answer, with any status; its content is not read yet. Raises ``BusyError`` if too many wait."""
        pool = self._opened(peer)
        fields = [
            (name.encode("ascii"), value if isinstance(value, bytes) else value.encode())
            for name, value in (*self._fields, *call.fields)
        ]
        if call.content is not None and call.content.length is not None:
            fields.append((b"Content-Length", b"%d" % call.content.length))
        elif call.content is not None:
            fields.append((b"Transfer-Encoding", b"chunked"))
        elif call.method in ("PUT", "POST"):
            fields.append((b"Content-Length", b"0"))
        refusal = BusyError(f"{peer.label} is slow, and other requests wait for it already")
        turn = nullcontext() if self._turns is None else taking(self._turns, refusal, timeout=self.policy.connect)
        silence = call.silence or self.policy.silence
        timeouts = {"connect": self.policy.connect, "read": silence, "write": silence, "pool": silence}
        with turn, peer.errors(call.label):
            url = httpx.URL(self._base + call.path + (f"?{urlencode(call.query)}" if call.query else ""))
            if url.username or url.password:  # of this service, which are sent in the place of a client's own
                own = b"Basic " + b64encode(f"{url.username}:{url.password}".encode())
                fields = [*(each for each in fields if each[0].lower() != b"authorization"), (b"Authorization", own)]
            request = httpcore.Request(
                call.method,
                httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=[(b"Host", url.netloc), *fields],
                content=None if call.content is None else iter(call.content),
                extensions={"timeout": timeouts},
            )
            began = time.monotonic()
            before = _in_head.set(self._is_provider)
            try:
                response = pool.handle_request(request)
            except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
                # A server may close a kept connection in the moment in which it is used again. That shows at once; one
                # that closes late was waited for long enough.
                is_late = time.monotonic() - began > self.policy.connect
                if is_late or not self._is_provider or call.method not in ("GET", "HEAD"):
                    raise
                response = pool.handle_request(request)
            finally:
                _in_head.reset(before)
        return Answer(response, peer, call.label, self.policy.answer, timeouts)

    def _opened(self, peer: Peer) -> httpcore.ConnectionPool:
        """Return the connections of this process: they must not be shared with the process that forked it."""
        with self._opening:
            if self._is_closed:
                if self._is_provider:
                    raise closed(f"the client of {peer.label}")
                raise RuntimeError("the client is closed")
            if self._pool is None or self._opened_by != os.getpid():
                self._opened_by = os.getpid()
                self._pool = httpcore.ConnectionPool(
                    ssl_context=self.policy.tls or _trusted(),
                    max_connections=None,
                    max_keepalive_connections=32,
                    keepalive_expiry=_KEPT_FOR,
                    retries=int(self._is_provider),  # of a connection that was never made: nothing was sent
                    uds=self._socket,
                    network_backend=_Network(),
                )
            return self._pool


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


# Connections on which the head of a response has one deadline, however often a byte comes.
#
# httpcore limits each silence; a service that sends a header line or an interim response (1xx) now and then is never
# silent.


_in_head: ContextVar[bool] = ContextVar("in_head", default=False)
"""True while this thread waits for the head of a provider's response."""


_KEPT_FOR = 10.0
"""Seconds that a connection stays idle: fewer than on servers, so that none is closed while it is used again."""


class _Network(httpcore.SyncBackend):
    def connect_tcp(self, *place: Any, **options: Any) -> httpcore.NetworkStream:
        return _Connection(super().connect_tcp(*place, **options))

    def connect_unix_socket(self, *place: Any, **options: Any) -> httpcore.NetworkStream:
        return _Connection(super().connect_unix_socket(*place, **options))


class _Connection(httpcore.NetworkStream):
    """Reads the head of a response until ``timeout`` seconds after the last byte of the request was sent."""

    def __init__(self, own: httpcore.NetworkStream) -> None:
        self._own = own
        self._sent = time.monotonic()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if timeout is not None and _in_head.get():
            timeout = self._sent + timeout - time.monotonic()
            if timeout <= 0:
                raise httpcore.ReadTimeout("the deadline of the head of the response is over")
        return self._own.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._own.write(buffer, timeout)
        self._sent = time.monotonic()

    def close(self) -> None:
        self._own.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Connection(self._own.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> object:
        return self._own.get_extra_info(info)
