"""The rules as pure functions: values in, a decision or an error out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from persistence.errors import BadRequestError, DeletedError, NotFoundError, PreconditionError
from persistence.model.addresses import Address
from persistence.model.form_versions import DATA_FORMATS, FormMetadata
from persistence.model.instants import next_after
from persistence.model.preconditions import NO_PRECONDITION, Precondition
from persistence.model.sidecar import SCHEMA, Sidecar, fresh_id, plain_tag, tombstone
from persistence.model.users import User
from persistence.services.requests import Delete, Origin, Put
from persistence.storage.stored_revision import StoredRevision

RAW = "raw"


def living(found: StoredRevision | None) -> StoredRevision | None:
    """The revision, unless it is a tombstone."""
    return None if found is None or found.sidecar.deleted else found


def must_live(found: StoredRevision | None, address: Address) -> StoredRevision:
    """The revision, which must be there (spec crud 4.1).

    Raises:
        NotFoundError: nothing was ever stored; or it is a draft, whose removal leaves no trace.
        DeletedError: the newest revision is a tombstone.
    """
    if found is None:
        raise NotFoundError(f"{address} does not exist")
    if found.sidecar.deleted:
        if not address.keeps_history:
            raise NotFoundError(f"{address} does not exist")
        raise DeletedError(f"{address} was deleted")
    return found


def check_data_format(asked: str | None, stored: str) -> None:
    """Compare the parameter ``data-format-version`` with the format of data at rest (spec crud 3.1).

    Raises:
        BadRequestError: it is no known format, or not the stored one.
    """
    if not asked or asked in (RAW, stored):
        return
    if asked in DATA_FORMATS:
        raise BadRequestError(f"form data is stored in format {stored}, not {asked}")
    raise BadRequestError(f"data-format-version must be one of {', '.join((*DATA_FORMATS, RAW))}, not {asked!r}")


def _everybody_may_read() -> bool:
    return True


def check_precondition(
    precondition: Precondition,
    address: Address,
    *stored: StoredRevision | None,
    may_read: Callable[[], bool] = _everybody_may_read,
) -> None:
    """Compare ``If-Match`` and ``If-None-Match`` with what is stored (spec crud 4.6).

    For an attachment the client may mean the attachment or its document (spec crud 4.2): either will do, and so
    will the tag of its decrypted content. Where nothing is stored, there is nothing to overwrite and the headers are
    ignored. ``may_read`` says whether the caller may know who has saved, when, and under which tag; it is asked only
    where the precondition fails.

    Raises:
        PreconditionError: something is stored, and nothing of it is what the client expects.
    """
    if precondition is NO_PRECONDITION:
        return
    there = [found for found in stored if found is not None]
    tags = [tag for found in there for tag in (found.etag, plain_tag(found.etag))]
    if tags and not precondition.holds_for(*tags):
        reason = _reason(precondition, address, tags)
        raise PreconditionError(f"{_last_save(there[0])}: {reason}" if may_read() else reason)


def _reason(precondition: Precondition, address: Address, tags: Sequence[str]) -> str:
    excluded, expected = precondition.excluded, precondition.expected
    if expected is None or expected.match(*tags):
        is_any = excluded is not None and excluded.tags is None
        return f"{address} already exists" + (" (If-None-Match: *)" if is_any else ", as If-None-Match names it")
    if expected.has_weak:
        return (
            f"a weak tag (W/) never matches in If-Match (RFC 9110 13.1.1), and a proxy may have weakened it: {address}"
        )
    return f"If-Match does not name the current ETag, so somebody has saved since: {address}"


def _last_save(found: StoredRevision) -> str:
    """The tag comes first: a long name may be cut off."""
    sidecar = found.sidecar
    by = "" if sidecar.modifier is None else f" by {sidecar.modifier}"
    edited = ", and edited by hand since" if found.is_edited else ""
    return f'current ETag "{found.etag}", saved at {sidecar.modified}{by}{edited}'


@dataclass(frozen=True, slots=True)
class Received:
    """The content received for a PUT: its id, its size in bytes, its digest and the type to keep.

    ``metadata`` is what a form definition says of its form. ``is_plain`` says of form data that nothing
    in it is marked as encrypted.
    """

    id: str
    size: int
    digest: str
    content_type: str
    metadata: FormMetadata | None = None
    is_plain: bool = False


def next_revision(put: Put, received: Received, version: int, *, over: StoredRevision | None, owner: User) -> Sidecar:
    """The sidecar of an accepted PUT.

    Creation and owner are kept from a living revision. Over nothing, or over a tombstone, it is a creation, and
    ``owner`` becomes the owner (spec crud 4.4). What a proxy says of them wins. The stage is never inherited.

    Raises:
        BadRequestError: a proxy says that the resource was created in the future.
    """
    modified = next_after(over.latest if over is not None else None)
    origin = put.origin or _stored_origin(living(over)) or Origin(None, owner)
    created = origin.created or modified
    if put.origin is not None and created > modified:
        raise BadRequestError(f"a resource cannot have been created at {created}, which is yet to come")
    return Sidecar(
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


def tombstone_of(found: StoredRevision, user: User) -> Sidecar:
    """The tombstone that a DELETE by a user leaves of a revision."""
    return tombstone(found.sidecar, modified=next_after(found.latest), modifier=user.name)


def tombstone_over(found: StoredRevision | None, version: int, delete: Delete) -> Sidecar:
    """The tombstone that a DELETE leaves whatever is stored, even of nothing (spec crud 11)."""
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


def _stored_origin(found: StoredRevision | None) -> Origin | None:
    return None if found is None else Origin(found.sidecar.created, found.sidecar.facts.owner)
