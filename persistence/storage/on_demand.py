"""Histories and contents that are read as they are needed, the same for every storage."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from persistence.errors import DamagedError
from persistence.limits import FIRST_PIECE, LARGEST_PIECE
from persistence.model.sidecar import ListedRevision, digest_text
from persistence.model.texts import Instant, one_later

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@dataclass(frozen=True, slots=True)
class RevisionList:
    """All revisions of a resource as they were at one moment, tombstones included; position 0 is the current one."""

    # ``instant`` returns that of the revision at a position. ``load`` reads those from a position up to another with
    # all that is known of them, without those that are gone meanwhile. Both raise what reading a sidecar does, but
    # ``DamagedError`` only for the current revision.
    total: int  # at least one
    instant: Callable[[int], Instant]
    load: Callable[[int, int], list[ListedRevision]]

    def revision(self, position: int) -> ListedRevision | None:
        """Return the revision at a position; ``None`` where it is gone meanwhile."""
        return next(iter(self.load(position, position + 1)), None)

    def page(self, begin: int, end: int) -> list[ListedRevision]:
        return self.load(begin, min(end, self.total))

    def since(self, instant: Instant) -> int:
        """Return how many are of an instant or newer: the position of the first that is older."""
        low, high = 0, self.total
        if self.instant(high - 1) >= instant:  # which another service says without a page of its own
            return high
        while low < high:
            middle = (low + high) // 2
            if self.instant(middle) >= instant:
                low = middle + 1
            else:
                high = middle
        return low

    def position_at(self, instant: Instant) -> int:
        """Return the position of the revision that was current at an instant; ``total`` for one before the first."""
        return 0 if instant >= self.instant(0) else self.since(one_later(instant))


PieceReader = Callable[[int, int], bytes | memoryview]
"""Reads the bytes from one offset to another, or as many from the first one on as it has at once."""


class RangedFile(io.RawIOBase):
    """A content of ``size`` bytes elsewhere, read in pieces, of which one is in memory; ``let_go`` ends the reading."""

    # A reader that goes from its beginning to its end gets the last piece only if all of it has the ``digest``.
    def __init__(
        self, size: int, read: PieceReader, digest: str | None = None, let_go: Callable[[], None] | None = None
    ) -> None:
        super().__init__()
        self._size = size
        self._read = read
        self._digest = digest
        self._let_go = let_go
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._at = 0
        self._begin = 0
        self._piece = memoryview(b"")
        self._length = FIRST_PIECE

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._at >= self._size:
            return 0
        if not self._begin <= self._at < self._begin + len(self._piece):
            self._load()
        room, start = memoryview(buffer).cast("B"), self._at - self._begin
        taken = self._piece[start : start + len(room)]
        room[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)

    def _load(self) -> None:
        begin, follows = self._at, self._piece and self._at == self._begin + len(self._piece)
        self._length = min(2 * self._length, LARGEST_PIECE) if follows else FIRST_PIECE
        piece = memoryview(self._read(begin, min(begin + self._length, self._size)))
        if self._digest is not None and begin == self._hashed:
            self._hash.update(piece)
            self._hashed += len(piece)
            if self._hashed == self._size and digest_text(self._hash.hexdigest()) != self._digest:
                raise DamagedError(f"attachment content does not match its recorded digest, {self._digest}")
        self._begin, self._piece = begin, piece

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if target < 0:
            raise ValueError(f"{-target} bytes before the beginning is not a valid position")
        self._at = target
        return target

    def close(self) -> None:
        if self._let_go is not None:
            self._let_go()
        super().close()
