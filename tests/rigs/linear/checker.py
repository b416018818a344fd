"""What clients did and saw, and the object that a document has to look like: a register with tags and instants."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any


class Kind(Enum):
    READ = "read"
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Operation:
    """A request and its answer; times are nanoseconds of the one clock that all processes read.

    Without an ``end`` the outcome is unknown (and ``status`` is ``None``): it took effect at some time after its
    start, once, or never. ``token`` is the content, which no two PUTs share: written by a PUT, seen by a read. ``tag``
    and ``instant`` are what the answer says of that revision, or of the tombstone.
    """

    kind: Kind
    start: int
    end: int | None
    status: int | None
    token: str | None = None
    tag: str | None = None
    instant: str | None = None
    if_match: str | None = None
    if_absent: bool = False

    def __post_init__(self) -> None:
        if (self.end is None) != (self.status is None):
            raise ValueError("an outcome has an end and a status, or neither")

    def __str__(self) -> str:
        facts = {
            "status": self.status,
            "token": self.token,
            "tag": self.tag and self.tag[:8],
            "instant": self.instant,
            "if-match": self.if_match and self.if_match[:8],
            "if-absent": self.if_absent or None,
        }
        known = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        return f"{self.kind.value} [{self.start}, {self.end or 'unknown'}] {known}"


@dataclass(frozen=True, slots=True)
class State:
    """The current revision's entity tag, if there is one; whether there ever was; and the newest known instant."""

    tag: str | None = None
    existed: bool = False
    instant: str = ""


NOTHING_STORED = State()


def step(state: State, operation: Operation) -> State | None:
    """The state after an operation, or ``None`` where its answer is not the one this state gives."""
    status = _status(state, operation)
    if operation.status not in (None, status):
        return None
    if operation.kind is Kind.READ:
        return state if operation.tag == state.tag else None
    if status not in (201, 204):
        return state
    instant = state.instant
    if operation.instant is not None:
        if operation.instant <= instant:
            return None
        instant = operation.instant
    return State(operation.tag if operation.kind is Kind.PUT else None, True, instant)


def _status(state: State, operation: Operation) -> int:
    """What the interface says: a DELETE of nothing finds nothing, and no If-Match of a PUT holds there."""
    absent = 410 if state.existed and operation.kind is Kind.DELETE else 404
    if state.tag is None:
        if operation.kind is not Kind.PUT:
            return absent
        return 201 if operation.if_match is None else 412
    if operation.if_absent or operation.if_match not in (None, state.tag):
        return 412
    return 200 if operation.kind is Kind.READ else 204


def resolved(operations: Iterable[Operation]) -> tuple[list[Operation], list[str]]:
    """The operations with what is known of each content filled in, and contradictions about that.

    A PUT whose outcome is unknown learns its tag and instant from whoever read its content; where nobody did, the
    content itself stands for the tag, which then matches no condition.
    """
    operations = list(operations)
    revisions: dict[str, tuple[str | None, str | None]] = {}
    owners: dict[str | None, str] = {}
    faults = []
    for operation in operations:
        if operation.token is None or operation.tag is None:
            continue
        revision = (operation.tag, operation.instant)
        if revisions.setdefault(operation.token, revision) != revision:
            faults.append(f"one content, two revisions: {revisions[operation.token]} and then {operation}")
        if owners.setdefault(operation.tag, operation.token) != operation.token:
            faults.append(f"one entity tag, two contents: {owners[operation.tag]} and then {operation}")
    return [_with_revision(operation, revisions) for operation in operations], faults


def _with_revision(operation: Operation, revisions: dict[str, tuple[str | None, str | None]]) -> Operation:
    if operation.kind is not Kind.PUT or operation.token is None or operation.status is not None:
        return operation
    tag, instant = revisions.get(operation.token, (f"content {operation.token}", None))
    return replace(operation, tag=tag, instant=instant)


# Whether a history is linearizable: the search of Wing and Gong, with Lowe's memory of what was tried. It takes
# operations one after the other, each time one that may come next: none that is still to be taken had ended before it
# began. Where an operation's answer does not fit the state, it goes back. Two ways that took the same operations and
# came to the same state go on alike, so the second is not followed. Linearizability is local: each document can be
# judged for itself, and a history cut where nothing was under way, with the state carried over.

MOST_TRIED = 200_000
_SHOWN = 6


class Verdict(Enum):
    LINEAR = "linearizable"
    VIOLATED = "not linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict; why, where it is not good; how many steps were tried; and a state in which the history may end."""

    verdict: Verdict
    why: str = ""
    tried: int = 0
    final: object = None


@dataclass(frozen=True, slots=True)
class _Reached:
    """A point of the search: the operations taken, as bits, and the state they led to."""

    taken: int
    state: Any


def check(operations: Iterable[Operation], initial: State, most: int = MOST_TRIED) -> Finding:
    history, faults = resolved(operations)
    if faults:
        return Finding(Verdict.VIOLATED, "; ".join(faults))
    return Search(history, step).run(initial, most)


class Search:
    """The search through one history; operations are known by their numbers in the order of their starts.

    ``step`` gives the state after an operation, ``None`` where its outcome is not the one that the state gives.
    Where ``effects_vary``, what changes nothing in one state may change another one, with the same outcome.
    """

    def __init__(self, history: Sequence[Any], step: Callable[[Any, Any], Any], *, effects_vary: bool = False) -> None:
        self._step = step
        self._effects_vary = effects_vary
        self._operations = sorted(history, key=lambda operation: operation.start)
        self._ends = [math.inf if operation.end is None else operation.end for operation in self._operations]
        self._needed = sum(1 << number for number, end in enumerate(self._ends) if end < math.inf)

    def run(self, initial: object, most: int) -> Finding:
        """Depth first, until all operations with a known outcome are taken or every way has failed."""
        furthest = _Reached(0, initial)
        known = {furthest}
        waiting = [furthest]
        while waiting:
            reached = waiting.pop()
            if reached.taken & self._needed == self._needed:
                return Finding(Verdict.LINEAR, tried=len(known), final=reached.state)
            if len(known) > most:
                return Finding(Verdict.UNDECIDED, f"{len(known)} steps tried", len(known))
            if reached.taken.bit_count() > furthest.taken.bit_count():
                furthest = reached
            following = [found for found in self._following(reached) if found not in known]
            known.update(following)
            waiting += reversed(following)
        return Finding(Verdict.VIOLATED, self._explain(furthest), len(known))

    def _following(self, reached: _Reached) -> list[_Reached]:
        """Every point one operation further, the most likely first."""
        certain, uncertain = [], []
        for number in self._next(reached.taken):
            state = self._step(reached.state, self._operations[number])
            if state is None:
                continue
            found = _Reached(reached.taken | 1 << number, state)
            is_certain = self._ends[number] < math.inf
            if is_certain and state == reached.state and not self._effects_vary:
                return [found]  # it fits and changes nothing: to take it now rules out nothing that could follow
            if is_certain:
                certain.append(found)
            elif state != reached.state:  # what has no effect need not have happened
                uncertain.append(found)
        return certain + uncertain

    def _next(self, taken: int) -> Iterator[int]:
        """The operations that may come next: they began before any that is still to be taken had ended."""
        earliest_end = math.inf
        first = (~taken & (taken + 1)).bit_length() - 1
        candidates = []
        for number in range(first, len(self._operations)):
            if self._operations[number].start > earliest_end:
                break
            if not taken >> number & 1:
                candidates.append(number)
                earliest_end = min(earliest_end, self._ends[number])
        return iter(candidates)

    def _explain(self, furthest: _Reached) -> str:
        left = [str(operation) for number, operation in enumerate(self._operations) if not furthest.taken >> number & 1]
        taken = furthest.taken.bit_count()
        return (
            f"{taken} of {len(self._operations)} operations fit, up to {furthest.state}; "
            f"none of the next does: {'; '.join(left[:_SHOWN])}"
        )
