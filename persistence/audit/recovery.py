"""A file of the audit after a crash: which of its lines follow the head, and what is behind them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from persistence.audit.chain import ChainedLine, Head, SealOf, parsed
from persistence.limits import CHUNK, LONGEST_AUDIT_LINE


@dataclass(frozen=True, slots=True)
class Remains:
    """The state of a file that does not end where the head says; ``size`` is in bytes.

    ``last`` is its last line that counts, ``None`` without one. Behind it there may be a ``torn`` piece.
    """

    last: Head | None
    size: int
    torn: TornPiece | None = None


@dataclass(frozen=True, slots=True)
class TornPiece:
    """Bytes that are no line: how many, and their SHA-256, without a line break at their end (``ends_line``)."""

    length: int
    sha256: str
    ends_line: bool


def examined(file: BinaryIO, head: Head | None, seal_of: SealOf) -> Remains:
    """Examine an open file from where a head says that its last line ends; all of it, where it does not reach there.

    Lines that follow the head were written by a process that was killed before it noted them, and count. Without a head
    the last whole line counts: others may be damaged, which is not to be covered up here.
    """
    size = file.seek(0, 2)
    is_known = head is not None and head.size <= size
    last = head if is_known else None
    at = end = head.size if head is not None and is_known else 0
    file.seek(at)
    for line in lines_of(file):
        at += len(line)
        found = parsed(line[:-1], seal_of) if line.endswith(b"\n") else None
        if is_known and (found is None or last is None or not follows(found, last)):
            break
        if found is not None:
            last, end = Head(found.n, found.digest, at, 0), at
    return Remains(last, size, None if end == size else piece_of(file, end, size))


def piece_of(file: BinaryIO, start: int, end: int) -> TornPiece:
    """Return the piece between two offsets."""
    file.seek(end - 1)
    ends_line = file.read(1) == b"\n"
    left = length = end - start - ends_line
    hashing = hashlib.sha256()
    file.seek(start)
    while left and (chunk := file.read(min(CHUNK, left))):
        hashing.update(chunk)
        left -= len(chunk)
    return TornPiece(length, hashing.hexdigest(), ends_line)


def follows(line: ChainedLine, head: Head) -> bool:
    """Return whether a line is the next one after a head."""
    return line.n == head.number + 1 and line.prev == head.digest


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their line breaks; one that is too long comes in pieces, which are no lines of the audit."""
    while line := file.readline(LONGEST_AUDIT_LINE):
        yield line
