"""The definition of a form version for people: its sections, grids and controls, and which are indexed or encrypted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from persistence.errors import BadRequestError, DamagedError
from persistence.forms.controls import Control
from persistence.forms.outline import NO_OUTLINE, OutlineNode
from persistence.limits import VALUES_SHOWN
from persistence.providers.provider import Route


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """A section, grid, repeat or control at a ``depth``; ``kind`` is a word such as ``input`` or ``repeat``.

    ``path`` is that of a control in searches, and of its element in the data otherwise.
    """

    depth: int
    kind: str
    label: str
    name: str
    path: str
    is_control: bool = False
    is_indexed: bool = False
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class ShownDefinition:
    """The outline of a version: its lines, the languages of its labels, and why lines are missing, if any are."""

    lines: tuple[OutlineLine, ...] = ()
    languages: tuple[str, ...] = ()
    cause: str = ""


def shown_definition(route: Route, version: int, language: str | None) -> ShownDefinition:
    """Return the outline of a version with labels in a language, else in the first one of the form."""
    definition, data_format = route.catalog.of(route.form, version), route.properties.data_format
    try:
        outline = definition.outline(data_format) or NO_OUTLINE
        controls = {each.path(data_format): each for each in definition.controls or ()}
    except (BadRequestError, DamagedError) as error:
        return ShownDefinition(cause=f"The definition cannot be read: {error}")
    lines = list[OutlineLine]()
    for line in _outline_lines(outline.root, controls, language, (), 0):
        if len(lines) == VALUES_SHOWN:
            return ShownDefinition(tuple(lines), outline.languages, f"Only the first {VALUES_SHOWN} lines are shown.")
        lines.append(line)
    return ShownDefinition(tuple(lines), outline.languages)


def _outline_lines(
    node: OutlineNode, controls: dict[tuple[str, ...], Control], language: str | None, path: tuple[str, ...], depth: int
) -> Iterator[OutlineLine]:
    for element, inner in node.inside.items():
        here, deeper = (*path, element), depth
        control = controls.get(here)
        label = "" if inner.label is None else inner.label.text(language)
        if control is not None:
            marks = {"is_indexed": control.is_indexed, "is_encrypted": control.is_encrypted}
            yield OutlineLine(depth, control.kind, label, control.name, "/".join(here), is_control=True, **marks)
        elif inner.name and not (inner.is_iteration and inner.name == node.name):
            repeats = any(each.is_iteration and each.name == inner.name for each in inner.inside.values())
            kind = "repeat" if inner.is_iteration or repeats else ("section" if label else "grid")
            yield OutlineLine(depth, kind, label, inner.name, "/".join(here))
            deeper = depth + 1
        yield from _outline_lines(inner, controls, language, here, deeper)
