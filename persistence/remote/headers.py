"""The headers of calls to another service, which may speak another dialect, and of its answers (spec crud 4.3, 11)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from persistence.client_request import ClientRequest
from persistence.dialect import DIALECTS, Dialect
from persistence.errors import BadRequestError, RemoteError
from persistence.model import instants, users
from persistence.model.addresses import Address, DefinitionAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import LARGEST_VERSION, SCHEMA, ClientHash, Sidecar
from persistence.model.versions import FormMetadata

if TYPE_CHECKING:
    from persistence.remote.client import RemoteAnswer

HeaderField = tuple[str, bytes]
HeaderFields = Sequence[HeaderField]
"""Header fields on their way out; values are bytes, because their encoding does not matter."""

_NOT_FORWARDED = frozenset(
    {
        # Fields about one connection (RFC 9110 7.6.1).
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
        # Others that a proxy does not pass on (spec crud 3), and those about the body, which was received here.
        *("accept-encoding", "content-encoding", "content-length", "content-type", "expect", "host"),
        *("cookie", "cookie2"),
        # Origins, conditions, ranges and lengths of leases: this service judges them itself.
        *("origin", "sec-fetch-site", "timeout", "if-match", "if-modified-since", "if-none-match", "if-range"),
        *("if-unmodified-since", "range"),
    }
)

_OF_CLIENTS = frozenset({"create-flat-view", "credentials", "path-to-holder"})
"""Fields of the service's own, without prefix, that a client may say to a provider (spec crud 3, search 7).

The others are this service's decisions, or belong to answers. A provider believes them.
"""

_USER = frozenset(("username", "group", "roles"))

_NUMBER = "x-request-id"
"""The id of the request, which is this service's."""


@dataclass(frozen=True, slots=True)
class ProviderNames:
    """The names of one provider: ``own`` is the dialect that is spoken here, ``theirs`` the one spoken there.

    ``mirrored`` are its properties as fields, without prefix (spec crud 10.3).
    """

    own: Dialect
    theirs: Dialect
    mirrored: tuple[tuple[str, str], ...] = ()

    def app(self, app: str) -> str:
        """Return the name there of an application here, and the reverse: the designers' two change places."""
        pair = {self.own.designer_app: self.theirs.designer_app, self.theirs.designer_app: self.own.designer_app}
        return pair.get(app, app)

    def of_form(self, api: str, form: Form, *rest: str) -> str:
        """Return the path of something about a form below the base of the provider, percent-encoded."""
        return path(api, self.app(form.app), form.name, *rest)

    def path(self, address: Address) -> str:
        """Return the path of a resource below the base of the provider, percent-encoded."""
        if isinstance(address, DefinitionAddress):
            return self.of_form("crud", address.form, "form", address.name)
        return self.of_form("crud", address.form, address.collection.value, address.document, address.name)

    def field(self, name: str, value: str) -> HeaderField:
        """Return a field of the service's own."""
        return self.theirs.header(name), value.encode()

    def version(self, version: int | str) -> HeaderField:
        """Return the field that names a form definition version."""
        return self.field("Form-Definition-Version", str(version))

    def forwarded(self, request: ClientRequest) -> HeaderFields:
        """Return the headers of every call for a client's request: the caller, other fields, the provider's properties.

        Fields of the service's own get the prefix of the provider. Those of another dialect are left out, because they
        have not been checked. Those that ``Connection`` names are left out (RFC 9110 7.6.1), but not those that were
        judged here: a client must not be another user there than here.
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
                    fields.append((self.theirs.header(own.title()), value.encode("latin-1")))
            elif lower not in _NOT_FORWARDED and lower not in named and not lower.startswith(foreign):
                fields.append((name, value.encode("latin-1")))
        return [*fields, *user, *(self.field(name, value) for name, value in self.mirrored)]

    def _user(self, request: ClientRequest) -> HeaderFields:
        """Return the caller in fields of their own, where the request has credentials (spec forms 5.6)."""
        sent = request.field_of(self.own.header("Credentials"))
        if not sent or not sent.strip():
            return ()
        try:
            user = users.parse_credentials(sent.encode("latin-1").decode())
        except (BadRequestError, UnicodeError):  # refused where the caller must be known
            return ()
        roles = (("Roles", role.name) for role in user.roles if role.organization is None)
        pairs = (("Username", user.name), ("Group", user.group), *roles)
        return [self.field(name, value) for name, value in pairs if value and value.isprintable()]


def path(*segments: str) -> str:
    """Return a path of names, each percent-encoded."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


_LONG_AGO = Instant("1970-01-01T00:00:00.000Z")
_VERSION = re.compile(r"[0-9]{1,18}", re.ASCII)
_TAG = re.compile(r"[0-9a-f]{40}", re.ASCII)
_ENCRYPTED = "sealed"
"""Stands for the algorithm where the hash of an encrypted content was encrypted too."""

_NOBODY = FormMetadata(permissions="<permissions/>")


def sidecar_of(answer: RemoteAnswer, names: ProviderNames, address: Address) -> Sidecar:
    """Return the sidecar of the revision that a GET or HEAD has found.

    Raises:
        RemoteError: the answer lacks a required header.
    """
    field = _Fields(answer, names)
    modified = field.instant("Last-Modified")
    if modified is None:
        raise RemoteError(f"the answer for {address} does not say when it was modified")
    if modified == instants.LAST:
        raise RemoteError(f"the answer for {address} says that it was modified at {modified}: nothing can come after")
    hashed = field.hash()
    is_encrypted = hashed is not None and hashed.algorithm == _ENCRYPTED
    valid = field.text("Valid")
    is_definition = isinstance(address, DefinitionAddress)
    return Sidecar(
        schema=SCHEMA,
        id=tag_of(answer) or _tag(address, modified),
        version=_version(field.text("Form-Definition-Version"), address),
        modified=modified,
        created=field.instant("Created") or modified,
        size=answer.length or 0,
        content_type=answer.field("Content-Type"),
        valid=None if valid is None else valid == "true",
        stage=field.text("Workflow-Stage"),
        creator=None if is_definition else field.text("Username"),
        group=None if is_definition else field.text("Group"),
        organization=() if is_definition else tuple(answer.fields(names.theirs.header("Organization"))),
        modifier=field.text("Last-Modified-By-Username"),
        source=field.text("Document"),
        client_hash=None if is_encrypted else hashed,
        sealed_hash=hashed.value if hashed is not None and is_encrypted else None,
    )


def kept_hash(sidecar: Sidecar) -> ClientHash | None:
    """Return the hash for the provider to keep: the client's own only where the content is plain."""
    return sidecar.client_hash if sidecar.sealed_hash is None else ClientHash(_ENCRYPTED, sidecar.sealed_hash)


def tombstone_of(address: Address) -> Sidecar:
    """Return the sidecar of a resource that is only known to be deleted.

    A deleted definition permits nothing: its permissions are not known.
    """
    is_definition = isinstance(address, DefinitionAddress)
    return Sidecar(
        schema=SCHEMA,
        id=_tag(address, _LONG_AGO),
        version=address.version if isinstance(address, DefinitionAddress) else 1,
        modified=_LONG_AGO,
        created=_LONG_AGO,
        size=0,
        metadata=_NOBODY if is_definition else None,
        deleted=True,
    )


def tag_of(answer: RemoteAnswer) -> str | None:
    """Return the entity tag as 40 hex digits, hashed if it is not of that form; ``None`` where there is none."""
    sent = (answer.field("ETag") or "").strip()
    tag = sent.removeprefix("W/").strip('"')
    if not tag:
        return None
    return tag if _TAG.fullmatch(tag) else hashlib.sha256(sent.encode()).hexdigest()[:40]


def strong_tag(answer: RemoteAnswer) -> bytes | None:
    """Return the entity tag for an ``If-Match``, as it was sent: the form runtime compares text (spec crud 4.6).

    ``None`` where there is none, or it is weak and so never matches (RFC 9110 13.1.1).
    """
    sent = (answer.field("ETag") or "").strip()
    return sent.encode() if sent and sent.isascii() and not sent.startswith("W/") else None


def as_stored(answer: RemoteAnswer, names: ProviderNames, address: Address, sidecar: Sidecar) -> Sidecar:
    """Return the sidecar with the tag and instant of the answer: the other side has its own."""
    modified = _Fields(answer, names).instant("Last-Modified")
    tag = tag_of(answer) or (sidecar.id if modified is None else _tag(address, modified))
    return msgspec.structs.replace(sidecar, id=tag, modified=modified or sidecar.modified)


class _Fields:
    """The header fields of an answer under the provider's prefix."""

    def __init__(self, answer: RemoteAnswer, names: ProviderNames) -> None:
        self._answer = answer
        self._names = names

    def text(self, name: str) -> str | None:
        return self._answer.field(self._names.theirs.header(name)) or None

    def hash(self) -> ClientHash | None:
        algorithm, value = self.text("Hash-Algorithm"), self.text("Hash-Value")
        return ClientHash(algorithm, value) if algorithm and value else None

    def instant(self, name: str) -> Instant | None:
        """Return a time, exact where the provider's own field has it, else to the second."""
        try:
            own = self.text(name)
            if own is not None:
                return instants.from_datetime(instants.parse_time(own, name))
            common = self._answer.field(name)
            return None if common is None else instants.from_datetime(parsedate_to_datetime(common).astimezone(UTC))
        except (BadRequestError, ValueError, OverflowError):
            return None


def _version(text: str | None, address: Address) -> int:
    if isinstance(address, DefinitionAddress):
        return address.version
    number = int(text) if text is not None and _VERSION.fullmatch(text.strip()) else 0
    if not 1 <= number <= LARGEST_VERSION:
        raise RemoteError(f"the answer for {address} does not say its form definition version")
    return number


def _tag(address: Address, modified: Instant) -> str:
    """Return a tag where the provider gives none: of that resource, and of that instant."""
    return hashlib.sha256(f"{address}\n{modified}".encode()).hexdigest()[:40]
