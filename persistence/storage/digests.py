"""Digests of contents, as sidecars keep them: ``sha256:`` and 64 hex digits."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

from persistence.limits import CHUNK
from persistence.storage import nofollow

_NAME = "sha256"


def text(hexadecimal: str) -> str:
    """Return the digest of the algorithm in use, named."""
    return f"{_NAME}:{hexadecimal}"


def hexadecimal(digest: str) -> str:
    """Return the digits of a digest."""
    return digest.removeprefix(f"{_NAME}:")


def of_file(path: str) -> str:
    """Return the digest of a regular file's content, not through a link; raises ``OSError``."""
    with open(nofollow.open_file(path), "rb") as file:
        return of_open(file)


def of_open(file: BinaryIO) -> str:
    """Return the digest of an open file's content, read from where it is to its end; raises ``OSError``."""
    digest = hashlib.new(_NAME)
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    return text(digest.hexdigest())
