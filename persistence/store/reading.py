"""The lock-free read: one whole revision with its own sidecar, at every instant and after any crash.

The sidecar is the commit record. It names the content by id, which is at ``.<name>.<id>`` until the writer's last
rename, then at ``<name>``. If the sidecar's path still leads to the file that was read after the content was opened,
no writer passed by, and the two belong together; the open sidecar keeps its inode number from being used again.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO

from persistence.errors import BusyError, DamagedError
from persistence.model.instants import epoch_seconds
from persistence.model.sidecar import Sidecar
from persistence.store import files, sidecars
from persistence.store.layout import Place

_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Found:
    """A revision as it lies on disk.

    ``size`` is the content's length in bytes and ``etag`` 40 hex digits; both are those of the content as it is,
    also where a person replaced it by hand. ``file`` is open for a read of a living revision, and the caller's to
    close; it is ``None`` for a tombstone, and where only the facts were asked for.
    """

    sidecar: Sidecar
    etag: str
    size: int
    file: BinaryIO | None = None


def read_sidecar(place: Place) -> Sidecar | None:
    """The sidecar alone; ``None`` where nothing was ever stored.

    Raises:
        DamagedError: it cannot be decoded.
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(place.sidecar, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return sidecars.decode(files.read_small(descriptor), place.sidecar)
    finally:
        os.close(descriptor)


def read(place: Place, *, content: bool) -> Found | None:
    """The current revision, with its content opened if asked for; ``None`` where nothing was ever stored.

    Raises:
        DamagedError: the sidecar cannot be decoded, or its content is missing.
        BusyError: writers passed by at every attempt.
        OSError: a file cannot be read.
    """
    for _ in range(_ATTEMPTS):
        try:
            descriptor = os.open(place.sidecar, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            sidecar = sidecars.decode(files.read_small(descriptor), place.sidecar)
            if sidecar.deleted:
                return Found(sidecar, sidecar.id, 0)
            found = _content(place, sidecar, content=content)
            if _still_at(descriptor, place.sidecar):
                if found is None:
                    raise DamagedError(f"the content of {place.content} is missing")
                return found
            if found is not None and found.file is not None:
                found.file.close()
        finally:
            os.close(descriptor)
    raise BusyError(f"{place.name} is being written too often to be read")


def _content(place: Place, sidecar: Sidecar, *, content: bool) -> Found | None:
    for path in (place.pending(sidecar.id), place.content):
        try:
            if not content:
                return _found(sidecar, os.stat(path), None)
            file = FileIO(path)
        except FileNotFoundError:
            continue
        return _found(sidecar, os.fstat(file.fileno()), file)
    return None


def _found(sidecar: Sidecar, status: os.stat_result, file: FileIO | None) -> Found:
    if status.st_size == sidecar.size and int(status.st_mtime) == epoch_seconds(sidecar.modified):
        return Found(sidecar, sidecar.id, sidecar.size, file)
    # Replaced by hand, or copied without its times: served as it is, under a tag that says so, because a client that
    # knows the acknowledged content must not overwrite or trust its copy of this one.
    edited = f"{sidecar.id}:{status.st_size}:{status.st_mtime_ns}"
    return Found(sidecar, hashlib.sha256(edited.encode()).hexdigest()[:40], status.st_size, file)


def _still_at(descriptor: int, path: str) -> bool:
    ours = os.fstat(descriptor)
    try:
        theirs = os.stat(path)
    except FileNotFoundError:
        return False
    return ours.st_ino == theirs.st_ino and ours.st_dev == theirs.st_dev
