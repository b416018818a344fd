"""The bodies of requests: every byte arrives that was announced, and not one more than allowed.

Frameworks accept a body that ends early, and cut a chunked one at the limit; stored, either would be half a file under
a success status.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from persistence.errors import (
    BadRequestError,
    BodyTooLargeError,
    EncodedBodyError,
    LengthRequiredError,
    NotSupportedError,
    StalledBodyError,
    TruncatedBodyError,
)
from persistence.http.logs import RECEIVED
from persistence.limits import CHUNK, MOST_DRAINED

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

# Bodies have no content coding, so the content and its representation are the same bytes.
_DIGEST_HEADERS = {"HTTP_CONTENT_DIGEST": "Content-Digest", "HTTP_REPR_DIGEST": "Repr-Digest"}
_DIGEST = re.compile(r"[ \t]*([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):[ \t]*(?:;.*)?", re.ASCII)
"""A member of a dictionary of byte sequences (RFC 8941 3.2), with parameters that mean nothing."""
_ALGORITHMS = {"sha-256": "sha256", "sha-512": "sha512", "sha": "sha1", "md5": "md5"}
"""The names of RFC 9530, and Python's. The old ones still show what a network has changed."""


def body_of(environ: WSGIEnvironment, limit: int) -> Iterator[bytes]:
    """Return the body of a request in pieces; ``limit`` is in bytes.

    What can be refused by the headers alone is refused before this returns. The body of a PUT is compared with its
    digests (RFC 9530), and may not be a part of a content (RFC 9110 14.5).
    """
    coding = environ.get("HTTP_CONTENT_ENCODING", "").strip().lower()
    if coding not in ("", "identity"):
        raise EncodedBodyError(f"content coding {coding!r} is not accepted: send the body as it is")
    transfer, announced = environ.get("HTTP_TRANSFER_ENCODING", "").strip().lower(), environ.get("CONTENT_LENGTH")
    if transfer == "chunked":
        if not environ.get("wsgi.input_terminated"):
            raise LengthRequiredError("this server cannot tell the end of a chunked body: send Content-Length")
        pieces = _chunked(environ, limit)
    elif transfer:
        raise NotSupportedError(f"transfer coding {transfer!r} is not understood")
    elif not announced:
        raise LengthRequiredError("the request announces no body: send Content-Length, 0 for an empty one, or chunks")
    elif int(announced) > limit:
        raise _too_large(limit)
    else:
        pieces = _measured(environ, int(announced))
    if environ["REQUEST_METHOD"] != "PUT":
        return pieces
    if "HTTP_CONTENT_RANGE" in environ:
        raise BadRequestError("Content-Range: a part of a content cannot be stored, send all of it")
    digests = [*_digests(environ)]
    return _compared(pieces, digests) if digests else pieces


def _digests(environ: WSGIEnvironment) -> Iterator[tuple[str, str, bytes]]:
    for key, header in _DIGEST_HEADERS.items():
        for member in environ.get(key, "").split(",") if key in environ else ():
            found = _DIGEST.fullmatch(member)
            if found is None:
                raise BadRequestError(f"{header} is not a valid list of digests such as sha-256=:BASE64:")
            if found[1] in _ALGORITHMS:
                yield header, found[1], _decoded(header, found[2])
    if "HTTP_CONTENT_MD5" in environ:
        yield "Content-MD5", "md5", _decoded("Content-MD5", environ["HTTP_CONTENT_MD5"].strip())


def _decoded(header: str, value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except ValueError as error:
        raise BadRequestError(f"{header} has a digest that is not valid base64") from error


def _compared(pieces: Iterator[bytes], digests: Sequence[tuple[str, str, bytes]]) -> Iterator[bytes]:
    hashes = {name: hashlib.new(_ALGORITHMS[name], usedforsecurity=False) for _, name, _ in digests}
    for piece in pieces:
        for hashing in hashes.values():
            hashing.update(piece)
        yield piece
    for header, name, digest in digests:
        if hashes[name].digest() != digest:
            raise BadRequestError(f"the body is not the one that {header} is of ({name}): send it again")


def _measured(environ: WSGIEnvironment, length: int) -> Iterator[bytes]:
    missing = length
    while missing:
        chunk = _read(environ["wsgi.input"], min(CHUNK, missing))
        if not chunk:
            raise TruncatedBodyError(f"the body ended {missing} bytes before its announced length of {length}")
        missing -= len(chunk)
        environ[RECEIVED] = length - missing
        yield chunk


def _chunked(environ: WSGIEnvironment, limit: int) -> Iterator[bytes]:
    left = limit
    while chunk := _read(environ["wsgi.input"], min(CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise _too_large(limit)
        environ[RECEIVED] = limit - left
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
    is_expected = "gunicorn.socket" in environ and environ.get("HTTP_EXPECT", "").lower() == "100-continue"
    if RECEIVED not in environ and is_expected:
        return  # the client waits to be asked, and the worker ends the connection
    left = MOST_DRAINED
    with suppress(Exception):  # the answer is decided; the client cannot change it any more
        while left > 0 and (chunk := environ["wsgi.input"].read(CHUNK)):
            left -= len(chunk)
