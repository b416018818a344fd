"""Results and errors as responses: statuses and headers of spec crud 4.1 and 4.3, in one dialect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import quote

from flask import Response
from werkzeug.datastructures import Headers as ResponseHeaderFields
from werkzeug.http import http_date
from werkzeug.sansio.http import is_resource_modified

from persistence.dialect import Dialect
from persistence.errors import BusyError, LockedError, PersistenceError, RangeError, UnauthorizedError, one_line
from persistence.http.bodies import drain
from persistence.http.logs import CAUSE
from persistence.model.addresses import DefinitionAddress
from persistence.model.instants import Instant, to_datetime
from persistence.model.sidecar import Sidecar
from persistence.model.texts import WHOLE, in_latin_1
from persistence.services.receiving import UNKNOWN
from persistence.services.rules import Cleared, Read, Removed, Written

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

RESPONSE_NAMES = frozenset(
    {
        "Created",
        "Deleted",
        "Did-Encrypt",
        "Document",
        "Form-Definition-App",
        "Form-Definition-Form",
        "Form-Definition-Version",
        "Group",
        "Hash-Algorithm",
        "Hash-Value",
        "Last-Modified",
        "Last-Modified-By-Username",
        "Notice",
        "Operations",
        "Organization",
        "Refused",
        "Username",
        "Valid",
        "Workflow-Stage",
    }
)
"""Headers of responses that are the service's own, without the prefix of the dialect (spec crud 4.3)."""

Headers = list[tuple[str, str]]

_BLOCK = 1 << 16
_NO_SCRIPTS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "sandbox; default-src 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""A content may be a page with scripts of a stranger, which must not act on the origin of the service's own pages."""
_XML: Headers = [("Content-Type", "application/xml"), *_NO_SCRIPTS]
_OF_USERS = ("Authorization", "Credentials", "Username", "Group", "Roles")
SHOWN_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "application/pdf", "text/plain"}
)
"""Types that cannot have scripts: not SVG, which is a document. A browser saves others as files."""
_NOT_WAITED_FOR = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
"""Refusals of bodies whose rest is not worth waiting for."""
_WITH_LENGTH = (HTTPStatus.OK, HTTPStatus.CREATED)
# The second is for clients that send a password only when they are asked for one (RFC 7235 2.1 allows several).
_CHALLENGES = [("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", 'Basic realm="persistence", charset="UTF-8"')]


class BareResponse(Response):
    """A response with exactly the headers it was given: nothing is guessed, added or looked at again."""

    default_mimetype = None
    automatically_set_content_length = False

    def __init__(self, body: bytes | Iterable[bytes], status: int, headers: Headers) -> None:
        fields = ResponseHeaderFields()
        fields._list = headers  # noqa: SLF001 - unchecked: the values were checked when they came in
        super().__init__(body, status=status, headers=fields, direct_passthrough=True)

    def get_wsgi_headers(self, environ: WSGIEnvironment) -> ResponseHeaderFields:  # noqa: ARG002 - werkzeug's signature
        return self.headers


def empty(status: int, headers: Headers) -> Response:
    """Return a response without a body (seed, Endpoints)."""
    return BareResponse(b"", status, [*headers, ("Content-Length", "0")] if status in _WITH_LENGTH else headers)


def head(headers: Headers) -> Response:
    """Return the answer to a HEAD: the headers of the GET, with its length where that is known."""
    return BareResponse(b"", HTTPStatus.OK, headers)


def text(status: int, line: str, headers: Headers | None = None) -> Response:
    body = f"{line}\n".encode()
    fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), *(headers or [])]
    return BareResponse(body, status, fields)


def whole(body: bytes, headers: Headers) -> Response:
    return BareResponse(body, HTTPStatus.OK, [*headers, ("Content-Length", str(len(body)))])


def xml(body: bytes, headers: Headers | None = None) -> Response:
    """Return an XML document that was made for this answer."""
    return whole(body, [*_XML, *(headers or [])])


def xml_in_pieces(pieces: Iterable[bytes], headers: Headers) -> Response:
    """Return an XML document that may be large: sent as it is made, or with its length if it is small."""
    blocks = _blocks(pieces)
    begin, more = next(blocks, b""), next(blocks, None)
    if more is None:
        return xml(begin, headers)
    return BareResponse(chain((begin, more), blocks), HTTPStatus.OK, [*_XML, *headers])


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    block: list[bytes] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)


def refusal(
    environ: WSGIEnvironment, status: int, cause: str, headers: Headers | None = None, *, shown: str | None = None
) -> Response:
    """Return the answer to a request that is not served: one line that names the cause, for the log too.

    Where only the log is to have the cause, the line is what is ``shown``.
    """
    environ[CAUSE] = one_line(cause)
    if status not in _NOT_WAITED_FOR:
        drain(environ)
    return text(status, environ[CAUSE] if shown is None else shown, headers)


def locked(environ: WSGIEnvironment, error: LockedError, holder: bytes) -> Response:
    """Return the answer to a LOCK or UNLOCK of what somebody else holds: the document that names the holder."""
    environ[CAUSE] = str(error)
    fields = [*_XML, ("Content-Length", str(len(holder))), *headers_of(error)]
    return BareResponse(holder, HTTPStatus.LOCKED, fields)


def headers_of(error: PersistenceError) -> Headers:
    """Return what an error says in headers besides its line."""
    if isinstance(error, UnauthorizedError):
        return _CHALLENGES
    if isinstance(error, BusyError):
        return [("Retry-After", str(error.retry_after))]
    if isinstance(error, RangeError):
        return [("Content-Range", f"bytes */{error.size}")]
    if isinstance(error, LockedError) and error.seconds is not None:
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


def saved_as_file(environ: WSGIEnvironment, headers: Headers) -> Headers:
    """Return the header that lets a browser save a content to which it navigates, unless it cannot have scripts."""
    if environ.get("HTTP_SEC_FETCH_MODE") != "navigate":
        return []
    kind = headers[0][1].partition(";")[0].strip().lower()
    return [] if kind in SHOWN_TYPES else [("Content-Disposition", "attachment")]


class ResponseHeaders:
    """Builds the lists of headers; the two formats of an instant come from the one stored value."""

    def __init__(self, dialect: Dialect, *, is_behind_proxy: bool = False) -> None:
        self._is_behind_proxy = is_behind_proxy
        self._wire = _latin_1 if is_behind_proxy else _utf_8
        self._names = {name: dialect.header(name) for name in RESPONSE_NAMES}
        users = ", ".join(name if name == "Authorization" else dialect.header(name) for name in _OF_USERS)
        self._of_one_user = [("Cache-Control", "private, no-cache"), ("Vary", users)]
        self._quote = '"' if dialect.quotes_tags else ""

    def of_read(self, read: Read) -> Headers:
        """Return the headers of GET and HEAD, without length and range."""
        names, sidecar, address = self._names, read.found.sidecar, read.address
        headers = [
            ("Content-Type", self._wire(sidecar.content_type or UNKNOWN)),
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
        optional = [(name, value) for name, value in _optional(read) if value is not None]
        headers += [(names[name], self._wire(value)) for name, value in optional]
        if self._is_behind_proxy:
            headers += self._whole(optional)
        if not address.is_main:
            headers.append(("Accept-Ranges", "bytes"))
        if not isinstance(address, DefinitionAddress):  # others may not read what one user may
            headers += self._of_one_user
        return headers

    def _whole(self, fields: list[tuple[str, str]]) -> Headers:
        beyond = {name for name, value in fields if in_latin_1(value) != value}
        return [(self._names[name] + WHOLE, quote(value, safe="")) for name, value in fields if name in beyond]

    def of_write(self, written: Written) -> Headers:
        """Return the headers of a PUT that was stored."""
        headers = self._of_change(written.sidecar.version, written.sidecar)
        if written.operations is not None:
            headers.append((self._names["Operations"], written.operations.text))
        if written.sidecar.encrypted and not written.address.is_main:
            headers.append((self._names["Did-Encrypt"], "true"))
        return headers

    def of_removal(self, removed: Removed) -> Headers:
        """Return the headers of a DELETE; a draft leaves nothing that could have a date (spec crud 4.3)."""
        headers = self._of_change(removed.version, removed.tombstone)
        if removed.operations is not None:
            headers.append((self._names["Operations"], removed.operations.text))
        return headers

    def of_clearing(self, cleared: Cleared) -> Headers:
        """Return the headers of a DELETE of all data of a form."""
        return [(self._names["Deleted"], str(cleared.deleted)), (self._names["Refused"], str(cleared.refused))]

    def of_notice(self, notice: str | None) -> Headers:
        """Return the header with the unknown names of a request, if any."""
        return [] if notice is None else [(self._names["Notice"], self._wire(one_line(notice)))]

    def _of_change(self, version: int, sidecar: Sidecar | None) -> Headers:
        headers = [(self._names["Form-Definition-Version"], str(version))]
        if sidecar is not None:
            headers += [
                ("ETag", f"{self._quote}{sidecar.etag}{self._quote}"),
                ("Last-Modified", rfc1123(sidecar.modified)),
                (self._names["Last-Modified"], sidecar.modified),
            ]
        return headers


def _optional(read: Read) -> list[tuple[str, str | None]]:
    sidecar, hashed = read.found.sidecar, read.found.sidecar.client_hash
    fields = [
        ("Last-Modified-By-Username", sidecar.modifier),
        ("Workflow-Stage", sidecar.stage),
        ("Valid", None if sidecar.valid is None else str(sidecar.valid).lower()),
        ("Document", sidecar.source),
        ("Hash-Algorithm", None if hashed is None else hashed.algorithm),
        ("Hash-Value", None if hashed is None else hashed.value),
        ("Operations", None if read.operations is None else read.operations.text),
    ]
    if not isinstance(read.address, DefinitionAddress):
        fields += [("Username", sidecar.creator), ("Group", sidecar.group)]
        fields += (("Organization", level) for level in sidecar.organization)
    return fields


@lru_cache(maxsize=1024)
def rfc1123(instant: Instant) -> str:
    """Return an instant as HTTP's own dates are written."""
    return http_date(to_datetime(instant))


def _utf_8(text: str) -> str:
    if not text.isprintable():  # checked when it came in; a sidecar written by hand is not
        text = one_line(text)
    return text if text.isascii() else text.encode().decode("latin-1")


def _latin_1(text: str) -> str:
    return in_latin_1(text if text.isprintable() else one_line(text))
