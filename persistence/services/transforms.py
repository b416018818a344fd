"""Transforms of a content on its way out: values decrypted, relevant elements only, another data format.

Form data that is transformed is read twice and never held: the first time tells how long the answer is, and that all
of it can be sent.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, disk_errors
from persistence.forms.form_data import nonrelevant_edges
from persistence.forms.migration.pipeline import migrate
from persistence.limits import CHUNK, LARGEST_TREE
from persistence.model.addresses import DocumentAddress
from persistence.model.form_versions import DATA_FORMATS
from persistence.services.results import Decryption, Read

_AT_ONCE = 1 << 16
"""Bytes of form data that are transformed as a whole."""


@dataclass(frozen=True, slots=True)
class TransformedContent:
    """The bytes to send of an open content: ``size`` bytes, read by iterating once, then closed.

    ``pieces`` reads them from the beginning, however often.
    """

    file: BinaryIO
    size: int
    pieces: Callable[[], Iterator[bytes]]

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes in pieces.

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


def removes_nonrelevant(word: str | None, address: DocumentAddress, dialect: Dialect) -> bool:
    """Return whether the parameter ``nonrelevant`` leaves elements of this resource out (spec forms 3.1).

    Only the exact word ``remove`` does so, and only for form data that is not the designer's own.

    Raises:
        BadRequestError: the word is ``empty``, which the runtime knows but which is not done here.
    """
    if not address.is_main or dialect.is_designer(address.form):
        return False
    if word == "empty":
        raise BadRequestError("nonrelevant=empty is not supported; use remove or keep")
    return word == "remove"


def transformed(read: Read, *, only_relevant: bool) -> TransformedContent:
    """Return form data with its values decrypted, after what is not relevant was left out (spec forms 3.2).

    The open content is taken over.

    Raises:
        DamagedError: a value does not decrypt, or the data is not well-formed.
        ConfigurationError: the key to a value is not here.
        DiskError: it cannot be read.
    """
    file, size = read.found.opened, read.found.size
    try:
        with disk_errors("reading form data"):
            content = _relevant(file, size) if only_relevant else TransformedContent(file, size, lambda: _stretch(file))
            return content if read.decryption is None else _decrypted(content, read.decryption)
    except Exception:
        file.close()
        raise


def _relevant(file: BinaryIO, size: int) -> TransformedContent:
    edges = nonrelevant_edges(_stretch(file))
    kept = size - sum(edges[1::2]) + sum(edges[::2])
    return TransformedContent(file, kept, lambda: _between(file, edges))


def _between(file: BinaryIO, edges: array[int]) -> Iterator[bytes]:
    at = 0
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        yield from _stretch(file, at, begin)
        at = end
    yield from _stretch(file, at)


def _decrypted(content: TransformedContent, decryption: Decryption) -> TransformedContent:
    if content.size <= _AT_ONCE:
        data = b"".join(decryption(content.pieces()))
        return TransformedContent(content.file, len(data), lambda: iter((data,)))
    size = sum(map(len, decryption(content.pieces())))
    return TransformedContent(content.file, size, lambda: decryption(content.pieces()))


def _stretch(file: BinaryIO, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of an open file from ``begin`` to ``end``, in pieces."""
    file.seek(begin)
    left = CHUNK if end is None else end - begin
    while left and (piece := file.read(min(CHUNK, left))):
        yield piece
        if end is not None:
            left -= len(piece)


def migration_target(word: str | None) -> str | None:
    """Return the data format that ``form-definition-format-version`` asks for, ``None`` for the stored one.

    Raises:
        BadRequestError: there is no such format.
    """
    if not word:
        return None
    if word not in DATA_FORMATS:
        raise BadRequestError(f"form-definition-format-version must be one of {', '.join(DATA_FORMATS)}, not {word!r}")
    return word


def migrated(read: Read, target: str) -> bytes:
    """Return the definition of an open content, which is taken over, in another data format (spec forms 1).

    Raises:
        BadRequestError: it is too large, or what it would become is.
        DamagedError: what is stored is not well-formed.
        DiskError: it cannot be read.
    """
    with read.found.opened as file, disk_errors(f"reading {read.address}"):
        data = file.read(LARGEST_TREE + 1)
    return migrate(data, target, is_unpublished=isinstance(read.address, DocumentAddress))
