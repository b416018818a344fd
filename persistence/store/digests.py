"""Digests of contents, as sidecars keep them: ``sha256:`` and 64 hex digits."""

from __future__ import annotations

import hashlib

_NAME = "sha256"


def text(hexadecimal: str) -> str:
    """The digest of the algorithm in use, named."""
    return f"{_NAME}:{hexadecimal}"


def hexadecimal(digest: str) -> str:
    """The digits of a digest."""
    return digest.removeprefix(f"{_NAME}:")


def of_file(path: str) -> str:
    """The digest of a file's content; raises ``OSError``."""
    with open(path, "rb") as file:
        return text(hashlib.file_digest(file, _NAME).hexdigest())
