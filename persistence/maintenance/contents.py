"""Whether a content is the one its sidecar tells of."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from enum import Enum

from persistence.maintenance.findings import Finding, Kind
from persistence.model.sidecar import Sidecar, shows_stamp
from persistence.storage import digests
from persistence.storage.layout import Place


class Match(Enum):
    """How a content and a sidecar compare."""

    SAME = "same"
    TIMES_LOST = "the content is right, its modification time is not"
    ROTTEN = "size and time are right, the digest is not"
    OTHER = "another content"
    ABSENT = "no content"


def compare(place: Place, sidecar: Sidecar, *, deep: bool) -> Match:
    """Compare by size and time as readers do; by digest if ``deep``, or where that leaves a doubt.

    Raises:
        OSError: the content cannot be read.
    """
    try:
        status = os.lstat(place.content)
        if not stat.S_ISREG(status.st_mode):
            return Match.ABSENT
        if status.st_size != sidecar.size:
            return Match.OTHER
        if shows_stamp(status.st_mtime_ns, sidecar):
            return Match.SAME if not deep or _has_digest(place, sidecar) else Match.ROTTEN
        return Match.TIMES_LOST if _has_digest(place, sidecar) else Match.OTHER
    except FileNotFoundError:
        return Match.ABSENT


def faults(match: Match, place: Place, sidecar: Sidecar, whole: str = "") -> Iterator[Finding]:
    """Find fault with a content that looks like its sidecar's, current or older; ``whole`` names the way back."""
    if match is Match.ROTTEN:
        what = f"its digest is not {sidecar.digest}{whole and f'; {whole}'}"
        yield Finding(Kind.DIGEST_WRONG, place.content, what, place)
    elif match is Match.TIMES_LOST:
        yield Finding(Kind.TIMES_LOST, place.content, "copied without its modification time", place)


def is_whole(place: Place, sidecar: Sidecar) -> bool:
    """Whether the content is there and has the digest of the sidecar, by reading it; a tombstone has none to miss."""
    return sidecar.deleted or compare(place, sidecar, deep=True) in {Match.SAME, Match.TIMES_LOST}


def bears(place: Place, sidecar: Sidecar) -> bool:
    """Whether the content shows the stamp and size of a revision."""
    try:
        status = os.lstat(place.content)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    return not sidecar.deleted and status.st_size == sidecar.size and shows_stamp(status.st_mtime_ns, sidecar)


def _has_digest(place: Place, sidecar: Sidecar) -> bool:
    return sidecar.digest is not None and digests.of_file(place.content) == sidecar.digest
