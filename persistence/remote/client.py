"""Calls to another service, over connections that are kept alive, with a deadline for each step (spec crud 2 and 13).

Only this module, ``answers`` and ``timed_transport`` know httpx. Each call passes on facts about the client whose
request is served.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from persistence import client_request
from persistence.closable import Closable, closed
from persistence.errors import BusyError, RemoteError
from persistence.limits import ANSWER_SECONDS, LARGEST_ANSWER
from persistence.remote.answers import RemoteAnswer, http_errors
from persistence.remote.headers import HeaderField, HeaderFields, ProviderNames
from persistence.remote.timed_transport import TimedTransport
from persistence.storage.uploads import Upload

_KEPT_FOR = 10.0
"""Seconds for which a connection is kept idle: less than servers do, so that none is hung up while it is used again."""

_MOST_KEPT = 32
_READS = ("GET", "HEAD")
_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class CallLimits:
    """``connect`` and ``silence`` are seconds: to connect, and without a byte in either direction, or without a head.

    ``calls`` is how many a process has at a time: a provider that hangs must not keep every thread waiting. ``answer``
    is seconds, too: for all of a response that is read into memory, however often a byte comes.
    """

    connect: float = 5.0
    silence: float = 60.0
    calls: int = 4
    answer: float = ANSWER_SECONDS


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
        with self._opening:
            self._is_closed = True
            http, self._http = self._http, None
            if http is not None and self._opened_by == os.getpid():
                http.close()

    def http(self, label: str) -> httpx.Client:
        """Return the client of this process: a connection is not to be shared with the one that has forked it."""
        with self._opening:
            if self._is_closed:
                raise closed(f"the client of {label}")
            if self._http is None or self._opened_by != os.getpid():
                self._opened_by = os.getpid()
                transport = TimedTransport(_trusted(), kept=_MOST_KEPT, kept_for=_KEPT_FOR)
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
        with self.connections.turn(self.label), http_errors(self.label, call.what):
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
        if self.names.theirs.has_proxy:
            response.headers.encoding = "latin-1"  # httpx would guess
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
    return httpx.create_ssl_context(trust_env=False)
