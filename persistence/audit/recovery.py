"""A file of the audit after a crash: the lines that follow the head, and the torn bytes behind them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from persistence.audit.chain import ChainedLine, Head, SealOf, parsed
from persistence.limits import CHUNK, LONGEST_AUDIT_LINE


@dataclass(frozen=True, slots=True)
class Remains:
    """A file that does not end where the head says: its last line that counts, and a ``torn`` piece behind it."""

    last: Head | None
    size: int
    torn: TornPiece | None = None


@dataclass(frozen=True, slots=True)
class TornPiece:
    """Bytes of a damaged line: their length and SHA-256, both without a line break at their end (``ends_line``)."""

    length: int
    sha256: str
    ends_line: bool


def examined(file: BinaryIO, head: Head | None, seal_of: SealOf) -> Remains:
    """Examine an open file from the end of the head's line on, or all of it if it is shorter.

    Lines that follow the head count: their process was killed before it noted them. Without a head the last whole line
    counts; damage before it stays for ``verify`` to find.
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
    return line.n == head.number + 1 and line.prev == head.digest


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their line breaks; one that is too long comes in pieces, which do not parse."""
    while line := file.readline(LONGEST_AUDIT_LINE):
        yield line
