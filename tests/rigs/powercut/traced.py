"""The defects that no picture of a journaling file system shows: the model of a bare POSIX one must catch them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from tests.rigs.crash.defects import DEFECTS, Defect
from tests.rigs.crash.runs import Judge, record, search

_NAMES = ("commit before the names' fsync", "parent of a new directory not synced")


@dataclass(frozen=True, slots=True)
class Searched:
    """A request with a defect: the crashes that were tried, and those that broke a promise.

    ``sound`` counts those that did without the defect; there must be none.
    """

    name: str
    states: int
    caught: int
    sound: int
    example: str


def searches(directory: Path) -> Iterator[Searched]:
    """Record each request for real, and search it with and without its defect.

    Raises:
        TracingError: processes cannot be traced here.
        FileNotFoundError: strace is not installed.
    """
    with Judge(directory / "judged") as judge:
        for request, defects in groupby(_chosen(), key=attrgetter("request")):
            recording = record(request, directory / request.name)
            sound = sum(bool(faults) for faults in search(recording, judge, ordered=False))
            for defect in defects:
                planted = recording.but(defect.planted(recording.operations))
                found = list(search(planted, judge, ordered=False))
                caught = [faults for faults in found if faults]
                name = f"{defect.name}, {request.name}"
                yield Searched(name, len(found), len(caught), sound, caught[0][0] if caught else "")


def _chosen() -> list[Defect]:
    """By request: each is recorded once."""
    chosen = [defect for defect in DEFECTS if defect.name in _NAMES and not defect.ordered]
    return sorted(chosen, key=attrgetter("request.name"))
