"""Contents that are objects: read in pieces as they are needed, and compared with their digest on the way."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from persistence.errors import DamagedError
from persistence.limits import FIRST_PIECE, LARGEST_PIECE
from persistence.model.sidecar import digest_text

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PieceReader = Callable[[int, int], memoryview]
"""Reads the bytes from one offset to another."""


class _ObjectContent(io.RawIOBase):
    """An object of ``size`` bytes, read by ``read``.

    A reader that goes from its beginning to its end gets the last piece only if all of it has the ``digest``.
    """

    def __init__(self, size: int, digest: str | None, read: PieceReader) -> None:
        super().__init__()
        self._size = size
        self._digest = digest
        self._read = read
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._held = memoryview(b"")
        self._at = 0
        self._next = FIRST_PIECE

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._held and self._at < self._size:
            self._held = self._piece()
        room = memoryview(buffer)
        taken, self._held = self._held[: len(room)], self._held[len(room) :]
        room[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)

    def _piece(self) -> memoryview:
        start, end = self._at, min(self._at + self._next, self._size)
        piece = self._read(start, end)
        self._next = min(2 * self._next, LARGEST_PIECE)
        if start == self._hashed:
            self._hash.update(piece)
            self._hashed = end
            if end == self._size and self._digest not in {None, digest_text(self._hash.hexdigest())}:
                raise DamagedError(f"attachment content does not match its recorded digest, {self._digest}")
        return piece

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if target < 0:
            raise ValueError(f"{-target} bytes before the beginning is not a valid position")
        if target != self._at:
            self._at, self._held, self._next = target, memoryview(b""), FIRST_PIECE
        return target


def opened_object(size: int, digest: str | None, read: PieceReader) -> BinaryIO:
    """Return an object as a file that can seek; the reader closes it."""
    return io.BufferedReader(_ObjectContent(size, digest, read))
