"""Migration of the binds and controls of the main document (spec forms 1.7).

Section templates are left as they are: only the data below their sections is migrated.
"""

from __future__ import annotations

from persistence.forms.containers import NestedControls
from persistence.forms.migration.editing import Editor
from persistence.forms.migration.plan import PlainGrid, plain_grids, repeated_grids
from persistence.forms.names import BIND
from persistence.forms.structure import FormPart, is_content_repeat, is_legacy_repeat
from persistence.forms.trees import Element


def unbind_plain_grids(main: FormPart, editor: Editor) -> None:
    """2019.1.0 to 4.8.0: the bind of each plain grid gives way to the binds inside it."""
    doomed = []
    for grid in plain_grids(main, NestedControls()):
        bind = main.bind(grid.name)
        if bind is not None:
            doomed.append(bind)
        grid.element.attrib.pop("bind", "")
    _dissolve_all(main, doomed, editor)


def bind_plain_grids(main: FormPart, editor: Editor) -> None:
    """4.8.0 to 2019.1.0: each plain grid gets a bind around those of its controls that are in its container's.

    A bind that is already there stays as it is. Without a bind of the container there is nothing to put one into.
    """
    binds = dict(main.binds)
    for grid in plain_grids(main, NestedControls()):
        identifier = f"{grid.name}-bind"
        around = binds.get(f"{grid.container[-1]}-bind") if grid.container else main.top
        if identifier not in binds and around is not None:
            binds[identifier] = _bind_plain_grid(grid, around, binds, editor)
        if identifier in binds:
            grid.element.set("bind", identifier)


def _bind_plain_grid(grid: PlainGrid, around: Element, binds: dict[str, Element], editor: Editor) -> Element:
    bind = _make(around, grid.name, editor)
    after = binds.get(f"{grid.after}-bind")
    if after is not None and after.getparent() is around:
        after.addnext(bind)
    else:
        around.insert(0, bind)
    content = (binds.get(f"{name}-bind") for name in grid.content)
    bind.extend([each for each in content if each is not None and each.getparent() is around])
    return bind


def unbind_iterations(main: FormPart, editor: Editor) -> None:
    """4.8.0 to 4.0.0: the bind of the iterations of each repeated grid gives way to those inside it.

    The real system refuses this step; it is the mirror of ``bind_iterations`` (spec forms 1.7).
    """
    grids = list(repeated_grids(main))
    for grid in grids:
        if is_content_repeat(grid.element):
            grid.element.set("repeat", "true")
    iterations = (main.iterations.get(grid.bind) for grid in grids)
    _dissolve_all(main, [bind for bind in iterations if bind is not None], editor)


def bind_iterations(main: FormPart, editor: Editor) -> None:
    """4.0.0 to 4.8.0: in the bind of each legacy repeated grid a bind of its iterations goes around all others."""
    for grid in {grid.bind: grid for grid in repeated_grids(main)}.values():
        if is_legacy_repeat(grid.element) and not grid.is_wrapped:
            iteration = _make(grid.bind, grid.iteration, editor)
            iteration.extend(list(grid.bind))
            grid.bind.append(iteration)


def _make(around: Element, name: str, editor: Editor) -> Element:
    return editor.make(around, BIND, {"id": f"{name}-bind", "ref": name, "name": name})


def _dissolve_all(main: FormPart, binds: list[Element], editor: Editor) -> None:
    """Dissolve inner binds before outer ones, those of one parent at a time.

    A bind is met before those inside it, so the parents are met from the outside in.
    """
    if main.top is None or not binds:
        return
    doomed = set(binds)
    parents: dict[Element, list[Element]] = {}
    for bind in main.top.iter(BIND):
        if bind in doomed and (parent := bind.getparent()) is not None:
            parents.setdefault(parent, []).append(bind)
    for parent in reversed(parents):
        editor.dissolve(parent, {bind: list(bind) for bind in parents[parent]})
