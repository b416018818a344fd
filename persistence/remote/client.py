"""Calls to another service, over connections that are kept alive, with a deadline for each step (spec crud 2 and 13).

Only this module, ``answers`` and ``timed_transport`` know httpx.
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
"""Seconds that a connection stays idle: fewer than on servers, so that none is closed while it is used again."""

_MOST_KEPT = 32
_READS = ("GET", "HEAD")
_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits in seconds: to ``connect``, of ``silence`` or until a head, and for an ``answer`` read into memory.

    ``calls`` is how many a process has at a time: a provider that hangs must not keep every thread waiting.
    """

    connect: float = 5.0
    silence: float = 60.0
    calls: int = 4
    answer: float = ANSWER_SECONDS


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A request: ``path`` is percent-encoded, and follows the base of the provider.

    A ``body`` has the length that a field says. ``silence`` is in seconds, where other than the usual.
    """

    method: str
    path: str
    fields: HeaderFields = ()
    query: Sequence[tuple[str, str]] = ()
    body: Iterable[bytes] | None = None
    silence: float | None = None

    @property
    def label(self) -> str:
        """The call in the words of an error."""
        return f"{self.method} {self.path}"


@contextmanager
def body_of(upload: Upload) -> Iterator[tuple[Iterator[bytes], HeaderField]]:
    """Open a received content for a call: yield its pieces, and the field with its length."""
    with upload.opened() as file:
        yield iter(partial(file.read, _PIECE), b""), ("Content-Length", b"%d" % upload.size)


class Connections(Closable):
    """The connections to one address. ``uri`` has no slash at its end."""

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
        """Return the client of this process: a connection must not be shared with the process that forked it."""
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
        """Take one of the turns to call. Raises ``BusyError`` where there are too many."""
        if not self._turns.acquire(timeout=self.limits.connect):
            raise BusyError(f"{label} is slow, and other requests wait for it already")
        try:
            yield
        finally:
            self._turns.release()


@dataclass(frozen=True, slots=True)
class Client:
    """Calls the provider ``who``, empty for a server that is no provider, for the client whose request is served.

    Methods raise ``RemoteTimeoutError``, ``RemoteError``, and ``BusyError`` where too many calls wait already.
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

        Only a request that reads is repeated: a server may close a kept connection in the moment in which it is used
        again. That shows at once; one that closes late was waited for long enough.
        """
        http = self.connections.http(self.label)
        forwarded, limits = self.names.forwarded(client_request.current()), self.connections.limits
        fields = (*forwarded, *call.fields, ("Accept-Encoding", b"identity"))
        with self.connections.turn(self.label), http_errors(self.label, call.label):
            request = http.build_request(
                call.method,
                self.connections.uri + call.path,
                params=list(call.query) or None,
                headers=[(name.encode("ascii"), value) for name, value in fields],
                content=call.body,
                timeout=httpx.Timeout(call.silence or limits.silence, connect=limits.connect),
            )
            began = time.monotonic()
            try:
                response = http.send(request, stream=True)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if call.method not in _READS or time.monotonic() - began > limits.connect:
                    raise
                response = http.send(request, stream=True)
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            response.close()
            raise RemoteError(f"{self.label} answers {call.label} in a content coding that was not asked for")
        if self.names.theirs.has_proxy:
            response.headers.encoding = "latin-1"  # httpx would guess
        return RemoteAnswer(response, self.label, limits.answer, response.request.extensions["timeout"])

    def ask(self, path: str, query: Sequence[tuple[str, str]] = ()) -> bytes:
        """Return the body of the answer to a GET; raise the error for a refusal."""
        return self._asked(RemoteCall("GET", path, query=query))

    def ask_by_post(self, path: str, field: HeaderField, body: bytes) -> bytes:
        """Return the body of the answer to a POST of XML, as ``ask`` does."""
        fields = (field, ("Content-Type", b"application/xml"), ("Content-Length", b"%d" % len(body)))
        return self._asked(RemoteCall("POST", path, fields, body=[body]))

    def _asked(self, call: RemoteCall) -> bytes:
        answer = self.send(call)
        answer.require(call.label, HTTPStatus.OK)
        return answer.whole(LARGEST_ANSWER)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
