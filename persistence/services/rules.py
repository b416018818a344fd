"""The values of requests and answers, and the rules about them: values in, a decision or an error out.

A request is parsed once at the edge, without its body, and trusted below. An answer becomes status and headers there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from persistence.errors import BadRequestError, DeletedError, NotFoundError, PreconditionError, disk_errors
from persistence.limits import CHUNK
from persistence.model.addresses import Address
from persistence.model.instants import Instant, next_after, to_datetime
from persistence.model.permissions import ANONYMOUS, Operations, User
from persistence.model.sidecar import SCHEMA, ClientHash, Sidecar, fresh_id, json_tag, plain_tag, restoring, tombstone
from persistence.model.versions import ABSENT, NO_PRECONDITION, FormMetadata, Precondition, VersionRequest
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision


@dataclass(frozen=True, slots=True)
class Origin:
    """The creation and the owner of a resource, from the headers of a proxy (spec crud 11).

    Without ``created`` it is being created now.
    """

    created: Instant | None
    owner: User


@dataclass(frozen=True, slots=True)
class Get:
    """A GET, or with ``content`` false a HEAD.

    ``instant`` selects one revision (spec crud 4.8), or ``as_of`` the one that was current at an instant. ``decrypt``
    asks for the plain content of an attachment (spec forms 4.3). ``token`` is not verified yet (spec crud 6.6).
    """

    version: VersionRequest = ABSENT
    instant: Instant | None = None
    as_of: Instant | None = None
    content: bool = True
    user: User = ANONYMOUS
    data_format: str | None = None
    decrypt: bool = False
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """A PUT; the fields below ``user`` are kept with the revision (spec crud 4.4).

    ``holder`` is the path of the element that holds an attachment (spec forms 4.2). Only a proxy sends ``origin`` and
    ``is_singleton``. ``restores`` is the sidecar of the older revision that is brought back, with its ``origin``.
    """

    version: VersionRequest = ABSENT
    precondition: Precondition = NO_PRECONDITION
    data_format: str | None = None
    user: User = ANONYMOUS
    content_type: str | None = None
    valid: bool | None = None
    stage: str | None = None
    source: str | None = None
    client_hash: ClientHash | None = None
    flat_view: bool = False
    holder: str | None = None
    origin: Origin | None = None
    is_singleton: bool = False
    token: str | None = None
    restores: Sidecar | None = None


@dataclass(frozen=True, slots=True)
class Revert:
    """A request to bring back an older revision: that of an ``instant``, or the one that was current ``as_of`` one."""

    version: VersionRequest = ABSENT
    instant: Instant | None = None
    as_of: Instant | None = None
    precondition: Precondition = NO_PRECONDITION
    user: User = ANONYMOUS
    token: str | None = None

    @property
    def get(self) -> Get:
        return Get(version=self.version, instant=self.instant, as_of=self.as_of, user=self.user, token=self.token)


@dataclass(frozen=True, slots=True)
class Delete:
    """A DELETE of one resource, or of all data of a form. Only a proxy sends ``origin``."""

    version: VersionRequest = ABSENT
    precondition: Precondition = NO_PRECONDITION
    user: User = ANONYMOUS
    origin: Origin | None = None
    token: str | None = None


Decryption = Callable[[Iterable[bytes]], Iterator[bytes]]  # Turns stored form data into an answer


@dataclass(frozen=True, slots=True)
class Read:
    """A revision to send; ``operations`` is ``None`` for definitions, which have none (spec crud 4.2).

    ``decryption`` is ``None`` where no value is encrypted. With ``is_decrypted`` an encrypted file is sent plain, and
    with ``is_json`` data or the outline of a definition as JSON.
    """

    address: Address
    found: StoredRevision
    operations: Operations | None
    decryption: Decryption | None = None
    is_decrypted: bool = False
    is_json: bool = False

    @property
    def etag(self) -> str:
        """The entity tag of the sent bytes; of what they are made from, it is another one (RFC 9110 8.8.3)."""
        if self.is_json:
            return json_tag(self.found.etag)
        return plain_tag(self.found.etag) if self.is_decrypted else self.found.etag

    @property
    def size(self) -> int | None:
        """The bytes of the content; ``None`` where another service does not say how many they are."""
        return None if self.found.size == UNKNOWN_SIZE else self.found.size

    def pieces(self) -> Iterator[bytes]:
        """Yield the open content as it is stored, and close it."""
        with self.found.opened as file, disk_errors(f"reading {self.address}"):
            yield from iter(partial(file.read, CHUNK), b"")

    @property
    def has_exact_date(self) -> bool:
        """Return whether the date identifies the content: not after an edit by hand, nor for two forms of a file."""
        is_of_two = self.is_decrypted or (self.found.sidecar.encrypted and not self.address.is_main)
        return not (is_of_two or self.found.is_edited)


@dataclass(frozen=True, slots=True)
class Written:
    """A stored revision; ``created`` distinguishes 201 from 204."""

    address: Address
    sidecar: Sidecar
    created: bool
    operations: Operations | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """The number of deleted documents, and of those that the user may not delete, with the reason for the first."""

    deleted: int
    refused: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    """A resource that is gone; without a ``tombstone`` it left no trace (drafts)."""

    address: Address
    version: int
    tombstone: Sidecar | None
    operations: Operations | None


RAW = "raw"


def living(found: StoredRevision | None) -> StoredRevision | None:
    """The revision, unless it is a tombstone."""
    return None if found is None or found.sidecar.deleted else found


def must_live(found: StoredRevision | None, address: Address) -> StoredRevision:
    """The revision, which must be there (spec crud 4.1)."""
    if found is None:
        raise NotFoundError(f"{address} does not exist")
    if found.sidecar.deleted:
        if not address.keeps_history:
            raise NotFoundError(f"{address} does not exist")
        raise DeletedError(f"{address} was deleted")
    return found


def check_precondition(
    precondition: Precondition,
    address: Address,
    *stored: StoredRevision | None,
    may_read: Callable[[], bool] = lambda: True,
) -> None:
    """Compare the precondition of a write with the stored revision (spec crud 4.6).

    For an attachment, whose document comes second, ``If-Match`` may mean either (spec crud 4.2), or the tag of its
    decrypted content; for data, the tag of its JSON. Only where ``may_read`` returns true, the error says who has
    saved, when, and under which tag.
    """
    if precondition is NO_PRECONDITION:
        return
    there = [found for found in stored if found is not None]
    reason = _reason(precondition, address, stored[0], [tag for found in there for tag in _tags(found)])
    if reason is not None and there and may_read():
        last, sidecar = there[0], there[0].sidecar
        by = "" if sidecar.modifier is None else f" by {sidecar.modifier}"
        edited = ", and edited by hand since" if last.is_edited else ""
        reason = f'current ETag "{last.etag}", saved at {sidecar.modified}{by}{edited}: {reason}'
    if reason is not None:
        raise PreconditionError(reason)


def _reason(
    precondition: Precondition, address: Address, own: StoredRevision | None, tags: Sequence[str]
) -> str | None:
    excluded, expected, since = precondition.excluded, precondition.expected, precondition.unmodified_since
    if expected is not None:
        if own is None and (not tags or expected.tags is None):
            missing = f"nothing is stored that If-Match could name; it may have been deleted: {address}"
            return missing if precondition.must_exist else None
        if not expected.match(*tags) and any(tag.startswith("W/") for tag in expected.tags or ()):
            return (
                "a weak tag (W/) never matches in If-Match (RFC 9110 13.1.1), and a proxy may have weakened it:"
                f" {address}"
            )
        if not expected.match(*tags):
            return f"If-Match does not name the current ETag, so somebody has saved since: {address}"
    elif (
        since is not None
        and own is not None
        and (own.is_edited or to_datetime(own.sidecar.modified).replace(microsecond=0) > since)
    ):
        return f"somebody has saved after the time of If-Unmodified-Since: {address}"
    if excluded is not None and own is not None and excluded.match(*_tags(own)):
        is_any = excluded.tags is None
        return f"{address} already exists" + (" (If-None-Match: *)" if is_any else ", as If-None-Match names it")
    return None


def _tags(found: StoredRevision) -> tuple[str, ...]:
    return found.etag, plain_tag(found.etag), json_tag(found.etag)


@dataclass(frozen=True, slots=True)
class Received:
    """The content received for a PUT; ``content_type`` is the type to keep.

    ``metadata`` is that of a form definition, which with ``has_marks`` may mark controls. Form data without encrypted
    values ``is_plain``.
    """

    id: str
    size: int
    digest: str
    content_type: str
    metadata: FormMetadata | None = None
    is_plain: bool = False
    has_marks: bool = False


def next_revision(put: Put, received: Received, version: int, *, over: StoredRevision | None, owner: User) -> Sidecar:
    """The sidecar of an accepted PUT.

    Over nothing, or over a tombstone, it is a creation, and ``owner`` becomes the owner (spec crud 4.4). Headers of a
    proxy take precedence. The stage is never inherited.
    """
    modified = next_after(over.latest if over is not None else None)
    origin = put.origin
    if origin is None:
        there = living(over)
        origin = Origin(None, owner) if there is None else Origin(there.sidecar.created, there.sidecar.facts.owner)
    created = origin.created or modified
    if put.origin is not None and created > modified:
        raise BadRequestError(f"a resource cannot have been created at {created}, which is in the future")
    sidecar = Sidecar(
        schema=SCHEMA,
        id=received.id,
        version=version,
        modified=modified,
        created=created,
        size=received.size,
        digest=received.digest,
        content_type=received.content_type,
        valid=put.valid,
        stage=put.stage,
        creator=origin.owner.name,
        group=origin.owner.group,
        organization=origin.owner.organization,
        modifier=put.user.name,
        source=put.source,
        client_hash=put.client_hash,
        metadata=received.metadata,
        encrypted=False if received.is_plain else None,
    )
    return sidecar if put.restores is None else restoring(sidecar, put.restores)


def tombstone_of(found: StoredRevision, user: User) -> Sidecar:
    """The tombstone that a DELETE by a user leaves of a revision."""
    return tombstone(found.sidecar, modified=next_after(found.latest), modifier=user.name)


def tombstone_over(found: StoredRevision | None, version: int, delete: Delete) -> Sidecar:
    """The tombstone that a DELETE leaves, even if nothing is stored (spec crud 11)."""
    if found is not None:
        return tombstone_of(found, delete.user)
    modified = next_after(None)
    origin = delete.origin or Origin(None, delete.user)
    return Sidecar(
        schema=SCHEMA,
        id=fresh_id(),
        version=version,
        modified=modified,
        created=min(origin.created or modified, modified),
        size=0,
        creator=origin.owner.name,
        group=origin.owner.group,
        modifier=delete.user.name,
        deleted=True,
    )
