"""The parameter ``nonrelevant``: which requests it changes, and the changed content (spec forms 3.1)."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, disk_errors
from persistence.forms.relevance import nonrelevant_edges
from persistence.model.addresses import DocumentAddress

_CHUNK = 1 << 16


def is_removed(word: str | None, address: DocumentAddress, dialect: Dialect) -> bool:
    """Whether non-relevant elements are to be left out of this resource.

    Only the exact word ``remove`` does so, and only for form data that is not the designer's own.

    Raises:
        BadRequestError: the word is ``empty``, which the runtime knows but which is not done here.
    """
    if not address.is_main or dialect.is_designer(address.form):
        return False
    if word == "empty":
        raise BadRequestError("nonrelevant=empty is not supported; use remove or keep")
    return word == "remove"


@dataclass(frozen=True, slots=True)
class RelevantPart:
    """An open content without its non-relevant elements: ``size`` bytes, read by iterating once, then closed."""

    file: BinaryIO
    size: int
    edges: array[int]

    def __iter__(self) -> Iterator[bytes]:
        """The stretches between the edges, in pieces.

        Raises:
            OSError: the content has become shorter since it was opened; the connection must break.
        """
        left = self.size
        with self.file:
            for piece in self._stretches():
                left -= len(piece)
                yield piece
        if left:
            raise OSError(errno.EIO, f"the content ends {left} bytes early")

    def _stretches(self) -> Iterator[bytes]:
        at = 0
        for begin, end in zip(self.edges[::2], self.edges[1::2], strict=True):
            yield from _pieces(self.file, at, begin)
            at = end
        yield from _pieces(self.file, at, None)

    def close(self) -> None:
        """Close the content where it was not read to its end."""
        self.file.close()


def relevant_part(file: BinaryIO, size: int) -> RelevantPart:
    """The relevant part of an open content of ``size`` bytes, which is taken over.

    Raises:
        DamagedError: the stored data is not well-formed.
        DiskError: it cannot be read.
    """
    try:
        with disk_errors("reading form data"):
            edges = nonrelevant_edges(_pieces(file, 0, None))
    except Exception:
        file.close()
        raise
    return RelevantPart(file, size - sum(edges[1::2]) + sum(edges[::2]), edges)


def _pieces(file: BinaryIO, begin: int, end: int | None) -> Iterator[bytes]:
    file.seek(begin)
    left = _CHUNK if end is None else end - begin
    while left and (piece := file.read(min(_CHUNK, left))):
        yield piece
        if end is not None:
            left -= len(piece)
