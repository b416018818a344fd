"""The directory of one backup while it is being made: files come in as copies, or as links to the last backup."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from persistence.errors import DamagedError
from persistence.model.sidecar import Sidecar, shows_stamp
from persistence.store import copying, digests, files
from persistence.upkeep import sums
from persistence.upkeep.sums import SUMS

_CHUNK = 1 << 20


@dataclass(slots=True)
class Copied:
    """How many files came in how."""

    copied: int = 0
    copied_bytes: int = 0
    linked: int = 0


class Copies:
    """Fills a new directory, and notes the digest of every file in it. Methods raise ``OSError``.

    ``last`` is the directory of the last backup. Paths are relative to both; ``earlier`` are those under which the
    last backup may have the same file.
    """

    def __init__(self, directory: str, last: str | None) -> None:
        self.count = Copied()
        self._directory = directory
        self._last = last
        files.ensure_directory(directory)
        self._sums = files.open_new(f"{directory}/{SUMS}")
        self._lines = bytearray()

    def has(self, path: str) -> bool:
        """Whether there is something at a path already."""
        return files.exists(f"{self._directory}/{path}")

    def add_bytes(self, path: str, data: bytes, nanoseconds: int, *earlier: str) -> None:
        """A small file, by its content and modification time."""
        self._note(hashlib.sha256(data).hexdigest(), path)
        if self._link(path, len(data), nanoseconds, earlier, data):
            return
        copying.write_new(self._target(path), [data], nanoseconds)
        self._copied(len(data))

    def add(self, path: str, source: BinaryIO, sidecar: Sidecar | None, *earlier: str) -> None:
        """A content, with what its sidecar says about it.

        Raises:
            DamagedError: it cannot be read, or is not what the sidecar says although it looks so; it is copied all
                the same, as far as it can be read.
        """
        status = os.fstat(source.fileno())
        size, nanoseconds = status.st_size, status.st_mtime_ns
        said = None
        if sidecar is not None and sidecar.size == size and shows_stamp(nanoseconds, sidecar):
            said = sidecar.digest
        if said is not None and self._link(path, size, nanoseconds, earlier):
            self._note(digests.hexadecimal(said), path)
            return
        hashing = hashlib.sha256()
        target = self._target(path)
        try:
            copying.write_new(target, chunks(source, path, hashing.update), nanoseconds)
        finally:
            self._note(hashing.hexdigest(), path)
            self._copied(size)
        if said not in {None, digests.text(hashing.hexdigest())}:
            raise DamagedError(f"{path}: its digest is not {said}")

    def finish(self) -> None:
        """Write the list to its end, durably; the files themselves are for the caller to sync."""
        self._flush()
        files.sync(self._sums)
        os.close(self._sums)

    def _target(self, path: str) -> str:
        target = f"{self._directory}/{path}"
        copying.make_directories(os.path.dirname(target))
        return target

    def _link(
        self, path: str, size: int, nanoseconds: int, earlier: tuple[str, ...], data: bytes | None = None
    ) -> bool:
        """Link the last backup's file, if it has the size and time, and the ``data`` of a file without a stamp."""
        if self._last is None:
            return False
        for candidate in (path, *earlier):
            with suppress(OSError):  # a copy will do
                status = os.lstat(f"{self._last}/{candidate}")
                is_same = (status.st_size, status.st_mtime_ns) == (size, nanoseconds)
                if is_same and (data is None or _bytes_of(f"{self._last}/{candidate}") == data):
                    copying.link(f"{self._last}/{candidate}", self._target(path))
                    self.count.linked += 1
                    return True
        return False

    def _copied(self, size: int) -> None:
        self.count.copied += 1
        self.count.copied_bytes += size

    def _note(self, digest: str, path: str) -> None:
        self._lines += sums.line(digest, path)
        if len(self._lines) > 1 << 16:
            self._flush()

    def _flush(self) -> None:
        files.write_all(self._sums, bytes(self._lines))
        self._lines.clear()


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def chunks(source: BinaryIO, path: str, seen: Callable[[bytes], None]) -> Iterator[bytes]:
    """The content of an open file; what the disk refuses to read is damage, and not a full destination."""
    try:
        while chunk := source.read(_CHUNK):
            seen(chunk)
            yield chunk
    except OSError as error:
        raise DamagedError(f"{path} cannot be read to its end: {error.strerror}") from error
