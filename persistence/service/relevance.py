"""The parameter ``nonrelevant``: which requests it changes, and the changed content (spec forms 3.1)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO

from persistence.dialect import Dialect
from persistence.errors import BadRequestError
from persistence.forms.relevance import remove_nonrelevant
from persistence.model.addresses import DocumentAddress

_IN_MEMORY = 1 << 20
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


def without_nonrelevant(file: BinaryIO, size: int) -> tuple[BinaryIO, int]:
    """The content of ``file`` (``size`` bytes) without its non-relevant elements, and its length in bytes.

    A large one goes through a temporary file. ``file`` is closed.

    Raises:
        DamagedError: the stored data is not well-formed.
    """
    out: BinaryIO = BytesIO() if size <= _IN_MEMORY else tempfile.TemporaryFile()  # noqa: SIM115 - handed on
    with file:
        remove_nonrelevant(_chunks(file), out)
    length = out.tell()
    out.seek(0)
    return out, length


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
