"""The sections and grids of a form's view: how they are nested, and what is in them (spec forms 1.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from persistence.errors import BadRequestError
from persistence.forms.names import GRID, SECTION, XXF, control_name
from persistence.forms.structure import DefinitionTree, FormPart, is_legacy_repeat, is_repeated
from persistence.forms.trees import Element
from persistence.limits import MOST_NESTED_CELLS

_DIALOG = f"{XXF}dialog"


@dataclass(frozen=True, slots=True)
class Container:
    """A section or grid; ``around`` names the containers around it, each repeated one followed by its iterations."""

    element: Element
    name: str | None
    around: tuple[str, ...]
    is_in_dialog: bool


def containers(part: FormPart) -> Iterator[Container]:
    """The sections and grids under the body, in document order."""
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
            around.append(around[-1] + _steps(part, element, name))
        else:
            around.pop()


def default_iteration(name: str) -> str:
    """How the iterations of a repeat are called that does not say (spec forms 1.2)."""
    return f"{name}-iteration"


def _steps(part: FormPart, container: Element, name: str | None) -> tuple[str, ...]:
    iteration = part.iteration_name(container)
    if iteration is None and name and container.tag == GRID and is_legacy_repeat(container):
        iteration = default_iteration(name)
    return tuple(step for step in (name, iteration) if step)


class NestedControls:
    """Lists the controls of grids, and refuses grids in grids in grids whose cells would be looked at without end."""

    def __init__(self) -> None:
        self._seen = 0

    def of(self, grid: Element) -> tuple[str, ...]:
        """The names of the controls in a grid's cells, in the order of the cells; of a cell the first that has one.

        Raises:
            BadRequestError: the cells of all grids so far are too many.
        """
        found = []
        for cell in grid.iterdescendants("{*}c", "{*}td"):
            self._seen += 1
            if self._seen > MOST_NESTED_CELLS:
                raise BadRequestError(
                    f"the grids of the form, as they are nested, hold more than {MOST_NESTED_CELLS} cells"
                )
            name = next(filter(None, map(control_name, cell.iterchildren("*"))), None)
            if name:
                found.append(name)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Use:
    """A section of the main document that shows a section template, whose data begins at ``path``.

    ``bind`` is the section's, ``iteration`` what its iterations are called if it is repeated.
    """

    part: FormPart
    bind: Element
    iteration: str | None
    path: tuple[str, ...]


def template_uses(definition: DefinitionTree) -> Iterator[Use]:
    """The sections that use an inlined section template, in document order.

    A repeated section has one set of data in each iteration (spec forms 1.11). Sections inside templates are not
    looked into, so there are no cycles.
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
            yield Use(part, bind, iteration, path + ((iteration,) if iteration else ()))
