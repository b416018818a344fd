"""``layout.json``: which format a tree has, the upgrades it has been through, and whether it is whole."""

from __future__ import annotations

import msgspec

from persistence.errors import StartupError
from persistence.model.instants import Instant
from persistence.store import files

FORMAT = 2
"""The format of the tree that this version reads and writes. 1 had neither ``steps`` nor ``incomplete``."""


class LayoutFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``layout.json``.

    ``steps`` holds the upgrade steps done, with the instant of each. ``incomplete`` says why the tree must not be
    served: a restore or an upgrade that has not come to its end.
    """

    format: int
    steps: dict[str, Instant] = {}
    incomplete: str = ""


def read(path: str) -> LayoutFile | None:
    """What the file says; ``None`` where there is none.

    Raises:
        StartupError: it cannot be decoded.
        OSError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=LayoutFile)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StartupError(f"{path} cannot be read: {error}") from error


def write(path: str, layout: LayoutFile) -> None:
    """Replace the file, durably; raises ``OSError``."""
    files.write_durably(path, msgspec.json.encode(layout) + b"\n")


def check(path: str, layout: LayoutFile) -> None:
    """Make sure that the tree can be served.

    Raises:
        StartupError: it has another format, or is not whole.
    """
    if layout.format > FORMAT:
        raise StartupError(
            f"{path} says format {layout.format}: a newer version of this service wrote it; this one knows {FORMAT}"
        )
    if layout.incomplete:
        raise StartupError(f"{path} says: {layout.incomplete}")
    if layout.format < FORMAT:
        raise StartupError(f"{path} says format {layout.format}; 'persistence upgrade' brings it to {FORMAT}")
