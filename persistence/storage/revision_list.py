"""The revisions of one resource, newest first: their number and instants at once, their facts a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from persistence.errors import DamagedError
from persistence.model.history import ListedRevision
from persistence.model.instants import Instant, one_later
from persistence.model.sidecar import Sidecar
from persistence.storage.older_instants import OlderInstants


class RevisionList(Protocol):
    """All revisions of a resource as they were at one moment, tombstones included; position 0 is the current one.

    Methods raise what reading a sidecar does, but ``DamagedError`` only for the current revision.
    """

    @property
    def total(self) -> int:
        """How many there are, at least one."""

    def instant(self, position: int) -> Instant:
        """Return the instant of the revision at a position."""

    def since(self, instant: Instant) -> int:
        """Return how many are of an instant or newer: the position of the first that is older."""

    def revision(self, position: int) -> ListedRevision | None:
        """Return the revision at a position with all that is known of it; ``None`` where it is gone meanwhile."""

    def page(self, begin: int, end: int) -> list[ListedRevision]:
        """Return the revisions from a position up to another, without those that are gone meanwhile."""


def count_since(revisions: RevisionList, instant: Instant) -> int:
    """Return how many revisions are of an instant or newer, by looking at few of them."""
    low, high = 0, revisions.total
    while low < high:
        middle = (low + high) // 2
        if revisions.instant(middle) >= instant:
            low = middle + 1
        else:
            high = middle
    return low


def position_at(revisions: RevisionList, instant: Instant) -> int:
    """Return the position of the revision that was current at an instant; ``total`` where that is before the first."""
    return 0 if instant >= revisions.instant(0) else revisions.since(one_later(instant))


@dataclass(frozen=True, slots=True)
class StoredRevisions(RevisionList):
    """The revisions in a tree: ``current`` has been read, ``older`` are the instants of the others.

    ``read_older`` reads the sidecar of an older one; ``None`` where it is gone.
    """

    current: Sidecar
    older: OlderInstants
    read_older: Callable[[Instant], Sidecar | None]

    @property
    def total(self) -> int:
        """See ``RevisionList``."""
        return 1 + len(self.older)

    def instant(self, position: int) -> Instant:
        """See ``RevisionList``."""
        return self.older[position - 1] if position else self.current.modified

    def since(self, instant: Instant) -> int:
        """See ``RevisionList``."""
        return count_since(self, instant)

    def revision(self, position: int) -> ListedRevision | None:
        """See ``RevisionList``."""
        instant = self.instant(position)
        if position == 0:
            return ListedRevision(instant, self.current)
        try:
            sidecar = self.read_older(instant)
        except DamagedError:
            return ListedRevision(instant, None)
        return None if sidecar is None else ListedRevision(instant, sidecar)

    def page(self, begin: int, end: int) -> list[ListedRevision]:
        """See ``RevisionList``."""
        found = (self.revision(position) for position in range(begin, min(end, self.total)))
        return [each for each in found if each is not None]
