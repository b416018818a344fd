"""Preconditions of writes: whether one holds for what is stored, and the reason why not (spec crud 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from persistence.errors import PreconditionError
from persistence.model.addresses import Address
from persistence.model.preconditions import NO_PRECONDITION, Precondition
from persistence.model.sidecar import plain_tag
from persistence.storage.stored_revision import StoredRevision


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
