"""What is to be done where in data: a tree of element names beside the tree of the data.

Looking each path up on its own would cost the product of paths and data; with all paths in one tree a single walk over
the data finds every place. A section template is planned once and laid over each section that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from persistence.forms.trees import Element

T = TypeVar("T")


class PlanNode(Generic[T]):
    """What there is to do at the elements of one path, by name, and the places below it."""

    __slots__ = ("below", "overlay", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[str, T] = {}
        self.below: dict[str, PlanNode[T]] = {}
        self.overlay: PlanNode[T] | None = None

    def at(self, path: tuple[str, ...]) -> PlanNode[T]:
        """The place below this one at a path; made where it is new."""
        place = self
        for step in path:
            place = place.below.setdefault(step, PlanNode())
        return place


def visits(data: Element, plan: PlanNode[T]) -> Iterator[tuple[Element, dict[str, T]]]:
    """The elements at which something is to be done, each before those inside it.

    An element's children are looked at after it has been handed out, so what is done to it is seen.
    """
    ahead = [(data, plan)]
    while ahead:
        element, place = ahead.pop()
        if place.tasks:
            yield element, place.tasks
        if place.below:
            below = ((child, place.below.get(child.tag)) for child in element.iterchildren("*", reversed=True))
            ahead += [(child, found) for child, found in below if found is not None]
        if place.overlay is not None:
            ahead.append((element, place.overlay))
