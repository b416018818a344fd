"""The directory of one backup while it is being made: files come in as copies, or as links to the last backup."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from persistence.errors import DamagedError, StartupError
from persistence.maintenance import manifest
from persistence.maintenance.manifest import FORMAT, WRONG, Manifest
from persistence.maintenance.sums import Lines, Recorded
from persistence.model.sidecar import Sidecar, shows_stamp
from persistence.storage import digests, directories, files, nofollow
from persistence.storage.owner import Identity, being

_CHUNK = 1 << 20


@dataclass(slots=True)
class Copied:
    """How many files came in how."""

    copied: int = 0
    copied_bytes: int = 0
    linked: int = 0


@dataclass(frozen=True, slots=True)
class Last:
    """The last backup, to whose files the next one may link: its directory, what it holds, and its digests."""

    path: str
    manifest: Manifest
    recorded: Recorded


def linkable(path: str | None) -> Manifest | None:
    """What a backup holds, if its files may be linked; ``None`` where there is none, or it may be wrong.

    Backups of the first format may hold another content than their list says, and so may one in which ``--verify``
    found something. Raises ``OSError``.
    """
    if path is None or files.exists(f"{path}/{WRONG}"):
        return None
    try:
        found = manifest.read(path)
    except StartupError:  # damaged, or of a newer version
        return None
    return found if found.format == FORMAT else None


class NewBackup:
    """A new directory, with the digest of every file in it; ``keeper`` is who writes it. Methods raise ``OSError``."""

    def __init__(self, directory: str, last: Last | None, keeper: Identity) -> None:
        self.count = Copied()
        self.keeper = keeper
        self.last = last
        self.directory = directory
        directories.ensure(directory)
        self._lines = Lines(directory)

    def note(self, hexadecimal: str, path: str) -> None:
        """Note the digest of a file."""
        self._lines.add(hexadecimal, path)

    def write(self, path: str, data: bytes, mode: int = files.FILE_MODE) -> None:
        """Write a small file of the backup's own."""
        directories.make_all(os.path.dirname(f"{self.directory}/{path}"))
        with files.written(f"{self.directory}/{path}", data, mode):
            self.note(hashlib.sha256(data).hexdigest(), path)

    def finish(self) -> None:
        """Write the list, durably; the files themselves are for the caller to sync."""
        self._lines.write()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file of the last backup that may be the same."""

    last: Last
    path: str

    @property
    def source(self) -> str:
        """The path of the file."""
        return f"{self.last.path}/{self.path}"

    def recorded(self) -> str | None:
        """The digest of what was read when the file was copied, whatever its sidecar says."""
        return self.last.recorded.digest(self.path)


class Copies:
    """The files of one part of a backup. Paths are those in the part. Methods raise ``OSError``.

    A ``part`` says where the files come in; the last backup may have had that part elsewhere. ``earlier`` are the paths
    under which the last backup may have the same file, besides its own.
    """

    def __init__(self, backup: NewBackup, part: manifest.Part) -> None:
        self._backup = backup
        self._part = part
        last = backup.last
        self._before = None if last is None else last.manifest.part(part.name)

    def has(self, path: str) -> bool:
        """Whether there is something at a path already."""
        with being(self._backup.keeper):
            return files.exists(f"{self._backup.directory}/{self._part.path(path)}")

    def add_bytes(self, path: str, data: bytes, nanoseconds: int, *earlier: str) -> None:
        """A small file, by its content and modification time."""
        with being(self._backup.keeper):
            hexadecimal = hashlib.sha256(data).hexdigest()
            self._note(hexadecimal, path)
            if self._link(path, len(data), nanoseconds, earlier, lambda there: _bytes_of(there.source) == data):
                return
            files.write_new(self._target(path), [data], nanoseconds)
            self._copied(len(data))

    def add(self, path: str, source: BinaryIO, sidecar: Sidecar | None, *earlier: str) -> None:
        """A content, with what its sidecar says about it.

        Raises:
            DamagedError: it cannot be read, or is not what the sidecar says although it looks so; it is copied all
                the same, as far as it can be read.
        """
        with being(self._backup.keeper):
            self._add(path, source, sidecar, earlier)

    def _add(self, path: str, source: BinaryIO, sidecar: Sidecar | None, earlier: tuple[str, ...]) -> None:
        status = os.fstat(source.fileno())
        size, nanoseconds = status.st_size, status.st_mtime_ns
        said = None
        if sidecar is not None and sidecar.size == size and shows_stamp(nanoseconds, sidecar):
            said = sidecar.digest
        if said is not None and self._link(path, size, nanoseconds, earlier, lambda there: there.recorded() == said):
            self._note(digests.hexadecimal(said), path)
            return
        hashing = hashlib.sha256()
        target = self._target(path)
        try:
            files.write_new(target, chunks(source, path, hashing.update), nanoseconds)
        finally:
            self._note(hashing.hexdigest(), path)
            self._copied(size)
        if said not in {None, digests.text(hashing.hexdigest())}:
            raise DamagedError(f"{path}: its digest is not {said}")

    def _target(self, path: str) -> str:
        target = f"{self._backup.directory}/{self._part.path(path)}"
        directories.make_all(os.path.dirname(target))
        return target

    def _link(
        self, path: str, size: int, nanoseconds: int, earlier: tuple[str, ...], is_same: Callable[[_Candidate], bool]
    ) -> bool:
        """Link the last backup's file, if it has the size and time, and is the same.

        Size and time alone do not tell: where a file system keeps whole seconds, two contents may have both in common.
        """
        last, before = self._backup.last, self._before
        if last is None or before is None:
            return False
        for candidate in map(before.path, (path, *earlier)):
            there = _Candidate(last, candidate)
            with suppress(OSError):  # a copy will do
                status = os.lstat(there.source)
                nofollow.require_file(status, there.source)
                if (status.st_size, status.st_mtime_ns) == (size, nanoseconds) and is_same(there):
                    files.link(there.source, self._target(path))
                    self._backup.count.linked += 1
                    return True
        return False

    def _copied(self, size: int) -> None:
        self._backup.count.copied += 1
        self._backup.count.copied_bytes += size

    def _note(self, digest: str, path: str) -> None:
        self._backup.note(digest, self._part.path(path))


def _bytes_of(path: str) -> bytes:
    with open(nofollow.open_file(path), "rb") as file:
        return file.read()


def chunks(source: BinaryIO, path: str, seen: Callable[[bytes], None]) -> Iterator[bytes]:
    """The content of an open file; what the disk refuses to read is damage, and not a full destination."""
    try:
        while chunk := source.read(_CHUNK):
            seen(chunk)
            yield chunk
    except OSError as error:
        raise DamagedError(f"{path} cannot be read to its end: {error.strerror}") from error
