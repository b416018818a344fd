"""Opening everything in a folder while its lock is held, to be read after that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO

from persistence.errors import DamagedError
from persistence.model.sidecar import Sidecar
from persistence.store import sidecars
from persistence.store.layout import Place
from persistence.upkeep import listing
from persistence.upkeep.listing import History


@dataclass(frozen=True, slots=True)
class Opened:
    """A folder as it was while its lock was held: sidecars as bytes and modification time, contents open.

    Older revisions are not opened: nobody removes them.
    """

    path: str
    sidecars: dict[str, tuple[bytes, int]]
    contents: dict[str, BinaryIO]
    history: History

    def sidecar(self, name: str) -> Sidecar | None:
        """What is said about a content, if that can be read."""
        return decoded(self.sidecars[name][0]) if name in self.sidecars else None


def open_all(path: str, stack: ExitStack) -> Opened:
    """Open a folder's files until the stack ends; a content that is committed and not yet in its place, too.

    Raises:
        OSError: it cannot be listed, or a file in it not be opened.
    """
    found = listing.folder(path)
    read = {name: _read(Place(path, name).sidecar) for name in found.sidecars}
    contents: dict[str, BinaryIO] = {}
    for name in found.contents | set(found.pending):
        place = Place(path, name)
        sidecar = decoded(read[name][0]) if name in read else None
        if sidecar is not None and sidecar.id in found.pending.get(name, ()):
            contents[name] = stack.enter_context(_open(place.pending(sidecar.id)))
        elif name in found.contents:
            contents[name] = stack.enter_context(_open(place.content))
    return Opened(path, read, contents, listing.history(path) if found.has_history else History())


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
        raise DamagedError(f"{sidecars.last_names(path)}: {error.strerror}") from error
    with file:
        yield file


def _open(path: str) -> BinaryIO:
    return FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))


def decoded(data: bytes) -> Sidecar | None:
    """A sidecar, if the bytes are one."""
    try:
        return sidecars.decode(data, "")
    except DamagedError:
        return None


def _read(path: str) -> tuple[bytes, int]:
    with open(path, "rb") as file:
        return file.read(), os.fstat(file.fileno()).st_mtime_ns
