"""Contents on their way out: small ones at once, large ones by ``sendfile`` or, behind nginx, by nginx itself.

Only attachments have ranges (spec crud 4.7; RFC 9110 14 where one runs past the end, and for ``If-Range``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader, FileIO
from typing import BinaryIO, cast
from urllib.parse import quote

from flask import Request, Response
from werkzeug.http import parse_if_range_header, quote_etag, unquote_etag
from werkzeug.wsgi import wrap_file

from persistence.errors import (
    BadRequestError,
    DamagedError,
    DiskError,
    PersistenceError,
    RangeError,
    as_disk_error,
    disk_errors,
)
from persistence.http.logs import REQUEST_ID, Unbroken, broken_off
from persistence.http.responses import BareResponse, Headers
from persistence.model.instants import epoch_seconds
from persistence.services.rules import Read
from persistence.services.transforms import TransformedContent

_AT_ONCE = 1 << 16
_RANGES = re.compile(r"\s*bytes\s*=\s*([0-9]{1,100})\s*-\s*(?:([0-9]{1,100})\s*)?(?:,.*)?", re.ASCII | re.DOTALL)
# nginx would judge these itself, by tags and dates that it does not know.
_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_UNMODIFIED_SINCE")
_DATED_CONDITIONS = ("HTTP_IF_RANGE", "HTTP_IF_MODIFIED_SINCE")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes ``first`` to ``last``, both included, of a content of ``size`` bytes."""

    first: int
    last: int
    size: int

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"bytes {self.first}-{self.last}/{self.size}"


def parse_range(header: str, size: int) -> ByteRange:
    """Return the range to serve: the first one of several, its end clamped to the content."""
    match = _RANGES.fullmatch(header)
    if match is None:
        raise BadRequestError(f"only ranges such as bytes=0-99 or bytes=100- are served, not {header!r}")
    first = int(match[1])
    last = int(match[2]) if match[2] else None
    if last is not None and last < first:
        raise BadRequestError(f"the range ends before it starts: {header!r}")
    if first >= size:
        raise RangeError(size)
    return ByteRange(first, size - 1 if last is None else min(last, size - 1), size)


@dataclass(frozen=True, slots=True)
class Contents:
    """Sends the result of a read. ``accel`` is nginx's internal location for the root, or empty without one.

    ``link`` makes the file that was read available to nginx, and returns its path below the root; it raises
    ``DiskError``.
    """

    link: Callable[[Read], str]
    accel: str

    def send(self, request: Request, read: Read, headers: Headers) -> Response:
        """Return the whole content, or of an attachment the range asked for; the open file is taken over."""
        file = read.found.opened
        wanted = request.environ.get("HTTP_RANGE")
        # The proxy of a runtime that keeps the bytes elsewhere fails on 416 for an empty record (spec runtime 4).
        if wanted is not None and read.found.size and not read.address.is_main and _range_applies(request, read):
            return _send_range(request, file, wanted, read.found.size, headers)
        link = self._link(read) if self.accel and _is_for_nginx(request, read) else None
        if link is None:
            return _send(request, file, read.found.size, 200, headers)
        file.close()
        redirect = ("X-Accel-Redirect", quote(f"{self.accel}/{link}"))
        return BareResponse(b"", 200, [*headers, redirect, ("Content-Length", "0")])

    def _link(self, read: Read) -> str | None:
        """Return a path for nginx; ``None`` where the disk refuses a link: a full disk must still be readable."""
        try:
            return self.link(read)
        except DiskError:
            return None


def send_transformed(request: Request, content: TransformedContent, headers: Headers) -> Response:
    """Return the result of a transform: at once, so that an error is still an answer, or in pieces if it is large."""
    headers = [*headers, ("Content-Length", str(content.size))]
    if content.size <= _AT_ONCE:
        with disk_errors("reading form data"):
            return BareResponse(b"".join(content), 200, headers)
    return BareResponse(Unbroken(content, request.environ[REQUEST_ID]), 200, headers)


def _is_for_nginx(request: Request, read: Read) -> bool:
    """Return whether nginx can send this as the service would, which it cannot where something must be decrypted.

    Nor can it pass on a header that comes several times.
    """
    conditions = _CONDITIONS if read.has_exact_date else _CONDITIONS + _DATED_CONDITIONS
    return (
        not read.is_decrypted
        and read.found.size > _AT_ONCE
        and len(read.found.sidecar.organization) < 2  # noqa: PLR2004 - a header each
        and not any(name in request.environ for name in conditions)
    )


def _range_applies(request: Request, read: Read) -> bool:
    """Return whether ``If-Range`` holds: bytes of two contents must not be mixed (RFC 9110 13.1.5)."""
    header = request.environ.get("HTTP_IF_RANGE")
    if header is None:
        return True
    try:
        condition = parse_if_range_header(header if '"' in header or " " in header else quote_etag(header))
    except (ValueError, OverflowError):  # a date that no calendar has
        return False
    if condition.date is not None:
        return read.has_exact_date and int(condition.date.timestamp()) == epoch_seconds(read.found.sidecar.modified)
    return unquote_etag(condition.etag)[0] == read.etag if condition.etag else False


def _send_range(request: Request, file: BinaryIO, wanted: str, size: int, headers: Headers) -> Response:
    try:
        part = parse_range(wanted, size)
    except Exception:
        file.close()
        raise
    file.seek(part.first)
    headers.append(("Content-Range", str(part)))
    return _send(request, file, part.length, 206, headers)


def _send(request: Request, file: BinaryIO, size: int, status: int, headers: Headers) -> Response:
    headers.append(("Content-Length", str(size)))
    if size <= _AT_ONCE:
        with file:
            try:
                data = _whole(file, size)
            except OSError as error:
                raise as_disk_error(error, "reading a content") from error
        return BareResponse(data, status, headers)
    if isinstance(file, BufferedReader):
        _begin(file)
    measured = cast("BinaryIO", _Measured(file, size, request.environ[REQUEST_ID]))
    return BareResponse(wrap_file(request.environ, measured, _AT_ONCE), status, headers)


def _begin(file: BufferedReader) -> None:
    try:
        file.peek(1)
    except Exception:
        file.close()
        raise


def _whole(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    while len(data) < size:
        more = file.read(size - len(data))
        if not more:
            raise DamagedError(f"the content ends after {len(data)} of {size} bytes")
        data += more
    return data


class _Measured:
    """An open content of which a server sends as much as was announced, or else breaks the connection.

    Where a content ended early, the client would take the next answer on the connection for the rest of this one.
    """

    def __init__(self, file: BinaryIO, size: int, request_id: str) -> None:
        self._file = file
        self._request_id = request_id
        self._at = file.tell()
        self._end = self._at + size
        if isinstance(file, FileIO):  # content that is decrypted on the way has no descriptor to send from
            self.fileno = file.fileno

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except (PersistenceError, OSError) as error:
            raise broken_off(self._request_id, str(error)) from error
        self._at += len(data)
        return data

    def seek(self, offset: int) -> int:
        self._at = self._file.seek(offset)
        return self._at

    def close(self) -> None:
        self._file.close()
        if self._at < self._end and sys.exc_info()[0] is None:
            raise broken_off(self._request_id, f"the content ends {self._end - self._at} bytes early")
