"""A content that is not sent as it is stored, but changed on the way."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from persistence.errors import disk_errors
from persistence.services.results import Opening

_CHUNK = 1 << 16

Pieces = Callable[[], Iterator[bytes]]
"""Reads from the beginning, however often."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is sent of an open content: ``size`` bytes, read by iterating once, then closed."""

    file: BinaryIO
    size: int
    pieces: Pieces

    def __iter__(self) -> Iterator[bytes]:
        """The bytes, in pieces.

        Raises:
            OSError: the content has become shorter since it was opened; the connection must break.
        """
        left = self.size
        with self.file:
            for piece in self.pieces():
                left -= len(piece)
                yield piece
        if left:
            raise OSError(errno.EIO, f"the content ends {left} bytes early")

    def close(self) -> None:
        """Close the content where it was not read to its end."""
        self.file.close()


def whole(file: BinaryIO, size: int) -> Part:
    """All of an open content of ``size`` bytes, which is taken over."""
    return Part(file, size, lambda: stretch(file, 0, None))


def opened(part: Part, opening: Opening) -> Part:
    """A part with its values decrypted; all of it is tried before anything is sent.

    Raises:
        DamagedError: a value does not decrypt, or the data is not well-formed.
        ConfigurationError: the key to a value is not here.
        DiskError: it cannot be read.
    """
    try:
        with disk_errors("reading form data"):
            if part.size <= _CHUNK:
                data = b"".join(opening(part.pieces()))
                return Part(part.file, len(data), lambda: iter((data,)))
            size = sum(map(len, opening(part.pieces())))
    except Exception:
        part.close()
        raise
    return Part(part.file, size, lambda: opening(part.pieces()))


def stretch(file: BinaryIO, begin: int, end: int | None) -> Iterator[bytes]:
    """The bytes of an open file from ``begin`` to ``end``, in pieces."""
    file.seek(begin)
    left = _CHUNK if end is None else end - begin
    while left and (piece := file.read(min(_CHUNK, left))):
        yield piece
        if end is not None:
            left -= len(piece)
