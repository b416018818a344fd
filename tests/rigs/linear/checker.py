"""Whether a history is linearizable: the search of Wing and Gong, with Lowe's memory of what was tried.

It takes operations one after the other, each time one that may come next: none that is still to be taken had ended
before it began. Where an operation's answer does not fit the state, it goes back. Two ways that took the same
operations and came to the same state go on alike, so the second is not followed. Linearizability is local: each
document can be judged for itself, and a history cut where nothing was under way, with the state carried over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.rigs.linear.register import Operation, State, resolved, step

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
