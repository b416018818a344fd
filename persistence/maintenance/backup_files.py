"""The directory of a backup that is being made: files come in as copies, or as hard links to the previous backup."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

from persistence.errors import DamagedError, ReplacedError, StartupError
from persistence.limits import CHUNK
from persistence.maintenance import manifest
from persistence.maintenance.manifest import FORMAT, WRONG, BackupPart, Checksums, ChecksumWriter, Manifest
from persistence.model.sidecar import Sidecar, digest_text, digits_of, shows_stamp, stamp
from persistence.storage import copies, directories, files, nofollow


@dataclass(slots=True)
class BackupCount:
    """How many files were copied, how many bytes these have, and how many files were linked."""

    copied: int = 0
    copied_bytes: int = 0
    linked: int = 0


@dataclass(frozen=True, slots=True)
class PreviousBackup:
    """The previous backup, to whose files the next one may link: its path, its manifest and its digests."""

    path: str
    manifest: Manifest
    checksums: Checksums


@contextmanager
def previous_backup(path: str | None) -> Iterator[PreviousBackup | None]:
    """Open a backup whose files may be linked, for a block; ``None`` if they may be wrong.

    A backup of the first format may hold another content than its list says, and so may one in which ``--verify`` found
    a fault. Raises ``OSError``.
    """
    found = None
    if path is not None and not files.exists(f"{path}/{WRONG}"):
        with suppress(StartupError):  # damaged, or of a newer version
            found = manifest.read(path)
    if path is None or found is None or found.format != FORMAT:
        yield None
    else:
        with manifest.mapped(path) as digests_in_it:
            yield PreviousBackup(path, found, digests_in_it)


class NewBackup:
    """A new directory with the digest of every file in it. Methods raise ``OSError``."""

    def __init__(self, directory: str, previous: PreviousBackup | None) -> None:
        self.count = BackupCount()
        self.previous = previous
        self.directory = directory
        directories.ensure(directory)
        self.checksums = ChecksumWriter(directory)

    def write(self, path: str, data: bytes, mode: int = files.FILE_MODE) -> None:
        """Write a small file that belongs to no part."""
        directories.make_all(os.path.dirname(f"{self.directory}/{path}"))
        with files.written(f"{self.directory}/{path}", data, mode):
            self.checksums.add(hashlib.sha256(data).hexdigest(), path)


class PartFiles:
    """The files of one part of a new backup. Paths are relative to the part. Methods raise ``OSError``.

    ``earlier`` are the paths that the file may have had in the previous backup, besides its own.
    """

    def __init__(self, backup: NewBackup, part: BackupPart) -> None:
        self._backup = backup
        self._part = part
        self._before = None if backup.previous is None else backup.previous.manifest.part(part.name)

    def has(self, path: str) -> bool:
        """Return whether something has this path already."""
        return files.exists(f"{self._backup.directory}/{self._part.path(path)}")

    def add_bytes(self, path: str, data: bytes, nanoseconds: int, *earlier: str) -> None:
        """Add a small file with a modification time."""
        self._note(hashlib.sha256(data).hexdigest(), path)
        if not self._link(path, len(data), nanoseconds, earlier, lambda last, at: _read(last, at) == data):
            copies.write_new(self._target(path, len(data)), [data], nanoseconds)

    def add(self, path: str, source: BinaryIO, sidecar: Sidecar | None, *earlier: str) -> None:
        """Add a content, which ``sidecar`` describes."""
        status, hashing = os.fstat(source.fileno()), hashlib.sha256()
        size, nanoseconds = status.st_size, status.st_mtime_ns
        is_it = sidecar is not None and sidecar.size == size and shows_stamp(nanoseconds, sidecar)
        expected = sidecar.digest if sidecar is not None and is_it else None

        def is_same(last: PreviousBackup, at: str) -> bool:
            return (
                last.checksums.digest(at) == expected
            )  # the digest of the copied bytes, which the sidecar may not have

        if expected is not None and self._link(path, size, nanoseconds, earlier, is_same):
            self._note(digits_of(expected), path)
            return
        target = self._target(path, size)
        try:
            copies.write_new(target, chunks(source, path, hashing.update), nanoseconds)
        finally:
            self._note(hashing.hexdigest(), path)
        if expected not in {None, digest_text(hashing.hexdigest())}:
            raise DamagedError(f"{path}: its digest is not {expected}")

    def link_content(self, path: str, sidecar: Sidecar, *earlier: str) -> bool:
        """Link a content that the previous backup has by its sidecar; return whether it does."""
        if sidecar.digest is None:
            return False

        def is_same(last: PreviousBackup, at: str) -> bool:
            return last.checksums.digest(at) == sidecar.digest

        is_linked = self._link(path, sidecar.size, stamp(sidecar), earlier, is_same)
        if is_linked:
            self._note(digits_of(sidecar.digest), path)
        return is_linked

    def copy_content(self, path: str, source: BinaryIO, sidecar: Sidecar) -> None:
        """Copy a content that is in no file, with the stamp of its revision."""
        hashing = hashlib.sha256()
        target = self._target(path, sidecar.size)
        try:
            copies.write_new(target, chunks(source, path, hashing.update), stamp(sidecar))
        finally:
            self._note(hashing.hexdigest(), path)
        if sidecar.digest not in {None, digest_text(hashing.hexdigest())}:
            raise DamagedError(f"{path}: its digest is not {sidecar.digest}")

    def _target(self, path: str, size: int) -> str:
        self._backup.count.copied += 1
        self._backup.count.copied_bytes += size
        target = f"{self._backup.directory}/{self._part.path(path)}"
        directories.make_all(os.path.dirname(target))
        return target

    def _link(
        self,
        path: str,
        size: int,
        nanoseconds: int,
        earlier: tuple[str, ...],
        is_same: Callable[[PreviousBackup, str], bool],
    ) -> bool:
        """Link the file of the previous backup if it has the size and time, and ``is_same``.

        Size and time alone are not enough: if a file system keeps whole seconds, two contents may share both.
        """
        last, before = self._backup.previous, self._before
        if last is None or before is None:
            return False
        for candidate in map(before.path, (path, *earlier)):
            source = f"{last.path}/{candidate}"
            with suppress(OSError):  # a copy will do
                status = os.lstat(source)
                nofollow.require_file(status, source)
                if (status.st_size, status.st_mtime_ns) == (size, nanoseconds) and is_same(last, candidate):
                    target = f"{self._backup.directory}/{self._part.path(path)}"
                    directories.make_all(os.path.dirname(target))
                    files.link(source, target)
                    self._backup.count.linked += 1
                    return True
        return False

    def _note(self, hexadecimal: str, path: str) -> None:
        self._backup.checksums.add(hexadecimal, self._part.path(path))


def _read(last: PreviousBackup, path: str) -> bytes:
    with open(nofollow.open_file(f"{last.path}/{path}"), "rb") as file:
        return file.read()


def chunks(source: BinaryIO, path: str, seen: Callable[[bytes], None]) -> Iterator[bytes]:
    """Yield the content of an open file, and pass each chunk to ``seen``."""
    try:
        while chunk := source.read(CHUNK):
            seen(chunk)
            yield chunk
    except OSError as error:
        raise DamagedError(f"{path} cannot be read to its end: {error.strerror}") from error
    except ReplacedError as error:  # in a database, of which nothing that is read was replaced
        raise DamagedError(f"{path} cannot be read to its end: a part of it is missing") from error
