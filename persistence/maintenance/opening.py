"""Opening everything in a folder while its lock is held, to be read after that."""

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
from persistence.maintenance import listing
from persistence.maintenance.listing import History
from persistence.model.sidecar import Sidecar
from persistence.storage import nofollow, sidecars
from persistence.storage.layout import Place


@dataclass(frozen=True, slots=True)
class Opened:
    """A folder as it was while its lock was held: sidecars as bytes and modification time, contents open.

    Older revisions are not opened: nobody removes them. ``problems`` says what is missing or cannot be opened.
    """

    path: str
    sidecars: dict[str, tuple[bytes, int]]
    contents: dict[str, BinaryIO]
    history: History
    problems: list[str]

    def sidecar(self, name: str) -> Sidecar | None:
        """What is said about a content, if that can be read."""
        return decoded(self.sidecars[name][0], Place(self.path, name)) if name in self.sidecars else None


def open_all(path: str, stack: ExitStack) -> Opened:
    """Open a folder's files until the stack ends; a content that is committed and not yet in its place, too.

    Raises:
        OSError: it cannot be listed, or there are not enough descriptors.
    """
    found = listing.folder(path)
    all_there = Opened(path, {}, {}, listing.history(path) if found.has_history else History(), [])
    for name in found.sidecars | found.contents | set(found.pending):
        place = Place(path, name)
        if name in found.sidecars:
            with _noting(place.sidecar, all_there):
                all_there.sidecars[name] = _read(place.sidecar)
        sidecar = all_there.sidecar(name)
        if sidecar is None and name in all_there.sidecars:
            all_there.problems.append(f"{place.sidecar}: it cannot be read as a sidecar; it is saved as it is")
        with _noting(place.content, all_there):
            if sidecar is not None and sidecar.id in found.pending.get(name, ()):
                all_there.contents[name] = stack.enter_context(_open(place.pending(sidecar.id)))
            elif name in found.contents:
                all_there.contents[name] = stack.enter_context(_open(place.content))
            elif sidecar is not None and not sidecar.deleted:
                raise FileNotFoundError(errno.ENOENT, "its content is missing, or no file")
    return all_there


def revision(place: Place, stack: ExitStack) -> tuple[tuple[bytes, int], BinaryIO | None] | None:
    """The sidecar of an older revision, as in ``Opened``, and its content, open until the stack ends.

    No lock is held, so it may be rewritten meanwhile: then it is opened again. ``None`` where it has gone.

    Raises:
        DamagedError: it cannot be opened.
    """
    while True:
        with opened(place.sidecar) as file:
            if file is None:
                return None
            said = _said(file, place.sidecar)
            sidecar = decoded(said[0], place)
            content = None
            if sidecar is not None:
                content = stack.enter_context(opened(place.pending(sidecar.id)))
            if content is None:
                content = stack.enter_context(opened(place.content))
            if _is_at(place.sidecar, file):
                return said, content


def _is_at(path: str, file: BinaryIO) -> bool:
    """Whether a path still leads to an open file, or to nothing."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return True


@contextmanager
def _noting(path: str, opened: Opened) -> Iterator[None]:
    """Note that a file cannot be opened, and go on with the others."""
    try:
        yield
    except DamagedError as error:
        opened.problems.append(str(error))
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise
        opened.problems.append(f"{path}: {error.strerror}")


@contextmanager
def opened(path: str) -> Iterator[BinaryIO | None]:
    """A file, open for a block; ``None`` where it has gone.

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


def _open(path: str) -> BinaryIO:
    return FileIO(nofollow.open_file(path))


def decoded(data: bytes, place: Place) -> Sidecar | None:
    """The sidecar of a place, if the bytes are one."""
    try:
        return sidecars.decode(data, place.sidecar, place.address)
    except DamagedError:
        return None


def _read(path: str) -> tuple[bytes, int]:
    with FileIO(nofollow.open_file(path)) as file:
        return _said(file, path)


def _said(file: BinaryIO, path: str) -> tuple[bytes, int]:
    """The bytes of an open sidecar and its modification time.

    Raises:
        DamagedError: it is larger than any sidecar.
    """
    status = os.fstat(file.fileno())
    data = b"" if status.st_size > LARGEST_SMALL_FILE else file.read()
    if len(data) < status.st_size:
        raise DamagedError(f"{path}: {status.st_size} bytes are no sidecar; it is not saved")
    return data, status.st_mtime_ns
