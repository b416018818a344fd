"""The files of a ZIP archive of any origin.

``zipfile`` reads no more of an entry than its directory says, and compares the CRC. Links, encryption, other
compressions, overlapping entries and bombs are refused before anything is read.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, LargeZipFile, ZipFile, ZipInfo

from persistence.errors import BadRequestError
from persistence.limits import CHUNK, FREE_OF_RATIO, LARGEST_RATIO
from persistence.model.archives import times_in
from persistence.model.instants import Instant
from persistence.services.imports.revisions import Content

_HERE = re.compile(r"(?:\./)+")
_UTF_8 = 0x800
_ENCRYPTED = 0x1
_UNIX = 3
_LOCAL_HEADER = 30
"""Bytes before the name in the header of an entry."""

_NOT_READ = (BadZipFile, LargeZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)
"""Errors of ``zipfile`` for a damaged archive; ``struct.error`` becomes ``BadZipFile``."""


class ZipFiles:
    """The ``SourceFiles`` of an open, seekable ZIP file. ``most_bytes`` of its directory are read into memory."""

    def __init__(self, file: BinaryIO, most_bytes: int, *, largest: int) -> None:
        self._largest = largest
        self._file = file
        try:
            self._zip = ZipFile(cast("BinaryIO", _Measured(file, most_bytes)))
        except UnicodeDecodeError as error:
            raise BadRequestError("the archive has a name that is not UTF-8") from error
        except _NOT_READ as error:
            raise BadRequestError(f"the archive cannot be read, or was cut off: {error}") from error
        self._require_honest(file.seek(0, 2))
        self._entries = {_name(each): each for each in self._zip.infolist() if each.filename == each.orig_filename}

    def names(self) -> Iterator[str]:
        return (_name(each) for each in self._zip.infolist() if not each.is_dir())

    def fault(self, name: str) -> str | None:
        info = self._entries.get(name)
        if info is None:
            return "its name has a NUL"
        mode = info.external_attr >> 16
        if info.create_system == _UNIX and stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
            return "it is a link, or not a file"
        if info.flag_bits & _ENCRYPTED:
            return "it is encrypted with a password of the archive"
        if info.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
            return f"its compression, method {info.compress_type}, is not supported"
        if not info.flag_bits & _UTF_8 and not info.filename.isascii():
            return "its name is not UTF-8"
        if info.file_size > self._largest:
            return f"it has {info.file_size} bytes; the limit is {self._largest}"
        return None

    def content(self, name: str) -> Content:
        return lambda: self._pieces(name)

    def times(self, name: str) -> tuple[Instant | None, Instant | None]:
        info = self._entries[name]
        with suppress(OSError, struct.error):
            self._file.seek(info.header_offset)
            name_size, extra_size = struct.unpack_from("<HH", self._file.read(_LOCAL_HEADER), _LOCAL_HEADER - 4)
            self._file.seek(name_size, os.SEEK_CUR)
            return times_in(self._file.read(extra_size))
        return None, None

    def _pieces(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(self._entries[name]) as file:
                while piece := file.read(CHUNK):
                    yield piece
        except _NOT_READ as error:
            raise BadRequestError(f"{name} cannot be read: {error}") from error

    def _require_honest(self, size: int) -> None:
        total, end = 0, 0
        for info in sorted(self._zip.infolist(), key=lambda each: each.header_offset):
            total += info.file_size
            if info.header_offset < end:
                raise BadRequestError(f"the entry {info.filename!r} overlaps another one")
            end = info.header_offset + _LOCAL_HEADER + info.compress_size
        if total > max(LARGEST_RATIO * size, FREE_OF_RATIO):
            raise BadRequestError(f"refusing an archive of {size} bytes that unpacks to {total}")


def _name(info: ZipInfo) -> str:
    found = _HERE.match(info.orig_filename)
    return info.orig_filename if found is None else info.orig_filename[found.end() :]


class _Measured:
    """A file of which at most so many bytes are read at once: ``zipfile`` reads the directory in one piece."""

    def __init__(self, file: BinaryIO, most_bytes: int) -> None:
        self._file = file
        self._most = most_bytes
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > self._most:
            raise BadZipFile(f"its directory has {size} bytes, and {self._most} are read: import it in parts")
        return self._file.read(size if size >= 0 else self._most)
