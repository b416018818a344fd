"""Results and errors as responses: statuses and headers of spec crud 4.1 and 4.3 in one dialect, and contents.

Small contents are sent at once, large ones by ``sendfile`` or, behind nginx, by nginx itself. Only attachments have
ranges (spec crud 4.7; RFC 9110 14 where one runs past the end, and for ``If-Range``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from io import BufferedReader, FileIO
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast
from urllib.parse import quote

from flask import Response
from werkzeug.datastructures import Headers as ResponseHeaderFields
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import http_date, parse_accept_header, parse_if_range_header, quote_etag, unquote_etag
from werkzeug.sansio.http import is_resource_modified
from werkzeug.wsgi import wrap_file

from persistence import errors
from persistence.dialect import Dialect
from persistence.http.logs import CAUSE, REQUEST_ID, broken_off, unbroken
from persistence.http.parsing import drain
from persistence.model.addresses import DefinitionAddress
from persistence.model.permissions import Operations
from persistence.model.sidecar import Sidecar
from persistence.model.texts import WHOLE, Instant, epoch_seconds, in_latin_1, json_line, to_datetime
from persistence.services.codec import UNKNOWN
from persistence.services.rules import Cleared, Read, Removed, Written
from persistence.services.transforms import TransformedContent

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

RESPONSE_NAMES = frozenset(
    {
        *("Created", "Deleted", "Did-Encrypt", "Document", "Form-Definition-App", "Form-Definition-Form"),
        *("Form-Definition-Version", "Group", "Hash-Algorithm", "Hash-Value", "Last-Modified"),
        *("Last-Modified-By-Username", "Notice", "Operations", "Organization", "Refused", "Username", "Valid"),
        "Workflow-Stage",
    }
)  # Headers of responses that are the service's own, without the prefix of the dialect (spec crud 4.3)

Headers = list[tuple[str, str]]

_BLOCK = 1 << 16
_SENT_AT_ONCE = 1 << 16
_RANGES = re.compile(r"\s*bytes\s*=\s*([0-9]{1,100})\s*-\s*(?:([0-9]{1,100})\s*)?(?:,.*)?", re.ASCII | re.DOTALL)
# nginx would judge these itself, by tags and dates that it does not know.
_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_UNMODIFIED_SINCE")
_DATED_CONDITIONS = ("HTTP_IF_RANGE", "HTTP_IF_MODIFIED_SINCE")
_NO_SCRIPTS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "sandbox; default-src 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)  # A content may be a page with scripts of a stranger, which must not act on the origin of the service's own pages
_XML: Headers = [("Content-Type", "application/xml"), *_NO_SCRIPTS]
_OF_USERS = ("Authorization", "Credentials", "Username", "Group", "Roles")
SHOWN_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "application/pdf", "text/plain"}
)  # Types that cannot have scripts: not SVG, which is a document. A browser saves others as files.
_NOT_WAITED_FOR = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
"""Refusals of bodies whose rest is not worth waiting for."""
_WITH_LENGTH = (HTTPStatus.OK, HTTPStatus.CREATED)
# The second is for clients that send a password only when they are asked for one (RFC 7235 2.1 allows several).
_CHALLENGES = [("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", 'Basic realm="persistence", charset="UTF-8"')]


class BareResponse(Response):
    """A response with exactly the headers it was given, which the server checks: nothing is guessed or added."""

    # Werkzeug would remove the headers of a content from a 304, and say that the body of a HEAD is empty.
    default_mimetype = None
    automatically_set_content_length = False

    def __init__(self, body: bytes | Iterable[bytes], status: int, headers: Headers) -> None:
        super().__init__(body, status, direct_passthrough=True)
        self.headers._list = list(headers)  # noqa: SLF001 - one after the other takes 4 % of a GET

    def get_wsgi_headers(self, environ: WSGIEnvironment) -> ResponseHeaderFields:  # noqa: ARG002 - werkzeug's signature
        return self.headers


def empty(status: int, headers: Headers, *, length: int | None = 0) -> Response:
    """Return a response without a body; ``length`` is that of the GET that a HEAD asks about, if it is known."""
    with_length = status in _WITH_LENGTH and length is not None
    return BareResponse(b"", status, [*headers, ("Content-Length", str(length))] if with_length else headers)


def text(status: int, line: str, headers: Headers | None = None) -> Response:
    body = f"{line}\n".encode()
    fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), *(headers or [])]
    return BareResponse(body, status, fields)


def whole(body: bytes, headers: Headers) -> Response:
    return BareResponse(body, HTTPStatus.OK, [*headers, ("Content-Length", str(len(body)))])


def xml(body: bytes) -> Response:
    return whole(body, list(_XML))


class WrittenAnswer(Protocol):
    """A value that is written as XML or as JSON, in pieces."""

    def xml(self) -> Iterable[bytes]: ...
    def json(self) -> Iterable[bytes]: ...


def answered(environ: WSGIEnvironment, answer: WrittenAnswer, headers: Headers | None = None) -> Response:
    """Return an answer as the request prefers it; a large one is sent as it is made, a small one with its length."""
    if prefers_json(environ, "application/xml", JSON):
        pieces, fields = answer.json(), [("Content-Type", JSON), *_NO_SCRIPTS, *(headers or []), ("Vary", "Accept")]
    else:
        pieces, fields = answer.xml(), [*_XML, *(headers or [])]
    blocks = _blocks(pieces)
    begin, more = next(blocks, b""), next(blocks, None)
    if more is not None:
        return BareResponse(chain((begin, more), blocks), HTTPStatus.OK, fields)
    return BareResponse(begin, HTTPStatus.OK, [*fields, ("Content-Length", str(len(begin)))])


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for piece in pieces:
        block += piece
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def refusal(
    environ: WSGIEnvironment, status: int, cause: str, headers: Headers | None = None, *, shown: str | None = None
) -> Response:
    """Return the answer to a request that is not served: one line that names the cause, for the log too."""
    # Where only the log is to have the cause, the line is what is ``shown``.
    environ[CAUSE] = errors.one_line(cause)
    if status not in _NOT_WAITED_FOR:
        drain(environ)
    line = environ[CAUSE] if shown is None else shown
    if not prefers_json(environ, "text/plain", PROBLEM, JSON):
        return text(status, line, headers)
    body = json_line({"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": line})
    return BareResponse(body, status, [("Content-Type", PROBLEM), ("Content-Length", str(len(body))), *(headers or [])])


JSON = "application/json"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PROBLEM = "application/problem+json"  # RFC 9457


def prefers_json(environ: WSGIEnvironment, usual: str, *kinds: str) -> bool:
    """Return whether a request accepts one of these kinds of JSON rather than the ``usual`` type, which wins a tie."""
    accepted = environ.get("HTTP_ACCEPT", "")
    return "json" in accepted and parse_accept_header(accepted, MIMEAccept).best_match((usual, *kinds)) in kinds


def locked(environ: WSGIEnvironment, error: errors.LockedError, holder: bytes) -> Response:
    """Return the answer to a LOCK or UNLOCK of what somebody else holds: the document that names the holder."""
    environ[CAUSE] = str(error)
    fields = [*_XML, ("Content-Length", str(len(holder))), *headers_of(error)]
    return BareResponse(holder, HTTPStatus.LOCKED, fields)


def headers_of(error: errors.PersistenceError) -> Headers:
    if isinstance(error, errors.UnauthorizedError):
        return _CHALLENGES
    if isinstance(error, errors.BusyError):
        return [("Retry-After", str(error.retry_after))]
    if isinstance(error, errors.RangeError):
        return [("Content-Range", f"bytes */{error.size}")]
    if isinstance(error, errors.LockedError) and error.seconds is not None:
        return [("Timeout", f"Second-{error.seconds}")]
    return []


def is_not_modified(environ: WSGIEnvironment, read: Read) -> bool:
    """Return whether the client's copy is current: ``If-None-Match``, ``If-Modified-Since`` (RFC 9110 13.2.2)."""
    modified_since = environ.get("HTTP_IF_MODIFIED_SINCE")
    none_match = environ.get("HTTP_IF_NONE_MATCH")
    if modified_since is None and none_match is None:
        return False
    try:
        return not is_resource_modified(
            http_if_modified_since=modified_since,
            http_if_none_match=none_match,
            etag=f'"{read.etag}"',
            last_modified=to_datetime(read.found.sidecar.modified) if read.has_exact_date else None,
        )
    except (ValueError, OverflowError):  # a date that no calendar has is no condition
        return False


class ResponseHeaders:
    """Builds the lists of headers; the two formats of an instant come from the one stored value."""

    def __init__(self, dialect: Dialect, *, is_behind_proxy: bool = False) -> None:
        self._is_behind_proxy = is_behind_proxy
        self._names = {name: dialect.header(name) for name in RESPONSE_NAMES}
        users = ", ".join(name if name == "Authorization" else dialect.header(name) for name in _OF_USERS)
        self._of_one_user = [("Cache-Control", "private, no-cache"), ("Vary", users)]
        self._quote = '"' if dialect.quotes_tags else ""

    def of_read(self, read: Read) -> Headers:
        """Return the headers of GET and HEAD, without length and range."""
        names, sidecar, address = self._names, read.found.sidecar, read.address
        hashed = sidecar.client_hash
        optional = [
            ("Last-Modified-By-Username", sidecar.modifier),
            ("Workflow-Stage", sidecar.stage),
            ("Valid", None if sidecar.valid is None else str(sidecar.valid).lower()),
            ("Document", sidecar.source),
            ("Hash-Algorithm", None if hashed is None else hashed.algorithm),
            ("Hash-Value", None if hashed is None else hashed.value),
            ("Operations", None if read.operations is None else read.operations.text),
        ]
        if not isinstance(address, DefinitionAddress):
            optional += [("Username", sidecar.creator), ("Group", sidecar.group)]
            optional += (("Organization", level) for level in sidecar.organization)
        headers = [
            ("Content-Type", JSON if read.is_json else self._wire(sidecar.content_type or UNKNOWN)),
            *_NO_SCRIPTS,
            ("ETag", f"{self._quote}{read.etag}{self._quote}"),
            ("Last-Modified", rfc1123(sidecar.modified)),
            ("Created", rfc1123(sidecar.created)),
            (names["Last-Modified"], sidecar.modified),
            (names["Created"], sidecar.created),
            (names["Form-Definition-Version"], str(sidecar.version)),
            (names["Form-Definition-App"], self._wire(address.form.app)),
            (names["Form-Definition-Form"], self._wire(address.form.name)),
        ]
        given = [(name, value) for name, value in optional if value is not None]
        headers += [(names[name], self._wire(value)) for name, value in given]
        if self._is_behind_proxy:
            beyond = {name for name, value in given if in_latin_1(value) != value}
            headers += [(names[name] + WHOLE, quote(value, safe="")) for name, value in given if name in beyond]
        if not address.is_main:
            headers.append(("Accept-Ranges", "bytes"))
        if not isinstance(address, DefinitionAddress):  # others may not read what one user may
            headers += self._of_one_user
        return headers

    def of_write(self, written: Written) -> Headers:
        headers = self._of_change(written.sidecar.version, written.sidecar, written.operations)
        if written.sidecar.encrypted and not written.address.is_main:
            headers.append((self._names["Did-Encrypt"], "true"))
        return headers

    def of_removal(self, removed: Removed) -> Headers:
        """Return the headers of a DELETE; a draft leaves nothing that could have a date (spec crud 4.3)."""
        return self._of_change(removed.version, removed.tombstone, removed.operations)

    def _wire(self, text: str) -> str:
        if not text.isprintable():  # checked when it came in; a sidecar written by hand is not
            text = errors.one_line(text)
        if self._is_behind_proxy:
            return in_latin_1(text)
        return text if text.isascii() else text.encode().decode("latin-1")

    def of_clearing(self, cleared: Cleared) -> Headers:
        return [(self._names["Deleted"], str(cleared.deleted)), (self._names["Refused"], str(cleared.refused))]

    def of_notice(self, notice: str | None) -> Headers:
        return [] if notice is None else [(self._names["Notice"], self._wire(errors.one_line(notice)))]

    def _of_change(self, version: int, sidecar: Sidecar | None, operations: Operations | None) -> Headers:
        headers = [(self._names["Form-Definition-Version"], str(version))]
        if sidecar is not None:
            headers += [
                ("ETag", f"{self._quote}{sidecar.etag}{self._quote}"),
                ("Last-Modified", rfc1123(sidecar.modified)),
                (self._names["Last-Modified"], sidecar.modified),
            ]
        return headers if operations is None else [*headers, (self._names["Operations"], operations.text)]


@lru_cache(maxsize=1024)
def rfc1123(instant: Instant) -> str:
    return http_date(to_datetime(instant))


def parse_range(header: str, size: int) -> range:
    """Return the range to serve: the first one of several, its end clamped to the content."""
    match = _RANGES.fullmatch(header)
    if match is None:
        raise errors.BadRequestError(f"only ranges such as bytes=0-99 or bytes=100- are served, not {header!r}")
    first = int(match[1])
    last = int(match[2]) if match[2] else None
    if last is not None and last < first:
        raise errors.BadRequestError(f"the range ends before it starts: {header!r}")
    if first >= size:
        raise errors.RangeError(size)
    return range(first, size if last is None else min(last + 1, size))


@dataclass(frozen=True, slots=True)
class Contents:
    """Sends what was read. ``link`` returns a path below nginx's location ``accel``, or raises ``DiskError``."""

    link: Callable[[Read], str]
    accel: str

    def send(self, environ: WSGIEnvironment, read: Read, headers: Headers) -> Response:
        """Return the whole content, or of an attachment the range asked for; the open file is taken over."""
        file = read.found.opened
        wanted = environ.get("HTTP_RANGE")
        # The proxy of a runtime that keeps the bytes elsewhere fails on 416 for an empty record (spec runtime 4).
        if wanted is not None and read.found.size and not read.address.is_main and _range_applies(environ, read):
            try:
                part = parse_range(wanted, read.found.size)
            except Exception:
                file.close()
                raise
            file.seek(part.start)
            headers.append(("Content-Range", f"bytes {part.start}-{part.stop - 1}/{read.found.size}"))
            return _send(environ, file, len(part), 206, headers)
        if self.accel and _is_for_nginx(environ, read):
            with suppress(errors.DiskError):  # a full disk must still be readable
                redirect = ("X-Accel-Redirect", quote(f"{self.accel}/{self.link(read)}"))
                file.close()
                return BareResponse(b"", 200, [*headers, redirect, ("Content-Length", "0")])
        return _send(environ, file, read.found.size, 200, headers)


def send_transformed(environ: WSGIEnvironment, content: TransformedContent, headers: Headers) -> Response:
    """Return the result of a transform: at once, so that an error is still an answer, or in pieces if it is large."""
    headers = [*headers, ("Content-Length", str(content.size))]
    if content.size <= _SENT_AT_ONCE:
        with errors.disk_errors("reading form data"):
            return BareResponse(b"".join(content), 200, headers)
    return BareResponse(unbroken(content, environ[REQUEST_ID]), 200, headers)


def _is_for_nginx(environ: WSGIEnvironment, read: Read) -> bool:
    """Return whether nginx can send this: nothing is decrypted, and no header comes several times."""
    conditions = _CONDITIONS if read.has_exact_date else _CONDITIONS + _DATED_CONDITIONS
    return (
        not read.is_decrypted
        and read.found.size > _SENT_AT_ONCE
        and len(read.found.sidecar.organization) < 2  # noqa: PLR2004 - a header each
        and not any(name in environ for name in conditions)
    )


def _range_applies(environ: WSGIEnvironment, read: Read) -> bool:
    """Return whether ``If-Range`` holds: bytes of two contents must not be mixed (RFC 9110 13.1.5)."""
    header = environ.get("HTTP_IF_RANGE")
    if header is None:
        return True
    try:
        condition = parse_if_range_header(header if '"' in header or " " in header else quote_etag(header))
    except (ValueError, OverflowError):  # a date that no calendar has
        return False
    if condition.date is not None:
        return read.has_exact_date and int(condition.date.timestamp()) == epoch_seconds(read.found.sidecar.modified)
    return unquote_etag(condition.etag)[0] == read.etag if condition.etag else False


def _send(environ: WSGIEnvironment, file: BinaryIO, size: int, status: int, headers: Headers) -> Response:
    headers.append(("Content-Length", str(size)))
    if size <= _SENT_AT_ONCE:
        with file:
            try:
                data = file.read(size)
                while len(data) < size and (more := file.read(size - len(data))):
                    data += more
            except OSError as error:
                raise errors.as_disk_error(error, "reading a content") from error
        if len(data) < size:
            raise errors.DamagedError(f"the content ends after {len(data)} of {size} bytes")
        return BareResponse(data, status, headers)
    if isinstance(file, BufferedReader):
        try:
            file.peek(1)  # an error at the beginning is still an answer
        except Exception:
            file.close()
            raise
    measured = cast("BinaryIO", _Measured(file, size, environ[REQUEST_ID]))
    return BareResponse(wrap_file(environ, measured, _SENT_AT_ONCE), status, headers)


class _Measured:
    """An open content of which a server sends as much as was announced, or else breaks the connection."""

    # Where a content ended early, the client would take the next answer on the connection for the rest of this one.
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
        except (errors.PersistenceError, OSError) as error:
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
