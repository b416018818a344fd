"""What published versions say of their forms, in one file for workers that have just started.

Each entry has the mark of the files it was read from, and counts only while they have it. So the file may be lost, be
of an earlier time or be written by several at once: what is not true any more is not taken from it. Whoever writes it
writes all that he knows; what another has added meanwhile is read from its own files again.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

import msgspec

from persistence.limits import LARGEST_CATALOG_FILE
from persistence.model.form_versions import FormMetadata
from persistence.model.instants import Instant
from persistence.storage import files, nofollow
from persistence.storage.stored_revision import Fingerprint

_HEADER = b"persistence forms 1\n"
"""Begins the file. Its number is that of the entries, and of what is read from definitions: another is not read."""

_SUM = 4


class Version(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a version said when its ``form.xhtml`` and sidecar had this mark; the facts are those of ``Published``."""

    number: int
    mark: Fingerprint
    created: Instant
    modified: Instant
    modifier: str | None
    metadata: FormMetadata
    deleted: bool


class Remembered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is remembered of one form."""

    app: str
    name: str
    versions: list[Version]


class Memory(Protocol):
    """Where a process finds what others have read, and leaves what it has. Its methods raise nothing."""

    def recall(self) -> list[Remembered]:
        """All that is remembered; nothing where that cannot be read."""

    def remember(self, known: Iterable[Remembered]) -> None:
        """Put this in the place of all that was remembered, if that can be written."""


class _Forgetful:
    def recall(self) -> list[Remembered]:
        return []

    def remember(self, known: Iterable[Remembered]) -> None:
        pass


FORGETFUL: Memory = _Forgetful()
"""The memory of whoever only looks at a tree, or for whom it is too large."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Remembered]).decode


class FormsFile:
    """The memory in a file, which is written as a whole."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writing = threading.Lock()  # the file that takes its place is called by the process

    def recall(self) -> list[Remembered]:
        """All that is remembered; nothing where there is no such file, or it is not as it was written."""
        with suppress(OSError, msgspec.DecodeError):
            with open(nofollow.open_to_read(self._path), "rb") as file:
                data = file.read(LARGEST_CATALOG_FILE + 1)
            begin = len(_HEADER) + _SUM
            if data.startswith(_HEADER) and data[len(_HEADER) : begin] == _sum(data[begin:]):
                return _decode(memoryview(data)[begin:])
        return []

    def remember(self, known: Iterable[Remembered]) -> None:
        """Write all this; where that fails, what was there before stays."""
        body = _encode(list(known))
        if len(body) < LARGEST_CATALOG_FILE - len(_HEADER) - _SUM:
            with suppress(OSError), self._writing:
                files.write_durably(self._path, _HEADER + _sum(body) + body)


def _sum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_SUM, "big")
