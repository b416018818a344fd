"""What a fault may do: nothing at all; or, once the change has happened, leave open whether it will last."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.faults.injection import FULL, Point, Struck
from tests.service import Answer

_OF_THE_MOMENT = {"date", "x-request-id"}
_LONGEST_LINE = 400
_FORM = re.compile(rb"\bapp-\d+/")

_TOLERABLE = (
    (
        re.compile(r"rename \S+/\.[^/ ]+\.ID \S+/[^/. ][^/ ]*"),
        "last name of a content: readers and writers know the other",
    ),
    (re.compile(r"unlink \S+/[^/. ][^/ ]*"), "name of a deleted content: readers go by the sidecar, writers remove it"),
    (re.compile(r"(?!rename|fsync)\w+ /\.trash(/ID.*)?"), "emptying the trash: it is garbage either way"),
)

Picture = tuple[int, bytes, tuple[tuple[str, str], ...]]
"""An answer without what belongs to the moment or to the form: status, body and headers."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a fault at a point: ``refused`` and undone, ``open`` or ``tolerated``; and everything wrong."""

    point: Point
    error: str
    kind: str
    faults: tuple[str, ...]
    is_at_its_point: bool = True


@dataclass(frozen=True, slots=True)
class Pictures:
    """What the views of a request show: before it, after the fault, and after the same request without a fault."""

    before: Sequence[Picture]
    after: Sequence[Picture]
    done: Sequence[Picture]

    def is_as_before(self) -> bool:
        """Whether nothing has changed, to the last header."""
        return list(self.before) == list(self.after)

    def is_done(self) -> bool:
        """Whether everything is as if there had been no fault."""
        return [shown[:2] for shown in self.after] == [shown[:2] for shown in self.done]

    def is_changed(self) -> bool:
        """Whether the request's own resource has changed, and the others are as before or as they should become."""
        first, *others = zip(self.before, self.after, self.done, strict=True)
        return first[1][:2] == first[2][:2] and all(
            after == before or after[:2] == done[:2] for before, after, done in others
        )


def tolerance(point: Point) -> str | None:
    """Why a request may succeed although this call of it failed; ``None`` where it may not."""
    if point.is_for_the_index:
        return "a note for the index: where there is none, the index is rebuilt"
    if not point.committed:
        return None
    return next((why for pattern, why in _TOLERABLE if pattern.fullmatch(f"{point.call} {point.about}")), None)


def picture(answer: Answer) -> Picture:
    """What two reads of the same revision have in common."""
    headers = tuple((name, value) for name, value in answer.headers.items() if name.lower() not in _OF_THE_MOMENT)
    return answer.status, _FORM.sub(b"app/", answer.body), headers


def judged(point: Point, error: str, struck: Struck, pictures: Pictures) -> tuple[str, list[str]]:
    """What came of a fault in a writing request, and what is wrong with that."""
    faults = [] if struck.is_at(point) else [f"the fault struck {struck.hit}"]
    if struck.synced_again():
        faults.append("what a failed fsync was about is fsynced again")
    if struck.answer is None:
        return "refused", [*faults, f"no answer: {struck.broken}"]
    if struck.answer.status < 400:
        if tolerance(point) is None:
            faults.append(f"answered {struck.answer.status}")
        if not pictures.is_done():
            faults.append("acknowledged, but not done")
        return "tolerated", faults
    faults += refusal_faults(struck.answer, error)
    # A draft is moved there only after a look that it is no link to elsewhere; what is in it already does not matter.
    is_look = (point.call, point.about) == ("openat2", "/.trash")
    if point.is_for_the_index or (point.about.startswith("/.trash") and not is_look):
        faults.append("refused for what nothing stored depends on")
    if pictures.is_as_before():
        return "refused", faults
    if not point.committed:
        faults.append("refused, but something has changed")
    if not pictures.is_changed():
        faults.append("refused, and what is there is neither the old nor the new")
    return "open", faults


def refusal_faults(answer: Answer, error: str) -> Iterator[str]:
    """What is wrong with the answer to a request that met an error of the disk."""
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
