"""A matcher of many paths at once, step by step while a document streams by: a small state machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from persistence.limits import DEEPEST
from persistence.model.form_versions import PathStep
from persistence.xml.streaming import SEPARATOR

T = TypeVar("T")

_MOST_KEPT = 10_000


class PathState(Generic[T]):
    """A state of the matcher, at an element: ``found`` are the values of the paths that lead here.

    ``following`` are the states of the elements inside by the names that a parser gives them; other elements are on no
    path. It is ``None`` where more than the name counts, and ``chosen`` decides.
    """

    __slots__ = ("_chosen", "_identities", "_inside", "following", "found")

    def __init__(self, nodes: tuple[_Node[T], ...]) -> None:
        self.found = tuple(found for node in nodes for found in node.found)
        self._inside: dict[str, list[tuple[str | None, _Node[T]]]] = {}
        for node in nodes:
            for step, child in node.inside.items():
                self._inside.setdefault(_name(step), []).append((step.id, child))
        self._identities = frozenset(identity for each in self._inside.values() for identity, _ in each)
        is_plain = "" not in self._inside and self._identities <= {None}
        self.following: dict[str, PathState[T]] | None = {} if is_plain else None
        self._chosen: dict[tuple[str | None, str | None], PathState[T]] = {}

    def chosen(self, name: str, attributes: Mapping[str, str]) -> PathState[T]:
        """Return the state of an element inside; states are kept by the parts of an element that can matter."""
        identity = attributes.get("id")
        key = (name if name in self._inside else None, identity if identity in self._identities else None)
        place = self._chosen.get(key)
        if place is None:
            steps = (*self._inside.get("", ()), *self._inside.get(name, ()))
            place = _place(child for wanted, child in steps if wanted in {None, identity})
            if len(self._chosen) < _MOST_KEPT:
                self._chosen[key] = place
        return place

    def branch(self) -> Iterator[PathState[T]]:
        """Make the states of ``following``, and yield them."""
        if self.following is not None:
            for name, inside in self._inside.items():
                place = PathState(tuple(child for _, child in inside))
                self.following[name] = place
                yield place


class _Node(Generic[T]):
    """A step of some paths, with the next steps."""

    __slots__ = ("found", "inside")

    def __init__(self) -> None:
        self.found: list[T] = []
        self.inside: dict[PathStep, _Node[T]] = {}


def path_matcher(paths: Iterable[tuple[tuple[PathStep, ...], T]]) -> PathState[T]:
    """Return the state around the root element, for paths of steps below that element, each with its value."""
    top: _Node[T] = _Node()
    for steps, found in paths:
        if len(steps) < DEEPEST and not any(SEPARATOR in step.name for step in steps):
            node = top
            for step in (PathStep(""), *steps):
                node = node.inside.setdefault(step, _Node())
            node.found.append(found)
    return _place([top])


def off_path() -> PathState[T]:
    """Return the state of elements that are on no path."""
    return PathState(())


def _place(nodes: Iterable[_Node[T]]) -> PathState[T]:
    first = PathState(tuple(nodes))
    waiting = [first]
    while waiting:
        waiting += waiting.pop().branch()
    return first


def _name(step: PathStep) -> str:
    return f"{step.namespace}{SEPARATOR}{step.name}" if step.namespace else step.name
