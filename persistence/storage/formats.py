"""``layout.json``: which format a tree has, the upgrades it has been through, and whether it is whole."""

from __future__ import annotations

import os

import msgspec

from persistence.errors import StartupError
from persistence.model.instants import Instant
from persistence.storage import files, nofollow
from persistence.storage.nofollow import NotOpenedError

FORMAT = 3
"""The format of the tree that this version reads and writes.

1 knew neither ``restoring`` nor ``upgrading_from``: it would serve a tree that is not whole. 2 had sidecars without
checksums and addresses.
"""


class LayoutFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``layout.json``.

    ``steps`` holds the upgrade steps done, with the instant of each. ``restoring`` names the backup that is being
    restored, ``upgrading_from`` the format of a tree that is being upgraded: until that has come to its end, the tree
    must not be served.
    """

    format: int
    steps: dict[str, Instant] = {}
    restoring: str = ""
    upgrading_from: int = 0


def read(path: str) -> LayoutFile | None:
    """Read the file; ``None`` where there is none.

    Raises:
        StartupError: it cannot be decoded.
        OSError: it cannot be read.
    """
    try:
        descriptor = nofollow.open_to_read(path)
    except FileNotFoundError:
        return None
    except NotOpenedError as error:
        raise StartupError(f"{path} cannot be read: it is no file, but a link or a socket") from error
    try:
        return msgspec.json.decode(nofollow.read_small(descriptor), type=LayoutFile)
    except (IsADirectoryError, BlockingIOError) as error:
        raise StartupError(f"{path} cannot be read: it is no file") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StartupError(f"{path} cannot be read: {error} ('persistence check --repair' writes it anew)") from error
    finally:
        os.close(descriptor)


def encode(layout: LayoutFile) -> bytes:
    """Return the content of the file."""
    return msgspec.json.encode(layout) + b"\n"


def write(path: str, layout: LayoutFile) -> None:
    """Replace the file, durably; raises ``OSError``."""
    files.write_durably(path, encode(layout))


def check(path: str, layout: LayoutFile) -> None:
    """Make sure that the tree can be served.

    Raises:
        StartupError: it has another format, or is not whole.
    """
    if layout.format > FORMAT:
        raise StartupError(
            f"{path} says format {layout.format}: a newer version of this service wrote it; this one knows {FORMAT}"
        )
    if layout.restoring:
        raise StartupError(
            f"{path} says that restoring {layout.restoring} has not finished: 'persistence restore' again"
        )
    if layout.upgrading_from:
        raise StartupError(f"{path} says that an upgrade has not finished: 'persistence upgrade' again")
    if layout.format < FORMAT:
        raise StartupError(f"{path} says format {layout.format}; 'persistence upgrade' brings it to {FORMAT}")
