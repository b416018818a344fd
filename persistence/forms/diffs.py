"""The differences between two revisions of form data: values, iterations and elements of the form (spec crud 8.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise, takewhile
from operator import eq

from persistence.forms.data_tree import NO_DATA, NO_VALUE, DataNode, HeldValue
from persistence.forms.outline import Outline, OutlineNode
from persistence.limits import MOST_ALIGNED


class DiffKind(Enum):
    """The kinds of differences, by their names on the wire."""

    VALUE_CHANGED = "value-changed"
    ITERATION_ADDED = "iteration-added"
    ITERATION_REMOVED = "iteration-removed"
    ELEMENT_ADDED = "element-added"
    ELEMENT_REMOVED = "element-removed"
    OTHER = "other"


Place = tuple[tuple[str, int], ...]
"""The elements from the root to another: each by its name, and its position among its siblings of that name."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference at an element of the form; ``node`` is ``None`` outside of the form's controls.

    ``place`` and ``iterations`` are positions in the newer data, of removed ones in the older; ``place`` of iterations
    is the element around them. It ``is_in_added`` if it is within an iteration that was added.
    """

    kind: DiffKind
    node: OutlineNode | None = None
    place: Place = ()
    older: HeldValue = NO_VALUE
    newer: HeldValue = NO_VALUE
    iterations: tuple[int, ...] = ()
    is_in_added: bool = False


OTHER = Difference(DiffKind.OTHER)


def differences(
    older: DataNode, newer: DataNode, outline: Outline, *, by_position: bool = False
) -> Iterator[Difference]:
    """Yield the differences between two revisions in the order of the form, and last ``OTHER`` for anything else.

    An element that is added, or in an added iteration, has had no values; those in removed ones are not listed. Equal
    iterations are aligned, those between them by order; ``by_position`` is as in the real system (spec runtime 8).
    """
    comparison = _Comparison(by_position=by_position)
    yield from comparison.within(older, newer, outline.root, ())
    if comparison.differs_elsewhere:
        yield OTHER


class _Comparison:
    def __init__(self, *, by_position: bool) -> None:
        self.differs_elsewhere = False
        self._by_position = by_position
        self._left = MOST_ALIGNED

    def within(self, older: DataNode, newer: DataNode, outline: OutlineNode, place: Place) -> Iterator[Difference]:
        if older.digest == newer.digest:
            return
        self.differs_elsewhere |= older is not NO_DATA and older.other != newer.other
        if outline.is_control:
            yield from self._values(older, newer, outline, place)
        for name, inner in outline.inside.items():
            if inner.is_iteration:
                yield from self._iterations(older.at(name), newer.at(name), name, inner, place)
            else:
                is_new = older is NO_DATA  # then the element around it, or its iteration, is what was added
                yield from self._element(older.at(name), newer.at(name), inner, (*place, (name, 0)), is_new=is_new)

    def _values(self, older: DataNode, newer: DataNode, outline: OutlineNode, place: Place) -> Iterator[Difference]:
        if older.value != newer.value:
            yield Difference(DiffKind.VALUE_CHANGED, outline, place, older.value, newer.value)
        if older.items == newer.items:
            return
        for before, after in self._aligned(older.items, newer.items):
            was = NO_VALUE if before is None else older.items[before]
            now = NO_VALUE if after is None else newer.items[after]
            if was != now:
                yield Difference(DiffKind.VALUE_CHANGED, outline, place, was, now)

    def _element(
        self, older: list[DataNode], newer: list[DataNode], outline: OutlineNode, place: Place, *, is_new: bool
    ) -> Iterator[Difference]:
        is_around_iterations = any(each.is_iteration and each.name == outline.name for each in outline.inside.values())
        if older and not newer and not is_around_iterations:
            yield Difference(DiffKind.ELEMENT_REMOVED, outline, place)
            return
        if newer and not older and not is_around_iterations and not is_new:
            yield Difference(DiffKind.ELEMENT_ADDED, outline, place)
        yield from self.within(older[0] if older else NO_DATA, newer[0] if newer else NO_DATA, outline, place)
        self.differs_elsewhere |= [each.digest for each in older[1:]] != [each.digest for each in newer[1:]]

    def _iterations(
        self, older: list[DataNode], newer: list[DataNode], name: str, outline: OutlineNode, place: Place
    ) -> Iterator[Difference]:
        if self._by_position:
            pairs = list(_by_position(range(len(older)), range(len(newer))))
        else:
            pairs = list(self._aligned([each.digest for each in older], [each.digest for each in newer]))
        removed = tuple(before for before, after in pairs if before is not None and after is None)
        added = tuple(after for before, after in pairs if before is None and after is not None)
        if removed:
            yield Difference(DiffKind.ITERATION_REMOVED, outline, place, iterations=removed)
        if added:
            yield Difference(DiffKind.ITERATION_ADDED, outline, place, iterations=added)
        for before, after in pairs:
            inner = (*place, (name, after or 0))
            if before is not None and after is not None:
                yield from self.within(older[before], newer[after], outline, inner)
            elif after is not None:
                values = self.within(NO_DATA, newer[after], outline, inner)
                yield from (replace(each, is_in_added=True) for each in values)

    def _aligned(self, older: Sequence[object], newer: Sequence[object]) -> Iterator[tuple[int | None, int | None]]:
        begins = sum(1 for _ in takewhile(bool, map(eq, older, newer)))
        most = min(len(older), len(newer)) - begins
        ends = sum(1 for _ in takewhile(bool, map(eq, older[::-1][:most], newer[::-1][:most])))
        rows, columns = len(older) - begins - ends, len(newer) - begins - ends
        anchors = [(at, at) for at in range(begins)]
        if rows * columns <= self._left:
            self._left -= rows * columns
            middle = _common(older[begins : begins + rows], newer[begins : begins + columns])
            anchors += [(begins + before, begins + after) for before, after in middle]
        anchors += [(begins + rows + at, begins + columns + at) for at in range(ends)]
        bounds = [(-1, -1), *anchors, (len(older), len(newer))]
        for (before, after), (next_before, next_after) in pairwise(bounds):
            if before >= 0:
                yield before, after
            yield from _by_position(range(before + 1, next_before), range(after + 1, next_after))


def _by_position(older: range, newer: range) -> Iterator[tuple[int | None, int | None]]:
    for at in range(max(len(older), len(newer))):
        yield older[at] if at < len(older) else None, newer[at] if at < len(newer) else None


def _common(older: Sequence[object], newer: Sequence[object]) -> list[tuple[int, int]]:
    lengths = [[0] * (len(newer) + 1)]
    for before in reversed(older):
        below, row = lengths[-1], [0] * (len(newer) + 1)
        for at in range(len(newer) - 1, -1, -1):
            row[at] = below[at + 1] + 1 if before == newer[at] else max(below[at], row[at + 1])
        lengths.append(row)
    lengths.reverse()
    found, before, after = [], 0, 0
    while before < len(older) and after < len(newer):
        if older[before] == newer[after]:
            found.append((before, after))
            before, after = before + 1, after + 1
        elif lengths[before + 1][after] >= lengths[before][after + 1]:
            before += 1
        else:
            after += 1
    return found
