"""The lock-free read: one whole revision with its own sidecar, at every instant and after any crash.

The sidecar is the commit record. Its content bears the revision's stamp as modification time, so a content that shows
the stamp of the sidecar just read belongs to it, whatever writers do meanwhile. That is the usual case. What is none
of its sidecar's, ``integrity`` judges.

Where the stamp is not there (a writer is at work or was killed, a person replaced the file, the file system keeps no
nanoseconds), the sidecar names its content by id: it is at ``.<name>.<id>`` until the writer's last rename, then at
``<name>``. If the sidecar's path still leads to the file that was read after the content was opened, no writer passed
by, and the two belong together; the open sidecar keeps its inode number from being used again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO

from persistence.errors import BusyError, DamagedError
from persistence.model.instants import Instant, one_later
from persistence.model.sidecar import Sidecar, shows_stamp, stamp
from persistence.storage import nofollow, sidecars
from persistence.storage.integrity import Integrity, StateChangedError, Verdict
from persistence.storage.layout import SIDECAR_SUFFIX, FilePaths, unfinished_of
from persistence.storage.nofollow import NotOpenedError

_ATTEMPTS = 200

UNKNOWN_SIZE = -1
"""The size of a content of which another service does not say how long it is before it sends it."""


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """A revision as it lies on disk.

    ``size`` is the content's length in bytes, ``UNKNOWN_SIZE`` only where the content was not asked for, and ``etag``
    40 hex digits; both are those of the content as it is, also where a person replaced it by hand. ``file`` is open
    for a read of a living revision, and the caller's to close; it is ``None`` for a tombstone, and where only the facts
    were asked for.
    """

    sidecar: Sidecar
    etag: str
    size: int
    file: BinaryIO | None = None

    @property
    def is_edited(self) -> bool:
        """Return whether the content is not the one that the sidecar describes, but was replaced by hand."""
        return self.etag != self.sidecar.etag

    @property
    def latest(self) -> Instant:
        """The instant after which the next revision comes: an edit by hand is kept as a revision of its own."""
        modified = self.sidecar.modified
        return one_later(modified) if self.is_edited else modified

    @property
    def opened(self) -> BinaryIO:
        """The open content, where it was asked for; ``ValueError`` where it was not."""
        if self.file is None:
            raise ValueError("the content was not opened")
        return self.file

    def close(self) -> None:
        """Close the content, where it is open."""
        if self.file is not None:
            self.file.close()


def read_sidecar(paths: FilePaths) -> Sidecar | None:
    """Return the sidecar alone; ``None`` where nothing was ever stored."""
    try:
        descriptor = _opened(paths)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _decoded(descriptor, paths)
    finally:
        os.close(descriptor)


def read_committed(paths: FilePaths) -> tuple[Sidecar | None, FileFingerprint | None]:
    """Return the sidecar, as ``read_sidecar`` does, and the fingerprint of its file, which no later state has."""
    try:
        descriptor = _opened(paths)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    try:
        return _decoded(descriptor, paths), file_fingerprint(descriptor)
    finally:
        os.close(descriptor)


def _decoded(descriptor: int, paths: FilePaths) -> Sidecar:
    try:
        return sidecars.decode(nofollow.read_small(descriptor), paths.sidecar, paths.address)
    except IsADirectoryError as error:
        raise _no_sidecar(paths, "a directory") from error
    except BlockingIOError as error:
        raise _no_sidecar(paths, "a pipe") from error


def _opened(paths: FilePaths) -> int:
    try:
        return nofollow.open_to_read(paths.sidecar)
    except NotOpenedError as error:
        raise _no_sidecar(
            paths, "a socket" if error.errno == errno.ENXIO else "a symbolic link, or below one"
        ) from error


def _no_sidecar(paths: FilePaths, what: str) -> DamagedError:
    return DamagedError(f"the sidecar {sidecars.last_names(paths.sidecar)} cannot be read: {what}")


def read_next_sidecar(paths: FilePaths) -> Sidecar | None:
    """The sidecar of a write that was not committed; ``None`` where there is none, or a power cut took what it said.

    Raises ``OSError``.
    """
    try:
        descriptor = nofollow.open_to_read(paths.next_sidecar)
    except (FileNotFoundError, NotOpenedError):
        return None
    try:
        return sidecars.decode(nofollow.read_small(descriptor), paths.next_sidecar, paths.address)
    except (DamagedError, IsADirectoryError, BlockingIOError):
        return None
    finally:
        os.close(descriptor)


def read(paths: FilePaths, integrity: Integrity, *, content: bool) -> StoredRevision | None:
    """Return the current revision, with its content opened if asked for; ``None`` where nothing was ever stored."""
    sidecar = read_sidecar(paths)
    if sidecar is None:
        return None
    if sidecar.deleted:
        return StoredRevision(sidecar, sidecar.etag, 0)
    found = _stamped(paths, sidecar, content=content)
    if found is None:
        return _read_guarded(paths, integrity, content=content)
    return verified(paths, integrity, found) if integrity.verify_up_to else found


def verified(paths: FilePaths, integrity: Integrity, found: StoredRevision) -> StoredRevision:
    """Return a revision whose open content has the digest of its sidecar, up to the size that the policy says."""
    if found.file is not None and not found.is_edited:
        try:
            integrity.verify(paths, found.sidecar, found.file.fileno())
        except (DamagedError, OSError):
            found.file.close()
            raise
    return found


def _stamped(paths: FilePaths, sidecar: Sidecar, *, content: bool) -> StoredRevision | None:
    try:
        status, file = _open(paths.content, content=content)
    except FileNotFoundError:
        return None
    if status.st_mtime_ns == stamp(sidecar) and status.st_size == sidecar.size:
        return StoredRevision(sidecar, sidecar.etag, sidecar.size, file)
    if file is not None:
        file.close()
    return None


def _read_guarded(paths: FilePaths, integrity: Integrity, *, content: bool) -> StoredRevision | None:
    for _ in range(_ATTEMPTS):
        try:
            descriptor = _opened(paths)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with FileIO(descriptor):
            sidecar = _decoded(descriptor, paths)
            if sidecar.deleted:
                return StoredRevision(sidecar, sidecar.etag, 0)
            found = _beside(paths, sidecar, content=content)
            if not is_still_at(descriptor, paths.sidecar):
                if found is not None:
                    found.close()
                continue
            if found is None:
                raise _missing(paths)
            with suppress(StateChangedError):
                return verified(paths, integrity, found.judged(paths, integrity, sidecar))
    raise BusyError(f"{paths.name} is being written too often to be read")


def content(paths: FilePaths) -> BinaryIO | None:
    """Return the content at its place, whatever its sidecar says; ``None`` where there is none. Raises ``OSError``."""
    try:
        return _open(paths.content, content=True)[1]
    except (FileNotFoundError, NotADirectoryError):
        return None


FileFingerprint = tuple[int, int, int]
"""Tells one state of a file from every other: its inode, modification time and size."""

Fingerprint = tuple[FileFingerprint | None, ...]
"""Tells one state of a resource from every other, by its two files."""


NOTHING_THERE: Fingerprint = (None, None)


def fingerprint(content: str) -> Fingerprint:
    """Return the fingerprint of what is there now, by the path of its content; raises ``OSError``.

    A sidecar is replaced by another file, and the history keeps the old one's inode from being used again.
    """
    return file_fingerprint(content + SIDECAR_SUFFIX), file_fingerprint(content)


def file_fingerprint(file: str | int) -> FileFingerprint | None:
    """Return the fingerprint of an open file, or of what is at a path; ``None`` where there is nothing.

    Raises ``OSError``.
    """
    try:
        status = os.lstat(file) if isinstance(file, str) else os.fstat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def facts(paths: FilePaths, integrity: Integrity, sidecar: Sidecar) -> StoredRevision:
    """Return the facts about a revision whose sidecar is the current one: for writers, who hold the lock."""
    if sidecar.deleted:
        return StoredRevision(sidecar, sidecar.etag, 0)
    found = _stamped(paths, sidecar, content=False) or beside(paths, integrity, sidecar, content=False)
    if found is None:
        raise _missing(paths)
    return found


def _missing(paths: FilePaths) -> DamagedError:
    return DamagedError(f"the content {sidecars.last_names(paths.content)} is missing")


def beside(paths: FilePaths, integrity: Integrity, sidecar: Sidecar, *, content: bool) -> StoredRevision | None:
    """A revision's content: what waits for its last name, else what lies at its place; ``None`` where there is none."""
    for _ in range(_ATTEMPTS):
        found = _beside(paths, sidecar, content=content)
        if found is None:
            return None
        with suppress(StateChangedError):
            return found.judged(paths, integrity, sidecar)
    raise BusyError(f"{paths.name} is being changed too often to be read")


@dataclass(frozen=True, slots=True)
class _FoundContent:
    """A file where a content may lie."""

    path: str
    status: os.stat_result
    file: FileIO | None

    def judged(self, paths: FilePaths, integrity: Integrity, sidecar: Sidecar) -> StoredRevision:
        size, nanoseconds = self.status.st_size, self.status.st_mtime_ns
        try:
            is_same = size == sidecar.size and shows_stamp(nanoseconds, sidecar)
            if is_same or integrity.judge(paths, sidecar, self.path, self.status) is Verdict.SAME:
                return StoredRevision(sidecar, sidecar.etag, size, self.file)
        except BaseException:
            self.close()
            raise
        # An edit by hand has a tag of its own, because a client that knows the acknowledged content must not overwrite
        # or trust its copy of this one.
        edited = f"{sidecar.id}:{size}:{nanoseconds}"
        return StoredRevision(sidecar, hashlib.sha256(edited.encode()).hexdigest()[:40], size, self.file)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _beside(paths: FilePaths, sidecar: Sidecar, *, content: bool) -> _FoundContent | None:
    for path in (paths.next_content(sidecar.id), paths.content):
        with suppress(FileNotFoundError):
            return _FoundContent(path, *_open(path, content=content))
    return None


def _open(path: str, *, content: bool) -> tuple[os.stat_result, FileIO | None]:
    descriptor = None
    if content:
        try:
            descriptor = nofollow.open_to_read(path)
        except NotOpenedError as error:
            raise FileNotFoundError from error
    try:
        status = os.lstat(path) if descriptor is None else os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError
        return status, None if descriptor is None else FileIO(descriptor)
    except OSError:
        if descriptor is not None:
            os.close(descriptor)
        raise


def is_still_at(descriptor: int, path: str) -> bool:
    """Return whether an open file has a path still; raises ``OSError``."""
    ours = os.fstat(descriptor)
    try:
        theirs = os.lstat(path)
    except FileNotFoundError:
        return False
    return ours.st_ino == theirs.st_ino and ours.st_dev == theirs.st_dev


def incomplete_writes(main: FilePaths) -> Iterator[FilePaths]:
    """Yield the resources in the directory of one, and the older revisions there, of which a write is not complete.

    It is under way, or was killed. Raises ``OSError``.
    """
    for directory in (main.directory, main.history):
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(directory):
                content = unfinished_of(name)
                if content is not None:
                    yield FilePaths(directory, content)
