"""The step of an upgrade that gives every sidecar a checksum and an address (format 3).

A sidecar is written aside, made durable and renamed over the old one, hundreds at a time: an interruption leaves each
as it was or as it is to be, and the next run goes through all of them again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from persistence.errors import DamagedError
from persistence.maintenance.tree import Folder, Tree
from persistence.storage import files, nofollow, sidecars
from persistence.storage.layout import HISTORY, SIDECAR_SUFFIX, Place

_AT_ONCE = 500
"""Folders whose sidecars are made durable together."""
_ASIDE = "~sealed"
"""Ends the name of a sidecar that is written aside. It begins with a dot, as no name of a resource does."""


def seal_sidecars(path: str) -> None:
    """Rewrite the sidecars of the schema before in the tree of a root; what is no sidecar is left as it is.

    Raises:
        OSError: the disk refused.
    """
    folders = (item.path for item in Tree(path, lock_timeout=0).walk() if isinstance(item, Folder))
    while some := list(islice(folders, _AT_ONCE)):
        with files.synced(path):
            written = [
                sidecar
                for folder in some
                for directory in (folder, f"{folder}/{HISTORY}")
                for sidecar in _written_aside(directory)
            ]
        with files.synced(path):
            for sidecar in written:
                files.rename(_aside(sidecar), sidecar)


def _written_aside(directory: str) -> Iterator[str]:
    """Write the sealed sidecars of a directory beside the old ones, and yield the paths of the old ones."""
    with suppress(FileNotFoundError, NotADirectoryError):
        names = os.listdir(directory)
        for name in names:
            if name.startswith(".") and name.endswith(_ASIDE):
                files.remove(f"{directory}/{name}")  # from a run that was interrupted
        for name in names:
            sidecar = f"{directory}/{name}"
            if name.endswith(SIDECAR_SUFFIX) and (sealed := _sealed(directory, name)) is not None:
                with files.written(_aside(sidecar), sealed):
                    yield sidecar


def _aside(sidecar: str) -> str:
    directory, _, name = sidecar.rpartition("/")
    return f"{directory}/.{name}{_ASIDE}"


def _sealed(directory: str, name: str) -> bytes | None:
    """The sealed sidecar; ``None`` where the file is none of the schema before."""
    path = f"{directory}/{name}"
    try:
        nofollow.require_file(os.lstat(path), path)
    except OSError:
        return None
    descriptor = nofollow.open_file(path)
    try:
        sidecar = sidecars.decode_before(files.read_small(descriptor), path)
    except (DamagedError, IsADirectoryError):
        return None
    finally:
        os.close(descriptor)
    place = Place(directory, name.removesuffix(SIDECAR_SUFFIX).removeprefix("."))  # a prepared one begins with a dot
    return sidecars.encode(sidecar, place.address)
