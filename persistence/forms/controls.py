"""The sections, grids and controls of a form, and where data of each format has their values.

Sources: spec forms 1.4, 4.1 and 4.2; spec search 2.2 and 2.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lxml import etree

from persistence.forms.structure import (
    BIND,
    FR,
    GRID,
    REPEAT,
    SECTION,
    XXF,
    DefinitionTree,
    FormPart,
    classes,
    control_name,
    is_element_name,
    is_legacy_repeat,
    is_plain_grid,
    is_repeated,
    on_definition,
    step_of,
)
from persistence.forms.trees import Bound, Element
from persistence.limits.definitions import MOST_STEPS
from persistence.model.versions import DATA_FORMATS, V4_0_0, V4_8_0, V2019_1_0

_DIALOG = f"{XXF}dialog"
_CONTAINERS = frozenset({SECTION, GRID, REPEAT, BIND})
INDEXED = frozenset({"fr-index", "fr-summary", "fr-search"})
_ENCRYPTED = "fr-encrypt"
_OF_FILES = frozenset(
    {
        "upload",
        "attachment",
        "image-attachment",
        "video-attachment",
        "image-annotation",
        "handwritten-signature",
        "wpaint",
    }
)
"""Controls whose text is the path of an attachment (spec forms 6.7)."""
_ORDER = {version: at for at, version in enumerate(DATA_FORMATS)}


@dataclass(frozen=True, slots=True)
class Container:
    """A section or grid; ``around`` names the containers around it, each repeated one followed by its iterations."""

    element: Element
    name: str | None
    around: tuple[str, ...]
    is_in_dialog: bool


def containers(part: FormPart) -> Iterator[Container]:
    """Yield the sections and grids under the body, in document order."""
    if part.body is None:
        return
    around: list[tuple[str, ...]] = [()]
    dialogs = 0
    for event, element in etree.iterwalk(part.body, events=("start", "end"), tag=(SECTION, GRID, _DIALOG)):
        if element.tag == _DIALOG:
            dialogs += 1 if event == "start" else -1
        elif event == "start":
            name = control_name(element)
            part.walk.count(len(around[-1]) + 1)
            yield Container(element, name, around[-1], is_in_dialog=dialogs > 0)
            around.append(around[-1] + _names_of(part, element, name))
        else:
            around.pop()


def default_iteration(name: str) -> str:
    """Return the name of the iterations of a repeat that gives none (spec forms 1.2)."""
    return f"{name}-iteration"


def _names_of(part: FormPart, container: Element, name: str | None) -> tuple[str, ...]:
    iteration = part.iteration_name(container)
    if iteration is None and name and container.tag == GRID and is_legacy_repeat(container):
        iteration = default_iteration(name)
    return tuple(step for step in (name, iteration) if step)


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """A section of the main document that shows a section template, whose data begins at ``path``.

    ``bind`` is the section's, ``iteration`` the name of its iterations if it is repeated.
    """

    part: FormPart
    bind: Element
    iteration: str | None
    path: tuple[str, ...]


def template_uses(definition: DefinitionTree) -> Iterator[TemplateUse]:
    """Yield the sections that use an inlined section template, in document order.

    A repeated section has one set of data in each iteration (spec forms 1.11). Sections inside templates are
    not followed, so there are no cycles.
    """
    main = definition.main
    for container in containers(main):
        section = container.element
        part = definition.template(section) if section.tag == SECTION else None
        bind = main.bind(container.name) if container.name else None
        if part is None or bind is None:
            continue
        path = main.path(bind)
        iteration = main.iteration_name(section)
        if path is not None and (iteration or not is_repeated(section)):
            yield TemplateUse(part, bind, iteration, path + ((iteration,) if iteration else ()))


_Step = tuple[str, str]
"""An element name on a path, and the first data format that has this element."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control: ``kind`` is the local name of its element, ``steps`` lead from the data root to its value."""

    name: str
    kind: str
    steps: tuple[_Step, ...]
    is_indexed: bool
    is_encrypted: bool

    @classmethod
    def of(cls, element: Element, name: str, steps: tuple[_Step, ...]) -> Control:
        """Read an element."""
        names = classes(element)
        has_index = next(element.iterchildren("{*}index"), None) is not None
        has_encrypt = next(element.iterchildren(f"{FR}encrypt"), None) is not None
        return cls(
            name,
            etree.QName(element).localname,
            steps,
            is_indexed=has_index or not names.isdisjoint(INDEXED),
            is_encrypted=has_encrypt or _ENCRYPTED in names,
        )

    def path(self, data_format: str) -> tuple[str, ...]:
        """Return the element names from the data root in data of a format."""
        wanted = _ORDER[data_format]
        return tuple(step for step, since in self.steps if _ORDER[since] <= wanted)

    @property
    def takes_files(self) -> bool:
        """Return whether its text is the path of an attachment."""
        return self.kind in _OF_FILES


def read_controls(stored: bytes) -> tuple[Control, ...]:
    """Read the controls with a bind to an element: the form's own in document order, then the controls of templates.

    Paths do not depend on the format of the definition: steps without an element or bind are added. A control that
    appears twice under the same name and path is one, indexed or encrypted if one of them is. There are none without a
    form model.

    Raises:
        BadRequestError: the definition is too large, or has too many controls, or too deep ones (``MOST_STEPS``).
        DamagedError: it is not well-formed XML.
    """
    return on_definition(stored, _controls) or ()


def _controls(definition: DefinitionTree) -> tuple[Control, ...]:
    found: dict[tuple[str, tuple[str, ...]], Control] = {}
    steps = Bound(MOST_STEPS, "the form has too many controls, or too deeply nested ones")
    for control in _all(definition):
        steps.count(len(control.steps))
        key = control.name, control.path(V2019_1_0)
        same = found.get(key, control)
        found[key] = replace(
            same,
            is_indexed=same.is_indexed or control.is_indexed,
            is_encrypted=same.is_encrypted or control.is_encrypted,
        )
    return tuple(found.values())


def _all(definition: DefinitionTree) -> Iterator[Control]:
    """Yield all controls; those of a section template are read once, even if many sections show it."""
    own = BindSteps(definition.main)
    yield from (control for _, control in own.controls())
    listed: dict[int, list[Control]] = {}
    for use in template_uses(definition):
        around = own.of(use.bind)
        if around is None:
            continue
        if id(use.part) not in listed:
            listed[id(use.part)] = [control for _, control in BindSteps(use.part).controls()]
        start = (*around, (use.iteration, V4_0_0)) if use.iteration else around
        for control in listed[id(use.part)]:
            yield replace(control, steps=start + control.steps)


class BindSteps:
    """The steps of the binds of one part, with plain grids and iterations of repeated grids among them."""

    def __init__(self, part: FormPart) -> None:
        self.part = part
        self.since: dict[Element, str] = {}
        self.implied: dict[Element, str] = {}
        self.unbound: dict[Element, tuple[str, Element]] = {}
        self.known: dict[Element | None, tuple[_Step, ...] | None] = {}
        for container in containers(part):
            grid, name = container.element, container.name
            if grid.tag == GRID and name and is_element_name(name) and not container.is_in_dialog:
                self._add(grid, name, container.around)

    def _add(self, grid: Element, name: str, around: tuple[str, ...]) -> None:
        bind = self.part.bind(name)
        if is_plain_grid(grid):
            outer = self.part.bind(around[-1]) if around else self.part.top
            if bind is not None:
                self.since[bind] = V2019_1_0
            elif outer is not None:
                self.unbound[grid] = name, outer
        elif bind is not None:
            iteration = self.part.iterations.get(bind)
            if iteration is not None:
                self.since[iteration] = V4_8_0
            elif is_legacy_repeat(grid):
                self.implied[bind] = default_iteration(name)

    def of(self, bind: Element) -> tuple[_Step, ...] | None:
        """Return the steps to the element of a bind; ``None`` where it leads to none."""
        for each in () if bind in self.known else self.part.lineage(bind):
            if each not in self.known:
                self.known[each] = self._continued(self.known.get(each.getparent(), ()), each)
        return self.known[bind]

    def _continued(self, around: tuple[_Step, ...] | None, bind: Element) -> tuple[_Step, ...] | None:
        step = step_of(bind)
        if around is None or step is None:
            return None
        own = ((step, self.since.get(bind, V4_0_0)),) if step else ()
        return around + own + (((self.implied[bind], V4_8_0),) if bind in self.implied else ())

    def controls(self) -> Iterator[tuple[Element, Control]]:
        """Yield the controls with a bind to an element in document order, each after its element of the view."""
        for element in () if self.part.body is None else self.part.body.iterdescendants("*"):
            name = None if element.tag in _CONTAINERS else control_name(element)
            bind = self.part.bind_named_by(element) if name else None
            steps = None if bind is None else self.of(bind)
            if name and bind is not None and steps:
                yield element, Control.of(element, name, self._in_grid(element, bind, steps))

    def unbound_grid(self, grid: Element) -> tuple[_Step, ...] | None:
        """Return the steps to the element of a plain grid without a bind; ``None`` where this is not one."""
        if grid not in self.unbound:
            return None
        name, outer = self.unbound[grid]
        around = () if outer is self.part.top else self.of(outer)
        return None if around is None else (*around, (name, V2019_1_0))

    def _in_grid(self, control: Element, bind: Element, steps: tuple[_Step, ...]) -> tuple[_Step, ...]:
        """Add the step of the control's grid, where the grid is a plain one without a bind."""
        around = next(control.iterancestors(GRID), None)
        if around is None or around not in self.unbound:
            return steps
        name, outer = self.unbound[around]
        return (*steps[:-1], (name, V2019_1_0), steps[-1]) if bind.getparent() is outer else steps
