"""Calls to another service, over connections that are kept alive, with a deadline for each step (spec crud 2 and 13).

Only this module knows httpx. Each call passes on facts about the client whose request is served.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from itertools import islice

import httpx

from persistence import client_request
from persistence.closable import Closable, closed
from persistence.errors import (
    STATUS,
    BusyError,
    PersistenceError,
    RemoteError,
    RemoteFailureError,
    RemoteTimeoutError,
    one_line,
)
from persistence.limits.documents import ANSWER_SECONDS, LARGEST_ANSWER
from persistence.limits.requests import CHUNK
from persistence.remote.headers import HeaderField, HeaderFields, ProviderNames
from persistence.storage.uploads import Upload

_KEPT_FOR = 10.0
"""Seconds for which a connection is kept idle: less than servers do, so that none is hung up while it is used again."""

_MOST_KEPT = 32
_LARGEST_LINE = 1024
_MOST_LEFT, _LEFT_WITHIN = 2, 1.0
"""Pieces, the last one and the end, and seconds for what is left of a response that is closed."""
DONE = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)
"""The statuses of changes that were done."""

_READS = ("GET", "HEAD")
_PIECE = 1 << 18
_PASSED_ON = {status: kind for kind, status in STATUS if status in {400, 403, 404, 409, 410, 412, 413, 423, 501, 507}}
"""Refusals that concern the client, as the errors of this service (spec crud 13)."""

_BUSY = (429, 503)
_LONGEST_WAIT = 60


@dataclass(frozen=True, slots=True)
class CallLimits:
    """``connect`` and ``silence`` are seconds: to connect, and without a byte in either direction.

    ``calls`` is how many a process has at a time: a provider that hangs must not keep every thread waiting. ``answer``
    is seconds, too: for all of a response that is read into memory, however often a byte comes.
    """

    connect: float = 5.0
    silence: float = 60.0
    calls: int = 4
    answer: float = ANSWER_SECONDS


class _TimedStream(httpx.SyncByteStream):
    """The bytes of a response as they arrive, and none after a deadline where there is one.

    ``timeouts`` are those of the request: httpcore looks at them when the first byte of the body is read.
    """

    def __init__(self, stream: httpx.SyncByteStream, timeouts: dict[str, float | None]) -> None:
        self._stream = stream
        self._timeouts = timeouts
        self._end: float | None = None

    def end_within(self, seconds: float) -> None:
        """Set the deadline, so many seconds from now on. No silence is longer, if nothing was read before."""
        self._end = time.monotonic() + seconds
        silence = self._timeouts.get("read")
        self._timeouts["read"] = seconds if silence is None else min(silence, seconds)

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            if self._end is not None and time.monotonic() > self._end:
                raise httpx.ReadTimeout("the deadline of the response is over")
            yield piece

    def close(self) -> None:
        self._stream.close()


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A request to be sent: ``path`` is percent-encoded, and begins where the base of the provider ends.

    A ``body`` has the length that a field says. ``silence`` is in seconds, where other than the usual.
    """

    method: str
    path: str
    fields: HeaderFields = ()
    query: Sequence[tuple[str, str]] = ()
    body: Iterable[bytes] | None = None
    silence: float | None = None

    @property
    def what(self) -> str:
        """The call in the words of an error."""
        return f"{self.method} {self.path}"


class RemoteAnswer:
    """A response whose body is still to be read. It is closed when that is done, or by ``close``.

    What is read into memory must arrive within ``seconds``. ``timeouts`` are those of the request, in seconds.
    """

    def __init__(
        self,
        response: httpx.Response,
        label: str,
        seconds: float = ANSWER_SECONDS,
        timeouts: dict[str, float | None] | None = None,
    ) -> None:
        self._response = response
        self._label = label
        self._seconds = seconds
        own = {} if timeouts is None else timeouts
        self._stream = _TimedStream(response.stream, own)  # type: ignore[arg-type]  # httpx.Client makes no asynchronous one
        response.stream = self._stream
        self._pieces = response.iter_raw(CHUNK)
        self._first = b""
        self.status = response.status_code

    def field(self, name: str) -> str | None:
        """Return a header field, several of one name joined; ``None`` where there is none."""
        found: str | None = self._response.headers.get(name)
        return found

    def fields(self, name: str) -> list[str]:
        """Return every field of a name."""
        return list(self._response.headers.get_list(name))

    @property
    def length(self) -> int | None:
        """The length of its body, for a HEAD of the body of a GET; ``None`` where it is not given."""
        text = self.field("Content-Length") or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 - digits of 2**63

    def __iter__(self) -> Iterator[bytes]:
        """Yield the body in pieces.

        Raises:
            RemoteError: it cannot be read to its end.
        """
        with _errors(self._label, "the end of an answer"):
            if self._first:
                yield self._first
            # Not ``yield from``: a caller that stops iterating must not close the generator of the response.
            while (piece := next(self._pieces, None)) is not None:
                yield piece

    def skip(self, size: int) -> None:
        """Read and drop so many bytes.

        Raises:
            RemoteError: there are not as many.
        """
        for piece in self:
            size -= len(piece)
            if size <= 0:
                self._first = piece[len(piece) + size :]
                return
        raise RemoteError(f"an answer of {self._label} ends early")

    def beginning(self) -> bytes:
        """Return the first piece of the body, at most CHUNK bytes.

        Raises:
            RemoteError: it cannot be read.
            RemoteTimeoutError: it takes too long.
        """
        self._stream.end_within(self._seconds)
        return next(iter(self), b"")

    def whole(self, limit: int) -> bytes:
        """Return the body, which is read to its end.

        Raises:
            RemoteError: it has more than ``limit`` bytes, or cannot be read to its end.
            RemoteTimeoutError: it takes too long.
        """
        data = bytearray()
        self._stream.end_within(self._seconds)
        try:
            for piece in self:
                data += piece
                if len(data) > limit:
                    raise RemoteError(f"{self._label} answers with more than {limit} bytes")
        finally:
            self.close()
        return bytes(data)

    def require(self, what: str, *statuses: int) -> None:
        """Raise the error for a refusal, unless the status is one of these. ``what`` names the request in the error."""
        if self.status not in statuses:
            raise self.refused(what)

    def refused(self, what: str) -> PersistenceError:
        """Return the error that it means, with its one line of text; it is closed.

        It is ``RemoteError`` where the refusal does not concern the client.
        """
        line = self.line()
        message = f"{self._label} says: {line}" if line else f"{self._label} answers {what} with {self.status}"
        if self.status in _BUSY:
            wait = self.field("Retry-After") or ""
            seconds = int(wait) if wait.isascii() and wait.isdigit() else 1
            return BusyError(message, min(max(seconds, 1), _LONGEST_WAIT))
        kind = _PASSED_ON.get(self.status)
        if kind is not None:
            return kind(message)
        failed = RemoteFailureError if self.status == HTTPStatus.INTERNAL_SERVER_ERROR else RemoteError
        return failed(f"{message} ({self.status})" if line else message)

    def line(self) -> str:
        """Return the line of text of a refusal, empty where there is none; it is closed."""
        line = b""
        try:
            if (self.field("Content-Type") or "").startswith("text/plain"):
                line = self.beginning()[:_LARGEST_LINE]
        except RemoteError:
            pass
        finally:
            self.close()
        return one_line(line.decode(errors="replace").partition("\n")[0])

    def close(self) -> None:
        """Release its connection, which can be used again if little was left to be read.

        Its length may not be known, and it may have no end.
        """
        if (self.length or 0) <= _LARGEST_LINE:
            self._stream.end_within(_LEFT_WITHIN)
            with suppress(httpx.HTTPError, httpx.StreamError):
                deque(islice(self._pieces, _MOST_LEFT), maxlen=0)
        self._response.close()


@contextmanager
def body_of(upload: Upload) -> Iterator[tuple[Iterator[bytes], HeaderField]]:
    """Open a content that was received for a call: yield its pieces, and the field that says its length."""
    with upload.opened() as file:
        yield iter(partial(file.read, _PIECE), b""), ("Content-Length", b"%d" % upload.size)


class Connections(Closable):
    """The connections to one address, for all that is there. ``uri`` is without a slash at its end."""

    def __init__(self, uri: str, limits: CallLimits) -> None:
        self.uri = uri
        self.limits = limits
        self._turns = threading.BoundedSemaphore(limits.calls)
        self._opening = threading.Lock()
        self._http: httpx.Client | None = None
        self._opened_by = 0
        self._is_closed = False

    def close(self) -> None:
        """Close the connections."""
        with self._opening:
            self._is_closed = True
            http, self._http = self._http, None
            if http is not None and self._opened_by == os.getpid():
                http.close()

    def http(self, label: str) -> httpx.Client:
        """Return the client of this process: a connection is not to be shared with the one that has forked it.

        Raises:
            BusyError: they were closed.
        """
        with self._opening:
            if self._is_closed:
                raise closed(f"the client of {label}")
            if self._http is None or self._opened_by != os.getpid():
                self._opened_by = os.getpid()
                limits = httpx.Limits(
                    max_connections=None, max_keepalive_connections=_MOST_KEPT, keepalive_expiry=_KEPT_FOR
                )
                # Only a connection that was never made is tried again: nothing of the request was sent.
                transport = httpx.HTTPTransport(verify=_trusted(), retries=1, limits=limits, trust_env=False)
                # Requests of all users go this way: a cookie of one answer must not be sent with the next request.
                cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
                self._http = httpx.Client(transport=transport, trust_env=False, follow_redirects=False, cookies=cookies)
                self._http.headers.clear()
            return self._http

    @contextmanager
    def turn(self, label: str) -> Iterator[None]:
        """Be one of those who wait for an answer. Raises ``BusyError`` where there are too many."""
        if not self._turns.acquire(timeout=self.limits.connect):
            raise BusyError(f"{label} is slow, and other requests wait for it already")
        try:
            yield
        finally:
            self._turns.release()


@dataclass(frozen=True, slots=True)
class Client:
    """Calls the provider ``who`` for the client whose request is served; empty of a server that is no provider.

    Methods raise ``RemoteTimeoutError`` where it takes too long, ``RemoteError`` where the provider cannot be reached
    or does not speak HTTP, and ``BusyError`` where too many calls wait for it already or the connections were closed.
    """

    who: str
    names: ProviderNames
    connections: Connections

    @property
    def label(self) -> str:
        """The other side in the words of an error."""
        return f"provider {self.who!r}" if self.who else "the other server"

    def send(self, call: RemoteCall) -> RemoteAnswer:
        """Return the answer to a call, with any status; its body is not read yet.

        A request is never repeated, unless it only reads: a server may hang up a connection that was kept alive in the
        very moment in which it is used again. That shows at once: who hangs up late was waited for long enough.
        """
        http = self.connections.http(self.label)
        with self.connections.turn(self.label), _errors(self.label, call.what):
            request = self._request(http, call)
            began = time.monotonic()
            try:
                response = http.send(request, stream=True)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if call.method not in _READS or time.monotonic() - began > self.connections.limits.connect:
                    raise
                response = http.send(request, stream=True)
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            response.close()
            raise RemoteError(f"{self.label} answers {call.what} in a content coding that was not asked for")
        timeouts = response.request.extensions["timeout"]
        return RemoteAnswer(response, self.label, self.connections.limits.answer, timeouts)

    def ask(self, path: str, query: Sequence[tuple[str, str]] = ()) -> bytes:
        """Return the body of the answer to a GET, which is read into memory; raise the error for a refusal."""
        return self._asked(RemoteCall("GET", path, query=query))

    def ask_by_post(self, path: str, field: HeaderField, body: bytes) -> bytes:
        """Return the body of the answer to a POST of XML, as ``ask`` does."""
        fields = (field, ("Content-Type", b"application/xml"), ("Content-Length", b"%d" % len(body)))
        return self._asked(RemoteCall("POST", path, fields, body=[body]))

    def _asked(self, call: RemoteCall) -> bytes:
        answer = self.send(call)
        answer.require(call.what, HTTPStatus.OK)
        return answer.whole(LARGEST_ANSWER)

    def _request(self, http: httpx.Client, call: RemoteCall) -> httpx.Request:
        forwarded, limits = self.names.forwarded(client_request.current()), self.connections.limits
        fields = (*forwarded, *call.fields, ("Accept-Encoding", b"identity"))
        return http.build_request(
            call.method,
            self.connections.uri + call.path,
            params=list(call.query) or None,
            headers=[(name.encode("ascii"), value) for name, value in fields],
            content=call.body,
            timeout=httpx.Timeout(call.silence or limits.silence, connect=limits.connect),
        )


@cache
def _trusted() -> ssl.SSLContext:
    """Return the authorities that are trusted, for all clients of the process: to read them takes some 20 ms."""
    return httpx.create_ssl_context(trust_env=False)


@contextmanager
def _errors(label: str, what: str) -> Iterator[None]:
    """Translate the errors of httpx. Their texts may hold addresses, and those a password: they are left out."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise RemoteTimeoutError(f"{label} does not answer in time: {what}") from error
    except httpx.ConnectError as error:
        raise RemoteError(f"{label} cannot be reached: {what}") from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise RemoteError(f"{label} gives no proper answer: {what} ({type(error).__name__})") from error
