"""Sidecars of what another service has, by the headers of its answers (spec crud 4.3, 11)."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

import msgspec

from persistence.errors import BadRequestError, RemoteError
from persistence.model import instants
from persistence.model.addresses import Address, DefinitionAddress
from persistence.model.instants import Instant
from persistence.model.sidecar import LARGEST_VERSION, SCHEMA, ClientHash, Sidecar
from persistence.model.texts import WHOLE
from persistence.model.versions import FormMetadata
from persistence.remote.answers import RemoteAnswer
from persistence.remote.headers import ProviderNames

_LONG_AGO = Instant("1970-01-01T00:00:00.000Z")
_VERSION = re.compile(r"[0-9]{1,18}", re.ASCII)
_TAG = re.compile(r"[0-9a-f]{40}", re.ASCII)
_ENCRYPTED = "sealed"
"""Stands for the algorithm where the hash of an encrypted content was encrypted too."""

_NOBODY = FormMetadata(permissions="<permissions/>")


def sidecar_of(answer: RemoteAnswer, names: ProviderNames, address: Address) -> Sidecar:
    """Return the sidecar of the revision that a GET or HEAD has found."""
    field = _Fields(answer, names)
    modified = field.instant("Last-Modified")
    if modified is None:
        raise RemoteError(f"the answer for {address} does not say when it was modified")
    if modified == instants.LAST:
        raise RemoteError(f"the answer for {address} says that it was modified at {modified}, which nothing can follow")
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
        organization=() if is_definition else tuple(field.texts("Organization")),
        modifier=field.text("Last-Modified-By-Username"),
        source=field.text("Document"),
        client_hash=None if is_encrypted else hashed,
        sealed_hash=hashed.value if hashed is not None and is_encrypted else None,
    )


def kept_hash(sidecar: Sidecar) -> ClientHash | None:
    """Return the hash for the provider to keep: the client's own only where the content is plain."""
    return sidecar.client_hash if sidecar.sealed_hash is None else ClientHash(_ENCRYPTED, sidecar.sealed_hash)


def tombstone_of(address: Address) -> Sidecar:
    """Return the sidecar of a resource only known to be deleted; a definition permits nothing."""
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
    """Return the entity tag as 40 hex digits, hashed if it has another form."""
    sent = (answer.field("ETag") or "").strip()
    tag = sent.removeprefix("W/").strip('"')
    if not tag:
        return None
    return tag if _TAG.fullmatch(tag) else hashlib.sha256(sent.encode()).hexdigest()[:40]


def strong_tag(answer: RemoteAnswer) -> bytes | None:
    """Return the entity tag for an ``If-Match``, as it was sent: the form runtime compares text (spec crud 4.6).

    ``None`` where it is weak, and so never matches (RFC 9110 13.1.1).
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
        return next(iter(self.texts(name)), None) or None

    def texts(self, name: str) -> list[str]:
        header = self._names.theirs.header(name)
        return [unquote(each) for each in self._answer.fields(header + WHOLE)] or self._answer.fields(header)

    def hash(self) -> ClientHash | None:
        algorithm, value = self.text("Hash-Algorithm"), self.text("Hash-Value")
        return ClientHash(algorithm, value) if algorithm and value else None

    def instant(self, name: str) -> Instant | None:
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
    return hashlib.sha256(f"{address}\n{modified}".encode()).hexdigest()[:40]
