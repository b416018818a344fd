"""Snapshots: all files of a folder are opened under its lock, and read after it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO

from persistence.errors import DamagedError
from persistence.limits import LARGEST_SMALL_FILE
from persistence.maintenance.folder_files import History, list_folder, list_history
from persistence.model.sidecar import Sidecar
from persistence.storage import nofollow, sidecars
from persistence.storage.layout import FilePaths


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """The bytes of a sidecar, as far as they can be decoded, and its modification time in nanoseconds."""

    data: bytes
    nanoseconds: int
    sidecar: Sidecar | None


@dataclass(frozen=True, slots=True)
class FolderSnapshot:
    """A folder as it was under its lock, by file names; contents are open.

    Older revisions are not opened, because nobody removes them. ``problems`` are files that are missing or cannot be
    opened, a line for each.
    """

    path: str
    sidecars: dict[str, SidecarFile]
    contents: dict[str, BinaryIO]
    history: History
    problems: list[str]

    def sidecar(self, name: str) -> Sidecar | None:
        """Return the sidecar of a content, if it can be decoded."""
        return self.sidecars[name].sidecar if name in self.sidecars else None


def open_folder(path: str, stack: ExitStack) -> FolderSnapshot:
    """Open the files of a folder until the stack ends, also contents that are committed and not yet renamed.

    Raises:
        OSError: it cannot be listed, or there are not enough descriptors.
    """
    found = list_folder(path)
    snapshot = FolderSnapshot(path, {}, {}, list_history(path) if found.has_history else History(), [])
    for name in found.sidecars | found.contents | set(found.pending):
        place = FilePaths(path, name)
        if name in found.sidecars:
            with _noting(place.sidecar, snapshot), _open(place.sidecar) as file:
                snapshot.sidecars[name] = _read(file, place)
        sidecar = snapshot.sidecar(name)
        if sidecar is None and name in snapshot.sidecars:
            snapshot.problems.append(f"{place.sidecar}: it cannot be read as a sidecar; it is saved as it is")
        with _noting(place.content, snapshot):
            if sidecar is not None and sidecar.id in found.pending.get(name, ()):
                snapshot.contents[name] = stack.enter_context(_open(place.next_content(sidecar.id)))
            elif name in found.contents:
                snapshot.contents[name] = stack.enter_context(_open(place.content))
            elif sidecar is not None and not sidecar.deleted:
                raise FileNotFoundError(errno.ENOENT, "its content is missing, or no file")
    return snapshot


def open_revision(place: FilePaths, stack: ExitStack) -> tuple[SidecarFile, BinaryIO | None] | None:
    """Open the sidecar and the content of an older revision until the stack ends; ``None`` if it is gone.

    No lock is held. If the revision is rewritten meanwhile, it is opened again.

    Raises:
        DamagedError: it cannot be opened.
    """
    while True:
        with opened(place.sidecar) as file:
            if file is None:
                return None
            said, content = _read(file, place), None
            if said.sidecar is not None:
                content = stack.enter_context(opened(place.next_content(said.sidecar.id)))
            if content is None:
                content = stack.enter_context(opened(place.content))
            if _is_at(place.sidecar, file):
                return said, content


@contextmanager
def opened(path: str) -> Iterator[BinaryIO | None]:
    """Open a file for a block; ``None`` if it is gone.

    Raises:
        DamagedError: it cannot be opened.
    """
    try:
        file = _open(path)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from error
    with file:
        yield file


@contextmanager
def _noting(path: str, snapshot: FolderSnapshot) -> Iterator[None]:
    """Note that a file cannot be opened, and go on with the others."""
    try:
        yield
    except DamagedError as error:
        snapshot.problems.append(str(error))
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise
        snapshot.problems.append(f"{path}: {error.strerror}")


def _open(path: str) -> BinaryIO:
    return FileIO(nofollow.open_file(path))


def _is_at(path: str, file: BinaryIO) -> bool:
    """Return whether a path still leads to an open file, or to nothing."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return True


def _read(file: BinaryIO, place: FilePaths) -> SidecarFile:
    """Read an open sidecar.

    Raises:
        DamagedError: it is larger than any sidecar.
    """
    status = os.fstat(file.fileno())
    data = b"" if status.st_size > LARGEST_SMALL_FILE else file.read()
    if len(data) < status.st_size:
        raise DamagedError(f"{place.sidecar}: {status.st_size} bytes are no sidecar; it is not saved")
    try:
        sidecar = sidecars.decode(data, place.sidecar, place.address)
    except DamagedError:
        sidecar = None
    return SidecarFile(data, status.st_mtime_ns, sidecar)
