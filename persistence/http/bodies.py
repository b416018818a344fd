"""The bodies of requests: every byte arrives that was announced, and not one more than allowed.

Frameworks accept a body that ends early, and cut a chunked one at the limit; stored, either would be half a file under
a success status.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from persistence.errors import (
    BodyTooLargeError,
    EncodedBodyError,
    LengthRequiredError,
    NotSupportedError,
    StalledBodyError,
    TruncatedBodyError,
)
from persistence.http.logs import RECEIVED
from persistence.limits.requests import CHUNK, MOST_DRAINED

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


def body_of(environ: WSGIEnvironment, limit: int) -> Iterator[bytes]:
    """Return the body of a request in pieces; ``limit`` is in bytes.

    What can be refused by the headers alone is refused before this returns.

    Raises:
        EncodedBodyError: the body has a content coding.
        NotSupportedError: it has a transfer coding other than chunked.
        LengthRequiredError: no body is announced.
        BodyTooLargeError: it is, or turns out to be, over the limit.
        TruncatedBodyError: the client stopped early (raised while iterating).
    """
    coding = environ.get("HTTP_CONTENT_ENCODING", "").strip().lower()
    if coding not in ("", "identity"):
        raise EncodedBodyError(f"content coding {coding!r} is not accepted: send the body as it is")
    transfer = environ.get("HTTP_TRANSFER_ENCODING", "").strip().lower()
    stream: BinaryIO = environ["wsgi.input"]
    if transfer == "chunked":
        if not environ.get("wsgi.input_terminated"):
            raise LengthRequiredError("this server cannot tell the end of a chunked body: send Content-Length")
        return _counted(environ, _chunked(stream, limit))
    if transfer:
        raise NotSupportedError(f"transfer coding {transfer!r} is not understood")
    announced = environ.get("CONTENT_LENGTH")
    if not announced:
        raise LengthRequiredError("the request announces no body: send Content-Length, 0 for an empty one, or chunks")
    length = int(announced)
    if length > limit:
        raise _too_large(limit)
    return _counted(environ, _measured(stream, length))


def _counted(environ: WSGIEnvironment, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        environ[RECEIVED] = environ.get(RECEIVED, 0) + len(piece)
        yield piece


def _measured(stream: BinaryIO, length: int) -> Iterator[bytes]:
    missing = length
    while missing:
        chunk = _read(stream, min(CHUNK, missing))
        if not chunk:
            raise TruncatedBodyError(f"the body ended {missing} bytes before its announced length of {length}")
        missing -= len(chunk)
        yield chunk


def _chunked(stream: BinaryIO, limit: int) -> Iterator[bytes]:
    left = limit
    while chunk := _read(stream, min(CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise _too_large(limit)
        yield chunk


def _read(stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.read(size)
    except (BlockingIOError, TimeoutError) as error:
        raise StalledBodyError("nothing more of the body has arrived for progress_timeout seconds") from error
    except Exception as error:
        # The server's own parser raises here for a malformed or unfinished chunk, and sockets for a lost client.
        raise TruncatedBodyError(f"the body could not be read to its end: {error}") from error


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than the limit of {limit} bytes")


def drain(environ: WSGIEnvironment) -> None:
    """Read the rest of a body that is not used, so that the client reads the answer instead of a reset.

    The server would read 64 KiB, then hang up: a proxy in front that is still sending, or has sent its next request on
    the same connection, would answer 502.
    """
    if not (environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING")):
        return
    left = MOST_DRAINED
    with suppress(Exception):  # the answer is decided; the client cannot change it any more
        while left > 0 and (chunk := environ["wsgi.input"].read(CHUNK)):
            left -= len(chunk)
