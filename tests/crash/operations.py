"""What a request does to files, as values: a trace is a row of them, and the model of durability replays it.

Paths are relative to the data root, which itself is ``""``. A handle stands for one opening of one file, so that a
descriptor's number used again is another handle.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opened:
    """Something that exists was opened."""

    handle: int
    path: str


@dataclass(frozen=True, slots=True)
class Created:
    """A file was opened for writing, and made if it was missing."""

    handle: int
    path: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class CreatedUnnamed:
    """A file without a name was made."""

    handle: int


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes were appended at the end of an open file."""

    handle: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Stamped:
    """An open file got a modification time, in nanoseconds since 1970."""

    handle: int
    stamp: int


@dataclass(frozen=True, slots=True)
class Synced:
    """An open file or directory was fsynced; ``path`` is what it was opened as, ``None`` for an unnamed file."""

    handle: int
    path: str | None


@dataclass(frozen=True, slots=True)
class MadeDirectory:
    """A directory was made."""

    path: str


@dataclass(frozen=True, slots=True)
class Named:
    """An open file got a name."""

    handle: int
    target: str


@dataclass(frozen=True, slots=True)
class Linked:
    """A file got a second name."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file or directory was renamed, over whatever had the new name."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Removed:
    """A name was removed: of a file or of an empty directory."""

    path: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The client was told of success: from here on nothing may be lost."""


Operation = (
    Opened
    | Created
    | CreatedUnnamed
    | Written
    | Stamped
    | Synced
    | MadeDirectory
    | Named
    | Linked
    | Renamed
    | Removed
    | Acknowledged
)
