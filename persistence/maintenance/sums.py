"""``SHA256SUMS``: the digest of every file of a backup, one a line, as ``sha256sum --check`` reads it.

The lines are sorted by path, so that the digest of one file is found without reading all of them: memory does not grow
with the tree. Lists of the first versions were not sorted; ``Recorded`` is for those that are.
"""

from __future__ import annotations

import heapq
import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from io import FileIO
from types import TracebackType
from typing import BinaryIO, Self

from persistence.errors import DamagedError
from persistence.storage import digests, files, nofollow

SUMS = "SHA256SUMS"
_DIGEST = 64
_SEPARATOR = b"  "
_PATH = _DIGEST + len(_SEPARATOR)
_AT_ONCE = 1 << 16
"""Lines that are sorted in memory; more of them wait in sorted runs on the disk."""
_WRITTEN_AT_ONCE = 1 << 16
_LONGEST_LINE = 1 << 14
"""Bytes of a line: a path that the kernel takes has 4096, and the list of a backup may come from anywhere."""


def line(hexadecimal: str, path: str) -> bytes:
    """The line of a file; ``path`` is relative."""
    return hexadecimal.encode() + _SEPARATOR + os.fsencode(path) + b"\n"


def read(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Digest and relative path of each line.

    Raises:
        DamagedError: a line is none, or its path leads out of the directory.
    """
    for number, text in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
        path = os.fsdecode(text[_PATH:].removesuffix(b"\n"))
        parts = path.split("/")
        is_line = text.endswith(b"\n") and text[_DIGEST:_PATH] == _SEPARATOR and b"\0" not in text
        if not is_line or not all(parts) or os.pardir in parts or os.curdir in parts:
            raise DamagedError(f"{SUMS}, line {number}, cannot be read")
        yield text[:_DIGEST].decode("ascii", "replace"), path


def count(directory: str) -> int:
    """How many files a backup has; raises ``OSError``."""
    with opened(directory) as listed:
        return sum(1 for _ in iter(partial(listed.readline, _LONGEST_LINE), b""))


def opened(directory: str) -> BinaryIO:
    """The list of a backup, open; raises ``OSError``."""
    return open(nofollow.open_file(f"{directory}/{SUMS}"), "rb")


def compare(directory: str) -> Iterator[str | None]:
    """Read every file of a backup from the disk: ``None`` for each, and a line for one that is not as the list says.

    Raises:
        DamagedError: the list cannot be read.
        OSError: the list cannot be opened.
    """
    with opened(directory) as listed:
        for digest, path in read(listed):
            try:
                with FileIO(nofollow.open_file(f"{directory}/{path}")) as file:
                    files.begin_writeback(file.fileno())  # drops what is in memory: the disk is asked, not the cache
                    found = digests.of_open(file)
            except OSError as error:
                yield f"{path}: {error.strerror}"
            else:
                if found != digests.text(digest):
                    yield f"{path}: it does not have the digest that {SUMS} says"
            yield None


def _path_of(text: bytes) -> bytes:
    return text[_PATH:-1]


class Lines:
    """Lines on their way into a list, sorted by path. Methods raise ``OSError``.

    ``directory`` is where runs of lines wait that are too many for the memory.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lines: list[bytes] = []
        self._runs: list[str] = []

    def add(self, hexadecimal: str, path: str) -> None:
        """Add the line of a file."""
        self._lines.append(line(hexadecimal, path))
        if len(self._lines) >= _AT_ONCE:
            self._spill()

    def write(self) -> None:
        """Write the list into the directory, durably."""
        with ExitStack() as stack:
            runs = [stack.enter_context(open(path, "rb")) for path in self._runs]
            in_order = heapq.merge(*runs, sorted(self._lines, key=_path_of), key=_path_of)
            self._write(f"{self._directory}/{SUMS}", in_order)
        for path in self._runs:
            files.remove(path)

    def _spill(self) -> None:
        path = f"{self._directory}/.{SUMS}.{len(self._runs)}"  # no application begins with a dot
        self._write(path, iter(sorted(self._lines, key=_path_of)))
        self._runs.append(path)
        self._lines.clear()

    @staticmethod
    def _write(path: str, lines: Iterator[bytes]) -> None:
        descriptor = files.open_new(path)
        try:
            buffer = bytearray()
            for text in lines:
                buffer += text
                if len(buffer) > _WRITTEN_AT_ONCE:
                    files.write_all(descriptor, bytes(buffer))
                    buffer.clear()
            files.write_all(descriptor, bytes(buffer))
            files.sync(descriptor)
        finally:
            os.close(descriptor)


class Recorded:
    """The digests in a sorted list, looked up one by one. Use it in a ``with`` block; opening it raises ``OSError``."""

    def __init__(self, directory: str) -> None:
        with FileIO(nofollow.open_file(f"{directory}/{SUMS}")) as file:
            size = os.fstat(file.fileno()).st_size
            self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else None

    def digest(self, path: str) -> str | None:
        """The digest of a file, ``sha256:`` and 64 hex digits; ``None`` where the list does not have it."""
        if self._map is None:
            return None
        wanted = os.fsencode(path)
        low, high = 0, len(self._map)
        while low < high:  # both are where a line begins, or the end
            start = self._map.rfind(b"\n", low, (low + high) // 2) + 1 or low
            end = self._map.find(b"\n", start)
            if end < 0:
                return None
            found = self._map[start + _PATH : end]
            if found == wanted:
                return digests.text(self._map[start : start + _DIGEST].decode("ascii", "replace"))
            if found < wanted:
                low = end + 1
            else:
                high = start
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._map is not None:
            self._map.close()
