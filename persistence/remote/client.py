"""Calls to another service, over connections that are kept, with a deadline for each step. The only user of httpx."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import httpx

from persistence.closable import Closable, closed
from persistence.errors import BusyError, PersistenceError, RemoteError, RemoteTimeoutError, one_line
from persistence.remote.names import Fields
from persistence.remote.refusals import refusal

_KEPT_FOR = 10.0
"""Seconds for which a connection is kept idle: less than servers do, so that none is hung up while it is used again."""

_MOST_KEPT = 32
_LARGEST_LINE = 1024
_CHUNK = 1 << 16
_ASKING = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Limits:
    """``connect`` and ``silence`` are seconds: to connect, and without a byte in either direction.

    ``calls`` is how many a process has at a time: a provider that hangs must not keep every thread waiting.
    """

    connect: float = 5.0
    silence: float = 60.0
    calls: int = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A request to be sent: ``path`` is percent-encoded, and begins where the base of the provider ends.

    A ``body`` has the length that a field says. ``silence`` is in seconds, where other than the usual.
    """

    method: str
    path: str
    fields: Fields = ()
    query: Sequence[tuple[str, str]] = ()
    body: Iterable[bytes] | None = None
    silence: float | None = None

    @property
    def what(self) -> str:
        """The call in the words of an error."""
        return f"{self.method} {self.path}"


class Answer:
    """A response whose body is still to be read. It is closed when that is done, or by ``close``."""

    def __init__(self, response: httpx.Response, who: str) -> None:
        self._response = response
        self._who = who
        self._pieces = response.iter_raw(_CHUNK)
        self._first = b""
        self.status = response.status_code

    def field(self, name: str) -> str | None:
        """A field of its header, several of one name joined."""
        found: str | None = self._response.headers.get(name)
        return found

    def fields(self, name: str) -> list[str]:
        """Every field of a name."""
        return list(self._response.headers.get_list(name))

    @property
    def length(self) -> int | None:
        """Bytes of its body, or of what a HEAD asks for; ``None`` where it does not say."""
        text = self.field("Content-Length") or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 - digits of 2**63

    def __iter__(self) -> Iterator[bytes]:
        """The body in pieces.

        Raises:
            RemoteError: it cannot be read to its end.
        """
        with _errors(self._who, "the end of an answer"):
            if self._first:
                yield self._first
            # Who stops listening to this must not close what it listens to.
            while (piece := next(self._pieces, None)) is not None:
                yield piece

    def skip(self, size: int) -> None:
        """Read so many bytes that nobody wants.

        Raises:
            RemoteError: there are not as many.
        """
        for piece in self:
            size -= len(piece)
            if size <= 0:
                self._first = piece[len(piece) + size :]
                return
        raise RemoteError(f"an answer of provider {self._who!r} ends early")

    def whole(self, limit: int) -> bytes:
        """The body, which is read to its end.

        Raises:
            RemoteError: it has more than ``limit`` bytes, or cannot be read to its end.
        """
        data = bytearray()
        try:
            for piece in self:
                data += piece
                if len(data) > limit:
                    raise RemoteError(f"provider {self._who!r} answers with more than {limit} bytes")
        finally:
            self.close()
        return bytes(data)

    def refused(self, what: str) -> PersistenceError:
        """The error that it is, with the line that it says; it is closed."""
        line = b""
        try:
            if (self.field("Content-Type") or "").startswith("text/plain"):
                line = next(iter(self), b"")[:_LARGEST_LINE]
        except RemoteError:
            pass
        finally:
            self.close()
        said = one_line(line.decode(errors="replace").partition("\n")[0])
        return refusal(self._who, what, self.status, said, self.field("Retry-After"))

    def close(self) -> None:
        """Let go of its connection, which can be used again if little was left to be read."""
        if (self.length or 0) <= _LARGEST_LINE:
            with suppress(httpx.HTTPError, httpx.StreamError):
                deque(self._pieces, maxlen=0)
        self._response.close()


class Client(Closable):
    """Calls one provider; ``uri`` is its base, without a slash at its end. It owns its connections."""

    def __init__(self, who: str, uri: str, limits: Limits) -> None:
        self._who = who
        self._uri = uri
        self._limits = limits
        self._turns = threading.BoundedSemaphore(limits.calls)
        self._making = threading.Lock()
        self._http: httpx.Client | None = None
        self._made_by = 0
        self._is_closed = False

    def close(self) -> None:
        """Close the connections."""
        with self._making:
            self._is_closed = True
            http, self._http = self._http, None
            if http is not None and self._made_by == os.getpid():
                http.close()

    def send(self, call: Call) -> Answer:
        """The response to a call, its body not read yet.

        What was sent is never sent again, but for what only asks: a server may hang up a connection that was kept in
        the very moment in which it is used again. That shows at once: who hangs up late was waited for long enough.

        Raises:
            RemoteTimeoutError: it takes too long.
            RemoteError: the provider cannot be reached, or its answer is none.
            BusyError: too many calls wait for it already, or the client was closed.
        """
        http = self._client()
        with self._turn(), _errors(self._who, call.what):
            request = self._request(http, call)
            began = time.monotonic()
            try:
                response = http.send(request, stream=True)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if call.method not in _ASKING or time.monotonic() - began > self._limits.connect:
                    raise
                response = http.send(request, stream=True)
            return self._checked(response, call.what)

    def _request(self, http: httpx.Client, call: Call) -> httpx.Request:
        fields = [(name.encode("ascii"), value) for name, value in (*call.fields, ("Accept-Encoding", b"identity"))]
        return http.build_request(
            call.method,
            self._uri + call.path,
            params=list(call.query) or None,
            headers=fields,
            content=call.body,
            timeout=httpx.Timeout(call.silence or self._limits.silence, connect=self._limits.connect),
        )

    def _checked(self, response: httpx.Response, what: str) -> Answer:
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            response.close()
            raise RemoteError(f"provider {self._who!r} answers {what} in a content coding that was not asked for")
        return Answer(response, self._who)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=self._limits.connect):
            raise BusyError(f"provider {self._who!r} is slow, and other requests wait for it already")
        try:
            yield
        finally:
            self._turns.release()

    def _client(self) -> httpx.Client:
        """That of this process: a connection is not to be shared with the one that has forked it."""
        with self._making:
            if self._is_closed:
                raise closed(f"the client of provider {self._who!r}")
            if self._http is None or self._made_by != os.getpid():
                self._made_by = os.getpid()
                limits = httpx.Limits(
                    max_connections=None, max_keepalive_connections=_MOST_KEPT, keepalive_expiry=_KEPT_FOR
                )
                # Only a connection that was never made is tried again: nothing of the request was sent.
                transport = httpx.HTTPTransport(retries=1, limits=limits, trust_env=False)
                self._http = httpx.Client(transport=transport, trust_env=False, follow_redirects=False)
                self._http.headers.clear()
            return self._http


@contextmanager
def _errors(who: str, what: str) -> Iterator[None]:
    """Translate what the library raises. Its texts may hold addresses, and those a password: they are left out."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise RemoteTimeoutError(f"provider {who!r} does not answer in time: {what}") from error
    except httpx.ConnectError as error:
        raise RemoteError(f"provider {who!r} cannot be reached: {what}") from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise RemoteError(f"provider {who!r} gives no proper answer: {what} ({type(error).__name__})") from error
