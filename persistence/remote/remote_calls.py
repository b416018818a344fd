"""Calls to another service, which may speak another dialect: connections, headers, answers (spec crud 2, 3, 11)."""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from itertools import islice
from urllib.parse import quote

import httpcore
import httpx

from persistence import client_request
from persistence.client_request import ClientRequest
from persistence.closable import Closable, closed
from persistence.dialect import DIALECTS, Dialect
from persistence.errors import (
    STATUS,
    BadRequestError,
    BusyError,
    PersistenceError,
    RemoteError,
    RemoteFailureError,
    RemoteTimeoutError,
    one_line,
)
from persistence.limits import ANSWER_SECONDS, CHUNK, LARGEST_ANSWER
from persistence.model import permissions
from persistence.model.addresses import Address, DefinitionAddress, Form
from persistence.model.texts import WHOLE, in_latin_1
from persistence.storage.commit import Upload

HeaderField = tuple[str, bytes]
HeaderFields = Sequence[HeaderField]
"""Values are bytes, because their encoding does not matter."""

_NOT_FORWARDED = frozenset(
    {
        # Fields about one connection (RFC 9110 7.6.1).
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
        # Others that a proxy does not pass on (spec crud 3), and those about the body, which was received here.
        *("accept-encoding", "content-encoding", "content-length", "content-type", "expect", "host"),
        *("content-digest", "content-md5", "content-range", "repr-digest"),
        *("cookie", "cookie2"),
        # The address of a page, which may have an access token in it (spec crud 6.6).
        "referer",
        # Origins, conditions, ranges and lengths of leases: this service judges them itself.
        *("origin", "sec-fetch-site", "timeout", "if-match", "if-modified-since", "if-none-match", "if-range"),
        *("if-unmodified-since", "range"),
        # Another method or path than the one that was judged here, which some servers and frameworks obey.
        *("x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"),
    }
)

_OF_CLIENTS = frozenset({"create-flat-view", "credentials", "path-to-holder"})
"""Fields of the service's own, without prefix, that a client may send to a provider (spec crud 3, search 7).

The others are decisions of this service, which a provider believes, or belong to answers.
"""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")

_USER = frozenset(("username", "group", "roles"))

_NUMBER = "x-request-id"
"""The id of the request, which is this service's."""


@dataclass(frozen=True, slots=True)
class ProviderNames:
    """Names in calls of a provider: ``own`` is the dialect here, ``theirs`` the one there.

    ``mirrored`` are properties of the provider as fields, without prefix (spec crud 10.3).
    """

    own: Dialect
    theirs: Dialect
    mirrored: tuple[tuple[str, str], ...] = ()

    def app(self, app: str) -> str:
        """Translate the name of an application, in either direction: the two designers change places."""
        pair = {self.own.designer_app: self.theirs.designer_app, self.theirs.designer_app: self.own.designer_app}
        return pair.get(app, app)

    def of_form(self, api: str, form: Form, *rest: str) -> str:
        """Return a percent-encoded path about a form, below the base of the provider."""
        return path(api, self.app(form.app), form.name, *rest)

    def path(self, address: Address) -> str:
        """Return the percent-encoded path of a resource, below the base of the provider."""
        if isinstance(address, DefinitionAddress):
            return self.of_form("crud", address.form, "form", address.name)
        return self.of_form("crud", address.form, address.collection.value, address.document, address.name)

    def field(self, name: str, value: str) -> HeaderField:
        """Return a field of the service's own."""
        return self.theirs.header(name), self._bytes(value)

    def texts(self, **texts: str | None) -> HeaderFields:
        """Return fields of the service's own, and again, whole, those with characters that the other side may lose."""
        given = [(name.replace("_", "-"), text) for name, text in texts.items() if text is not None]
        beyond = [(name, text) for name, text in given if self.theirs.has_proxy and in_latin_1(text) != text]
        whole = [self.field(name + WHOLE, quote(text, safe="")) for name, text in beyond]
        return [*(self.field(name, text) for name, text in given), *whole]

    def version(self, version: int | str) -> HeaderField:
        return self.field("Form-Definition-Version", str(version))

    def forwarded(self, request: ClientRequest) -> HeaderFields:
        """Return the headers of every call for a client's request: the caller, other fields, the provider's properties.

        Fields of the service's own get the prefix of the provider; those of another dialect, which nobody has checked,
        are left out, and those that ``Connection`` names (RFC 9110 7.6.1), but not those that were judged here: a
        client must not be another user there than here.
        """
        user = self._user(request)
        may_say = (_OF_CLIENTS | (frozenset() if user else _USER)) - {name.lower() for name, _ in self.mirrored}
        named = {word.strip().lower() for word in (request.field_of("Connection") or "").split(",")} - {_NUMBER}
        prefix = self.own.header_prefix.lower()
        foreign = tuple(each.header_prefix.lower() for each in DIALECTS.values() if each.name != self.own.name)
        fields: list[HeaderField] = []
        for name, value in request.fields:
            lower = name.lower()
            own = lower.removeprefix(prefix)
            if own != lower:
                if own in may_say:
                    fields.append((self.theirs.header(own.title()), self._passed_on(own, value)))
            elif lower not in _NOT_FORWARDED and lower not in named and not lower.startswith(foreign):
                fields.append((name, value.encode("latin-1")))
        return [*fields, *user, *(self.field(name, value) for name, value in self.mirrored)]

    def _bytes(self, value: str) -> bytes:
        """Return a value as the other side reads it: Latin-1 behind the proxy of a runtime (spec runtime 3)."""
        return in_latin_1(value).encode("latin-1") if self.theirs.has_proxy else value.encode()

    def _passed_on(self, name: str, sent: str) -> bytes:
        if sent.isascii() or not self.theirs.has_proxy:
            return sent.encode("latin-1")
        text = _decoded(sent)
        if name == "credentials":  # its texts may be percent-encoded, which keeps all characters
            return _NOT_ASCII.sub(lambda found: quote(found[0]), text).encode()
        return self._bytes(text)

    def _user(self, request: ClientRequest) -> HeaderFields:
        """Return the caller in fields of their own, where the request has credentials (spec forms 5.6).

        A caller whose characters plain fields may lose gets credentials, which keep them.
        """
        sent = (request.field_of(self.own.header("Credentials")) or "").strip()
        plain = [request.field_of(self.own.header(name)) or "" for name in ("Username", "Group", "Roles")]
        if not sent and (not self.theirs.has_proxy or "".join(plain).isascii()):
            return ()
        try:
            user = (
                permissions.parse_credentials(_decoded(sent))
                if sent
                else permissions.from_headers(*map(_decoded, plain))
            )
        except BadRequestError:  # refused where the caller must be known
            return ()
        roles = (("Roles", role.name) for role in user.roles if role.organization is None)
        pairs = (("Username", user.name), ("Group", user.group), *roles)
        fields = [self.field(name, value) for name, value in pairs if value and value.isprintable()]
        return fields if sent else [*fields, self.field("Credentials", permissions.credentials_of(user))]


@dataclass(frozen=True, slots=True)
class NothingForwarded(ProviderNames):
    """The names of a server that a client has named: it gets only the id of the request.

    Other headers may hold a key or a cookie that is meant for this service.
    """

    def forwarded(self, request: ClientRequest) -> HeaderFields:
        return [(name, value.encode("latin-1")) for name, value in request.fields if name.lower() == _NUMBER]


def _decoded(sent: str) -> str:
    with suppress(UnicodeError):
        return sent.encode("latin-1").decode()
    return sent


def path(*segments: str) -> str:
    """Return a path of percent-encoded names."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


DONE = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)
"""The statuses of changes that were done."""

_LARGEST_LINE = 1024
_MOST_LEFT, _LEFT_WITHIN = 2, 1.0
"""Pieces, the last one and the end, and seconds for action is left of a response that is closed."""

_PASSED_ON = {status: kind for kind, status in STATUS if status in {400, 403, 404, 409, 410, 412, 413, 423, 501, 507}}
"""Refusals that concern the client, as the errors of this service (spec crud 13)."""

_BUSY = (429, 503)
_LONGEST_WAIT = 60


class _TimedStream(httpx.SyncByteStream):
    """The bytes of a response as they arrive, and none after a deadline where there is one.

    ``timeouts`` are those of the request: httpcore looks at them when the first byte of the body is read.
    """

    def __init__(self, stream: httpx.SyncByteStream, timeouts: dict[str, float | None]) -> None:
        self._stream = stream
        self._timeouts = timeouts
        self._end: float | None = None

    def end_within(self, seconds: float) -> None:
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


class RemoteAnswer:
    """A response whose body is still to be read; it is closed when that is done, or by ``close``.

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
        """Return a header field, repeated ones joined."""
        found: str | None = self._response.headers.get(name)
        return found

    def fields(self, name: str) -> list[str]:
        return list(self._response.headers.get_list(name))

    @property
    def length(self) -> int | None:
        """The length of the body; for a HEAD, that of the body of a GET."""
        text = self.field("Content-Length") or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 - digits of 2**63

    def __iter__(self) -> Iterator[bytes]:
        with http_errors(self._label, "the end of an answer"):
            if self._first:
                yield self._first
            # Not ``yield from``: a caller that stops iterating must not close the generator of the response.
            while (piece := next(self._pieces, None)) is not None:
                yield piece

    def skip(self, size: int) -> None:
        """Read and drop ``size`` bytes."""
        for piece in self:
            size -= len(piece)
            if size <= 0:
                self._first = piece[len(piece) + size :]
                return
        raise RemoteError(f"an answer of {self._label} ends early")

    def beginning(self) -> bytes:
        """Return the first piece of the body, at most CHUNK bytes."""
        self._stream.end_within(self._seconds)
        return next(iter(self), b"")

    def whole(self, limit: int) -> bytes:
        """Return the whole body."""
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

    def require(self, action: str, *statuses: int) -> None:
        """Raise the error for a refusal, unless the status is one of these."""
        if self.status not in statuses:
            raise self.refused(action)

    def refused(self, action: str) -> PersistenceError:
        """Return the error for a refusal, with its line of text, and close it.

        It is ``RemoteError`` where the refusal does not concern the client.
        """
        line = self.line()
        message = f"{self._label} says: {line}" if line else f"{self._label} answers {action} with {self.status}"
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
        """Return the line of text of a refusal, and close it."""
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
        """Release the connection, to be used again if little is left; a body may have no end."""
        if (self.length or 0) <= _LARGEST_LINE:
            self._stream.end_within(_LEFT_WITHIN)
            with suppress(httpx.HTTPError, httpx.StreamError):
                deque(islice(self._pieces, _MOST_LEFT), maxlen=0)
        self._response.close()


@contextmanager
def http_errors(label: str, action: str) -> Iterator[None]:
    """Translate the errors of httpx. Their texts may hold addresses, and those a password: they are left out."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise RemoteTimeoutError(f"{label} does not answer in time: {action}") from error
    except httpx.ConnectError as error:
        raise RemoteError(f"{label} cannot be reached: {action}") from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise RemoteError(f"{label} gives no proper answer: {action} ({type(error).__name__})") from error


_in_head: ContextVar[bool] = ContextVar("in_head", default=False)
"""True while this thread waits for the head of a response."""


# Connections to another service on which the head of a response has one deadline, however often a byte comes.
#
# httpx limits each silence; a service that sends a header line or an interim response (1xx) now and then is never
# silent.


class TimedTransport(httpx.BaseTransport):
    """Sends requests of HTTP/1.1. ``kept`` idle connections stay open for ``kept_for`` seconds.

    The timeout ``read`` is for the whole head after the request was sent, and afterwards for each silence. Only a
    connection that was never made is tried again: nothing of the request was sent.
    """

    def __init__(self, trusted: ssl.SSLContext, *, kept: int, kept_for: float) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=trusted,
            max_connections=None,
            max_keepalive_connections=kept,
            keepalive_expiry=kept_for,
            retries=1,
            network_backend=_Network(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        sent = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        before = _in_head.set(True)
        try:
            with _errors_of_httpx():
                got = self._pool.handle_request(sent)
        finally:
            _in_head.reset(before)
        return httpx.Response(got.status, headers=got.headers, stream=_Body(got), extensions=got.extensions)

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _errors_of_httpx():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
    except httpcore.UnsupportedProtocol as error:
        raise httpx.UnsupportedProtocol(str(error)) from error


class _Network(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._own = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return _Connection(self._own.connect_tcp(host, port, timeout, local_address, socket_options))


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


_KEPT_FOR = 10.0
"""Seconds that a connection stays idle: fewer than on servers, so that none is closed while it is used again."""

_MOST_KEPT = 32
_READS = ("GET", "HEAD")
_PIECE = 1 << 18


# Calls to another service, over connections that are kept alive, with a deadline for each step (spec crud 2 and 13).
#
# Only this module knows httpx.


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
