"""The parameter ``nonrelevant``: which requests it changes, and the changed content (spec forms 3.1)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import BinaryIO

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, disk_errors
from persistence.forms.data_marks import nonrelevant_edges
from persistence.model.addresses import DocumentAddress
from persistence.services.parts import Part, stretch


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


def relevant_part(file: BinaryIO, size: int) -> Part:
    """The relevant part of an open content of ``size`` bytes, which is taken over.

    Raises:
        DamagedError: the stored data is not well-formed.
        DiskError: it cannot be read.
    """
    try:
        with disk_errors("reading form data"):
            edges = nonrelevant_edges(stretch(file, 0, None))
    except Exception:
        file.close()
        raise
    return Part(file, size - sum(edges[1::2]) + sum(edges[::2]), lambda: _between(file, edges))


def _between(file: BinaryIO, edges: array[int]) -> Iterator[bytes]:
    at = 0
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        yield from stretch(file, at, begin)
        at = end
    yield from stretch(file, at, None)
