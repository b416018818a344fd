"""The steps of a migration: grids and iterations in the data, the binds and the controls (spec forms 1.6, 1.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from persistence.forms.migration.plan import (
    PlainGrid,
    cell_bound,
    plain_grids,
    plan_grids,
    plan_repeats,
    repeated_grids,
    visits,
)
from persistence.forms.structure import BIND, DefinitionTree, FormPart, is_content_repeat, is_legacy_repeat
from persistence.forms.trees import Bound, Element
from persistence.limits import MOST_MIGRATED

_ELEMENT = 100
"""Characters that an element counts beside its name and content: its tags, and its weight in memory."""

_MOVE = 16
"""Characters that a move of a node counts: grids inside grids move their content once for each level."""


class Editor:
    """An editor of elements with a bound; its methods raise ``BadRequestError`` when it is passed."""

    def __init__(self) -> None:
        refusal = "the form definition cannot be migrated: its grids and repeats multiply too much"
        self._count = Bound(MOST_MIGRATED, refusal).count

    def make(
        self, parent: Element, name: str, attributes: Mapping[str, str] | None = None, *, is_undeclared: bool = False
    ) -> Element:
        """Make an element for ``parent``, not inserted yet; with ``is_undeclared`` it has no default namespace."""
        made = dict(attributes or {})
        self._count(_ELEMENT + len(name) + sum(len(key) + len(value) for key, value in made.items()))
        namespaces = {None: ""} if is_undeclared else None
        return parent.makeelement(name, made, namespaces)  # type: ignore[arg-type] # the stubs know no default namespace

    def fill(self, element: Element, attributes: Mapping[str, str], text: str | None) -> None:
        self._count(sum(len(key) + len(value) for key, value in attributes.items()) + len(text or ""))
        for key, value in attributes.items():
            element.set(key, value)
        element.text = text

    def rename(self, element: Element, name: str) -> None:
        self._count(len(name))
        element.tag = name

    def dissolve(self, parent: Element, parts: Mapping[Element, Iterable[Element]]) -> None:
        """Replace some children of ``parent`` by nodes from inside each; text behind a child stays.

        All children at a time, because text that is joined one piece after the other takes quadratic time.
        """
        before: Element | None = None
        texts: list[str] = []
        for child in list(parent):
            if child not in parts:
                _add_text(parent, before, texts)
                before, texts = child, []
                continue
            nodes = list(parts[child])
            self._count(_MOVE * len(nodes))
            for node in nodes:
                _add_text(parent, before, texts)
                before, texts = node, []
                node.tail = None
                child.addprevious(node)
            texts.append(child.tail or "")
            parent.remove(child)
        _add_text(parent, before, texts)


def _add_text(parent: Element, before: Element | None, texts: list[str]) -> None:
    text = "".join(texts)
    if not text:
        return
    if before is None:
        parent.text = (parent.text or "") + text
    else:
        before.tail = (before.tail or "") + text


# All steps but the wrapping of plain grids work inside out: an inner grid is changed while its path still leads to it.
# Of section templates, only the data below their sections is migrated.


def dissolve_plain_grids(data: Element, definition: DefinitionTree, editor: Editor) -> None:
    """Replace the element of each plain grid by its controls, then its other content (2019.1.0 to 4.8.0)."""
    for container, grids in reversed(list(visits(data, plan_grids(definition)))):
        found = [(child, grids[child.tag]) for child in container.iterchildren("*") if child.tag in grids]
        editor.dissolve(container, {child: _in_order(child, grid.content) for child, grid in found})


def _in_order(elements: Iterable[Element], content: Mapping[str, int]) -> list[Element]:
    return sorted(elements, key=lambda element: content.get(element.tag, len(content)))


def wrap_plain_grids(data: Element, definition: DefinitionTree, editor: Editor) -> None:
    """Put the controls of each plain grid into an element of its own, unless that exists (4.8.0 to 2019.1.0)."""
    owners: dict[int, dict[str, str]] = {}
    for container, grids in visits(data, plan_grids(definition)):
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


def dissolve_repeated_grids(data: Element, definition: DefinitionTree, editor: Editor) -> None:
    """Replace the wrapper of each repeated grid by its iterations, under the grid's name (4.8.0 to 4.0.0).

    Of several wrappers of one name only the first counts.
    """
    for parent, grids in reversed(list(visits(data, plan_repeats(definition)))):
        wrappers: dict[str, Element] = {}
        for child in parent.iterchildren("*"):
            if child.tag in grids and not grids[child.tag].is_flat:
                wrappers.setdefault(child.tag, child)
        for name, wrapper in wrappers.items():
            for iteration in wrapper.iterchildren("*"):
                editor.rename(iteration, name)
        editor.dissolve(parent, {wrapper: wrapper for wrapper in wrappers.values()})


def wrap_repeated_grids(data: Element, definition: DefinitionTree, editor: Editor) -> None:
    """Put the elements of each repeated grid as iterations into a wrapper, even if there are none (4.0.0 to 4.8.0)."""
    for parent, grids in reversed(list(visits(data, plan_repeats(definition)))):
        iterations: dict[str, list[Element]] = {}
        for child in parent.iterchildren("*"):
            iterations.setdefault(child.tag, []).append(child)
        for name, grid in grids.items():
            if grid.is_wrapped:
                continue
            wrapper, own = editor.make(parent, grid.name), iterations.get(name, [])
            if own:
                own[0].addprevious(wrapper)
            else:
                parent.append(wrapper)
            for iteration in own:
                editor.rename(iteration, grid.iteration)
                wrapper.append(iteration)


def unbind_plain_grids(main: FormPart, editor: Editor) -> None:
    """Replace the bind of each plain grid by the binds inside it (2019.1.0 to 4.8.0)."""
    dissolved = []
    for grid in plain_grids(main, cell_bound()):
        bind = main.bind(grid.name)
        if bind is not None:
            dissolved.append(bind)
        grid.element.attrib.pop("bind", "")
    _dissolve_all(main, dissolved, editor)


def bind_plain_grids(main: FormPart, editor: Editor) -> None:
    """Put a bind of each plain grid around the binds of its controls in its container's bind (4.8.0 to 2019.1.0)."""
    binds = dict(main.binds)
    for grid in plain_grids(main, cell_bound()):
        identifier = f"{grid.name}-bind"
        around = binds.get(f"{grid.container[-1]}-bind") if grid.container else main.top
        if identifier not in binds and around is not None:
            bind = _make(around, grid.name, editor)
            after = binds.get(f"{grid.after}-bind")
            if after is not None and after.getparent() is around:
                after.addnext(bind)
            else:
                around.insert(0, bind)
            content = (binds.get(f"{name}-bind") for name in grid.content)
            bind.extend([each for each in content if each is not None and each.getparent() is around])
            binds[identifier] = bind
        if identifier in binds:
            grid.element.set("bind", identifier)


def unbind_iterations(main: FormPart, editor: Editor) -> None:
    """Replace the bind of the iterations of each repeated grid by those inside it (4.8.0 to 4.0.0; spec forms 1.7)."""
    grids = list(repeated_grids(main))
    for grid in grids:
        if is_content_repeat(grid.element):
            grid.element.set("repeat", "true")
    iterations = (main.iterations.get(grid.bind) for grid in grids)
    _dissolve_all(main, [bind for bind in iterations if bind is not None], editor)


def bind_iterations(main: FormPart, editor: Editor) -> None:
    """Put a bind of the iterations of each legacy repeated grid around all others in its bind (4.0.0 to 4.8.0)."""
    for grid in {grid.bind: grid for grid in repeated_grids(main)}.values():
        if is_legacy_repeat(grid.element) and not grid.is_wrapped:
            iteration = _make(grid.bind, grid.iteration, editor)
            iteration.extend(list(grid.bind))
            grid.bind.append(iteration)


def _make(around: Element, name: str, editor: Editor) -> Element:
    return editor.make(around, BIND, {"id": f"{name}-bind", "ref": name, "name": name})


def _dissolve_all(main: FormPart, binds: list[Element], editor: Editor) -> None:
    """Dissolve inner binds before outer ones, the binds of one parent at a time."""
    if main.top is None or not binds:
        return
    dissolved = set(binds)
    parents: dict[Element, list[Element]] = {}
    for bind in main.top.iter(BIND):
        if bind in dissolved and (parent := bind.getparent()) is not None:
            parents.setdefault(parent, []).append(bind)
    for parent in reversed(parents):
        editor.dissolve(parent, {bind: list(bind) for bind in parents[parent]})
