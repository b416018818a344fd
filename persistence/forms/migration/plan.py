"""The plan of a migration: the grids, and their places in the data (spec forms 1.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from persistence.forms.controls import containers, default_iteration, template_uses
from persistence.forms.structure import (
    GRID,
    DefinitionTree,
    FormPart,
    control_name,
    is_element_name,
    is_legacy_repeat,
    is_plain_grid,
    is_repeated,
)
from persistence.forms.trees import Bound, Element
from persistence.limits import MOST_NESTED_CELLS

T = TypeVar("T")


class PlanNode(Generic[T]):
    """The tasks at the elements of one path, by name, and the nodes below it; a template's plan is an ``overlay``.

    With this tree a single walk over the data finds every place; to look up each path would cost paths times data.
    """

    __slots__ = ("below", "overlay", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[str, T] = {}
        self.below: dict[str, PlanNode[T]] = {}
        self.overlay: PlanNode[T] | None = None

    def at(self, path: tuple[str, ...]) -> PlanNode[T]:
        place = self
        for step in path:
            place = place.below.setdefault(step, PlanNode())
        return place


def visits(data: Element, plan: PlanNode[T]) -> Iterator[tuple[Element, dict[str, T]]]:
    """Yield the elements with tasks, each before those inside it, so that changes to it take effect."""
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


@dataclass(frozen=True, slots=True)
class RepeatedGrid:
    """An entry of list R: elements called ``name`` in ``container``; their iterations are called ``iteration``.

    The bind of a legacy repeat excludes one direction: ``is_wrapped`` if it has a bind of iterations with the name that
    the migration from 4.0.0 gives, ``is_flat`` if it has none.
    """

    element: Element
    bind: Element
    container: tuple[str, ...]
    name: str
    iteration: str
    is_wrapped: bool
    is_flat: bool


@dataclass(frozen=True, slots=True)
class PlainGrid:
    """An entry of list G: an element ``name`` in ``container``, after ``after`` or first, for controls by position."""

    element: Element
    container: tuple[str, ...]
    name: str
    after: str | None
    content: Mapping[str, int]


def repeated_grids(part: FormPart) -> Iterator[RepeatedGrid]:
    """Yield list R of one part: the repeated grids that have a bind, in document order."""
    for container in containers(part):
        grid, name = container.element, container.name
        if grid.tag != GRID or container.is_in_dialog or name is None or not is_repeated(grid):
            continue
        bind = part.bind(name)
        path = None if bind is None else part.path(bind)
        if bind is None or not path:
            continue
        if is_legacy_repeat(grid):
            inner = part.iterations.get(bind)
            iteration: str | None = default_iteration(name)
            is_wrapped, is_flat = inner is not None and inner.get("name") == iteration, inner is None
        else:
            iteration, is_wrapped, is_flat = part.iteration_name(grid), False, False
        if iteration and is_element_name(iteration):
            yield RepeatedGrid(grid, bind, path[:-1], path[-1], iteration, is_wrapped, is_flat)


def cell_bound() -> Bound:
    """Return a bound on the cells of grids within grids: their list can be far longer than the form."""
    return Bound(
        MOST_NESTED_CELLS, f"the grids of the form, as they are nested, hold more than {MOST_NESTED_CELLS} cells"
    )


def plain_grids(part: FormPart, cells: Bound) -> Iterator[PlainGrid]:
    """Yield list G of one part: the grids that do not repeat and have a name, in document order."""
    before: dict[Element | None, str | None] = {}
    for container in containers(part):
        grid, parent = container.element, container.element.getparent()
        after, before[parent] = before.get(parent), container.name
        if is_plain_grid(grid) and not container.is_in_dialog and is_element_name(container.name):
            content = {name: place for place, name in enumerate(dict.fromkeys(_controls_of(grid, cells)))}
            yield PlainGrid(grid, container.around, container.name or "", after, content)


def _controls_of(grid: Element, cells: Bound) -> Iterator[str]:
    for cell in grid.iterdescendants("{*}c", "{*}td"):
        cells.count()
        name = next(filter(None, map(control_name, cell.iterchildren("*"))), None)
        if name:
            yield name


_Grid = TypeVar("_Grid", RepeatedGrid, PlainGrid)


def plan_repeats(definition: DefinitionTree) -> PlanNode[RepeatedGrid]:
    return _plan(definition, repeated_grids)


def plan_grids(definition: DefinitionTree) -> PlanNode[PlainGrid]:
    return _plan(definition, partial(plain_grids, cells=cell_bound()))


def _plan(definition: DefinitionTree, entries: Callable[[FormPart], Iterable[_Grid]]) -> PlanNode[_Grid]:
    plan = _placed(entries(definition.main))
    overlays: dict[int, PlanNode[_Grid]] = {}
    for use in template_uses(definition):
        if id(use.part) not in overlays:
            overlays[id(use.part)] = _placed(entries(use.part))
        place = plan.at(use.path)
        place.overlay = place.overlay or overlays[id(use.part)]
    return plan


def _placed(entries: Iterable[_Grid]) -> PlanNode[_Grid]:
    plan: PlanNode[_Grid] = PlanNode()
    for entry in entries:
        plan.at(entry.container).tasks.setdefault(entry.name, entry)
    return plan
