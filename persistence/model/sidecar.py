"""The sidecar, everything about a stored revision but its content, and pages of a history (spec crud 8.1)."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

import msgspec

from persistence.limits import HISTORY_PAGE, LARGEST_HISTORY_PAGE
from persistence.model.addresses import DocumentAddress
from persistence.model.permissions import User
from persistence.model.texts import Instant, count, epoch_nanoseconds, one_later
from persistence.model.versions import FormMetadata

SCHEMA = 2  # The version of the sidecar's fields: a sidecar with another number is damaged

DIGEST_ALGORITHM = "sha256"

LARGEST_VERSION = (1 << 63) - 1  # The largest number that is read and written as JSON

_Instant = Annotated[Instant, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")]


class DocumentFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts of a document that searches filter, sort and answer with, besides its content."""

    version: int
    created: Instant
    modified: Instant
    creator: str | None = None
    group: str | None = None
    organization: tuple[str, ...] = ()
    modifier: str | None = None
    stage: str | None = None

    @property
    def owner(self) -> User:
        return User(name=self.creator, group=self.group, organization=self.organization)


_facts_of = attrgetter(*DocumentFacts.__struct_fields__)


class ClientHash(msgspec.Struct, frozen=True):
    """The opaque pair a client computed over an attachment; echoed, never verified (spec crud 3)."""

    algorithm: str
    value: str


class Body(msgspec.Struct, frozen=True):
    """The content of an attachment that is kept elsewhere: its size in bytes, and its digest."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    digest: str | None


class Sidecar(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One revision of one resource, as the JSON file beside its content holds it."""

    schema: int
    # Fresh for every revision: it names the content on its way to its place, and is the entity tag on the wire.
    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")]
    version: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_VERSION)]
    modified: _Instant
    created: _Instant
    size: Annotated[int, msgspec.Meta(ge=0)]  # in bytes; 0 of a tombstone
    digest: str | None = None  # ``sha256:`` and 64 hex digits; a tombstone has none
    content_type: str | None = None
    valid: bool | None = None
    stage: str | None = None
    creator: str | None = None
    group: str | None = None
    organization: tuple[str, ...] = ()
    modifier: str | None = None
    source: str | None = None
    client_hash: ClientHash | None = None
    metadata: FormMetadata | None = None
    deleted: bool = False  # a tombstone
    adopted: bool = False  # made by a repair or an adoption
    flat_view: bool = False  # the definition's version has flat views
    body: Body | None = None  # where another provider keeps the content
    encrypted: bool | None = None  # an attachment, or some value of form data, is; ``None``: not examined
    sealed_hash: str | None = None  # the client's hash of an encrypted attachment
    tag: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")] | None = None  # of one that was encrypted again
    restored: _Instant | None = None  # the instant of the older revision that this one restores
    purged: bool = False  # the tombstone is removed with the last older revision
    name: str | None = None  # of an attachment whose file is called by a part of it

    @property
    def etag(self) -> str:
        return self.tag or self.id

    @property
    def facts(self) -> DocumentFacts:
        return DocumentFacts(*_facts_of(self))


def digest_text(hexadecimal: str) -> str:
    """Return a digest as sidecars have it: its algorithm, a colon and its digits."""
    return f"{DIGEST_ALGORITHM}:{hexadecimal}"


def digits_of(digest: str) -> str:
    return digest.removeprefix(f"{DIGEST_ALGORITHM}:")


class HashedPieces:
    """Pieces of a content that are counted and hashed as they pass by."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.size = 0
        self._pieces = pieces
        self._hashing = hashlib.new(DIGEST_ALGORITHM)

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._hashing.update(piece)
            self.size += len(piece)
            yield piece

    @property
    def digest(self) -> str:
        return digest_text(self._hashing.hexdigest())


def digest_of(pieces: Iterable[bytes]) -> str:
    hashed = HashedPieces(pieces)
    deque(hashed, maxlen=0)
    return hashed.digest


_NO_BYTES = digest_text(hashlib.new(DIGEST_ALGORITHM).hexdigest())


def recorded(sidecar: Sidecar) -> Sidecar:
    """Return the record of a revision whose body is elsewhere; ``described`` undoes it."""
    body = Body(sidecar.size, sidecar.digest)
    return msgspec.structs.replace(sidecar, size=0, digest=_NO_BYTES, body=body)


def described(record: Sidecar) -> Sidecar:
    body = record.body
    return record if body is None else msgspec.structs.replace(record, size=body.size, digest=body.digest, body=None)


def later_than(sidecar: Sidecar, before: Instant) -> Sidecar:
    """Return a sidecar with an instant after another one, even if the clock was set back."""
    if before < sidecar.modified:
        return sidecar
    modified = one_later(before)
    created = modified if sidecar.created == sidecar.modified else sidecar.created
    return msgspec.structs.replace(sidecar, modified=modified, created=created)


def restoring(sidecar: Sidecar, older: Sidecar) -> Sidecar:
    """Return the sidecar of a revision that restores an older one: it has the same bytes, encrypted or not."""
    return msgspec.structs.replace(
        sidecar, restored=older.modified, encrypted=older.encrypted or sidecar.encrypted, sealed_hash=older.sealed_hash
    )


def owned(sidecar: Sidecar, owner: User) -> Sidecar:
    return msgspec.structs.replace(sidecar, creator=owner.name, group=owner.group, organization=owner.organization)


def fresh_id() -> str:
    """Make a content id: 40 lower-case hex digits, the shape of the entity tag (spec crud 4.6)."""
    return secrets.token_hex(20)


def plain_tag(etag: str) -> str:
    """Return the entity tag of the decrypted content of an attachment whose stored bytes have ``etag``."""
    return hashlib.sha256(f"{etag}:plain".encode()).hexdigest()[:40]


def json_tag(etag: str) -> str:
    """Return the entity tag of the JSON of form data whose stored bytes have ``etag``."""
    return hashlib.sha256(f"{etag}:json".encode()).hexdigest()[:40]


def stamp(sidecar: Sidecar) -> int:
    """Return the modification time of a revision's content, in nanoseconds since 1970."""
    # Below the millisecond it has digits of the id, to tell a content from every other that has been at its place.
    return epoch_nanoseconds(sidecar.modified) + int(sidecar.id[:8], 16) % 1_000_000


_GRANULARITIES = (1, 100, 1000, 1_000_000, 1_000_000_000, 2_000_000_000)


def shows_stamp(nanoseconds: int, sidecar: Sidecar) -> bool:
    """Return whether a modification time is a revision's stamp, as exactly as a file system or a copy keeps it."""
    expected = stamp(sidecar)
    return any(expected // step * step == nanoseconds for step in _GRANULARITIES)


def tombstone(replaced: Sidecar, *, modified: Instant, modifier: str | None) -> Sidecar:
    """Make the revision that a DELETE leaves: creation and owner are kept, the stage is empty (spec crud 4.4)."""
    # The metadata of a definition is kept too: data made with it may be left without any other version.
    return Sidecar(
        schema=SCHEMA,
        id=fresh_id(),
        version=replaced.version,
        modified=modified,
        created=replaced.created,
        size=0,
        creator=replaced.creator,
        group=replaced.group,
        organization=replaced.organization,
        modifier=modifier,
        metadata=replaced.metadata,
        deleted=True,
    )


@dataclass(frozen=True, slots=True)
class ListedRevision:
    """A revision in a list; ``sidecar`` is ``None`` where it is damaged, so that only the instant is known."""

    instant: Instant
    sidecar: Sidecar | None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page of a list, such as a history, of ``size`` items; the first has ``number`` 1."""

    number: int = 1
    size: int = HISTORY_PAGE


def page_request(number: str | None, size: str | None) -> PageRequest:
    """Read the page that a request names; a size that is too large means the largest."""
    wanted = count(size or "", "page-size", HISTORY_PAGE)
    return PageRequest(count(number or "", "page-number", 1), min(wanted, LARGEST_HISTORY_PAGE))


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of the revisions that a caller may see, of which there are ``total``."""

    address: DocumentAddress
    asked: PageRequest
    total: int = 0
    newest: Instant | None = None  # the instant of the first of all, ``None`` where there are none
    oldest: Instant | None = None  # likewise, of the last of all
    revisions: tuple[ListedRevision, ...] = ()
    older: ListedRevision | None = None  # the revision before the last one on the page

    @property
    def damaged(self) -> int:
        """The number of revisions on the page of which only the instant is known."""
        return sum(each.sidecar is None for each in self.revisions)
