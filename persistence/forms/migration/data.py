"""Migration of the inline data of a definition (spec forms 1.6).

Grids within grids: what an element is dissolved or wrapped for the inner one must be done while the path still leads
there, so all but the wrapping of plain grids is done inside out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from persistence.forms.migration.editing import Editor
from persistence.forms.migration.places import PlanNode, visits
from persistence.forms.migration.plan import PlainGrid, RepeatedGrid
from persistence.forms.trees import Element


def dissolve_plain_grids(data: Element, plan: PlanNode[PlainGrid], editor: Editor) -> None:
    """2019.1.0 to 4.8.0: the controls of each plain grid take the place of its element, in the order of its cells.

    What else the element holds comes after them.
    """
    for container, grids in reversed(list(visits(data, plan))):
        found = [(child, grids[child.tag]) for child in container.iterchildren("*") if child.tag in grids]
        editor.dissolve(container, {child: _in_order(child, grid.content) for child, grid in found})


def _in_order(elements: Iterable[Element], content: Mapping[str, int]) -> list[Element]:
    return sorted(elements, key=lambda element: content.get(element.tag, len(content)))


def wrap_plain_grids(data: Element, plan: PlanNode[PlainGrid], editor: Editor) -> None:
    """4.8.0 to 2019.1.0: the controls of each plain grid go into an element of its own.

    Where that element is already there and nothing is left to go into it, nothing is done.
    """
    owners: dict[int, dict[str, str]] = {}
    for container, grids in visits(data, plan):
        if id(grids) not in owners:
            owners[id(grids)] = {control: grid.name for grid in reversed(grids.values()) for control in grid.content}
        _wrap_controls(container, grids, owners[id(grids)], editor)


def _wrap_controls(
    container: Element, grids: Mapping[str, PlainGrid], owners: Mapping[str, str], editor: Editor
) -> None:
    contents: dict[str, list[Element]] = {}
    last: dict[str, Element] = {}
    for child in container.iterchildren("*"):
        if child.tag in owners:
            contents.setdefault(owners[child.tag], []).append(child)
        else:
            last[child.tag] = child
    for name, grid in grids.items():
        content = contents.get(name, [])
        if not content and name in last:
            continue
        wrapper = editor.make(container, name)
        if grid.after in last:
            last[grid.after].addnext(wrapper)
        else:
            container.insert(0, wrapper)
        wrapper.extend(_in_order(content, grid.content))
        last[name] = wrapper


def dissolve_repeated_grids(data: Element, plan: PlanNode[RepeatedGrid], editor: Editor) -> None:
    """4.8.0 to 4.0.0: each iteration of a repeated grid becomes an element with the grid's name, the wrapper goes.

    Of several wrappers of one name only the first is one.
    """
    for parent, grids in reversed(list(visits(data, plan))):
        wrappers: dict[str, Element] = {}
        for child in parent.iterchildren("*"):
            if child.tag in grids and not grids[child.tag].is_flat:
                wrappers.setdefault(child.tag, child)
        for name, wrapper in wrappers.items():
            for iteration in wrapper.iterchildren("*"):
                editor.rename(iteration, name)
        editor.dissolve(parent, {wrapper: wrapper for wrapper in wrappers.values()})


def wrap_repeated_grids(data: Element, plan: PlanNode[RepeatedGrid], editor: Editor) -> None:
    """4.0.0 to 4.8.0: the elements of a repeated grid become iterations in a wrapper, which is made even for none."""
    for parent, grids in reversed(list(visits(data, plan))):
        iterations: dict[str, list[Element]] = {}
        for child in parent.iterchildren("*"):
            iterations.setdefault(child.tag, []).append(child)
        for name, grid in grids.items():
            if not grid.is_wrapped:
                _wrap_iterations(parent, iterations.get(name, []), grid, editor)


def _wrap_iterations(parent: Element, iterations: list[Element], grid: RepeatedGrid, editor: Editor) -> None:
    wrapper = editor.make(parent, grid.name)
    if iterations:
        iterations[0].addprevious(wrapper)
    else:
        parent.append(wrapper)
    for iteration in iterations:
        editor.rename(iteration, grid.iteration)
        wrapper.append(iteration)
