"""``SHA256SUMS``: the digest of every file of a backup, one a line, as ``sha256sum --check`` reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from persistence.errors import DamagedError

SUMS = "SHA256SUMS"
_DIGEST = 64
_SEPARATOR = b"  "


def line(hexadecimal: str, path: str) -> bytes:
    """The line of a file; ``path`` is relative."""
    return hexadecimal.encode() + _SEPARATOR + os.fsencode(path) + b"\n"


def read(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Digest and relative path of each line.

    Raises:
        DamagedError: a line is none, or its path leads out of the directory.
    """
    for number, text in enumerate(file, 1):
        path = os.fsdecode(text[_DIGEST + len(_SEPARATOR) :].removesuffix(b"\n"))
        parts = path.split("/")
        is_line = text.endswith(b"\n") and text[_DIGEST : _DIGEST + len(_SEPARATOR)] == _SEPARATOR
        if not is_line or not all(parts) or os.pardir in parts or os.curdir in parts:
            raise DamagedError(f"{SUMS}, line {number}, cannot be read")
        yield text[:_DIGEST].decode("ascii", "replace"), path
