"""The lists of a form's repeated and plain grids that migration works through (spec forms 1.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from persistence.forms.containers import NestedControls, containers, default_iteration, template_uses
from persistence.forms.migration.places import PlanNode
from persistence.forms.names import GRID, is_element_name
from persistence.forms.structure import DefinitionTree, FormPart, is_legacy_repeat, is_plain_grid, is_repeated
from persistence.forms.trees import Element


@dataclass(frozen=True, slots=True)
class RepeatedGrid:
    """An entry of list R: elements called ``name`` below ``parent``; their iterations are called ``iteration``.

    Of a legacy repeat the bind says which way it can no longer go: ``is_wrapped`` if there is a bind of iterations
    called as migration from 4.0.0 calls them, ``is_flat`` if there is no bind of iterations at all.
    """

    element: Element
    bind: Element
    parent: tuple[str, ...]
    name: str
    iteration: str
    is_wrapped: bool
    is_flat: bool


@dataclass(frozen=True, slots=True)
class PlainGrid:
    """An entry of list G: an element ``name`` in ``container`` for the controls ``content``.

    It stands after ``after``, or first where that is ``None`` or absent. ``content`` has the place of each control.
    """

    element: Element
    container: tuple[str, ...]
    name: str
    after: str | None
    content: Mapping[str, int]


def repeated_grids(part: FormPart) -> Iterator[RepeatedGrid]:
    """List R of one part: the repeated grids that have a bind, in document order."""
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


def plain_grids(part: FormPart, controls: NestedControls) -> Iterator[PlainGrid]:
    """List G of one part: the grids that do not repeat and have a name, in document order.

    Raises:
        BadRequestError: grids are nested so that the list would be far longer than the form.
    """
    before: dict[Element | None, str | None] = {}
    for container in containers(part):
        grid, parent = container.element, container.element.getparent()
        after, before[parent] = before.get(parent), container.name
        if is_plain_grid(grid) and not container.is_in_dialog and is_element_name(container.name):
            content = {name: place for place, name in enumerate(dict.fromkeys(controls.of(grid)))}
            yield PlainGrid(grid, container.around, container.name or "", after, content)


Entry = TypeVar("Entry", RepeatedGrid, PlainGrid)


def plan_repeats(definition: DefinitionTree) -> PlanNode[RepeatedGrid]:
    """Where in the data there are repeated grids, in the main document and its section templates."""
    return _plan(definition, repeated_grids, lambda entry: entry.parent)


def plan_grids(definition: DefinitionTree) -> PlanNode[PlainGrid]:
    """Where in the data there are plain grids, in the main document and its section templates."""
    controls = NestedControls()
    return _plan(definition, lambda part: plain_grids(part, controls), lambda entry: entry.container)


def _plan(
    definition: DefinitionTree,
    entries: Callable[[FormPart], Iterable[Entry]],
    where: Callable[[Entry], tuple[str, ...]],
) -> PlanNode[Entry]:
    plan = _placed(entries(definition.main), where)
    overlays: dict[int, PlanNode[Entry]] = {}
    for use in template_uses(definition):
        if id(use.part) not in overlays:
            overlays[id(use.part)] = _placed(entries(use.part), where)
        place = plan.at(use.path)
        place.overlay = place.overlay or overlays[id(use.part)]
    return plan


def _placed(entries: Iterable[Entry], where: Callable[[Entry], tuple[str, ...]]) -> PlanNode[Entry]:
    plan: PlanNode[Entry] = PlanNode()
    for entry in entries:
        plan.at(where(entry)).tasks.setdefault(entry.name, entry)
    return plan
