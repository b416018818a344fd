"""Results as responses: statuses and headers of spec crud 4.1 and 4.3, in one dialect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING

from flask import Response
from werkzeug.datastructures import Headers as ResponseHeaderFields
from werkzeug.http import http_date
from werkzeug.sansio.http import is_resource_modified

from persistence.errors import one_line
from persistence.http.bodies import drain
from persistence.http.logs import CAUSE
from persistence.http.names import HeaderNames
from persistence.model.addresses import DefinitionAddress
from persistence.model.instants import Instant, to_datetime
from persistence.model.sidecar import Sidecar
from persistence.services.receiving import UNKNOWN
from persistence.services.results import Cleared, Read, Removed, Written

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

Headers = list[tuple[str, str]]

_XML: Headers = [("Content-Type", "application/xml")]
_BLOCK = 1 << 16
_WITH_LENGTH = (HTTPStatus.OK, HTTPStatus.CREATED)


class _Ready(ResponseHeaderFields):
    """Header fields that need no further checks: their values were checked when they came in."""

    def __init__(self, fields: Headers) -> None:
        self._list = fields


class BareResponse(Response):
    """A response with exactly the headers it was given: nothing is guessed, added or looked at again."""

    default_mimetype = None
    automatically_set_content_length = False

    def __init__(self, body: bytes | Iterable[bytes], status: int, headers: Headers, *, streams: bool = False) -> None:
        super().__init__(body, status=status, headers=_Ready(headers), direct_passthrough=streams)

    def get_wsgi_headers(self, environ: WSGIEnvironment) -> ResponseHeaderFields:  # noqa: ARG002 - werkzeug's signature
        """The headers as they are."""
        return self.headers


def empty(status: int, headers: Headers) -> Response:
    """A response without a body (seed, Endpoints)."""
    return BareResponse(b"", status, [*headers, ("Content-Length", "0")] if status in _WITH_LENGTH else headers)


def head(headers: Headers) -> Response:
    """The answer to a HEAD: the headers of the GET, with its length where that is known."""
    return BareResponse(b"", HTTPStatus.OK, headers)


def text(status: int, line: str, headers: Headers | None = None) -> Response:
    """One line of plain text."""
    body = f"{line}\n".encode()
    fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), *(headers or [])]
    return BareResponse(body, status, fields)


def whole(body: bytes, headers: Headers) -> Response:
    """A body that was made for this answer."""
    return BareResponse(body, HTTPStatus.OK, [*headers, ("Content-Length", str(len(body)))])


def xml(body: bytes, headers: Headers | None = None) -> Response:
    """An XML document that was made for this answer."""
    return whole(body, [*_XML, *(headers or [])])


def xml_in_pieces(pieces: Iterable[bytes], headers: Headers) -> Response:
    """An XML document that may be large: sent as it is made, unless it is small and its length soon known."""
    blocks = _blocks(pieces)
    begin, more = next(blocks, b""), next(blocks, None)
    if more is None:
        return xml(begin, headers)
    return BareResponse(chain((begin, more), blocks), HTTPStatus.OK, [*_XML, *headers], streams=True)


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces: each is a call of the operating system and a chunk on the wire."""
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


def refusal(environ: WSGIEnvironment, status: int, cause: str, headers: Headers | None = None) -> Response:
    """The answer to a request that is not served: one line that names the cause, which the log gets too."""
    environ[CAUSE] = one_line(cause)
    if status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # that body is not worth waiting for
        drain(environ)
    return text(status, environ[CAUSE], headers)


def is_not_modified(environ: WSGIEnvironment, read: Read) -> bool:
    """Whether the client's copy is still good: ``If-None-Match``, else ``If-Modified-Since`` (RFC 9110 13.2.2)."""
    modified_since = environ.get("HTTP_IF_MODIFIED_SINCE")
    none_match = environ.get("HTTP_IF_NONE_MATCH")
    if modified_since is None and none_match is None:
        return False
    found = read.found
    try:
        return not is_resource_modified(
            http_if_modified_since=modified_since,
            http_if_none_match=none_match,
            etag=f'"{read.etag}"',
            last_modified=to_datetime(found.sidecar.modified) if read.is_told_by_date else None,
        )
    except (ValueError, OverflowError):  # a date that no calendar has is no condition
        return False


class ResponseHeaders:
    """Builds the header lists; the instants' two formats come from the one stored value."""

    def __init__(self, names: HeaderNames, *, quotes_tags: bool) -> None:
        self._names = names
        self._quotes_tags = quotes_tags

    def of_read(self, read: Read) -> Headers:
        """The headers of GET and HEAD, but for length and range."""
        names, sidecar, address = self._names, read.found.sidecar, read.address
        headers = [
            ("Content-Type", _wire(sidecar.content_type or UNKNOWN)),
            ("X-Content-Type-Options", "nosniff"),
            ("ETag", self._tag(read.etag)),
            ("Last-Modified", rfc1123(sidecar.modified)),
            ("Created", rfc1123(sidecar.created)),
            (names.last_modified, sidecar.modified),
            (names.created, sidecar.created),
            (names.version, str(sidecar.version)),
            (names.app, _wire(address.form.app)),
            (names.form, _wire(address.form.name)),
        ]
        self._add_known(headers, sidecar)
        if read.operations is not None:
            headers.append((names.operations, str(read.operations)))
        if not isinstance(address, DefinitionAddress):
            self._add_owner(headers, sidecar)
        if not address.is_main:
            headers.append(("Accept-Ranges", "bytes"))
        return headers

    def of_write(self, written: Written) -> Headers:
        """The headers of a PUT that was stored."""
        headers = self._of_change(written.sidecar.version, written.sidecar)
        if written.operations is not None:
            headers.append((self._names.operations, str(written.operations)))
        if written.sidecar.encrypted and not written.address.is_main:
            headers.append((self._names.did_encrypt, "true"))
        return headers

    def of_removal(self, removed: Removed) -> Headers:
        """The headers of a DELETE; a draft leaves nothing that could have a date (spec crud 4.3)."""
        headers = self._of_change(removed.version, removed.tombstone)
        if removed.operations is not None:
            headers.append((self._names.operations, str(removed.operations)))
        return headers

    def of_clearing(self, cleared: Cleared) -> Headers:
        """The headers of a DELETE of all data of a form."""
        return [(self._names.deleted, str(cleared.deleted)), (self._names.refused, str(cleared.refused))]

    def of_notice(self, notice: str | None) -> Headers:
        """The header that tells what of a request was not there, if anything."""
        return [] if notice is None else [(self._names.notice, _wire(one_line(notice)))]

    def _tag(self, tag: str) -> str:
        return f'"{tag}"' if self._quotes_tags else tag

    def _of_change(self, version: int, sidecar: Sidecar | None) -> Headers:
        headers = [(self._names.version, str(version))]
        if sidecar is not None:
            headers += [
                ("ETag", self._tag(sidecar.etag)),
                ("Last-Modified", rfc1123(sidecar.modified)),
                (self._names.last_modified, sidecar.modified),
            ]
        return headers

    def _add_known(self, headers: Headers, sidecar: Sidecar) -> None:
        names = self._names
        if sidecar.modifier is not None:
            headers.append((names.modifier, _wire(sidecar.modifier)))
        if sidecar.stage is not None:
            headers.append((names.stage, _wire(sidecar.stage)))
        if sidecar.valid is not None:
            headers.append((names.valid, "true" if sidecar.valid else "false"))
        if sidecar.source is not None:
            headers.append((names.document, _wire(sidecar.source)))
        if sidecar.client_hash is not None:
            headers.append((names.hash_algorithm, _wire(sidecar.client_hash.algorithm)))
            headers.append((names.hash_value, _wire(sidecar.client_hash.value)))

    def _add_owner(self, headers: Headers, sidecar: Sidecar) -> None:
        names = self._names
        if sidecar.creator is not None:
            headers.append((names.username, _wire(sidecar.creator)))
        if sidecar.group is not None:
            headers.append((names.group, _wire(sidecar.group)))
        headers.extend((names.organization, _wire(level)) for level in sidecar.organization)


@lru_cache(maxsize=1024)
def rfc1123(instant: Instant) -> str:
    """An instant as HTTP's own dates are written."""
    return http_date(to_datetime(instant))


def _wire(text: str) -> str:
    """A text as a header value: UTF-8 bytes, which WSGI wants dressed as Latin-1 (PEP 3333)."""
    if not text.isprintable():  # checked when it came in; a sidecar written by hand is not
        text = one_line(text)
    return text if text.isascii() else text.encode().decode("latin-1")
