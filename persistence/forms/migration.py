"""The migration of a definition between data formats: its plan, its steps, and the whole (spec forms 1.3 to 1.11)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Generic, TypeVar

from persistence.forms.controls import template_uses
from persistence.forms.definition_tree import (
    BIND,
    FB,
    FR,
    GRID,
    INSTANCE,
    BodyElement,
    Bound,
    DefinitionTree,
    Element,
    FormPart,
    Names,
    Tree,
    control_name,
    default_iteration,
    is_content_repeat,
    is_element_name,
    is_legacy_repeat,
    is_plain_grid,
    is_repeated,
    on_tree,
    reference,
    serialized,
    text_in,
)
from persistence.limits import MOST_MIGRATED, MOST_NESTED_CELLS
from persistence.model.versions import DATA_FORMATS, V4_0_0, V4_8_0, V2019_1_0

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class PlanNode(Generic[T]):
    """The tasks at the elements of one path, by name, and the nodes below it; a template's plan is an ``overlay``."""

    # With this tree a single walk over the data finds every place; to look up each path would cost paths times data.
    tasks: dict[str, T] = field(default_factory=dict)
    below: dict[str, PlanNode[T]] = field(default_factory=dict)
    overlay: PlanNode[T] | None = None

    def at(self, path: Names) -> PlanNode[T]:
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
    """An entry of list R: elements called ``name`` in ``container``; their iterations are called ``iteration``."""

    element: Element
    bind: Element
    container: Names
    name: str
    iteration: str
    is_wrapped: bool  # a legacy one with a bind of iterations of the name that the migration gives
    is_flat: bool  # a legacy one without a bind of iterations


@dataclass(frozen=True, slots=True)
class PlainGrid:
    """An entry of list G: an element ``name`` in ``container``, after ``after`` or first, for controls by position."""

    view: BodyElement
    container: Names
    name: str
    after: str | None
    content: Mapping[str, int]


def repeated_grids(part: FormPart) -> Iterator[RepeatedGrid]:
    """Yield list R of one part: the repeated grids that have a bind, in document order."""
    for each in part.elements:
        grid, name = each.element, each.name
        if grid.tag != GRID or each.is_in_dialog or name is None or not is_repeated(grid):
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
    for each in (each for each in part.elements if each.is_container):
        grid, parent = each.element, each.element.getparent()
        after, before[parent] = before.get(parent), each.name
        if is_plain_grid(grid) and not each.is_in_dialog and is_element_name(each.name):
            content: dict[str, int] = {}
            for cell in grid.iterdescendants("{*}c", "{*}td"):
                cells.count()
                name = next(filter(None, map(control_name, cell.iterchildren("*"))), None)
                if name:
                    content.setdefault(name, len(content))
            yield PlainGrid(each, each.around, each.name or "", after, content)


_Grid = TypeVar("_Grid", RepeatedGrid, PlainGrid)


def plan_grids(definition: DefinitionTree) -> PlanNode[PlainGrid]:
    return _plan(definition, partial(plain_grids, cells=cell_bound()))


def _plan(definition: DefinitionTree, entries: Callable[[FormPart], Iterable[_Grid]]) -> PlanNode[_Grid]:
    @cache
    def placed(part: FormPart) -> PlanNode[_Grid]:
        plan: PlanNode[_Grid] = PlanNode()
        for entry in entries(part):
            plan.at(entry.container).tasks.setdefault(entry.name, entry)
        return plan

    plan = placed(definition.main)
    for use in template_uses(definition):
        place = plan.at(use.path)
        place.overlay = place.overlay or placed(use.part)
    return plan


_ELEMENT = 100  # Characters that an element counts beside its name and content: its tags, and its weight in memory

_MOVE = 16  # Characters that a move of a node counts: grids inside grids move their content once for each level


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
        """Replace some children of ``parent`` by nodes from inside each; text behind a child stays."""
        # All children at a time, because text that is joined one piece after the other takes quadratic time.
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
        owner_of = owners[id(grids)]
        contents: dict[str, list[Element]] = {}
        last: dict[str, Element] = {}
        for child in container.iterchildren("*"):
            if child.tag in owner_of:
                contents.setdefault(owner_of[child.tag], []).append(child)
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
    """Replace the first wrapper of each repeated grid by its iterations, under the grid's name (4.8.0 to 4.0.0)."""
    for parent, grids in reversed(list(visits(data, _plan(definition, repeated_grids)))):
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
    for parent, grids in reversed(list(visits(data, _plan(definition, repeated_grids)))):
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
        grid.view.element.attrib.pop("bind", "")
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
            grid.view.element.set("bind", identifier)


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


_RELEASES = frozenset({"created-with-version", "updated-with-version"})
_MIGRATED = frozenset(DATA_FORMATS) - {V4_0_0}
_SINCE = {tuple(map(int, version.split(".")[:2])): version for version in DATA_FORMATS}
_RELEASE = re.compile(r"([0-9]{1,9})[. -]([0-9]{1,9})(?:[. -].*)?", re.ASCII | re.DOTALL)
_FORMAT = f"{FR}data-format-version"

_Change = tuple[Callable[[Element, DefinitionTree, Editor], None], Callable[[FormPart, Editor], None]]
"""A change of the data, and the change of the binds that goes with it."""
_MADE: Mapping[str, _Change] = {
    V4_8_0: (wrap_repeated_grids, bind_iterations),
    V2019_1_0: (wrap_plain_grids, bind_plain_grids),
}
_UNDONE: Mapping[str, _Change] = {
    V4_8_0: (dissolve_repeated_grids, unbind_iterations),
    V2019_1_0: (dissolve_plain_grids, unbind_plain_grids),
}
"""The difference of each format from the one before."""

_INITIALLY = f"{FB}initial-iterations"
_CHECKBOX = f"{FR}checkbox-input"
_FILE = ("filename", "mediatype", "size")
_SHAPES: Mapping[str, tuple[str, ...]] = {
    f"{FR}attachment": (*_FILE, "hash-algorithm", "hash-value"),
    f"{FR}image-attachment": _FILE,
    f"{FR}video-attachment": _FILE,
    f"{FR}image": _FILE[:2],
    f"{FR}video": _FILE[:2],
}
"""Attributes of the empty holders of attachments and images."""


def migrate(stored: bytes, target: str, *, is_unpublished: bool) -> bytes:
    """Migrate the data, templates, binds and grids of a stored definition to ``target``, one of ``DATA_FORMATS``."""
    # Its own format is inferred from its metadata. A document without form model or form instance stays as it is. The
    # data of an unpublished definition, from the designer, names no format.

    def work(tree: Tree) -> bytes:
        definition = DefinitionTree.read(tree)
        if definition is None:
            return stored
        at, to = (DATA_FORMATS.index(each) for each in (source_format(definition), target))
        changes = [_MADE[step] for step in DATA_FORMATS[at + 1 : to + 1]]
        changes += [_UNDONE[step] for step in DATA_FORMATS[at:to:-1]]  # one of the two lists is empty
        editor = Editor()
        if definition.data is not None:
            for change, _ in changes:
                change(definition.data, definition, editor)
            if is_unpublished:
                definition.data.attrib.pop(_FORMAT, "")
            else:
                definition.data.set(_FORMAT, target)
        for _, change_binds in changes:
            change_binds(definition.main, editor)
            definition = definition.reread()
        _rebuild_templates(definition, target, editor)
        return serialized(tree)

    return on_tree(stored, work, is_stored=True)


def source_format(definition: DefinitionTree) -> str:
    """Return the data format of the newest release named; 4.8.0 without one, or for one before 4.0."""
    named = () if definition.metadata is None else _named(definition.metadata)
    releases = filter(None, map(_RELEASE.fullmatch, named))
    newest = max(((int(each[1]), int(each[2])) for each in releases), default=None)
    known = [since for since in _SINCE if newest is not None and since <= newest]
    return _SINCE[max(known)] if known else V4_8_0


def _named(metadata: Element) -> Iterator[str]:
    for child in metadata.iterchildren("*"):
        if child.tag in _RELEASES:
            yield text_in(child)
        elif child.tag == "migration" and child.get("version") in _MIGRATED and text_in(child):
            yield child.get("version", "")


def _rebuild_templates(definition: DefinitionTree, target: str, editor: Editor) -> None:
    """Rebuild the content of each template of a repeat in the new format, if there is a repeat of its name."""
    main, model = definition.main, definition.model
    builder = _Builder(main, _counts(definition, target), editor, has_default=bool(model.nsmap.get(None)))
    for instance in model.iterchildren(INSTANCE):
        name, _, suffix = instance.get("id", "").rpartition("-")
        bind = _template_bind(main, name, target) if suffix == "template" else None
        if bind is not None:
            builder.fill(instance, bind)


def _template_bind(main: FormPart, name: str, target: str) -> Element | None:
    repeat = main.control(name)
    if repeat is None or not is_repeated(repeat):
        return None
    if target == V4_0_0 and repeat.tag == GRID and is_legacy_repeat(repeat):
        return main.bind(name)
    return main.bind(main.iteration_name(repeat) or "")


@dataclass(frozen=True, slots=True)
class _Builder:
    main: FormPart
    counts: Mapping[Element, int]
    editor: Editor
    has_default: bool  # True if elements without a prefix would have a namespace; elements of data have none

    def fill(self, instance: Element, bind: Element) -> None:
        name = bind.get("name")
        if not is_element_name(name):
            return
        previous: dict[str, Element] = {}
        for element in instance.iterdescendants("*"):
            previous.setdefault(element.tag, element)
        root = self.editor.make(instance, name or "", is_undeclared=self.has_default)
        ahead = [(bind.iterchildren(BIND), root)]
        while ahead:
            inside, parent = ahead[-1]
            inner = next(inside, None)
            if inner is None:
                ahead.pop()
            else:
                ahead += [(inner.iterchildren(BIND), made) for made in self._made(inner, parent, previous)]
        for child in list(instance.iterchildren("*")):
            instance.remove(child)
        instance.insert(0, root)

    def _made(self, bind: Element, parent: Element, previous: Mapping[str, Element]) -> list[Element]:
        about, name = reference(bind), bind.get("name")
        if about.startswith("@") and is_element_name(about[1:]):
            self.editor.fill(parent, {about[1:]: ""}, parent.text)
        if about.startswith("@") or about == "." or not is_element_name(name):
            return []
        made = [self.editor.make(parent, name or "") for _ in range(self.counts.get(bind, 1))]
        parent.extend(made)
        if next(bind.iterchildren(BIND), None) is None:
            for element in made:
                self.editor.fill(element, *self._content(element.tag, previous.get(element.tag)))
        return made

    def _content(self, name: str, previous: Element | None) -> tuple[Mapping[str, str], str | None]:
        if previous is not None:
            had = {str(key): str(value) for key, value in previous.items()}
            return had, previous.text if next(previous.iterchildren("*"), None) is None else None
        control = self.main.control(name)
        if control is None or control.get("multiple") == "true":
            return {}, None
        return dict.fromkeys(_SHAPES.get(control.tag, ()), ""), "false" if control.tag == _CHECKBOX else None


def _counts(definition: DefinitionTree, target: str) -> dict[Element, int]:
    """Return how often binds occur: as often as the first place of each has children, of one name if it is given."""
    found: dict[Element, int] = {}
    if definition.data is None:
        return found
    main = definition.main
    plan: PlanNode[tuple[Element, str | None]] = PlanNode()
    for container in (each for each in main.elements if each.is_container):
        repeat, name = container.element, container.name or ""
        bind = main.bind(name)
        path = None if bind is None else main.path(bind)
        inner = _template_bind(main, name, target)
        if repeat.get(_INITIALLY) != "first" or bind is None or inner is None or not path:
            continue
        if inner is bind:
            plan.at(path[:-1]).tasks[name] = bind, path[-1]
        else:
            plan.at(path).tasks[name] = inner, None
    seen: set[int] = set()
    for place, counted in visits(definition.data, plan):
        if id(counted) not in seen:
            seen.add(id(counted))
            tags = Counter(child.tag for child in place.iterchildren("*"))
            found |= {bind: tags[only] if only else tags.total() for bind, only in counted.values()}
    return found
