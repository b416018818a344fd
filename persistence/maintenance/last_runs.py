"""Records of the last check and the last backup, for those who look after the service: when, and what came of it.

They are beside what the pages keep, in the directory of the default tree, or of this instance if that is a database.
One that cannot be written costs only itself: what was done is done.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TypeVar

import msgspec

from persistence.errors import PersistenceError, disk_errors
from persistence.maintenance.findings import FindingTotals, Severity
from persistence.model.instants import Instant, next_after
from persistence.storage import files, nofollow, root
from persistence.storage.layout import PAGES, Layout

R = TypeVar("R", bound=msgspec.Struct)


class LastCheck(msgspec.Struct, frozen=True):
    """A check of everything: what it has seen and found. ``edits`` were made by hand and not adopted."""

    at: Instant
    folders: int
    damage: int
    leftover: int
    notice: int
    mended: int
    remaining: int
    edits: int
    seconds: float
    is_deep: bool

    @classmethod
    def of(cls, totals: FindingTotals, seconds: float, *, is_deep: bool) -> LastCheck:
        """Return the record of a check that has just ended."""
        return cls(
            next_after(None),
            totals.folders,
            damage=totals.found[Severity.DAMAGE],
            leftover=totals.found[Severity.LEFTOVER],
            notice=totals.found[Severity.NOTICE],
            mended=totals.mended,
            remaining=totals.remaining,
            edits=totals.edits,
            seconds=round(seconds, 1),
            is_deep=is_deep,
        )


class LastBackup(msgspec.Struct, frozen=True):
    """A backup, at ``path``: the documents, drafts and form versions in it, and damaged files or missing parts."""

    at: Instant
    path: str
    folders: int
    problems: int
    missing: int


def record(home: str, run: msgspec.Struct) -> None:
    """Keep a record in a home directory in place of the one before."""
    with suppress(OSError, PersistenceError):
        root.ensure_pages(home)
        files.write_durably(_path(home, type(run)), msgspec.json.encode(run))


def last(home: str, kind: type[R]) -> R | None:
    """Return the record of a kind; ``None`` where there is none that can be read."""
    with disk_errors("looking for the last run"):
        try:
            descriptor = nofollow.open_to_read(_path(home, kind))
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return msgspec.json.decode(nofollow.read_small(descriptor), type=kind)
        except msgspec.DecodeError:
            return None
        finally:
            os.close(descriptor)


def _path(home: str, kind: type[msgspec.Struct]) -> str:
    return f"{Layout(home).own(PAGES)}/{kind.__name__}.json"
