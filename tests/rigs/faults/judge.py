"""What a fault may do: nothing at all; or, once the change has happened, leave open whether it will last."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.rigs.scenarios import Scenario
from tests.rigs.strikes import Point, Struck
from tests.rigs.views import Comparison
from tests.service import Answer

FULL = ("ENOSPC", "EDQUOT")
"""The errors of a disk without room: 507, and 500 for all others."""

_LONGEST_LINE = 400

_TOLERABLE = (
    (
        re.compile(r"rename \S+/\.[^/ ]+\.ID \S+/[^/. ][^/ ]*"),
        "last name of a content: readers and writers know the other",
    ),
    (re.compile(r"unlink \S+/[^/. ][^/ ]*"), "name of a deleted content: readers go by the sidecar, writers remove it"),
    (re.compile(r"(?!rename|fsync)\w+ /\.trash(/ID.*)?"), "emptying the trash: it is garbage either way"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a fault at a point, and everything wrong.

    A request that writes is ``refused`` and undone, ``open`` or ``tolerated``, one that reads ``refused``, ``cut off``
    or ``whole`` all the same.
    """

    point: Point
    error: str
    kind: str
    faults: tuple[str, ...]
    is_at_its_point: bool = True


def tolerance(point: Point) -> str | None:
    """Why a request may succeed although this call of it failed; ``None`` where it may not."""
    if point.is_for_the_index:
        return "a note for the index: where there is none, the index is rebuilt"
    if not point.committed:
        return None
    return next((why for pattern, why in _TOLERABLE if pattern.fullmatch(f"{point.call} {point.about}")), None)


def judged(
    point: Point, error: str, struck: Struck, comparison: Comparison, scenario: Scenario
) -> tuple[str, list[str]]:
    committed, wrong = comparison.committed(scenario), list(comparison.faults(scenario))
    faults = [] if struck.is_at(point) else [f"the fault struck {struck.hit}"]
    if struck.synced_again():
        faults.append("what a failed fsync was about is fsynced again")
    if struck.answer is None:
        return "refused", [*faults, f"no answer: {struck.broken}"]
    if struck.answer.status < 400:
        if tolerance(point) is None:
            faults.append(f"answered {struck.answer.status}")
        if wrong or not all(committed):
            faults.append(f"acknowledged, but not done: {wrong}")
        return "tolerated", faults
    faults += refusal_faults(struck.answer, error)
    # A draft is moved there only after a look that it is no link to elsewhere; what is in it already does not matter.
    is_look = (point.call, point.about) == ("openat2", "/.trash")
    if point.is_for_the_index or (point.about.startswith("/.trash") and not is_look):
        faults.append("refused for what nothing stored depends on")
    if comparison.found == comparison.before:
        return "refused", faults
    if not point.committed:
        faults.append("refused, but something has changed")
    if wrong or not any(committed):
        faults.append(f"refused, and what is there is neither the old nor the new: {wrong}")
    return "open", faults


def refusal_faults(answer: Answer, error: str) -> Iterator[str]:
    expected = 507 if error in FULL else 500
    if answer.status != expected:
        yield f"answered {answer.status}, not {expected}"
    if not (answer["Content-Type"] or "").startswith("text/plain"):
        yield f"the refusal is {answer['Content-Type']}"
    if not answer["X-Request-Id"]:
        yield "the refusal has no request id"
    line = answer.body.decode(errors="replace")
    if line.count("\n") != 1 or len(line) > _LONGEST_LINE or "Traceback" in line:
        yield f"the refusal is not one line: {line!r}"
    if os.strerror(getattr(errno, error)) not in line:
        yield f"the refusal does not name its cause: {line!r}"
