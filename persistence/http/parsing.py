"""Requests as values: headers and parameters, read once, and bodies that arrive whole or are refused.

Frameworks accept a body that ends early, and cut a chunked one at the limit; stored, either would be half a file under
a success status.
"""

from __future__ import annotations

import hashlib
import re
import socket
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from flask import Request
from werkzeug.http import parse_date

from persistence import errors
from persistence.dialect import Dialect
from persistence.limits import CHUNK, LONGEST_NAME, MOST_DRAINED
from persistence.model import permissions, versions
from persistence.model.addresses import PUBLIC_PREFIX, SERVICE_PREFIX
from persistence.model.network_addresses import UNIX, Peer, basic_authorization, parse_authorization, peer_address
from persistence.model.permissions import ANONYMOUS, Bearer, User
from persistence.model.sidecar import ClientHash
from persistence.model.texts import WHOLE, Instant, flag, parse_instant, require_plain, short
from persistence.model.versions import Precondition, VersionRequest, parse_precondition
from persistence.services.rules import Delete, Get, Origin, Put
from persistence.services.transforms import migration_target

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


RECEIVED = "persistence.received"  # Environ key: how many bytes of the body were read

REQUEST_NAMES = frozenset(
    {
        *("Created-Existing", "Create-Flat-View", "Credentials", "Datasource", "Decrypt", "For-Document-Id"),
        *("For-Document-IsDraft", "Form-Definition-Version", "Group", "Group-Existing", "Hash-Algorithm", "Hash-Value"),
        *("Path-To-Holder", "Remote-Authorization", "Roles", "Singleton", "Username", "Username-Existing"),
        "Workflow-Stage",
    }
)  # Headers of requests that are read, without the prefix of the dialect (spec crud 3)

_OF_USERS = ("Username", "Group", "Roles")

_WHOLE = frozenset({"Group-Existing", "Username-Existing", "Workflow-Stage"})
"""Headers that another such service sends again, where Latin-1 lacks a character of them."""


def environ_key(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")


_WHOLE_KEY = WHOLE.replace("-", "_")

TOKEN = "fr-access-token"  # noqa: S105 - the name of a parameter
"""The parameter with the access token; it has the same name in both dialects (spec crud 1)."""

_INTERNAL_TOKEN = "fr-internal-admin-token"  # noqa: S105 - the name of a parameter, and of a header
_USER = "persistence.user"  # Environ key: the user of a request, which is read once

_NO_ARGUMENTS: Mapping[str, str] = {}  # The parameters of most requests: an empty query is not worth parsing


class RequestParser:
    """Reads requests in one dialect. Every method raises ``BadRequestError`` for a malformed request."""

    # With ``is_public`` an ``If-Match`` does not hold where nothing is stored (RFC 9110 13.1.1). A proxy has looked at
    # that itself, and its runtime expects that such a PUT is a creation (spec crud 4.6).
    #
    # The proxy of a runtime (``is_proxied``) passes on the headers of its caller, and adds its findings. It finds the
    # version of a document, migrates definitions and removes data that is not relevant itself (spec crud 11, forms
    # 5.6). Its HTTP client writes header values in Latin-1 (spec runtime 3).
    def __init__(self, dialect: Dialect, *, is_public: bool, is_proxied: bool = False) -> None:
        self._is_public = is_public
        self._is_proxied = is_proxied
        self._keys = {name: environ_key(dialect.header(name)) for name in REQUEST_NAMES}
        self.version_key = self._keys["Form-Definition-Version"]  # of the header that some requests read differently

    def get(self, request: Request) -> Get:
        environ, args = request.environ, request.args if request.query_string else _NO_ARGUMENTS
        sent = self._sent(environ)
        instant, as_of = _moments(args) if args else (None, None)
        return Get(
            version=self._version(environ, sent),
            instant=instant,
            as_of=as_of,
            content=request.method == "GET",
            user=self.user(request, sent),
            data_format=args.get("data-format-version"),
            decrypt=sent.get("Decrypt") == "true",
            token=args.get(TOKEN) or None,
        )

    def put(self, request: Request) -> Put:
        environ, args = request.environ, request.args if request.query_string else _NO_ARGUMENTS
        sent = self._sent(environ)
        return Put(
            version=self._version(environ, sent),
            precondition=self._precondition(environ),
            data_format=args.get("data-format-version"),
            user=self.user(request, sent),
            content_type=environ.get("CONTENT_TYPE"),
            valid=flag(args.get("valid") or None, "valid") if args else None,
            stage=short(sent.get("Workflow-Stage"), "workflow stage"),
            source=short(args.get("document"), "document parameter") if args else None,
            client_hash=_client_hash(sent),
            flat_view=_is_true(sent.get("Create-Flat-View")),
            holder=sent.get("Path-To-Holder"),
            token=args.get(TOKEN) or None,
            origin=self._origin(request, sent),
            is_singleton=self._is_proxied and _is_true(sent.get("Singleton")),
        )

    def delete(self, request: Request) -> Delete:
        if is_forced(request):
            raise errors.BadRequestError("only revisions and attachments of form data are purged (force-delete)")
        if request.args.get("last-modified-time") or request.args.get("as-of"):
            raise errors.BadRequestError("deleting a single revision is not enabled on this service")
        return replace(self._delete(request), origin=self._origin(request, self._sent(request.environ)))

    def forced_delete(self, request: Request) -> tuple[Delete, Instant | None]:
        """Read a DELETE that leaves no trace, and the instant of the revision that is meant (spec crud 4.9)."""
        if request.args.get("as-of"):
            raise errors.BadRequestError("as-of cannot name the revision to delete: send last-modified-time")
        return self._delete(request), _moments(request.args)[0]

    def _delete(self, request: Request) -> Delete:
        environ = request.environ
        sent = self._sent(environ)
        return Delete(
            version=self._version(environ, sent),
            precondition=self._precondition(environ),
            user=self.user(request, sent),
            token=request.args.get(TOKEN) or None,
        )

    def restore(self, request: Request) -> tuple[Get, Precondition]:
        """Read which revision is brought back, and the condition on the current one."""
        environ, args = request.environ, request.args
        instant, as_of = _moments(args)
        if instant is None and as_of is None:
            raise errors.BadRequestError("send last-modified-time or as-of")
        sent = self._sent(environ)
        version, token = self._version(environ, sent), args.get(TOKEN) or None
        get = Get(version=version, instant=instant, as_of=as_of, user=self.user(request, sent), token=token)
        return get, self._precondition(environ)

    def version(self, request: Request) -> VersionRequest:
        return self._version(request.environ, self._sent(request.environ))

    def definition_format(self, request: Request) -> str | None:
        """Return the format in which a definition is asked for; a HEAD may say anything (spec forms 1.1)."""
        if self._is_proxied:
            return None
        word = request.args.get("form-definition-format-version")
        return migration_target(word) if request.method == "GET" else word or None

    def nonrelevant(self, request: Request) -> str | None:
        return None if self._is_proxied else request.args.get("nonrelevant")

    def remote_authorization(self, request: Request) -> str | None:
        """Return how another server is to be called: the header of its own, else the two parameters (spec crud 8.3)."""
        sent = self._sent(request.environ).get("Remote-Authorization", "").strip()
        name, password = request.args.get("username") or "", request.args.get("password") or ""
        if sent and (name or password):
            raise errors.BadRequestError("send Remote-Authorization, or a username and a password, not both")
        return parse_authorization(sent) if sent else basic_authorization(name, password)

    def bearer(self, request: Request) -> Bearer:
        return Bearer(self.user(request), request.args.get(TOKEN) or None)

    def datasource(self, request: Request) -> str:
        """Return the name of the data source that is asked; empty where none is named (spec crud 10.2)."""
        return self._sent(request.environ).get("Datasource", "").strip()

    def flat_view(self, request: Request) -> bool:
        return _is_true(self._sent(request.environ).get("Create-Flat-View"))

    def is_administrator(self, request: Request) -> bool:
        """Return whether permissions do not count: a proxy's own search, for an export or a purge (spec runtime 5)."""
        # The token is encrypted by the runtime and cannot be checked: who may call this API is trusted.
        return self._is_proxied and (_INTERNAL_TOKEN in request.args or environ_key(_INTERNAL_TOKEN) in request.environ)

    def _sent(self, environ: WSGIEnvironment) -> dict[str, str]:
        sent: dict[str, str] = {name: environ[key] for name, key in self._keys.items() if key in environ}
        if self._is_proxied:
            whole = {name: environ.get(self._keys[name] + _WHOLE_KEY) for name in sent if name in _WHOLE}
            return sent | {name: unquote(value) for name, value in whole.items() if value is not None}
        for name, value in sent.items():
            if not value.isascii():
                with suppress(UnicodeError):
                    sent[name] = value.encode("latin-1").decode()
        return sent

    def _version(self, environ: WSGIEnvironment, sent: Mapping[str, str]) -> VersionRequest:
        number = environ.get(self.version_key)
        if self._is_proxied:
            return versions.parse(number, None, None)
        return versions.parse(number, sent.get("For-Document-Id"), environ.get(self._keys["For-Document-IsDraft"]))

    def _precondition(self, environ: WSGIEnvironment) -> Precondition:
        since, if_match = environ.get("HTTP_IF_UNMODIFIED_SINCE"), environ.get("HTTP_IF_MATCH")
        unmodified_since = None if since is None else _date(since)
        none_match = environ.get("HTTP_IF_NONE_MATCH")
        return parse_precondition(if_match, none_match, unmodified_since, must_exist=self._is_public)

    def user(self, request: Request, sent: Mapping[str, str] | None = None) -> User:
        """Return the user, by the headers of the service that were ``sent``, where they have been read already."""
        environ = request.environ
        if _USER in environ:  # the audit asks once more
            return cast("User", environ[_USER])
        sent = self._sent(environ) if sent is None else sent
        has_credentials = bool(sent.get("Credentials", "").strip())
        for name in ("Credentials",) if has_credentials else _OF_USERS:
            value = sent.get(name, "")
            if not (self._is_proxied or value.isascii()) and value == environ[self._keys[name]]:
                raise errors.BadRequestError(f"the header that ends in {name} is not UTF-8")
        if has_credentials:
            user = permissions.parse_credentials(sent["Credentials"])
        elif sent.keys().isdisjoint(_OF_USERS):
            user = ANONYMOUS
        else:
            user = permissions.from_headers(sent.get("Username"), sent.get("Group"), sent.get("Roles"))
        environ[_USER] = user
        return user

    def _origin(self, request: Request, sent: Mapping[str, str]) -> Origin | None:
        created = instant_of(sent.get("Created-Existing"), "the creation that exists") if self._is_proxied else None
        if created is None:
            return None
        user = self.user(request, sent)
        name = short(sent.get("Username-Existing"), "owner's name") or user.name
        group = short(sent.get("Group-Existing"), "owner's group") or user.group
        organization = user.organization if name == user.name else ()
        return Origin(created, User(name=name, group=group, organization=organization))


def parsers(dialect: Dialect) -> tuple[RequestParser, RequestParser]:
    return RequestParser(dialect, is_public=True), RequestParser(dialect, is_public=False, is_proxied=dialect.has_proxy)


def reader_of_users(dialect: Dialect) -> Callable[[Request], User]:
    """Return a function from a request to the user that its caller names, on whichever API."""
    public, provider = parsers(dialect)

    def user(request: Request) -> User:
        rule = "" if request.url_rule is None else request.url_rule.rule
        return (public if rule.startswith(f"{SERVICE_PREFIX}/") else provider).user(request)

    return user


def instant_of(value: str | None, name: str) -> Instant | None:
    """Return an instant; ``None`` where nothing, or only blanks, was sent. ``name`` is for the error."""
    if not value or not value.strip():
        return None
    try:
        return parse_instant(value.strip())
    except (ValueError, OverflowError) as error:
        raise errors.BadRequestError(
            f"{name} must be an instant such as 2025-03-04T05:06:07.089Z, not {value!r}"
        ) from error


def _date(header: str) -> datetime | None:
    """Return the time of a header; one that is not a date is no condition (RFC 9110 13.1.4)."""
    with suppress(OverflowError):
        return parse_date(header)
    return None


def _moments(args: Mapping[str, str]) -> tuple[Instant | None, Instant | None]:
    instant = instant_of(args.get("last-modified-time"), "last-modified-time")
    as_of = instant_of(args.get("as-of"), "as-of")
    if instant is not None and as_of is not None:
        raise errors.BadRequestError("last-modified-time and as-of are two ways to name a revision: send one of them")
    return instant, as_of


def is_forced(request: Request) -> bool:
    return request.method != "GET" and bool(flag(request.args.get("force-delete") or None, "force-delete"))


def _is_true(sent: str | None) -> bool:
    return sent is not None and sent.strip().lower() == "true"


def _client_hash(sent: Mapping[str, str]) -> ClientHash | None:
    if "Hash-Algorithm" not in sent and "Hash-Value" not in sent:
        return None
    name, digest = short(sent.get("Hash-Algorithm"), "hash algorithm"), short(sent.get("Hash-Value"), "hash value")
    return ClientHash(name, digest) if name and digest else None


def peer_of(environ: WSGIEnvironment) -> Peer:
    # Through a Unix socket gunicorn says ``REMOTE_ADDR`` is empty, or the path of the client's own socket, which the
    # client chooses and may have called ``127.0.0.1``; so the socket is asked first.
    connection = environ.get("gunicorn.socket")
    if connection is not None and connection.family == socket.AF_UNIX:
        return UNIX
    return peer_address(environ.get("REMOTE_ADDR", ""))


# The path of a request: found once, for the gate, the router, the limits of API keys, the pages and the log.
#
# The names are taken from the path as it was sent: after decoding, ``%2F`` would look like a separator. A path must be
# canonical, so that a proxy in front reads the same path as the service: no empty name, no ``.`` and ``..``, no
# letter or digit that is percent-encoded. Below ``crud/`` alone doubled slashes count as one (spec crud 2.1: the
# runtime builds such paths), and characters may be encoded that need not be.

UNCLEAR = "persistence.unclear"  # Environ key: why a request has no path that is served. Such a request is refused.

_CLEAN = re.compile(rf"(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._~!$&'()*+,;=:@-]{{1,{LONGEST_NAME}}})+")
"""Paths without a slash at their end that need no decoding: nearly all that are sent."""

_RESOURCES = ("/crud/", f"{PUBLIC_PREFIX}/crud/")
_NEEDLESS = re.compile("%(?:2[DEde]|3[0-9]|4[1-9A-Fa-f]|5[0-9AFaf]|6[1-9A-Fa-f]|7[0-9Aa])")
"""Encoded letters, digits, ``-``, ``.`` and ``_``. Not ``~``, which clients in Java encode."""


def find_path(environ: WSGIEnvironment) -> None:
    """Set ``PATH_INFO`` to the decoded path of a request, or ``UNCLEAR`` to the reason why it has none."""
    try:
        path = clean(sent_path(environ))
    except (ValueError, errors.BadRequestError) as error:
        environ[UNCLEAR] = str(error)
        environ["PATH_INFO"] = (environ.get("RAW_URI") or environ["PATH_INFO"]).partition("?")[0]  # for the log
    else:
        environ["PATH_INFO"] = path if path.isascii() else path.encode().decode("latin-1")


def clean(path: str) -> str:
    """Return the decoded path of one that is percent-encoded."""
    # A slash at the end stays, because ``data/`` has a meaning of its own; several are refused, because they are what a
    # client sends that has lost the document's id.
    if _CLEAN.fullmatch(path.removesuffix("/")):
        return path
    if not path.startswith(_RESOURCES):
        if not path.startswith("/"):
            raise ValueError("the path does not begin with a slash")
        if "//" in path:
            raise ValueError("the path contains '//'")
        if needless := _NEEDLESS.search(path):
            raise ValueError(f"the path contains {needless[0]!r}, which must be sent as {unquote(needless[0])!r}")
    segments = [_segment(part) for part in path.split("/") if part]
    if segments and path.endswith("//"):
        raise ValueError("the path ends with an empty name")
    return "/" + "/".join(segments) + ("/" if segments and path.endswith("/") else "")


def _segment(part: str) -> str:
    try:
        # Bytes above ASCII arrive as Latin-1 characters (PEP 3333).
        text = part if part.isascii() and "%" not in part else unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeError:
        raise ValueError(f"a name in the path is not UTF-8: {part!r}") from None
    if text in (".", ".."):
        raise ValueError(f"the path must not contain {text!r}")
    if "/" in text or "\\" in text:
        raise ValueError(f"a name in the path holds a character that is not allowed: {text!r}")
    require_plain(text)
    if len(text.encode()) > LONGEST_NAME:  # below, names are keys of caches
        raise ValueError(f"a name in the path is too long: {LONGEST_NAME} bytes are allowed")
    return text


def sent_path(environ: WSGIEnvironment) -> str:
    """Return the path as it was sent, percent-encoded, below where the application is mounted."""
    sent: str = environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""
    if "#" in sent:  # no part of a request (RFC 9112 3.2); a proxy in front may read the path as ending there
        raise ValueError("the path must not contain '#': it is %23 in a name, and a fragment is not sent")
    if sent.startswith("/"):
        path = sent.partition("?")[0]
    elif sent:
        path = urlsplit(sent).path or "/"
    else:
        raise ValueError(environ.get(UNCLEAR, "the server does not hand on the path as it was sent"))
    return path.removeprefix(environ.get("SCRIPT_NAME", ""))


# Bodies have no content coding, so the content and its representation are the same bytes.
_DIGEST_HEADERS = {"HTTP_CONTENT_DIGEST": "Content-Digest", "HTTP_REPR_DIGEST": "Repr-Digest"}
_DIGEST = re.compile(r"[ \t]*([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):[ \t]*(?:;.*)?", re.ASCII)
"""A member of a dictionary of byte sequences (RFC 8941 3.2), with parameters that mean nothing."""
_ALGORITHMS = {"sha-256": "sha256", "sha-512": "sha512", "sha": "sha1", "md5": "md5"}
"""The names of RFC 9530, and Python's. The old ones still show what a network has changed."""


def body_of(environ: WSGIEnvironment, limit: int) -> Iterator[bytes]:
    """Return the body of a request in pieces; ``limit`` is in bytes."""
    # What can be refused by the headers alone is refused before this returns. The body of a PUT is compared with its
    # digests (RFC 9530), and may not be a part of a content (RFC 9110 14.5).
    coding = environ.get("HTTP_CONTENT_ENCODING", "").strip().lower()
    if coding not in ("", "identity"):
        raise errors.EncodedBodyError(f"content coding {coding!r} is not accepted: send the body as it is")
    transfer, announced = environ.get("HTTP_TRANSFER_ENCODING", "").strip().lower(), environ.get("CONTENT_LENGTH")
    if transfer == "chunked":
        if not environ.get("wsgi.input_terminated"):
            raise errors.LengthRequiredError("this server cannot tell the end of a chunked body: send Content-Length")
        pieces = _chunked(environ, limit)
    elif transfer:
        raise errors.NotSupportedError(f"transfer coding {transfer!r} is not understood")
    elif not announced:
        raise errors.LengthRequiredError(
            "the request announces no body: send Content-Length, 0 for an empty one, or chunks"
        )
    elif int(announced) > limit:
        raise _too_large(limit)
    else:
        pieces = _measured(environ, int(announced))
    if environ["REQUEST_METHOD"] != "PUT":
        return pieces
    if "HTTP_CONTENT_RANGE" in environ:
        raise errors.BadRequestError("Content-Range: a part of a content cannot be stored, send all of it")
    digests = [*_digests(environ)]
    return _compared(pieces, digests) if digests else pieces


def _digests(environ: WSGIEnvironment) -> Iterator[tuple[str, str, bytes]]:
    for key, header in _DIGEST_HEADERS.items():
        for member in environ.get(key, "").split(",") if key in environ else ():
            found = _DIGEST.fullmatch(member)
            if found is None:
                raise errors.BadRequestError(f"{header} is not a valid list of digests such as sha-256=:BASE64:")
            if found[1] in _ALGORITHMS:
                yield header, found[1], _decoded(header, found[2])
    if "HTTP_CONTENT_MD5" in environ:
        yield "Content-MD5", "md5", _decoded("Content-MD5", environ["HTTP_CONTENT_MD5"].strip())


def _decoded(header: str, value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except ValueError as error:
        raise errors.BadRequestError(f"{header} has a digest that is not valid base64") from error


def _compared(pieces: Iterator[bytes], digests: Sequence[tuple[str, str, bytes]]) -> Iterator[bytes]:
    hashes = {name: hashlib.new(_ALGORITHMS[name], usedforsecurity=False) for _, name, _ in digests}
    for piece in pieces:
        for hashing in hashes.values():
            hashing.update(piece)
        yield piece
    for header, name, digest in digests:
        if hashes[name].digest() != digest:
            raise errors.BadRequestError(f"the body is not the one that {header} is of ({name}): send it again")


def _measured(environ: WSGIEnvironment, length: int) -> Iterator[bytes]:
    missing = length
    while missing:
        chunk = _read(environ["wsgi.input"], min(CHUNK, missing))
        if not chunk:
            raise errors.TruncatedBodyError(f"the body ended {missing} bytes before its announced length of {length}")
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
        raise errors.StalledBodyError("nothing more of the body has arrived for progress_timeout seconds") from error
    except Exception as error:
        # The server's own parser raises here for a malformed or unfinished chunk, and sockets for a lost client.
        raise errors.TruncatedBodyError(f"the body could not be read to its end: {error}") from error


def _too_large(limit: int) -> errors.BodyTooLargeError:
    return errors.BodyTooLargeError(f"the body is larger than the limit of {limit} bytes")


def drain(environ: WSGIEnvironment) -> None:
    """Read the rest of a body that is not used, so that the client reads the answer instead of a reset."""
    # The server would read 64 KiB, then hang up: a proxy in front that is still sending, or has sent its next request
    # on the same connection, would answer 502.
    if not (environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING")):
        return
    is_expected = "gunicorn.socket" in environ and environ.get("HTTP_EXPECT", "").lower() == "100-continue"
    if RECEIVED not in environ and is_expected:
        return  # the client waits to be asked, and the worker ends the connection
    left = MOST_DRAINED
    with suppress(Exception):  # the answer is decided; the client cannot change it any more
        while left > 0 and (chunk := environ["wsgi.input"].read(CHUNK)):
            left -= len(chunk)
