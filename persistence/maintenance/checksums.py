"""``SHA256SUMS``: the digest of every file of a backup, one a line, as ``sha256sum --check`` reads it.

The lines are sorted by path, so a digest is found by bisection and memory does not grow with the tree. Backups of the
first format have unsorted lists, which ``Checksums`` cannot look up.
"""

from __future__ import annotations

import heapq
import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import FileIO
from itertools import islice
from typing import BinaryIO

from persistence.errors import DamagedError
from persistence.storage import digests, files, nofollow

SUMS = "SHA256SUMS"
_DIGEST = 64
_SEPARATOR = b"  "
_PATH = _DIGEST + len(_SEPARATOR)
_SORTED_IN_MEMORY = 1 << 16
"""Lines that are sorted in memory; more wait on the disk in sorted runs."""
_LINES_PER_WRITE = 1 << 9
_LONGEST_LINE = 1 << 14
"""Bytes of a line: the kernel takes paths of 4096 bytes, and the list of a backup may come from anywhere."""


def open_list(directory: str) -> BinaryIO:
    """Open the list of a backup. Raises ``OSError``."""
    return open(nofollow.open_file(f"{directory}/{SUMS}"), "rb")


def read(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yield the digest and the relative path of each line.

    Raises:
        DamagedError: a line is malformed, or its path leads out of the directory.
    """
    for number, text in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
        path = os.fsdecode(text[_PATH:].removesuffix(b"\n"))
        parts = path.split("/")
        is_line = text.endswith(b"\n") and text[_DIGEST:_PATH] == _SEPARATOR and b"\0" not in text
        if not is_line or not all(parts) or os.pardir in parts or os.curdir in parts:
            raise DamagedError(f"{SUMS}, line {number}, cannot be read")
        yield text[:_DIGEST].decode("ascii", "replace"), path


def count(directory: str) -> int:
    """Count the files of a backup. Raises ``OSError``."""
    with open_list(directory) as file:
        return sum(1 for _ in iter(partial(file.readline, _LONGEST_LINE), b""))


def verify(directory: str) -> Iterator[str | None]:
    """Read every file of a backup from the disk; yield ``None`` after each, and before it a line if it is wrong.

    Raises:
        DamagedError: the list cannot be read.
        OSError: the list cannot be opened.
    """
    with open_list(directory) as listed:
        for digest, path in read(listed):
            try:
                with FileIO(nofollow.open_file(f"{directory}/{path}")) as file:
                    files.begin_writeback(file.fileno())  # empties the cache: the disk itself is to be read
                    found = digests.of_open(file)
            except OSError as error:
                yield f"{path}: {error.strerror}"
            else:
                if found != digests.text(digest):
                    yield f"{path}: it does not have the digest that {SUMS} says"
            yield None


class ChecksumWriter:
    """Collects lines and writes them sorted by path. Methods raise ``OSError``.

    ``directory`` gets the list; while it is made, it also has the sorted runs that do not fit into memory.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lines: list[bytes] = []
        self._runs: list[str] = []

    def add(self, hexadecimal: str, path: str) -> None:
        """Add the line of a file; ``path`` is relative to the directory."""
        self._lines.append(hexadecimal.encode() + _SEPARATOR + os.fsencode(path) + b"\n")
        if len(self._lines) >= _SORTED_IN_MEMORY:
            run = f"{self._directory}/.{SUMS}.{len(self._runs)}"  # no application begins with a dot
            _write(run, iter(sorted(self._lines, key=_path_of)))
            self._runs.append(run)
            self._lines.clear()

    def write(self) -> None:
        """Write the list durably."""
        with ExitStack() as stack:
            runs = [stack.enter_context(open(path, "rb")) for path in self._runs]
            in_order = heapq.merge(*runs, sorted(self._lines, key=_path_of), key=_path_of)
            _write(f"{self._directory}/{SUMS}", in_order)
        for path in self._runs:
            files.remove(path)


def _path_of(text: bytes) -> bytes:
    return text[_PATH:-1]


def _write(path: str, lines: Iterator[bytes]) -> None:
    descriptor = files.open_new(path)
    try:
        while block := b"".join(islice(lines, _LINES_PER_WRITE)):
            files.write_all(descriptor, block)
        files.sync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def mapped(directory: str) -> Iterator[Checksums]:
    """Map the sorted list of a backup into memory for a block. Raises ``OSError``."""
    with FileIO(nofollow.open_file(f"{directory}/{SUMS}")) as file:
        if os.fstat(file.fileno()).st_size == 0:  # which cannot be mapped
            yield Checksums(b"")
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
            yield Checksums(lines)


class Checksums:
    """Looks up digests in the lines of a sorted list."""

    def __init__(self, lines: bytes | mmap.mmap) -> None:
        self._lines = lines

    def digest(self, path: str) -> str | None:
        """Return the digest of a file, ``sha256:`` and 64 hex digits; ``None`` if it is not in the list."""
        wanted = os.fsencode(path)
        low, high = 0, len(self._lines)
        while low < high:  # both are at the beginning of a line, or at the end
            start = self._lines.rfind(b"\n", low, (low + high) // 2) + 1 or low
            end = self._lines.find(b"\n", start)
            if end < 0:
                return None
            found = self._lines[start + _PATH : end]
            if found == wanted:
                return digests.text(self._lines[start : start + _DIGEST].decode("ascii", "replace"))
            low, high = (end + 1, high) if found < wanted else (low, start)
        return None
