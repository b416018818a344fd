"""The transport of connections on which the head of a response has one deadline, however often a byte comes.

httpx limits each silence; a service that sends a header line or an interim response (1xx) now and then is never silent.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpcore
import httpx

_in_head: ContextVar[bool] = ContextVar("in_head", default=False)
"""True while this thread waits for the head of a provider's response."""


_KEPT_FOR = 10.0
"""Seconds that a connection stays idle: fewer than on servers, so that none is closed while it is used again."""


class TimedTransport(httpx.BaseTransport):
    """Sends requests of HTTP/1.1, over a ``socket`` of Unix if there is one.

    The timeout ``read`` is for each silence. To a provider, it is for the whole head after the request was sent, too,
    and a connection that was never made is tried once again: nothing of the request was sent.
    """

    def __init__(self, trusted: ssl.SSLContext, socket: str | None, *, is_provider: bool) -> None:
        self._is_provider = is_provider
        self._pool = httpcore.ConnectionPool(
            ssl_context=trusted,
            max_connections=None,
            max_keepalive_connections=32,
            keepalive_expiry=_KEPT_FOR,
            retries=int(is_provider),
            uds=socket,
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
        before = _in_head.set(self._is_provider)
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

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.NetworkStream:
        return _Connection(self._own.connect_unix_socket(path, timeout, socket_options))


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
