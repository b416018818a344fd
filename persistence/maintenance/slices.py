"""Deep checks in slices: a tree too large for one night is looked at in parts, the one looked at longest ago first.

A slice has the documents whose lock is one of the 256 stripes, so it is known without a list and needs no memory. When
each was last looked at stands in a small file of the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from persistence.maintenance.findings import Report
from persistence.maintenance.tree import Folder
from persistence.model.instants import Instant, next_after
from persistence.storage import files, layout, nofollow
from persistence.storage.locks import STRIPES, stripe

_NEVER = Instant("")
_CAUTION = 0.5
"""The share of the time left that is planned for, because slices are not all as large."""


class _LookedAt(msgspec.Struct, frozen=True):
    slices: list[str]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How old the looks at a tree are: the oldest, ``None`` without any, and how many slices were never looked at."""

    oldest: Instant | None
    never: int
    slices: int = STRIPES


def slice_of(folder: Folder) -> int:
    """The slice that a folder is in."""
    return stripe(folder.scope)


class Slices:
    """When each slice of the tree of a root was last looked at deeply. Methods raise ``OSError``."""

    def __init__(self, root: str) -> None:
        self._path = f"{root}/{layout.CHECKED}"
        self._looked = self._read()

    def coverage(self) -> Coverage:
        """How old the looks are."""
        known = [Instant(looked) for looked in self._looked if looked != _NEVER]
        return Coverage(min(known, default=None), len(self._looked) - len(known))

    def record(self, slices: frozenset[int], began: Instant) -> None:
        """Note that slices were looked at, from an instant on."""
        for each in slices:
            self._looked[each] = began
        files.write_durably(self._path, msgspec.json.encode(_LookedAt(list(self._looked))) + b"\n")

    def oldest_first(self) -> list[int]:
        """All slices, those that were never looked at first."""
        return sorted(range(STRIPES), key=lambda each: self._looked[each])

    def _read(self) -> list[str]:
        """What the file says; without one that can be read, nothing was looked at."""
        try:
            with open(nofollow.open_to_read(self._path), "rb") as file:
                looked = msgspec.json.decode(file.read(1 << 16), type=_LookedAt).slices
        except (FileNotFoundError, msgspec.DecodeError):
            looked = []
        return looked if len(looked) == STRIPES else [_NEVER] * STRIPES


ALL_SLICES = frozenset(range(STRIPES))


def within(
    seconds: float, slices: Slices, check: Callable[[frozenset[int]], Iterator[Report | None]]
) -> Iterator[Report | None]:
    """Check as many slices as a budget of seconds allows, and at least one, which is finished whatever it takes.

    Each call of ``check`` walks the whole tree, so as many slices are looked at in one as there seems to be time for.
    """
    end, due, count = time.monotonic() + seconds, slices.oldest_first(), 1
    while due:
        batch, due = frozenset(due[:count]), due[count:]
        began, started = next_after(None), time.monotonic()
        for report in check(batch):
            yield report
            if report is None and len(batch) > 1 and time.monotonic() > end:
                return
        slices.record(batch, began)
        left = end - time.monotonic()
        if left <= 0:
            return
        per_slice = (time.monotonic() - started) / len(batch)
        count = max(1, int(left * _CAUTION / max(per_slice, 1e-9)))
