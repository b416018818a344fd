"""The outline of a form: its sections, grids, repeats and controls as a tree of the elements of its data, with labels.

Sources: spec forms 1.2, 4.2 and 6.1; crud 8.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from persistence.forms.controls import BindSteps, Container, containers, default_iteration, template_uses
from persistence.forms.structure import (
    GRID,
    XF,
    DefinitionTree,
    FormPart,
    instance_of,
    is_legacy_repeat,
    is_repeated,
    on_definition,
    text_in,
)
from persistence.forms.trees import Bound, Element
from persistence.limits.definitions import LONGEST_TITLE, MOST_STEPS
from persistence.model.versions import DATA_FORMATS, V4_0_0

_RESOURCES_ID = "fr-form-resources"
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_RESOURCE = re.compile(r"\$form-resources/([^/\s]+)/label")
_HTML = "text/html"
_TAG = re.compile(r"<[^<>]*>")
_ORDER = {version: at for at, version in enumerate(DATA_FORMATS)}

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a control, section or grid in each language; ``is_html`` where its text is HTML."""

    texts: Mapping[str, str]
    is_html: bool

    def in_language(self, language: str | None) -> str:
        """Return the text in a language, else in the first one, as the titles of forms are chosen."""
        first = next(iter(self.texts.values()), "")
        return first if language is None else self.texts.get(language, first)

    def text(self, language: str | None) -> str:
        """Return the text in a language, without the tags of HTML."""
        found = self.in_language(language)
        return (_TAG.sub("", found) if self.is_html else found).strip()


@dataclass(slots=True)
class OutlineNode:
    """An element that data of a form may have; ``inside`` are the elements in it by name.

    ``name`` is that of the control, section, grid or repeat; it is empty where the element has none of its own.
    ``is_iteration`` says that there is any number of such elements in a row, the iterations of the repeat ``name``.
    """

    name: str = ""
    label: Label | None = None
    is_control: bool = False
    is_iteration: bool = False
    inside: dict[str, OutlineNode] = field(default_factory=dict)

    def at(self, path: _Path) -> OutlineNode:
        """Return the node at a path, which is made where there is none."""
        node = self
        for step in path:
            node = node.inside.setdefault(step, OutlineNode())
        return node


@dataclass(frozen=True, slots=True)
class Outline:
    """The outline of a form for data of one format: ``root`` is the root element, ``languages`` those of the labels."""

    root: OutlineNode
    languages: tuple[str, ...]

    def label(self, path: tuple[str, ...], language: str | None) -> str:
        """Return the label of the element at a path, as text; empty where it has none, or there is no such element."""
        node: OutlineNode | None = self.root
        for step in path:
            node = None if node is None else node.inside.get(step)
        return "" if node is None or node.label is None else node.label.text(language)


NO_OUTLINE = Outline(OutlineNode(), ())
"""The outline of a form of which nothing is known."""


def read_outline(stored: bytes, data_format: str) -> Outline:
    """Read the outline of a stored definition; it is empty without a form model.

    Raises:
        BadRequestError: the definition is too large, or has too many controls, or too deep ones (``MOST_STEPS``).
        DamagedError: it is not well-formed XML.
    """
    return on_definition(stored, lambda definition: _Reading(definition, data_format).outline()) or NO_OUTLINE


class _Reading:
    """The reading of one definition."""

    def __init__(self, definition: DefinitionTree, data_format: str) -> None:
        self._definition = definition
        self._wanted = _ORDER[data_format]
        self._root = OutlineNode()
        self._steps = Bound(MOST_STEPS, "the form has too many controls, or too deeply nested ones")

    def outline(self) -> Outline:
        """Return the outline; parts of a section template appear in every section that shows it."""
        main = _Part(self._definition.main)
        self._add(main, ())
        parts: dict[int, _Part] = {}
        for use in template_uses(self._definition):
            around = main.steps.of(use.bind)
            if around is not None:
                part = parts.setdefault(id(use.part), _Part(use.part))
                self._add(part, (*around, (use.iteration, V4_0_0)) if use.iteration else around)
        return Outline(self._root, tuple(main.resources))

    def _add(self, part: _Part, start: tuple[tuple[str, str], ...]) -> None:
        for found in part.found():
            steps = start + found.steps
            self._steps.count(len(steps))
            path = tuple(step for step, since in steps if _ORDER[since] <= self._wanted)
            has_element = _ORDER[found.steps[-1][1]] <= self._wanted
            if has_element or found.is_iteration:  # without iterations, those of a grid are its own elements (4.0.0)
                node = self._root.at(path)
                if not (node.is_control or node.is_iteration):
                    node.name, node.label = found.name, found.label
                    node.is_control, node.is_iteration = found.is_control, found.is_iteration
                elif found.is_iteration:
                    node.is_iteration = True


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    steps: tuple[tuple[str, str], ...]
    label: Label | None
    is_control: bool = False
    is_iteration: bool = False


class _Part:
    """The main document or a section template, with its resources by language."""

    def __init__(self, part: FormPart) -> None:
        self.steps = BindSteps(part)
        self.resources = _resources(part)
        self._part = part
        self._found: tuple[_Found, ...] | None = None

    def found(self) -> tuple[_Found, ...]:
        """Return the sections, grids and controls in document order, read once."""
        if self._found is None:
            body = self._part.body
            order = {} if body is None else {each: at for at, each in enumerate(body.iterdescendants("*"))}
            found = sorted((*self._containers(), *self._controls()), key=lambda each: order[each[0]])
            self._found = tuple(each for _, each in found)
        return self._found

    def _containers(self) -> Iterator[tuple[Element, _Found]]:
        for container in containers(self._part):
            name, element = container.name, container.element
            bind = self._part.bind(name) if name else None
            steps = self.steps.unbound_grid(element) if bind is None else self.steps.of(bind)
            if not name or not steps:
                continue
            label = self._label(element, name)
            iteration = None if bind is None or not is_repeated(element) else self._iteration(container, bind, steps)
            if iteration is not None:
                steps = steps[:-1] if iteration == steps else steps
                yield element, _Found(name, iteration, label, is_iteration=True)
            yield element, _Found(name, steps, label)

    def _iteration(
        self, container: Container, bind: Element, steps: tuple[tuple[str, str], ...]
    ) -> tuple[tuple[str, str], ...] | None:
        """Return the steps to the iterations of a repeat: those of a legacy one are in the steps of its bind."""
        inner = self._part.iterations.get(bind)
        if inner is not None:
            return self.steps.of(inner)
        is_implied = container.element.tag == GRID and is_legacy_repeat(container.element)
        return steps if is_implied and steps[-1][0] == default_iteration(container.name or "") else None

    def _controls(self) -> Iterator[tuple[Element, _Found]]:
        for element, control in self.steps.controls():
            yield element, _Found(control.name, control.steps, self._label(element, control.name), is_control=True)

    def _label(self, view: Element, name: str) -> Label | None:
        shown = next(view.iterchildren(f"{XF}label"), None)
        leads = None if shown is None else _RESOURCE.fullmatch(shown.get("ref", "").strip())
        resource = leads[1] if leads else name
        texts = {language: found for language, each in self.resources.items() if (found := each.get(resource))}
        if not texts and shown is not None and shown.get("ref") is None and (literal := text_in(shown)):
            texts = {"": literal[:LONGEST_TITLE]}
        return Label(texts, shown is not None and shown.get("mediatype") == _HTML) if texts else None


def _resources(part: FormPart) -> dict[str, dict[str, str]]:
    """Return the labels by language and name; of equal languages the first."""
    model = None if part.top is None else part.top.getparent()
    instance = None if model is None else instance_of(model, _RESOURCES_ID)
    found: dict[str, dict[str, str]] = {}
    for resource in () if instance is None else instance.iterfind("*/resource"):
        language = resource.get(_LANGUAGE)
        if language is not None:
            found.setdefault(language, _labels(resource))
    return found


def _labels(resource: Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in resource.iterchildren("*"):
        label = each.find("label")
        if label is not None:
            found.setdefault(each.tag, text_in(label)[:LONGEST_TITLE])
    return found
