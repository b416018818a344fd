"""Calls of a service: with timeouts, and repeated a bounded number of times where that is safe (RFC 9110 9.2.2).

Requests that only read are repeated, and changes with a precondition, which the first, lost request makes fail.
Redirects are not followed, and no proxy of the environment or cookie is used: users share connections.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from io import SEEK_END, BytesIO, TextIOBase
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar, cast

import httpx

from persistence import __version__
from persistence.errors import (
    STATUS,
    BadRequestError,
    BusyError,
    DiskFullError,
    LockedError,
    MalformedXmlError,
    PersistenceError,
    PreconditionError,
    RangeError,
    RemoteError,
    RemoteFailureError,
    RemoteTimeoutError,
    one_line,
)
from persistence.forms.messages import read_lock
from persistence.limits import ANSWER_SECONDS, CHUNK, LARGEST_ANSWER

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
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self._pieces: Iterable[bytes] = ()
        self._start = 0
        self.length: int | None = None
        if isinstance(content, Path):
            self._path = content
            self.length = os.stat(content).st_size
        elif isinstance(content, bytes | bytearray | memoryview | str):
            self._keep_file(BytesIO(content.encode() if isinstance(content, str) else content))
        elif isinstance(content, TextIOBase):
            raise TypeError("a file to be sent must be opened in binary mode")
        elif hasattr(content, "read"):
            self._keep_file(cast("BinaryIO", content))
        else:
            self._pieces = content
        self.is_repeatable = self.length is not None

    def __iter__(self) -> Iterator[bytes]:
        if self._path is not None:
            with self._path.open("rb") as file:
                yield from _read(file)
        elif self._file is not None:
            if self.is_repeatable:
                self._file.seek(self._start)
            yield from _read(self._file)
        else:
            yield from self._pieces

    def _keep_file(self, file: BinaryIO) -> None:
        self._file = file
        if file.seekable():
            self._start = file.tell()
            self.length = file.seek(0, SEEK_END) - self._start


def _read(file: BinaryIO) -> Iterator[bytes]:
    yield from iter(partial(file.read, CHUNK), b"")


_LONGEST_LINE = 4096
"""Bytes of a refusal that are read: a line has at most 300 characters, a holder two names."""

_CONDITIONS: dict[int, type[PersistenceError]] = {
    **{status: kind for kind, status in reversed(STATUS)},
    500: RemoteFailureError,
    507: DiskFullError,
}
_LAST_SAVE = re.compile(r'current ETag "([^"]*)", saved at ([0-9T:.Z-]+)')
_NUMBER = re.compile("[0-9]{1,18}")
_LEFT = re.compile("Second-([0-9]{1,9})")


def whole_number(text: str) -> int | None:
    """Return the number in a header; ``None`` for a text that no service sends."""
    return int(text) if _NUMBER.fullmatch(text) else None


def refusal(response: httpx.Response, action: str, seconds: float) -> PersistenceError:
    """Return the exception for a refusal, which is read for at most so many ``seconds``, and closed.

    Its text is the line of the service, its note the id of the request in the service's log. ``action`` is the request.
    """
    body = _beginning(response, seconds)
    kind = response.headers.get("Content-Type", "")
    line = one_line(body.decode(errors="replace").partition("\n")[0]) if kind.startswith("text/plain") else ""
    error = _error(response, line or f"{action} was answered with {response.status_code}", body)
    request_id = response.headers.get("X-Request-Id")
    if request_id is not None:
        error.add_note(f"{action}: status {response.status_code}, request {one_line(request_id)}")
    return error


def _error(response: httpx.Response, text: str, body: bytes) -> PersistenceError:
    status = response.status_code
    kind = _CONDITIONS.get(status, RemoteError)
    if kind is PreconditionError:
        found = _LAST_SAVE.match(text)
        return PreconditionError(text, etag=found[1], saved=found[2]) if found else PreconditionError(text)
    if kind is LockedError:
        left = _LEFT.fullmatch(response.headers.get("Timeout", ""))
        seconds = int(left[1]) if left else None
        if response.headers.get("Content-Type", "").startswith("application/xml"):
            with suppress(PersistenceError):
                holder = read_lock([body])
                text = f"{holder.user} has leased the document" + (f" for {seconds} more seconds" if left else "")
                return LockedError(text, user=holder.user, group=holder.group, seconds=seconds)
        return LockedError(text, seconds=seconds)
    if kind is BusyError:
        wait = whole_number(response.headers.get("Retry-After", ""))
        return BusyError(text, 1 if wait is None else wait)
    if kind is RangeError:
        return RangeError(whole_number(response.headers.get("Content-Range", "").rpartition("/")[2]) or 0)
    if response.is_redirect:
        return RemoteError(f"{text}: redirects are not followed")
    return kind(text)


def _beginning(response: httpx.Response, seconds: float) -> bytes:
    body, end = b"", time.monotonic() + seconds
    try:
        for piece in response.iter_raw():
            body += piece
            if len(body) >= _LONGEST_LINE or time.monotonic() > end:
                break
    except httpx.HTTPError:  # the status says enough
        pass
    finally:
        response.close()
    return body[:_LONGEST_LINE]


@contextmanager
def transport_errors(action: str) -> Iterator[None]:
    """Translate the errors of httpx in a block. Their texts may hold addresses with a password: they are left out."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise RemoteTimeoutError(f"the service does not answer in time: {action}") from error
    except httpx.ConnectError as error:
        raise RemoteError(f"the service cannot be reached: {action}") from error
    except httpx.LocalProtocolError as error:
        raise BadRequestError(
            f"{action} cannot be sent: a header has a character that is not allowed, or the content was changed"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise RemoteError(f"the connection to the service broke: {action} ({type(error).__name__})") from error


_UNIX = "unix:"
_KEY = re.compile("[!-~]+")
_FIRST_WAIT = 0.1
_KEPT_FOR = 10.0
"""Seconds that a connection stays idle: fewer than on servers, so that none is closed while it is used again."""

_SUCCESSES = range(200, 300)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """How long a call may take, and how often it is repeated.

    ``connect`` and ``silence`` are seconds: to connect, and without a byte in either direction. A call is sent at most
    ``attempts`` times within ``patience`` seconds; the last attempt may take longer. ``largest`` is how many bytes of
    an answer are read into memory, and ``answer`` in how many seconds, plus at most ``silence``; contents that stream
    have no limit. ``tls`` says which authorities are trusted, if not the usual ones.
    """

    connect: float = 5.0
    silence: float = 60.0
    attempts: int = 4
    patience: float = 30.0
    largest: int = LARGEST_ANSWER
    answer: float = ANSWER_SECONDS
    tls: ssl.SSLContext | None = None


_USUAL = CallPolicy()


def authorization(key: str | None) -> tuple[tuple[str, str], ...]:
    """Return the header with an API key. Raises ``BadRequestError`` if it is not a valid key."""
    if key is None:
        return ()
    if not _KEY.fullmatch(key.strip()):
        raise BadRequestError("a key has letters, digits and signs of ASCII only, and no spaces")
    return (("Authorization", f"Bearer {key.strip()}"),)


@dataclass(frozen=True, slots=True)
class ServiceCall:
    """A request; ``path`` is percent-encoded and absolute. ``is_safe`` says that it may be sent again.

    Values of ``fields`` are sent in UTF-8, unless they are bytes.
    """

    method: str
    path: str
    fields: Sequence[tuple[str, str | bytes]] = ()
    query: Sequence[tuple[str, str]] = ()
    content: OutgoingContent | None = None
    is_safe: bool = False
    also: tuple[int, ...] = ()
    """Statuses that are not refusals, besides those from 200 to 299."""

    @property
    def label(self) -> str:
        """The call in the words of an error."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """An answer that was read to its end."""

    status: int
    headers: httpx.Headers
    body: bytes


def proper(read: Callable[[list[bytes]], T], answer: ServiceAnswer) -> T:
    """Return the values that an answer has; raise ``RemoteError`` for one that such a service does not give."""
    try:
        return read([answer.body])
    except MalformedXmlError as error:
        raise RemoteError(f"the service gives no proper answer: {error}") from error


class Download:
    """A content that is read while it is iterated, at most a piece in memory. Use it in a ``with`` block."""

    def __init__(self, response: httpx.Response, what: str) -> None:
        self._response = response
        self._what = what
        self.status = response.status_code
        self.headers: httpx.Headers = response.headers

    @property
    def length(self) -> int | None:
        """The length in bytes; ``None`` where the content is made while it is sent."""
        return whole_number(self.headers.get("Content-Length", ""))

    @property
    def content_type(self) -> str:
        """The media type."""
        return str(self.headers.get("Content-Type", "application/octet-stream"))

    def __iter__(self) -> Iterator[bytes]:
        with transport_errors(self._what):
            yield from self._response.iter_raw(CHUNK)

    def read(self) -> bytes:
        """Return the whole content."""
        return b"".join(self)

    def close(self) -> None:
        """Release the connection."""
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self.close()


class ServiceConnection:
    """The connections to one service, which threads may share.

    ``url`` is ``http://HOST:PORT``, ``https://…``, or ``unix:`` and the path of a socket. ``fields`` are headers of
    every call. A process that forks opens its own.

    Raises:
        BadRequestError: ``url`` is not such an address.
    """

    def __init__(self, url: str, fields: Sequence[tuple[str, str]] = (), policy: CallPolicy = _USUAL) -> None:
        self.policy = policy
        path = url.removeprefix(_UNIX) if url.startswith(_UNIX) else None
        self._query: tuple[tuple[str, str], ...] = ()
        self._base = "http://localhost" if path else _checked(url)
        limits = httpx.Limits(keepalive_expiry=_KEPT_FOR)
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=path, trust_env=False, limits=limits, verify=policy.tls or _trusted()),
            timeout=httpx.Timeout(self.policy.silence, connect=self.policy.connect),
            follow_redirects=False,
            trust_env=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # it takes none, and sends none
        )
        self._http.headers = httpx.Headers(
            [("User-Agent", f"persistence/{__version__}"), ("Accept-Encoding", "identity"), *fields]
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def with_query(self, *pairs: tuple[str, str]) -> ServiceConnection:
        """Return these connections with parameters that every call gets, and that no error names."""
        other = copy(self)
        other._query = pairs  # noqa: SLF001 - its own class
        return other

    def read(self, call: ServiceCall) -> ServiceAnswer:
        """Return the answer to a call, read into memory.

        Raises:
            PersistenceError: the exception for a refusal, or ``RemoteError`` for an answer that cannot be read.
        """
        return self._repeated(call, lambda response: self._whole(response, call.label))

    def open(self, call: ServiceCall) -> Download:
        """Return the answer to a call, whose content is still to be read; raises as ``read`` does."""
        return self._repeated(call, lambda response: Download(response, call.label))

    def _repeated(self, call: ServiceCall, take: Callable[[httpx.Response], T]) -> T:
        began, was_lost = time.monotonic(), False
        for attempt in count(1):
            try:
                return self._sent(call, take)
            except PersistenceError as error:
                if was_lost and not isinstance(error, BusyError | RemoteError | RemoteTimeoutError):
                    error.add_note(
                        f"{call.method} was repeated after a lost answer: the first may have been carried out"
                    )
                    raise
                wait = error.retry_after if isinstance(error, BusyError) else _FIRST_WAIT * 2 ** (attempt - 1)
                is_last = attempt >= self.policy.attempts or time.monotonic() - began + wait > self.policy.patience
                if is_last or not _may_repeat(call, error):
                    raise
                was_lost = was_lost or (call.method not in ("GET", "HEAD") and _is_lost(error))
            time.sleep(wait)
        raise AssertionError  # the loop ends by return or raise

    def _sent(self, call: ServiceCall, take: Callable[[httpx.Response], T]) -> T:
        with transport_errors(call.label):
            response = self._http.send(self._request(call), stream=True)
            if response.status_code not in _SUCCESSES and response.status_code not in call.also:
                raise refusal(response, call.label, self.policy.answer)
            try:
                if response.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
                    text = f"the service answers {call.label} in a content coding that was not asked for"
                    raise RemoteError(text)  # noqa: TRY301 - the answer is closed
                return take(response)
            except BaseException:
                response.close()
                raise

    def _request(self, call: ServiceCall) -> httpx.Request:
        fields = [(name.encode("ascii"), v if isinstance(v, bytes) else v.encode()) for name, v in call.fields]
        if call.content is not None and call.content.length is not None:
            fields.append((b"Content-Length", b"%d" % call.content.length))
        elif call.content is None and call.method in ("PUT", "POST"):
            fields.append((b"Content-Length", b"0"))
        pieces = None if call.content is None else iter(call.content)
        return self._http.build_request(
            call.method,
            self._base + call.path,
            params=[*call.query, *self._query] or None,
            headers=fields,
            content=pieces,
        )

    def _whole(self, response: httpx.Response, what: str) -> ServiceAnswer:
        body, end = bytearray(), time.monotonic() + self.policy.answer
        for piece in response.iter_raw():
            body += piece
            if time.monotonic() > end:
                raise RemoteTimeoutError(f"the service does not come to the end of its answer: {what}")
            if len(body) > self.policy.largest:
                raise BadRequestError(f"the answer to {what} has more than {self.policy.largest} bytes: stream it")
        response.close()
        return ServiceAnswer(response.status_code, response.headers, bytes(body))


def _may_repeat(call: ServiceCall, error: PersistenceError) -> bool:
    if call.content is not None and not call.content.is_repeatable:
        return False
    if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):  # nothing of it was sent
        return True
    return call.is_safe and (isinstance(error, BusyError) or _is_lost(error))


def _is_lost(error: PersistenceError) -> bool:
    """Return whether there was no answer, so that nobody knows what was done."""
    is_unanswered = isinstance(error, RemoteError | RemoteTimeoutError) and error.__cause__ is not None
    return is_unanswered and not isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL()
    is_plain = not (parsed.userinfo or parsed.query or parsed.fragment)
    if parsed.scheme not in ("http", "https") or not parsed.host or not is_plain:
        shown = "a text with @, and perhaps a password," if "@" in url else repr(url)
        raise BadRequestError(
            f"{shown} is not a valid address of a service, such as http://127.0.0.1:8080 or unix:/run/forms.sock"
        )
    return url.rstrip("/")
